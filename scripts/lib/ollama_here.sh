# shellcheck shell=bash
# Finds an Ollama on this machine without starting anything. Needs talk.sh.

# Prints in words where an Ollama is, or fails.
find_ollama() {
    local address app
    address=$(ollama_address)
    if answers "$address"; then
        echo "a server at $address"
    elif have ollama; then
        command -v ollama
    else
        for app in /Applications/Ollama.app "$HOME/Applications/Ollama.app"; do
            if [ -d "$app" ]; then
                echo "$app"
                return
            fi
        done
        return 1
    fi
}

# host:port of the server as Ollama reads OLLAMA_HOST: scheme and path dropped, 11434 without a port, and a server that
# listens everywhere is reached on this machine.
ollama_address() {
    local host=${OLLAMA_HOST:-127.0.0.1} port=11434
    host=${host#*://}
    host=${host%%/*}
    case "$host" in
        \[*\]:*) port=${host##*:} host=${host%:*} ;;
        \[*\]) ;;
        *:*) port=${host##*:} host=${host%:*} ;;
    esac
    case "$host" in
        '' | 0.0.0.0 | '[::]') host=127.0.0.1 ;;
    esac
    echo "$host:$port"
}

# Whether a server answers GET /api/version there, within two seconds.
answers() {
    if have curl; then
        curl --silent --fail --max-time 2 --noproxy '*' "http://$1/api/version" >/dev/null 2>&1
    else
        python3 - "$1" <<'PYTHON' 2>/dev/null
import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://{sys.argv[1]}/api/version", timeout=2)
PYTHON
    fi
}
