"""How a program in scripts/check.d looks for breaches of one invariant.

A program gives a function from the root of a source tree to its breaches, and small sample trees: bad ones with the
places where the function must find a breach, and good ones where it must find none. Called without arguments the
program checks the project and prints `file:line: what is wrong` for each breach; called with `--self-test` it proves
on the samples that it would notice.
"""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, Optional, Sequence, Set, Tuple

PROJECT = Path(__file__).resolve().parents[2]

# Folders that hold what others wrote or what a build made.
SKIPPED_FOLDERS = {".git", "node_modules", "dist", "__pycache__", "target"}

Tree = Dict[str, str]
Place = Tuple[str, int]


@dataclass(frozen=True)
class Breach:
    """One place that breaks the invariant: a path relative to the root, a line from 1, and what is wrong."""

    path: str
    line: int
    message: str


@dataclass(frozen=True)
class Bad:
    """A sample tree and exactly the places where it is wrong."""

    tree: Tree
    places: Set[Place]


def files(root: Path, *suffixes: str, under: str = ".") -> Iterator[Tuple[str, Path]]:
    """The files below `under` whose name ends with one of the suffixes (all of them without any), in order."""
    start = root / under
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("target-"))
        for name in sorted(names):
            if not suffixes or name.endswith(suffixes):
                path = Path(folder) / name
                yield path.relative_to(root).as_posix(), path


def text(path: Path) -> str:
    """The file as text; bytes that are not UTF-8 are replaced, since only words are looked for."""
    return path.read_text(encoding="utf-8", errors="replace")


def main(
    find: Callable[[Path], Iterable[Breach]],
    bad: Sequence[Bad] = (),
    good: Sequence[Tree] = (),
    self_test: Optional[Callable[[], Iterable[str]]] = None,
) -> None:
    """Runs the check or, with `--self-test`, its proof. Exits 1 when something is wrong, 2 on bad usage.

    A check whose subject is no tree of files brings its own proof, `self_test`, which yields what is wrong.
    """
    name = Path(sys.argv[0]).stem
    if sys.argv[1:] == ["--self-test"]:
        faults = list(self_test() if self_test else _samples(find, bad, good))
        for fault in faults:
            print(f"{name}: the check itself is wrong: {fault}")
        sys.exit(1 if faults else 0)
    if sys.argv[1:]:
        print(f"usage: {sys.argv[0]} [--self-test]", file=sys.stderr)
        sys.exit(2)
    found = list(find(PROJECT))
    for breach in found:
        print(f"{breach.path}:{breach.line}: {breach.message} [{name}]")
    sys.exit(1 if found else 0)


def _samples(find: Callable[[Path], Iterable[Breach]], bad: Sequence[Bad], good: Sequence[Tree]) -> Iterator[str]:
    if not bad:
        yield "it has no bad sample"
    for number, sample in enumerate(bad, 1):
        seen = _places(find, sample.tree)
        for path, line in sorted(sample.places - seen):
            yield f"bad sample {number}: nothing was found at {path}:{line}"
        for path, line in sorted(seen - sample.places):
            yield f"bad sample {number}: a false breach at {path}:{line}"
    for number, tree in enumerate(good, 1):
        for path, line in sorted(_places(find, tree)):
            yield f"good sample {number}: a false breach at {path}:{line}"


def _places(find: Callable[[Path], Iterable[Breach]], tree: Tree) -> Set[Place]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path, content in tree.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        return {(breach.path, breach.line) for breach in find(root)}
