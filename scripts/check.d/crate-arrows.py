#!/usr/bin/env python3
"""Which of our crates may use which: the arrows of ARCHITECTURE.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import json
import re
import subprocess

from invariant import Breach, main, text

PREFIX = "stablehand-"

# Arrows of the finished programs. A crate that is not named here may not exist.
EDGES = {
    "protocol": set(),
    "engine": set(),
    "ollama": {"engine"},
    "platform": {"engine"},
    "gateway": {"engine", "ollama", "platform", "protocol"},
    "daemon": {"engine", "ollama", "platform", "protocol"},
    "cli": {"protocol", "daemon", "gateway"},
    "tray": {"protocol"},
    "simulator": set(),
}
# Arrows of tests alone: the tests of the programs start the simulator's.
TEST_EDGES = {"daemon": {"simulator"}, "cli": {"simulator"}}
# Manifests whose package name is not the folder's.
FOLDERS = {"src-tauri": "tray"}


def find(root):
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--manifest-path", str(root / "Cargo.toml")]
    yield from breaches(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout), root)


def breaches(metadata, root):
    """Compares the `cargo metadata` of our crates with the arrows."""
    crates = {package["name"]: _crate(package) for package in metadata["packages"]}
    for package in metadata["packages"]:
        crate = crates[package["name"]]
        manifest = Path(package["manifest_path"])
        path = manifest.relative_to(root).as_posix()
        if crate not in EDGES:
            yield Breach(path, _line(manifest, "name"), f"`{crate}` is not one of the crates of the house")
            continue
        for dependency in package["dependencies"]:
            target = crates.get(dependency["name"])
            if target is None:
                continue
            allowed = EDGES[crate] | (TEST_EDGES.get(crate, set()) if dependency["kind"] == "dev" else set())
            if target not in allowed:
                kind = "tests of " if dependency["kind"] == "dev" else ""
                message = f"{kind}{crate} → {target} is not an arrow of the house"
                yield Breach(path, _line(manifest, dependency["name"]), message)


def _crate(package):
    folder = Path(package["manifest_path"]).parent.name
    return FOLDERS.get(folder, folder)


def _line(manifest, word):
    if manifest.is_file():
        for number, line in enumerate(text(manifest).splitlines(), 1):
            if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", line):
                return number
    return 1


def self_test():
    """The samples are what `cargo metadata` would say, so that no cargo runs in them."""
    root = Path("/house")

    def package(folder, *dependencies):
        name = PREFIX + Path(folder).name
        rows = [{"name": PREFIX + target, "kind": kind} for target, kind in dependencies]
        rows.append({"name": "serde", "kind": None})
        return {"name": name, "manifest_path": str(root / folder / "Cargo.toml"), "dependencies": rows}

    others = [package(f"crates/{name}") for name in ("protocol", "simulator", "platform")]
    cases = [
        (package("crates/engine", ("protocol", None)), 1),
        (package("crates/engine", ("simulator", "dev")), 1),
        (package("crates/engine", ("platform", "build")), 1),
        (package("crates/ollama", ("platform", None), ("protocol", "dev")), 2),
        (package("crates/cli", ("simulator", None)), 1),
        (package("crates/odds-and-ends"), 1),
        (package("src-tauri", ("platform", None)), 1),
        (package("src-tauri", ("protocol", None)), 0),
        (package("crates/daemon", ("protocol", None), ("simulator", "dev")), 0),
        (package("crates/engine"), 0),
    ]
    for case, expected in cases:
        found = list(breaches({"packages": [case, *others]}, root))
        if len(found) != expected:
            yield f"{case['name']}: {len(found)} breaches instead of {expected}: {found}"


main(find, self_test=self_test)
