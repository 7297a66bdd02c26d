#!/usr/bin/env python3
"""The engine does no I/O and reads no clock: time and everything that was seen arrive as arguments."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import re

from invariant import Bad, Breach, files, main, text
from rust_source import line_of, paths, without_comments

SOURCES = "crates/engine/src"
MANIFEST = "crates/engine/Cargo.toml"

# Modules of the standard library that reach outside the process.
BANNED_MODULES = ("env", "fs", "io", "net", "os", "process", "thread")
BANNED_TYPES = {"Instant", "SystemTime"}
# A test may print (a diagram, say), the rules may not.
BANNED_MACROS = re.compile(r"\b(?:e?println|e?print|dbg|env|option_env)!")
TESTS = re.compile(r"(?:^|/)tests(?:\.rs$|/)")
ALLOWED_DEPENDENCIES = {"thiserror"}


def find(root):
    for path, file in files(root, ".rs", under=SOURCES):
        code = without_comments(text(file))
        for line, used in paths(code):
            segments = used.split("::")
            if segments[0] == "std" and len(segments) > 1 and segments[1] in BANNED_MODULES:
                yield Breach(path, line, f"the engine uses `{used}`; let an effect ask for it")
            elif segments[0] == "std" and segments[-1] == "*" and len(segments) == 2:
                yield Breach(path, line, "the engine imports all of std; name what is used")
            elif BANNED_TYPES & set(segments):
                yield Breach(path, line, f"the engine uses `{used}`; take `now` as an argument")
        for macro in [] if TESTS.search(path) else BANNED_MACROS.finditer(code):
            yield Breach(path, line_of(code, macro.start()), f"the engine uses `{macro.group()}`")
    yield from _dependencies(root)


def _dependencies(root):
    manifest = root / MANIFEST
    if not manifest.is_file():
        return
    section = ""
    for number, line in enumerate(text(manifest).splitlines(), 1):
        header = re.match(r"\s*\[([^\]]+)\]", line)
        if header:
            section = header.group(1)
            name = re.search(r"(?:^|\.)(build-)?dependencies\.([\w-]+)$", section)
            if name and (name.group(1) or name.group(2) not in ALLOWED_DEPENDENCIES):
                yield Breach(MANIFEST, number, f"the engine depends on `{name.group(2)}`")
            continue
        entry = re.match(r"\s*\"?([\w-]+)\"?\s*[.=]", line)
        if entry is None or not re.search(r"(?:^|\.)(build-)?dependencies$", section):
            continue
        if section.endswith("build-dependencies") or entry.group(1) not in ALLOWED_DEPENDENCIES:
            yield Breach(MANIFEST, number, f"the engine depends on `{entry.group(1)}`")


main(
    find,
    bad=[
        Bad(
            {
                "crates/engine/src/a.rs": "use std::{\n    fmt,\n    fs::{self, File},\n};\n\nfn f() { std::thread::yield_now() }\n",
                "crates/engine/src/b/c.rs": "use std::time::{Duration, Instant};\nfn g() { println!(\"{}\", 1) }\n",
                "crates/engine/src/d.rs": "use std::*;\nfn h(at: std::time::SystemTime) {}\n",
            },
            {
                ("crates/engine/src/a.rs", 3),
                ("crates/engine/src/a.rs", 6),
                ("crates/engine/src/b/c.rs", 1),
                ("crates/engine/src/b/c.rs", 2),
                ("crates/engine/src/d.rs", 1),
                ("crates/engine/src/d.rs", 2),
            },
        ),
        Bad(
            {
                MANIFEST: "[dependencies]\nthiserror.workspace = true\nserde = \"1\"\n"
                "[dev-dependencies]\nproptest = \"1\"\n[build-dependencies]\ncc = \"1\"\n[dependencies.tokio]\nversion = \"1\"\n"
            },
            {(MANIFEST, 3), (MANIFEST, 7), (MANIFEST, 8)},
        ),
    ],
    good=[
        {
            "crates/engine/src/a.rs": "//! Opens no std::fs file.\nuse std::{fmt, time::Duration};\n"
            "const HINT: &str = \"std::env::var and println!\"; /* Instant */\nfn f<'a>(x: &'a str) -> char { '\"' }\n",
            "crates/daemon/src/a.rs": "use std::fs;\n",
            MANIFEST: "[dependencies]\nthiserror = \"2\"\n[dev-dependencies]\nproptest.workspace = true\n[lints]\nworkspace = true\n",
        }
    ],
)
