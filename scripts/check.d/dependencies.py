#!/usr/bin/env python3
"""What comes in from outside: licences, banned crates, sources and version wildcards, by the lists of deny.toml.

cargo-deny knows more and is run where it is installed; this needs nothing but cargo.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import json
import re
import subprocess

from invariant import Breach, main, text

LISTS = "deny.toml"
LOCK = "Cargo.lock"
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def find(root):
    lists = read_lists(text(root / LISTS))
    packages = {}
    for target in lists["targets"]:
        for package in _metadata(root, target)["packages"]:
            packages[package["id"]] = package
    lock = text(root / LOCK).splitlines()
    for package in packages.values():
        for message in breaches(package, lists):
            yield Breach(LOCK, _line(lock, package), message)


def read_lists(deny):
    """The lists of deny.toml that this check knows, from a file written as ours is: one string or table a line."""

    def strings(section, key):
        block = re.search(rf"^\[{section}\]$(.*?)(?=^\[|\Z)", deny, re.MULTILINE | re.DOTALL)
        found = re.search(rf"^{key} = \[(.*?)^\]", block.group(1) if block else "", re.MULTILINE | re.DOTALL)
        return found.group(1) if found else ""

    return {
        "targets": re.findall(r'"([^"]+)"', strings("graph", "targets")),
        "licences": set(re.findall(r'"([^"]+)"', strings("licenses", "allow"))),
        "banned": dict(re.findall(r'crate = "([^"]+)", reason = "([^"]+)"', strings("bans", "deny"))),
    }


def breaches(package, lists):
    """What is wrong with one package of `cargo metadata`."""
    named = f"{package['name']} {package['version']}"
    if package["name"] in lists["banned"]:
        yield f"{named} is banned: {lists['banned'][package['name']]}"
    if package["source"] not in (None, REGISTRY):
        yield f"{named} comes from {package['source']}"
    licence = package["license"]
    if licence is None:
        yield f"{named} names no licence"
    elif not allowed(licence, lists["licences"]):
        yield f"{named} has the licence {licence}, which {LISTS} does not allow"
    if package["source"] is None:
        for dependency in package["dependencies"]:
            if dependency["req"] == "*" and "path" not in dependency:
                yield f"{package['name']} takes any version of {dependency['name']}"


def allowed(expression, licences):
    """Whether an SPDX expression can be met by the allowed licences: OR needs one side, AND both, AND binds tighter."""
    tokens = re.findall(r"\(|\)|[^\s()/]+|/", expression)
    tokens = ["OR" if token == "/" else token for token in tokens]

    def either():
        met = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = both() or met
        return met

    def both():
        met = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = one() and met
        return met

    def one():
        token = tokens.pop(0)
        if token == "(":
            met = either()
            tokens.pop(0)
            return met
        if tokens[:1] == ["WITH"]:
            tokens.pop(0)
            token = f"{token} WITH {tokens.pop(0)}"
        return token in licences

    return either()


def _metadata(root, target):
    command = ["cargo", "metadata", "--format-version", "1", "--all-features", "--locked", "--filter-platform", target]
    # What the lock file names is usually here already; only when it is not, the registry is asked.
    for extra in (["--offline"], []):
        result = subprocess.run([*command, *extra], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if result.returncode == 0:
            return json.loads(result.stdout)
    sys.exit(f"cargo metadata failed for {target}:\n{result.stderr.decode()}")


def _line(lock, package):
    for number, line in enumerate(lock, 1):
        if line == f'name = "{package["name"]}"' and lock[number] == f'version = "{package["version"]}"':
            return number
    return 1


def self_test():
    lists = read_lists(
        '[graph]\ntargets = [\n    "a-b-c",\n]\n[licenses]\nallow = [\n    "MIT",\n    "Apache-2.0 WITH LLVM-exception",\n]\n'
        '[bans]\nwildcards = "deny"\ndeny = [\n    { crate = "old-tls", reason = "too old" },\n]\n'
    )
    expected = {
        "targets": ["a-b-c"],
        "licences": {"MIT", "Apache-2.0 WITH LLVM-exception"},
        "banned": {"old-tls": "too old"},
    }
    if lists != expected:
        yield f"the lists were read as {lists}"
    for expression, verdict in {
        "MIT": True,
        "GPL-3.0": False,
        "MIT/Apache-2.0": True,
        "GPL-3.0 OR MIT": True,
        "MIT AND GPL-3.0": False,
        "(GPL-3.0 OR MIT) AND Apache-2.0 WITH LLVM-exception": True,
        "GPL-3.0 OR MIT AND BSD-3-Clause": False,
        "Apache-2.0": False,
    }.items():
        if allowed(expression, lists["licences"]) != verdict:
            yield f"the licence {expression} was not judged {verdict}"
    fine = {"name": "a", "version": "1.0.0", "source": REGISTRY, "license": "MIT", "dependencies": []}
    wild = {"name": "b", "req": "*"}
    for change, count in [
        ({}, 0),
        ({"name": "old-tls"}, 1),
        ({"source": "git+https://example.com/a"}, 1),
        ({"license": None}, 1),
        ({"license": "GPL-3.0"}, 1),
        ({"source": None, "dependencies": [wild]}, 1),
        ({"source": None, "dependencies": [{**wild, "path": "../b"}]}, 0),
        ({"dependencies": [wild]}, 0),
    ]:
        found = list(breaches({**fine, **change}, lists))
        if len(found) != count:
            yield f"{change}: {len(found)} breaches instead of {count}: {found}"


main(find, self_test=self_test)
