# shellcheck shell=bash
# What the scripts say to a person, on stderr: stdout is for results.

say() { printf '%s\n' "· $*" >&2; }

warn() { printf '%s\n' "! $*" >&2; }

fail() {
    printf '%s\n' "✗ $*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# Whether this is an automatic run, where nobody can answer and everything must be checked.
unattended() { [ "${CI:-}" = true ]; }

# Asks a yes-or-no question; without a terminal the answer is no.
agreed() {
    [ -t 0 ] || return 1
    local answer
    read -r -p "$1 [y/N] " answer
    case "$answer" in
        y | Y | yes | Yes) return 0 ;;
        *) return 1 ;;
    esac
}
