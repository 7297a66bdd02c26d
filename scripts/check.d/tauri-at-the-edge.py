#!/usr/bin/env python3
"""`tauri` stands in src-tauri/Cargo.toml alone, and `@tauri-apps` in at most one file below ui/, so that every other
crate and the page itself live without a webview."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import re

from invariant import Bad, Breach, files, main, text

HOME = "src-tauri/Cargo.toml"
DEPENDENCY = re.compile(
    r"""^\s*"?tauri(?:-[\w-]+)?"?\s*[.=]      # tauri = …, tauri-build.workspace = …
      | ^\s*\[[^\]]*dependencies\."?tauri      # [dependencies.tauri]
      | \bpackage\s*=\s*"tauri                 # window = { package = "tauri" }
    """,
    re.VERBOSE,
)
BINDING = "@tauri-apps"
# npm's own lists name what the one file imports.
LISTS = {"ui/package.json", "ui/package-lock.json"}
PAGE_SUFFIXES = (".html", ".css", ".js", ".mjs", ".ts", ".tsx", ".svelte", ".vue", ".json")


def find(root):
    for path, file in files(root, "Cargo.toml"):
        if path == HOME:
            continue
        for number, line in enumerate(text(file).splitlines(), 1):
            if DEPENDENCY.search(line):
                yield Breach(path, number, f"tauri is a dependency outside {HOME}")
    yield from _bindings(root)


def _bindings(root):
    seen = [
        (path, number)
        for path, file in files(root, *PAGE_SUFFIXES)
        if path not in LISTS
        for number, line in enumerate(text(file).splitlines(), 1)
        if BINDING in line
    ]
    homes = sorted({path for path, _ in seen if path.startswith("ui/")})
    for path, number in seen:
        if not path.startswith("ui/"):
            yield Breach(path, number, f"{BINDING} is used outside ui/")
        elif path != homes[0]:
            yield Breach(path, number, f"{BINDING} is used in a second file; {homes[0]} is the one place for it")


main(
    find,
    bad=[
        Bad(
            {
                "crates/daemon/Cargo.toml": "[dependencies]\ntauri = \"2\"\n",
                "crates/cli/Cargo.toml": "[dependencies.tauri-utils]\nversion = \"2\"\n",
                "Cargo.toml": "[workspace.dependencies]\nwindow = { package = \"tauri\", version = \"2\" }\n",
            },
            {("crates/daemon/Cargo.toml", 2), ("crates/cli/Cargo.toml", 1), ("Cargo.toml", 2)},
        ),
        Bad(
            {
                "ui/backend.js": "import { invoke } from '@tauri-apps/api/core';\n",
                "ui/page.js": "\nimport { listen } from '@tauri-apps/api/event';\n",
                "docs/page.js": "import '@tauri-apps/api';\n",
            },
            {("ui/page.js", 2), ("docs/page.js", 1)},
        ),
    ],
    good=[
        {
            HOME: "[dependencies]\ntauri = \"2\"\n",
            "Cargo.toml": "[workspace]\nmembers = [\"src-tauri\"]\nexclude = [\"src-tauri\"]\n",
            "ui/backend.js": "import { invoke } from '@tauri-apps/api/core';\n",
            "ui/package.json": "{ \"dependencies\": { \"@tauri-apps/api\": \"2\" } }\n",
        }
    ],
)
