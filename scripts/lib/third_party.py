#!/usr/bin/env python3
"""Writes the licences of what others wrote and our programs hold: crates by Cargo's own list, and the page's packages.

Their licences ask that their texts go along with the programs. Each text is written once, with the names that it is for.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PROGRAMS = ("stablehand-cli", "stablehand-tray")
# What the page's build puts into the page; the rest of ui/package.json works at build time alone.
PAGE = ("svelte", "@tauri-apps/api")
TEXTS = ("licen", "copying", "notice", "unlicense")


def crates(metadata):
    """The crates that the programs are linked with, as (name, version, licence, folder)."""
    packages = {package["id"]: package for package in metadata["packages"]}
    edges = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    waiting = [key for key, package in packages.items() if package["name"] in PROGRAMS and package["source"] is None]
    seen = set(waiting)
    while waiting:
        for edge in edges[waiting.pop()]:
            # A kind that is null is a plain dependency; build scripts and tests are not in the program.
            if edge["pkg"] not in seen and any(kind["kind"] is None for kind in edge["dep_kinds"]):
                seen.add(edge["pkg"])
                waiting.append(edge["pkg"])
    others = [packages[key] for key in seen if packages[key]["source"] is not None]
    return [(p["name"], p["version"], p["license"] or "see its text", Path(p["manifest_path"]).parent) for p in others]


def page_packages(folder):
    """The same for the page."""
    for name in PAGE:
        about = json.loads((folder / name / "package.json").read_text())
        yield name, about["version"], about.get("license", "see its text"), folder / name


def notices(parts):
    """The file's text."""
    lines, texts = ["Stablehand's programs hold what others wrote. Thank you.", ""], {}
    for name, version, licence, folder in sorted(parts):
        called = f"{name} {version}"
        found = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.lower().startswith(TEXTS)]
        lines.append(f"{called}: {licence}" + ("" if found else " (it comes without a text of its own)"))
        for path in found:
            text = "\n".join(line.rstrip() for line in path.read_text(errors="replace").strip().splitlines())
            texts.setdefault(text, []).append(called)
    for text, names in texts.items():
        lines += ["", "-" * 80, ", ".join(sorted(set(names))), "", text]
    return "\n".join(lines) + "\n"


def self_test():
    """A program with a crate that needs another, a build script's crate and a test's, of which two are in it."""

    def package(name, source, folder):
        return {"id": name, "name": name, "version": "1", "license": "MIT", "source": source, "manifest_path": f"{folder}/{name}/Cargo.toml"}

    def edge(name, kind=None):
        return {"pkg": name, "dep_kinds": [{"kind": kind}]}

    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"a": "one text \n", "b": "one text\n", "c": "not in it", "d": "not in it"}.items():
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "LICENSE-MIT").write_text(text)
        metadata = {
            "packages": [package("stablehand-cli", None, folder), package("other", None, folder)]
            + [package(name, "registry", folder) for name in "abcd"],
            "resolve": {
                "nodes": [
                    {"id": "stablehand-cli", "deps": [edge("a"), edge("c", "build"), edge("d", "dev")]},
                    {"id": "a", "deps": [edge("b")]},
                    *({"id": name, "deps": []} for name in "bcd"),
                    {"id": "other", "deps": [edge("d")]},
                ]
            },
        }
        text = notices(crates(metadata))
    if "a 1, b 1\n\none text\n" not in text or text.count("one text") != 1 or "not in it" in text or "c 1" in text:
        print(f"third_party: these are not the notices of a and b:\n{text}")
        return 1
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) < 2:
        print(f"usage: {sys.argv[0]} OUTPUT TARGET... | --self-test", file=sys.stderr)
        return 2
    output, *targets = arguments
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    command += [word for target in targets for word in ("--filter-platform", target)]
    metadata = json.loads(subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.PIPE).stdout)
    parts = [*crates(metadata), *page_packages(PROJECT / "ui/node_modules")]
    Path(output).write_text(notices(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
