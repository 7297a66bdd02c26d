#!/usr/bin/env python3
"""What is committed is finished, waits for events instead of sleeping in tests, and knows nobody's home folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import re

from invariant import Bad, Breach, files, main, text
from rust_source import line_of, without_comments

# Spelled in pieces where this file would find itself.
LATER = re.compile(r"\b(?:FIX" + r"ME|X" + r"XX|TO" + r"DO)\b")
WRITTEN = (".rs", ".toml", ".md", ".html", ".css", ".js", ".ts", ".plist", ".service", ".sh", ".yml", ".py")
UNFINISHED = re.compile(r"#\s*!?\[\s*ignore\b|\b(?:todo|unimplemented)!")
BLOCKING_SLEEP = re.compile(r"\bthread::sleep\b")
TESTS = re.compile(r"(?:^|/)tests(?:\.rs$|/)")
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*\{")

# People that examples and fixtures are about; nobody's machine has them.
INVENTED = {"sim", "ada", "grace", "me", "you", "user", "NAME", "USER", "Shared"}
HOME = re.compile(r"(?<![\w.])/(?:Users|home)/([A-Za-z_][\w-]*)|(?<![\w.])(/root)(?=/[\w.])")


def find(root):
    for path, file in files(root, *WRITTEN):
        content = text(file)
        for match in LATER.finditer(content):
            yield Breach(path, line_of(content, match.start()), f"`{match.group()}`: finish it or open an issue")
        for match in HOME.finditer(content):
            if match.group(1) not in INVENTED:
                yield Breach(path, line_of(content, match.start()), f"`{match.group()}` is somebody's home folder")
    for path, file in files(root, ".rs"):
        code = without_comments(text(file))
        for match in UNFINISHED.finditer(code):
            yield Breach(path, line_of(code, match.start()), f"`{match.group()}` in what is committed")
        for match in BLOCKING_SLEEP.finditer(code):
            if TESTS.search(path) or _in_test_module(code, match.start()):
                yield Breach(path, line_of(code, match.start()), "a test sleeps; await the event or pause the time")


def _in_test_module(code, position):
    for module in TEST_MODULE.finditer(code, 0, position):
        depth, end = 0, module.end() - 1
        while end < position:
            depth += (code[end] == "{") - (code[end] == "}")
            if depth == 0:
                break
            end += 1
        if depth > 0:
            return True
    return False


main(
    find,
    bad=[
        Bad({"crates/a/src/x.rs": "#[test]\n#[ignore = \"slow\"]\nfn t() { to" + "do!() }\n"}, {("crates/a/src/x.rs", 2), ("crates/a/src/x.rs", 3)}),
        Bad({"crates/a/src/x.rs": "// FIX" + "ME later\nfn t() { unimplemented!() }\n"}, {("crates/a/src/x.rs", 1), ("crates/a/src/x.rs", 2)}),
        Bad({"crates/a/tests/x.rs": "fn t() {\n    std::thread::sleep(D);\n}\n"}, {("crates/a/tests/x.rs", 2)}),
        Bad(
            {"crates/a/src/x.rs": "#[cfg(test)]\nmod tests {\n    fn t() { if x { y } thread::sleep(D) }\n}\n"},
            {("crates/a/src/x.rs", 3)},
        ),
        Bad({"docs/a.md": "Look at /home/" + "jdoe/x\nor /root" + "/x\n"}, {("docs/a.md", 1), ("docs/a.md", 2)}),
    ],
    good=[
        {
            "crates/a/src/x.rs": "fn wait() { std::thread::sleep(D) }\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\n"
            "fn b() { std::thread::sleep(D); let _ = \"#[ignore]\"; }\n",
            "docs/a.md": "`/Users/sim`, `/root:x`, https://example.com/home/jane\n",
            "crates/b/tests/y.rs": "// never thread::sleep here\nfn t() {}\n",
        }
    ],
)
