# shellcheck shell=bash
# A desktop without a screen, for the real program of the menu (Linux). Needs talk.sh and provision.sh.

provide_desktop() {
    on_macos && fail "this needs D-Bus and Xvfb, which a Mac does not have"
    provide_menu_libraries
    local missing=()
    have xvfb-run || missing+=(xvfb xauth)
    have dbus-run-session || missing+=(dbus dbus-x11)
    have xwininfo || missing+=(x11-utils)
    have xdotool || missing+=(xdotool)
    have WebKitWebDriver || missing+=(webkit2gtk-driver)
    /usr/bin/python3 -c 'import dbus, gi' 2>/dev/null || missing+=(python3-dbus python3-gi)
    [ ${#missing[@]} -eq 0 ] && return
    if ! { on_debian && apt_install "${missing[@]}"; }; then
        fail "missing here: ${missing[*]} (named as on Debian); install them with this system's package manager"
    fi
}

# Runs a command on a screen, with a session and a home of its own: nothing of this desktop is asked or changed.
on_a_desktop() (
    home=$(mktemp -d /tmp/shd-XXXXXX)
    trap 'rm -rf "$home"' EXIT
    mkdir -m 700 "$home/run"
    env -u STABLEHAND_WORLD -u DBUS_SESSION_BUS_ADDRESS -u WAYLAND_DISPLAY HOME="$home" XDG_RUNTIME_DIR="$home/run" \
        XDG_CONFIG_HOME="$home/.config" XDG_STATE_HOME="$home/.local/state" XDG_CACHE_HOME="$home/.cache" \
        GDK_BACKEND=x11 LC_ALL=C.UTF-8 NO_AT_BRIDGE=1 PYTHONDONTWRITEBYTECODE=1 \
        dbus-run-session -- xvfb-run --auto-servernum --server-args='-screen 0 1280x900x24' "$@"
)
