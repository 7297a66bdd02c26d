"""Reads Rust source well enough to look for names in it: without comments, and with `use` trees spelled out."""

import re
from typing import Iterator, List, Tuple

_TOKENS = re.compile(
    r"""
    (?P<line_comment>//[^\n]*)
  | (?P<block_comment>/\*)
  | (?P<raw_string>\b[bc]?r(?P<hashes>\#*)".*?"(?P=hashes))
  | (?P<string>[bc]?"(?:[^"\\]|\\.)*")
  | (?P<char>b?'(?:[^'\\\n]|\\[^\n]+?)')
    """,
    re.VERBOSE | re.DOTALL,
)


def without_comments(source: str, keep_strings: bool = False) -> str:
    """The source with comments blanked, and the inside of strings too unless asked to keep them.

    Line breaks stay where they are, so that positions keep their line numbers.
    """
    out: List[str] = []
    position = 0
    while True:
        match = _TOKENS.search(source, position)
        if match is None:
            out.append(source[position:])
            return "".join(out)
        out.append(source[position : match.start()])
        end = match.end()
        if match.lastgroup == "block_comment":
            end = _block_comment_end(source, match.start())
        token = source[match.start() : end]
        is_comment = match.group("line_comment") is not None or match.group("block_comment") is not None
        out.append(token if keep_strings and not is_comment else _blank(token))
        position = end


def paths(code: str) -> Iterator[Tuple[int, str]]:
    """Every path of the code (from [`without_comments`]) with its line: `std::fs::read`, and for a `use` tree such
    as `use std::{fs, io::{self, Read}};` each path that it stands for."""
    uses = list(re.finditer(r"\buse\s+([^;]+);", code))
    for use in uses:
        start = use.start(1)
        for offset, path in _use_tree(use.group(1), 0, ""):
            yield line_of(code, start + offset), path
    rest = list(code)
    for use in uses:
        for index in range(use.start(), use.end()):
            if rest[index] != "\n":
                rest[index] = " "
    for match in re.finditer(r"\b[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*", "".join(rest)):
        yield line_of(code, match.start()), re.sub(r"\s+", "", match.group())


def line_of(code: str, position: int) -> int:
    """The line, from 1, of a position."""
    return code.count("\n", 0, position) + 1


def _use_tree(tree: str, offset: int, prefix: str) -> Iterator[Tuple[int, str]]:
    """The paths of one `use` tree; `offset` is where it starts in the whole `use`."""
    brace = tree.find("{")
    if brace < 0:
        name = re.sub(r"\s+as\s+\w+\s*$", "", tree.strip())
        path = prefix + re.sub(r"\s+", "", name)
        yield offset + len(tree) - len(tree.lstrip()), path[:-6] if path.endswith("::self") else path
        return
    head = prefix + re.sub(r"\s+", "", tree[:brace])
    depth, start = 0, brace + 1
    for index in range(brace, len(tree)):
        char = tree[index]
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
        if (char == "," and depth == 1) or (char == "}" and depth == 0):
            branch = tree[start:index]
            if branch.strip():
                yield from _use_tree(branch, offset + start, head)
            start = index + 1


def _block_comment_end(source: str, start: int) -> int:
    """Where the block comment that starts here ends; they nest."""
    depth, position = 0, start
    for match in re.finditer(r"/\*|\*/", source[start:]):
        depth += 1 if match.group() == "/*" else -1
        position = start + match.end()
        if depth == 0:
            return position
    return len(source)


def _blank(token: str) -> str:
    return "".join(char if char == "\n" else " " for char in token)
