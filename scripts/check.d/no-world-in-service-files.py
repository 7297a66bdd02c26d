#!/usr/bin/env python3
"""The service files that people install never carry the name of a simulated world."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from invariant import Bad, Breach, files, main, text

FOLDERS = ("launchd", "systemd")
WORLD = "STABLEHAND_WORLD"


def find(root):
    for folder in FOLDERS:
        for path, file in files(root, under=folder):
            for number, line in enumerate(text(file).splitlines(), 1):
                if WORLD in line:
                    yield Breach(path, number, f"a service file carries {WORLD}")


main(
    find,
    bad=[
        Bad({"launchd/a.plist": "<dict>\n<key>STABLEHAND_WORLD</key>\n"}, {("launchd/a.plist", 2)}),
        Bad({"systemd/user/a.service": "Environment=STABLEHAND_WORLD=/x\n"}, {("systemd/user/a.service", 1)}),
    ],
    good=[{"launchd/a.plist": "<dict/>\n", "docs/world.md": "STABLEHAND_WORLD\n"}],
)
