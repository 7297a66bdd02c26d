# shellcheck shell=bash
# Checks the code for macOS from Linux: types and lints, and on request real Mach-O programs. The standard library for
# macOS comes from rustup or, where that cannot be had, is built from Debian's package of Rust's sources.
# Needs talk.sh, provision.sh and $ROOT.
#
# Environments are set in subshells, and are meant to end with them.
# shellcheck disable=SC2030,SC2031

# Versions that the link was tried with.
ZIG_PACKAGES=(ziglang==0.17.1 cargo-zigbuild==0.24.1)
# Ours, for zig and its companion; the clone stays as it is.
TOOLS="${XDG_CACHE_HOME:-$HOME/.cache}/stablehand-build"
# The oldest macOS that the programs are built for.
export MACOSX_DEPLOYMENT_TARGET=11.0
# Frameworks and libraries of macOS that our crates name; the link needs their names alone.
FRAMEWORKS=(AppKit ApplicationServices Carbon Cocoa CoreFoundation CoreGraphics CoreLocation CoreServices CoreVideo
    Foundation IOKit Metal Network OpenDirectory QuartzCore Security SystemConfiguration UserNotifications WebKit)
LIBRARIES=(objc:/usr/lib/libobjc.A.dylib sqlite3:/usr/lib/libsqlite3.dylib)

# Decides who gives the standard library for a macOS target, and brings it: prints `rustup` or `debian`.
# STABLEHAND_MACOS_STD=rustup|debian takes one of them without a choice.
provide_macos_std() {
    local target=$1 wanted=${STABLEHAND_MACOS_STD:-either}
    if [ "$wanted" != debian ] && has_rustup_target "$target"; then
        echo rustup
    elif [ "$wanted" != rustup ] && has_debian_sources; then
        echo debian
    elif [ "$wanted" != debian ] && have rustup && say "adding $target to Rust $PINNED_RUST with rustup" &&
        rustup target add --toolchain "$PINNED_RUST" "$target" >&2; then
        echo rustup
    elif [ "$wanted" != rustup ] && on_debian && apt_lists_refreshed && [ "$(apt_version rust-web-src)" != "" ] &&
        apt_install rustc-web cargo-web rust-web-src rust-web-clippy && has_debian_sources; then
        echo debian
    else
        return 1
    fi
}

has_rustup_target() {
    have rustup && rustup target list --toolchain "$PINNED_RUST" --installed 2>/dev/null | grep -x "$1" >/dev/null
}

# Debian's packages hold Rust's sources with everything that they need to be built.
has_debian_sources() {
    [ -d /usr/lib/rustlib/src/rust/library/vendor ] && [ -x /usr/bin/cargo-clippy ] && rust_is_new_enough /usr/bin/cargo
}

# Brings zig, which has the headers and the linker for macOS, and puts cargo-zigbuild on the PATH.
provide_zig() {
    local place="$TOOLS/zig"
    if have cargo-zigbuild && use_zig python3; then
        return
    fi
    if ! [ -x "$place/bin/cargo-zigbuild" ]; then
        if on_debian && ! python3 -c 'import ensurepip' 2>/dev/null; then
            apt_install python3-venv || return 1
        fi
        say "installing zig and cargo-zigbuild from PyPI into $place"
        python3 -m venv "$place" >&2 && "$place/bin/pip" install --quiet "${ZIG_PACKAGES[@]}" >&2 || return 1
    fi
    export PATH="$place/bin:$PATH"
    use_zig "$place/bin/python3"
}

# Tells cargo-zigbuild which zig to take: the one on the PATH, or the package of this Python, by its full path, since
# the PATH changes below.
use_zig() {
    local zig
    zig=$(command -v zig) ||
        zig=$("$1" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))' 2>/dev/null) ||
        return 1
    export CARGO_ZIGBUILD_ZIG_PATH=$zig
}

# Types and lints of the default members and of the menu for a macOS target.
lint_for_macos() {
    local target=$1 std
    std=$(provide_macos_std "$target") || return 1
    provide_zig || return 1
    say "checking for $target with the standard library of $std"
    (
        export CARGO_TARGET_DIR="$ROOT/target-darwin"
        use_c_compiler_for "$target"
        cargo_for_macos "$std" clippy --locked --all-targets --target "$target" -- -D warnings
        with_a_page_of_any_kind
        cargo_for_macos "$std" clippy --locked --all-targets --package stablehand-tray --target "$target" -- -D warnings
    )
}

# The menu embeds its page; its types are the same with an empty one, so that this needs no Node.js.
with_a_page_of_any_kind() {
    local page="$CARGO_TARGET_DIR/page"
    mkdir -p "$page"
    [ -f "$page/index.html" ] || echo '<!doctype html>' >"$page/index.html"
    export TAURI_CONFIG="{\"build\":{\"frontendDist\":\"$page\"}}"
}

# Real programs for a macOS target, and a look into them: they ask for nothing that macOS does not have. They lie in
# linked_for_macos TARGET PROFILE afterwards.
link_for_macos() {
    local target=$1 profile=$2 std program
    shift 2
    std=$(provide_macos_std "$target") || return 1
    on_macos || provide_zig || return 1
    say "linking $* for $target with the standard library of $std"
    (
        export CARGO_TARGET_DIR="$ROOT/target-darwin-link"
        local verb=build
        if ! on_macos; then
            verb=zigbuild
            with_stubs_for "$target"
            [ "$std" = rustup ] || with_an_objcopy_for_macos
        fi
        for program in "$@"; do
            # shellcheck disable=SC2046
            cargo_for_macos "$std" "$verb" --locked --profile "$profile" --target "$target" $(selected "$program")
        done
        for program in "$@"; do
            python3 "$ROOT/scripts/lib/mach_o.py" "$(linked_for_macos "$target" "$profile")/$program"
        done
    )
}

# The linker takes macOS' frameworks by name, and leaves their symbols to be looked up at start.
with_stubs_for() {
    local target=$1 stubs="$CARGO_TARGET_DIR/stubs" flags
    write_stubs "$stubs"
    flags="-Lnative=$stubs/usr/lib -Lframework=$stubs/System/Library/Frameworks"
    flags="$flags -Clink-arg=-Wl,-undefined,dynamic_lookup"
    export "CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_RUSTFLAGS=$flags"
}

# Where a linked program lies.
linked_for_macos() {
    local folder=$2
    [ "$folder" != dev ] || folder=debug
    echo "$ROOT/target-darwin-link/$1/$folder"
}

# The words that make cargo build one program as it is given to people.
selected() {
    case "$1" in
        stablehand-tray) echo --package stablehand-tray --features custom-protocol ;;
        *) echo --bin "$1" ;;
    esac
}

# Rust strips programs for macOS with an objcopy of LLVM, which rustup brings; Debian has it under another name.
with_an_objcopy_for_macos() {
    local objcopy folder="$CARGO_TARGET_DIR/objcopy"
    objcopy=$(command -v llvm-objcopy) || { on_debian && apt_install llvm && objcopy=$(command -v llvm-objcopy); } ||
        return 1
    mkdir -p "$folder"
    ln -sf "$objcopy" "$folder/rust-objcopy"
    export PATH="$folder:$PATH"
}

# Runs a cargo verb with the standard library for macOS of the one that was chosen.
cargo_for_macos() {
    local std=$1 verb=$2
    shift 2
    if [ "$std" = debian ]; then
        # Debian's own cargo and rustc, which leave rustup alone, and the permission to build the standard library.
        export PATH="/usr/bin:$PATH" RUSTC=/usr/bin/rustc CARGO=/usr/bin/cargo RUSTC_BOOTSTRAP=1
        set -- -Zbuild-std=std,panic_abort,test "$@"
    fi
    if [ "$verb" = zigbuild ]; then
        cargo-zigbuild zigbuild "$@"
    else
        cargo "$verb" "$@"
    fi
}

# Crates with C code find a compiler with macOS' headers.
use_c_compiler_for() {
    local target=$1 compiler="$CARGO_TARGET_DIR/cc-$1"
    mkdir -p "$CARGO_TARGET_DIR"
    printf '#!/bin/sh\nexec cargo-zigbuild zig cc -- -g -fno-sanitize=all -target %s-macos-none "$@"\n' \
        "${target%%-*}" >"$compiler"
    chmod +x "$compiler"
    export "CC_$(tr - _ <<<"$target")=$compiler"
}

# Writes a folder that names macOS' frameworks and libraries without their contents.
write_stubs() {
    local folder=$1 entry name
    for name in "${FRAMEWORKS[@]}"; do
        write_stub "$folder/System/Library/Frameworks/$name.framework/$name.tbd" \
            "/System/Library/Frameworks/$name.framework/Versions/A/$name"
    done
    for entry in "${LIBRARIES[@]}"; do
        write_stub "$folder/usr/lib/lib${entry%%:*}.tbd" "${entry#*:}"
    done
}

write_stub() {
    mkdir -p "$(dirname "$1")"
    cat >"$1" <<STUB
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos, x86_64-macos ]
install-name: '$2'
exports:
  - targets: [ arm64-macos, x86_64-macos ]
    symbols: [ ]
...
STUB
}
