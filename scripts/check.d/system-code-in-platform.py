#!/usr/bin/env python3
"""Code that differs by operating system stands in crates/platform and src-tauri alone; everything else compiles and is
tested everywhere."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import re

from invariant import Bad, Breach, files, main, text
from rust_source import line_of, without_comments

HOMES = ("crates/platform/", "src-tauri/")
# The inside of #[cfg(…)], cfg!(…), cfg_attr(…) and cfg_select! says `target_os`, `target_vendor` or a system's name.
SYSTEM = re.compile(r"\btarget_(?:os|vendor)\b|\bcfg!?\s*\(\s*(?:not\s*\(\s*)?(?:unix|windows)\b")


def find(root):
    for path, file in files(root, ".rs"):
        if path.startswith(HOMES):
            continue
        code = without_comments(text(file))
        for match in SYSTEM.finditer(code):
            yield Breach(path, line_of(code, match.start()), f"`{match.group()}` stands outside crates/platform")


main(
    find,
    bad=[
        Bad({"crates/daemon/src/a.rs": "fn f() {}\n#[cfg(target_os = \"macos\")]\nfn g() {}\n"}, {("crates/daemon/src/a.rs", 2)}),
        Bad({"crates/cli/src/a.rs": "fn f() -> bool {\n    cfg!(\n        target_os = \"linux\")\n}\n"}, {("crates/cli/src/a.rs", 3)}),
        Bad({"crates/ollama/a.rs": "#[cfg_attr(not(target_os = \"macos\"), allow(dead_code))]\n"}, {("crates/ollama/a.rs", 1)}),
        Bad({"crates/engine/a.rs": "#[cfg(not(unix))]\nfn f() {}\n"}, {("crates/engine/a.rs", 1)}),
    ],
    good=[
        {
            "crates/platform/src/a.rs": "#[cfg(target_os = \"macos\")]\nfn g() {}\n",
            "src-tauri/src/a.rs": "#[cfg(target_os = \"macos\")]\nfn g() {}\n",
            "crates/daemon/src/a.rs": "// never cfg(target_os) here\n#[cfg(test)]\nmod tests;\nconst A: &str = \"target_os\";\n",
        }
    ],
)
