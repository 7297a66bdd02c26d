# shellcheck shell=bash
# Brings Node and the page's packages. Needs talk.sh, provision.sh and $ROOT.

# What Vite asks for, as the field `engines` of ui/package.json says it.
NODE_AT_LEAST=20.19.0

# A Node that is new enough: the one that is here, else the system's package, else one from the npm registry in target/.
provide_node() {
    node_is_new_enough && return
    if ! have npm; then
        if on_debian; then
            apt_install nodejs npm
        elif on_macos && have brew; then
            brew install node
        fi
        node_is_new_enough && return
    fi
    have npm || fail "Node $NODE_AT_LEAST or newer is missing and could not be installed; see https://nodejs.org"
    # The npm package `node` is Node itself, so an older npm can bring a newer Node.
    if [ ! -x "$ROOT/target/node/node_modules/.bin/node" ]; then
        say "the Node here is $(node --version 2>/dev/null || echo none): installing a newer one into target/node"
        npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix "$ROOT/target/node" node@22
    fi
    export PATH="$ROOT/target/node/node_modules/.bin:$PATH"
    node_is_new_enough || fail "Node $NODE_AT_LEAST or newer is needed, and this is $(node --version)"
}

node_is_new_enough() {
    local version
    version=$(node --version 2>/dev/null) || return 1
    [ "$(printf '%s\n' "$NODE_AT_LEAST" "${version#v}" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" = "$NODE_AT_LEAST" ]
}

# ui/node_modules as ui/package-lock.json says. Nothing is asked of the registry when it is so already.
provide_page_packages() {
    local stamp="$ROOT/ui/node_modules/.stablehand-lock"
    cmp -s "$ROOT/ui/package-lock.json" "$stamp" && return
    say "installing the page's packages (npm ci)"
    # The browser comes from the system, never from Playwright.
    (cd "$ROOT/ui" && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --no-audit --no-fund --loglevel=error)
    cp "$ROOT/ui/package-lock.json" "$stamp"
}

# A Chromium and the fonts of the pictures; $CHROMIUM names the program.
provide_browser() {
    if on_debian; then
        local missing=() package
        have chromium || missing+=(chromium)
        for package in fonts-inter fonts-noto-cjk fonts-dejavu-core; do
            dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
        done
        [ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}"
    fi
    local program
    for program in "${CHROMIUM:-}" chromium chromium-browser google-chrome \
        '/Applications/Chromium.app/Contents/MacOS/Chromium' \
        '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome'; do
        if [ -n "$program" ] && have "$program"; then
            CHROMIUM=$(command -v "$program")
            export CHROMIUM
            return
        fi
    done
    return 1
}
