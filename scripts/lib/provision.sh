# shellcheck shell=bash
# Brings what the other scripts need onto the machine, and does nothing where it is there already. Nothing asks the
# network before something is really missing. Needs talk.sh and $ROOT, the folder of the project.

on_macos() { [ "$(uname -s)" = Darwin ]; }

# Debian, Ubuntu and what descends from them.
on_debian() { have apt-get && have dpkg; }

PINNED_RUST=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$ROOT/rust-toolchain.toml")

# A C compiler and pkg-config for the crates with C code, Python for the checks.
provide_build_tools() {
    if on_macos; then
        # Apple's stand-ins for cc and python3 exist without the tools, and open a dialog when they are called.
        xcode-select -p >/dev/null 2>&1 ||
            fail "Apple's command line tools are missing: run 'xcode-select --install', then start this again"
        return
    fi
    local missing=()
    have cc || missing+=(build-essential)
    have pkg-config || missing+=(pkg-config)
    have python3 || missing+=(python3)
    [ ${#missing[@]} -eq 0 ] && return
    if on_debian; then
        apt_install "${missing[@]}"
    else
        fail "missing here: ${missing[*]} (named as on Debian); install them with this system's package manager"
    fi
}

# The pinned Rust with clippy and rustfmt: from rustup, which is installed if need be; where its servers cannot be
# reached, from Debian's packages if they are new enough.
provide_rust() {
    if ! have cargo && [ -x "$HOME/.cargo/bin/cargo" ]; then
        export PATH="$HOME/.cargo/bin:$PATH"
    fi
    # In a clone rustup takes the pinned toolchain by itself; a caller's override would undo that.
    unset RUSTUP_TOOLCHAIN
    if ! have rustup && have cargo && rust_is_new_enough cargo; then
        say "no rustup here: using $(cargo --version), the project is pinned to $PINNED_RUST"
        return
    fi
    have rustup || install_rustup || warn "rustup could not be installed"
    if have rustup && provide_pinned_toolchain; then
        return
    fi
    provide_rust_from_debian || fail "Rust $PINNED_RUST is missing and could not be installed; see https://rustup.rs"
}

# Whether a cargo (its command or path) is at least as new as the pinned one.
rust_is_new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | awk '{ print $2 }')
    [ -n "$version" ] || return 1
    [ "$(printf '%s\n' "$PINNED_RUST" "${version%%[-+]*}" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" = "$PINNED_RUST" ]
}

install_rustup() {
    ! on_debian || apt_lists_refreshed
    if on_debian && [ "$(apt_version rustup)" != "" ]; then
        apt_install rustup
        return
    fi
    if on_debian && ! have curl; then
        apt_install curl ca-certificates
    fi
    say "installing rustup with its own installer into ~/.cargo and ~/.rustup"
    local installer
    installer=$(mktemp)
    if curl --proto '=https' --tlsv1.2 --silent --show-error --fail --location --max-time 120 \
        --output "$installer" https://sh.rustup.rs &&
        sh "$installer" -y --profile minimal --default-toolchain none --no-modify-path; then
        rm -f "$installer"
        export PATH="$HOME/.cargo/bin:$PATH"
        return
    fi
    rm -f "$installer"
    return 1
}

provide_pinned_toolchain() {
    if ! rustup toolchain list | grep "^$PINNED_RUST-" >/dev/null; then
        say "installing Rust $PINNED_RUST with rustup"
        rustup toolchain install "$PINNED_RUST" --profile minimal -c clippy -c rustfmt
        return
    fi
    local component
    for component in clippy rustfmt; do
        if ! rustup component list --toolchain "$PINNED_RUST" --installed | grep "^$component" >/dev/null; then
            say "adding $component to Rust $PINNED_RUST"
            rustup component add --toolchain "$PINNED_RUST" "$component" || return 1
        fi
    done
}

# Debian keeps a current Rust beside its own old one, for what the browsers are built with.
provide_rust_from_debian() {
    on_debian || return 1
    local version
    apt_lists_refreshed
    version=$(apt_version rustc-web)
    if ! dpkg --compare-versions "${version:-0}" ge "$PINNED_RUST"; then
        warn "the newest Rust of this system's packages is ${version:-none}"
        return 1
    fi
    apt_install rustc-web cargo-web rust-web-clippy rustfmt-web && rust_is_new_enough /usr/bin/cargo || return 1
    export PATH="/usr/bin:$PATH"
    say "using Debian's $(cargo --version); the project is pinned to $PINNED_RUST"
}

# The web view and the panel's icon that the menu is built with on Linux.
provide_menu_libraries() {
    local missing=()
    pkg-config --exists webkit2gtk-4.1 || missing+=(libwebkit2gtk-4.1-dev)
    pkg-config --exists ayatana-appindicator3-0.1 || missing+=(libayatana-appindicator3-dev)
    [ ${#missing[@]} -eq 0 ] && return
    if ! { on_debian && apt_install "${missing[@]}"; }; then
        fail "missing here: ${missing[*]} (named as on Debian); install them with this system's package manager"
    fi
}

# The version of a package that apt could install by its present lists, empty when it knows none.
apt_version() {
    apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)" { print $2 }'
}

apt_install() {
    apt_lists_refreshed
    say "installing with apt-get: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 install "$@" >&2
}

# Reads the package lists anew, once in a run.
apt_lists_refreshed() {
    [ -z "${APT_LISTS_FRESH:-}" ] || return 0
    # The scripts that this one starts need not read them again.
    export APT_LISTS_FRESH=1
    say "reading the lists of packages (apt-get update)"
    as_root apt-get -q -o DPkg::Lock::Timeout=300 update >&2 ||
        warn "the lists of packages could not be read anew; going on with those of before"
}

# Runs a command as root: at once when we are root, after a yes otherwise. Unattended, sudo must need no password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif ! have sudo; then
        warn "as root, run: $*"
        return 1
    elif unattended; then
        sudo -n "$@"
    elif [ -n "${SUDO_AGREED:-}" ] || agreed "Run 'sudo $*'? Later commands of this kind will not ask again."; then
        SUDO_AGREED=1
        sudo "$@"
    else
        warn "not run: sudo $*"
        return 1
    fi
}
