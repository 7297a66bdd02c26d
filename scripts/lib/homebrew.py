#!/usr/bin/env python3
"""Fills packaging/homebrew for a release: its version, where it lies, and the sums of its files."""

import re
import sys
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parents[2] / "packaging/homebrew"


def filled(template, version, repository, sums):
    """The text of a formula or cask. Raises ValueError when a file has no sum, or a place is left."""
    text = template.replace("@VERSION@", version).replace("@REPOSITORY@", repository)
    for name in re.findall(r"@SHA256 (\S+?)@", text):
        if name not in sums:
            raise ValueError(f"{name} is not among the sums")
        text = text.replace(f"@SHA256 {name}@", sums[name])
    left = re.search(r"@[A-Z][A-Z0-9_ ]*@?", text)
    if left:
        raise ValueError(f"{left.group()} is a place that nothing fills")
    return text


def read_sums(text):
    """What sha256sum and shasum write: a sum, two blanks (or a blank and a star), a name."""
    sums = {}
    for line in text.splitlines():
        found = re.fullmatch(r"([0-9a-f]{64}) [ *](\S.*)", line)
        if not found:
            raise ValueError(f"no line of sums: {line}")
        sums[found.group(2)] = found.group(1)
    return sums


def self_test():
    """Every template fills with the files of a release, and says so when one of them is missing."""
    names = ["Stablehand-1.2.3.zip"]
    names += [f"stablehand-1.2.3-{kind}.tar.gz" for kind in ("macos-universal", "linux-amd64", "linux-arm64")]
    sums = read_sums("".join(f"{number:064x}  {name}\n" for number, name in enumerate(names, 10)))
    templates = [path.read_text() for path in TEMPLATES.glob("*.rb")]
    faults = [] if len(templates) == 2 else [f"{len(templates)} templates instead of 2"]
    text = "".join(filled(template, "1.2.3", "somebody/stablehand", sums) for template in templates)
    for wanted in [*sums.values(), 'version "1.2.3"', "https://github.com/somebody/stablehand"]:
        if wanted not in text:
            faults.append(f"{wanted} is nowhere")
    if "@" in text.replace("@VERSION@", ""):
        faults.append("a place was not filled")
    for bad in [
        lambda: filled(templates[0], "1.2.3", "somebody/stablehand", {}),
        lambda: filled("@OTHER@", "1.2.3", "somebody/stablehand", sums),
        lambda: read_sums("not a sum  name\n"),
    ]:
        try:
            bad()
            faults.append("what cannot be filled was filled")
        except ValueError:
            pass
    for fault in faults:
        print(f"homebrew: {fault}")
    return 1 if faults else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 4:
        print(f"usage: {sys.argv[0]} VERSION OWNER/NAME SHA256SUMS FOLDER | --self-test", file=sys.stderr)
        return 2
    version, repository, sums, folder = arguments
    try:
        read = read_sums(Path(sums).read_text())
        texts = {path.name: filled(path.read_text(), version, repository, read) for path in TEMPLATES.glob("*.rb")}
    except (OSError, ValueError) as error:
        print(f"✗ {error}; nothing was written", file=sys.stderr)
        return 1
    for name, text in texts.items():
        (Path(folder) / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
