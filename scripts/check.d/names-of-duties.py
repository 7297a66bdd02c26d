#!/usr/bin/env python3
"""A file or folder is named after its duty, never `utils` or `helpers`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from invariant import Bad, Breach, files, main

OURS = ("crates", "src-tauri", "ui", "scripts", "launchd", "systemd", "docs")
NAMELESS = {"util", "utils", "utility", "utilities", "helper", "helpers", "manager", "managers", "misc"}


def find(root):
    for folder in OURS:
        for path, _ in files(root, under=folder):
            words = {part.split(".")[0].lower() for part in path.split("/")}
            for word in sorted(words & NAMELESS):
                yield Breach(path, 1, f"`{word}` names no duty")


main(
    find,
    bad=[
        Bad({"crates/daemon/src/utils.rs": ""}, {("crates/daemon/src/utils.rs", 1)}),
        Bad({"crates/cli/src/helpers/mod.rs": ""}, {("crates/cli/src/helpers/mod.rs", 1)}),
        Bad({"ui/Manager.test.js": ""}, {("ui/Manager.test.js", 1)}),
    ],
    good=[{"crates/engine/src/plan.rs": "", "docs/misconceptions.md": "", "target/utils.rs": ""}],
)
