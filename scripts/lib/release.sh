# shellcheck shell=bash
# What every package of a release shares. Needs talk.sh and $ROOT.

# The version that Cargo.toml names, which all programs carry.
project_version() {
    sed -n '/^\[workspace\.package\]/,/^$/s/^version *= *"\(.*\)"/\1/p' "$ROOT/Cargo.toml"
}

# Writes the SHA-256 of files beside each other into SHA256SUMS in their folder.
write_sums() {
    local folder=$1
    shift
    if have sha256sum; then
        (cd "$folder" && sha256sum -- "$@" >SHA256SUMS)
    else
        (cd "$folder" && shasum -a 256 -- "$@" >SHA256SUMS)
    fi
}

# Carries a command out, or shows it when DRY_RUN is set.
step() {
    if [ -n "${DRY_RUN:-}" ]; then
        printf '%s' "$1"
        shift
        [ $# -eq 0 ] || printf ' %q' "$@"
        printf '\n'
    else
        "$@"
    fi
}
