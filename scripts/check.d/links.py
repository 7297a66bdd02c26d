#!/usr/bin/env python3
"""Links in our pages lead somewhere: files that exist, and headings that exist in them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

import re
from urllib.parse import unquote

from invariant import Bad, Breach, files, main, text

LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\s*\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def find(root):
    for path, file in files(root, ".md"):
        page = _without_code(text(file))
        for link in LINK.finditer(page):
            target = link.group(1) or link.group(2)
            if not ELSEWHERE.match(target):
                message = _fault(root, file, target)
                if message:
                    yield Breach(path, page.count("\n", 0, link.start(1 if link.group(1) else 2)) + 1, message)


def _fault(root, page, target):
    name, _, anchor = target.partition("#")
    place = page
    if name:
        place = (root / name.lstrip("/")) if name.startswith("/") else page.parent / unquote(name)
        if not place.exists():
            return f"`{target}` does not exist"
    if anchor and place.suffix == ".md" and anchor not in _anchors(text(place)):
        return f"`{target}`: there is no such heading"
    return None


def _anchors(page):
    """The headings' names as links give them: lower case, punctuation dropped, blanks as hyphens, repeats numbered."""
    seen = {}
    for heading in re.finditer(r"^#{1,6}\s+(.*?)\s*#*$", _without_code(page, keep_spans=True), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.group(1).lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        yield f"{slug}-{count}" if count else slug


def _without_code(page, keep_spans=False):
    """The page with its code blocks blanked (and code in the text, unless it is kept), line by line as before."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    page = re.sub(r"^(\s*)(```+|~~~+)[^\n]*\n.*?^\s*\2\s*$", blank, page, flags=re.MULTILINE | re.DOTALL)
    return page if keep_spans else re.sub(r"(`+)(?!`)[^\n]*?(?<!`)\1(?!`)", blank, page)


main(
    find,
    bad=[
        Bad(
            {
                "README.md": "# A\n[b](docs/none.md) and\n![p](none.png)\n[c](docs/b.md#nowhere)\n\n[ref]: other.md\n",
                "docs/b.md": "# Here\n[up](#there)\n",
            },
            {("README.md", 2), ("README.md", 3), ("README.md", 4), ("README.md", 6), ("docs/b.md", 2)},
        )
    ],
    good=[
        {
            "README.md": "[b](docs/b.md#what-it-is-not) [w](https://example.com/x) [f](docs) [m](mailto:a@b.c)\n"
            "`[x](none.md)`\n```\n[y](none.md)\n```\n",
            "docs/b.md": "# What it is (`not`)\n[up](../README.md)\n",
        }
    ],
)
