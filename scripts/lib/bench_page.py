"""A bench whose tables stand in a page, between two marks, with the command that printed them."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def put(name, words, text):
    """Replaces the tables of the bench `name` in docs/`name`.md by those that this command has printed."""
    path = ROOT / "docs" / f"{name}.md"
    begin, end = f"<!-- {name}: printed by scripts/bench {name} -->", f"<!-- end of {name} -->"
    before, found, rest = path.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        sys.exit(f"{path} has no place for the tables")
    path.write_text(f"{before}{begin}\n\nPrinted by `{' '.join(words)}`:\n\n{text}\n{end}{after}")


def command(name, options, flags):
    """The command as a person would type it again: with those of these options that were given."""
    words = ["scripts/bench", name]
    for flag in flags:
        value = getattr(options, flag)
        if value is not None:
            words += [f"--{flag}", f"{value:g}"]
    return words


def target():
    """Where cargo builds."""
    metadata = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    found = subprocess.run(metadata, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return Path(json.loads(found.stdout)["target_directory"])
