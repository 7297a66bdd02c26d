#!/usr/bin/env python3
"""Looks into Stablehand.app as scripts/bundle-macos makes it, and fails when macOS would not take it for what it is.

Its Info.plist names programs and pictures that are there, its identifier is the one that the programs and the agents
expect, both programs are for the same processors and can start, and the signatures are who they should be: with
`--sealed` those of codesign over the whole bundle, with `--linked` only the ones that the linker gave each program.
"""

import json
import plistlib
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import icns
import mach_o

PROJECT = Path(__file__).resolve().parents[2]
MENU, COMMAND = "stablehand-tray", "stablehand"
# The menu's is the bundle's, or notifications and login items are somebody else's to macOS.
IDENTIFIERS = {MENU: "dev.stablehand", COMMAND: "dev.stablehand.daemon"}
LICENCES = ("LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.txt")


def look(bundle, version, sealed):
    """What is wrong with the bundle, and lines that say what its programs are."""
    contents = bundle / "Contents"
    try:
        info = plistlib.loads((contents / "Info.plist").read_bytes())
    except (OSError, plistlib.InvalidFileException, ValueError) as error:
        return [f"its Info.plist cannot be read: {error}"], []
    faults = list(_info(info, version)) + list(_resources(contents / "Resources", info))
    programs = {path.name: path for path in sorted((contents / "MacOS").iterdir())}
    if sorted(programs) != sorted(IDENTIFIERS):
        faults.append(f"its programs are {', '.join(programs)} instead of {', '.join(sorted(IDENTIFIERS))}")
    lines, processors = [], {}
    for name, path in programs.items():
        wrong, slices = mach_o.look(path.read_bytes())
        faults += [f"{name}: {fault}" for fault in wrong]
        if not path.stat().st_mode & 0o111:
            faults.append(f"{name} may not be started")
        lines += [f"{name}: {mach_o.described(about)}" for about in filter(None, slices)]
        processors[name] = {about.get("cpu") for about in slices}
        if sealed:
            faults += _signatures(name, slices)
    if len({frozenset(names) for names in processors.values()}) > 1:
        faults.append("its programs are not for the same processors")
    if sealed and not (contents / "_CodeSignature/CodeResources").is_file():
        faults.append("the bundle as a whole is not signed")
    return faults, lines


def _info(info, version):
    wanted = {
        "CFBundleIdentifier": json.loads((PROJECT / "src-tauri/tauri.conf.json").read_text())["identifier"],
        "CFBundleExecutable": MENU,
        "CFBundlePackageType": "APPL",
        "CFBundleShortVersionString": version,
        "CFBundleVersion": version,
        "LSUIElement": True,
        "CFBundleLocalizations": sorted(path.stem for path in (PROJECT / "ui/src/messages").glob("*.json")),
    }
    for key, value in wanted.items():
        if info.get(key) != value:
            yield f"its {key} is {info.get(key)!r} instead of {value!r}"
    if wanted["CFBundleIdentifier"] != IDENTIFIERS[MENU]:
        yield f"the menu is signed as {IDENTIFIERS[MENU]}, and its bundle is {wanted['CFBundleIdentifier']}"
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", info.get("LSMinimumSystemVersion", "")):
        yield "it does not say which macOS it needs"


def _resources(folder, info):
    try:
        icns.entries((folder / info.get("CFBundleIconFile", "")).read_bytes())
    except (OSError, ValueError) as error:
        yield f"its icon cannot be shown: {error}"
    for name in LICENCES:
        if not (folder / name).is_file():
            yield f"{name} is missing"
    agents = sorted((folder / "launchd").glob("*.plist"))
    if not agents:
        yield "the agents are missing"
    for path in agents:
        agent = plistlib.loads(path.read_bytes())
        if agent.get("AssociatedBundleIdentifiers") != [info.get("CFBundleIdentifier")]:
            yield f"{path.name} does not say that it belongs to the app"
        program = Path(agent["ProgramArguments"][0])
        if program.parent != Path("/Applications/Stablehand.app/Contents/MacOS") or program.name not in IDENTIFIERS:
            yield f"{path.name} starts {program}, which is none of the app's programs"
        if agent.get("Label") != path.stem:
            yield f"{path.name} is not named after its label"


def _signatures(name, slices):
    for about in filter(None, slices):
        signature = about["signature"]
        if signature is None:
            yield f"{name} is not signed for {about['cpu']}"
        elif signature["identifier"] != IDENTIFIERS.get(name):
            yield f"{name} is signed as {signature['identifier']} instead of {IDENTIFIERS.get(name)}"
        elif not signature["ad_hoc"] and not signature["hardened"]:
            yield f"{name} is signed without the hardened runtime, which notarisation asks for"


def self_test():
    """A bundle of made-up programs that is taken, and the same with one thing wrong."""
    picture = icns.PNG + (13).to_bytes(4, "big") + b"IHDR" + (32).to_bytes(4, "big") * 2

    def bundle(folder):
        contents = folder / "Stablehand.app/Contents"
        for name, identifier in IDENTIFIERS.items():
            path = contents / "MacOS" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(mach_o.made_up(identifier=identifier))
            path.chmod(0o755)
        resources = contents / "Resources"
        (resources / "launchd").mkdir(parents=True)
        for path in (PROJECT / "launchd").glob("*.plist"):
            (resources / "launchd" / path.name).write_bytes(path.read_bytes())
        for name in LICENCES:
            (resources / name).write_text("")
        (resources / "Stablehand.icns").write_bytes(icns.icns([picture]))
        template = (PROJECT / "packaging/macos/Info.plist").read_text()
        (contents / "Info.plist").write_text(template.replace("0.0.0", "1.2.3"))
        (contents / "_CodeSignature").mkdir()
        (contents / "_CodeSignature/CodeResources").write_text("")
        return contents

    def replaced(path, old, new):
        return lambda contents: (contents / path).write_text((contents / path).read_text().replace(old, new))

    def program(**how):
        data = mach_o.made_up(**{"identifier": IDENTIFIERS[COMMAND], **how})
        return lambda contents: (contents / "MacOS" / COMMAND).write_bytes(data)

    spoilers = [
        (lambda contents: None, 0),
        (replaced("Info.plist", "1.2.3", "1.2.4"), 2),
        (replaced("Info.plist", "<string>dev.stablehand<", "<string>dev.other<"), 5),
        (replaced("Info.plist", "LSUIElement", "LSUIElephant"), 1),
        (replaced("Resources/launchd/dev.stablehand.tray.plist", "MacOS/stablehand-tray", "MacOS/tray"), 1),
        (lambda contents: (contents / "Resources/LICENSE-MIT").unlink(), 1),
        (lambda contents: (contents / "Resources/Stablehand.icns").write_bytes(b"icns"), 1),
        (lambda contents: (contents / "MacOS/stablehand").chmod(0o644), 1),
        (program(identifier="dev.stablehand"), 1),
        (program(symbol="_nowhere"), 1),
        (program(cpu=0x01000007), 1),
        (lambda contents: (contents / "_CodeSignature/CodeResources").unlink(), 1),
    ]
    failed = 0
    for number, (spoil, count) in enumerate(spoilers):
        with tempfile.TemporaryDirectory() as folder:
            contents = bundle(Path(folder))
            spoil(contents)
            faults, _ = look(contents.parent, "1.2.3", sealed=True)
            if len(faults) != count:
                print(f"app_bundle: the check itself is wrong: sample {number}: {len(faults)} instead of {count}: {faults}")
                failed = 1
    return failed


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 3 or arguments[2] not in ("--sealed", "--linked"):
        print(f"usage: {sys.argv[0]} BUNDLE VERSION --sealed|--linked, or --self-test", file=sys.stderr)
        return 2
    faults, lines = look(Path(arguments[0]), arguments[1], arguments[2] == "--sealed")
    for line in lines:
        print(line)
    for fault in faults:
        print(f"{arguments[0]}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
