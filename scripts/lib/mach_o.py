#!/usr/bin/env python3
"""Looks into a program linked for macOS and fails when it could not start there.

It must be a Mach-O executable for arm64 or x86-64, load libraries of the system alone, run on the oldest macOS that we
name, and every symbol that the linker left to be looked up at start must be one that the frameworks are known to have:
the stubs that we link against are empty, so the linker cannot tell.
"""

import os
import re
import struct
import sys
from pathlib import Path

MAGIC_64 = 0xFEEDFACF
CPUS = {0x0100000C: "arm64", 0x01000007: "x86_64"}
EXECUTABLE = 2
LC_SYMTAB, LC_LOAD_DYLIB, LC_VERSION_MIN, LC_BUILD_VERSION = 0x2, 0xC, 0x24, 0x32
UNDEFINED, TYPE_BITS, DEBUG_BITS = 0x0, 0x0E, 0xE0
# A symbol of no library in particular: 0xFE by the format, 0 as zig's linker writes it.
LOOKED_UP_AT_START = (0xFE, 0x00)

SYSTEM_LIBRARY = re.compile(r"^(?:/usr/lib/lib[\w.+-]+\.dylib|/System/Library/Frameworks/.+)$")
# What the frameworks and libraries of FRAMEWORKS and LIBRARIES (macos_target.sh) call their symbols.
KNOWN_SYMBOL = re.compile(
    r"^_(?:CF|kCF|IO|kIO|NS|MTL|OD|kOD|Sec|kSec|SC|kSC|AE|LS|__CF|__NS|sqlite3_|objc_|sel_|class_|ivar_|method_|protocol_|"
    r"object_|_objc_|OBJC_(?:CLASS|METACLASS|EHTYPE)_\$_)"
)


def look(data):
    """What is wrong with the program, and one line that says what it is."""
    faults = []
    magic, cpu, _, kind, count, _, _, _ = struct.unpack_from("<8I", data)
    if magic != MAGIC_64 or kind != EXECUTABLE or cpu not in CPUS:
        return ["it is no 64-bit Mach-O executable"], ""
    libraries, oldest, looked_up = [], None, []
    offset = 32
    for _ in range(count):
        command, size = struct.unpack_from("<2I", data, offset)
        if command == LC_LOAD_DYLIB:
            libraries.append(_string(data, offset + struct.unpack_from("<I", data, offset + 8)[0]))
        elif command in (LC_BUILD_VERSION, LC_VERSION_MIN):
            packed = struct.unpack_from("<I", data, offset + (12 if command == LC_BUILD_VERSION else 8))[0]
            oldest = (packed >> 16, packed >> 8 & 0xFF)
        elif command == LC_SYMTAB:
            looked_up = list(_looked_up(data, *struct.unpack_from("<4I", data, offset + 8)))
        offset += size
    for library in libraries:
        if not SYSTEM_LIBRARY.match(library):
            faults.append(f"it loads {library}, which macOS does not bring")
    wanted = tuple(int(part) for part in os.environ.get("MACOSX_DEPLOYMENT_TARGET", "11.0").split("."))
    if oldest != wanted:
        faults.append(f"it is made for macOS {oldest} and newer instead of {wanted}")
    for symbol in looked_up:
        if not KNOWN_SYMBOL.match(symbol):
            faults.append(f"it looks up {symbol} at start, which no framework of ours is known to have")
    line = f"{CPUS[cpu]}, {len(data)} bytes, {len(libraries)} libraries, {len(looked_up)} symbols looked up at start"
    return faults, line


def _looked_up(data, symbols, count, strings, _):
    for index in range(count):
        name, kind, _, description, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * index)
        if kind & DEBUG_BITS == 0 and kind & TYPE_BITS == UNDEFINED and description >> 8 in LOOKED_UP_AT_START:
            yield _string(data, strings + name)


def _string(data, start):
    return data[start : data.index(b"\0", start)].decode()


def self_test():
    """A made-up program of one library, one version and two symbols."""

    def program(library, symbol):
        text = library.encode() + b"\0" * (8 - len(library) % 8)
        dylib = struct.pack("<6I", LC_LOAD_DYLIB, 24 + len(text), 24, 0, 0, 0) + text
        version = struct.pack("<6I", LC_BUILD_VERSION, 24, 1, 11 << 16, 11 << 16, 0)
        start = 32 + len(dylib) + len(version) + 24
        table = struct.pack("<6I", LC_SYMTAB, 24, start, 2, start + 32, 0)
        symbols = struct.pack("<IBBHQ", 1, 1, 0, LOOKED_UP_AT_START[0] << 8, 0) + struct.pack("<IBBHQ", 0, 1, 0, 1 << 8, 0)
        header = struct.pack("<8I", MAGIC_64, 0x0100000C, 0, EXECUTABLE, 3, 0, 0, 0)
        return header + dylib + version + table + symbols + b"\0" + symbol.encode() + b"\0"

    for data, count in [
        (program("/usr/lib/libSystem.B.dylib", "_CFRelease"), 0),
        (program("/opt/homebrew/lib/libx.dylib", "_CFRelease"), 1),
        (program("/usr/lib/libSystem.B.dylib", "_nowhere"), 1),
        (b"\x7fELF" + bytes(60), 1),
    ]:
        faults, _ = look(data)
        if len(faults) != count:
            print(f"mach_o: the check itself is wrong: {len(faults)} faults instead of {count}: {faults}")
            sys.exit(1)


if sys.argv[1:] == ["--self-test"]:
    os.environ["MACOSX_DEPLOYMENT_TARGET"] = "11.0"
    self_test()
    sys.exit(0)
if len(sys.argv) != 2:
    print(f"usage: {sys.argv[0]} PROGRAM | --self-test", file=sys.stderr)
    sys.exit(2)
FAULTS, SUMMARY = look(Path(sys.argv[1]).read_bytes())
print(f"{sys.argv[1]}: {SUMMARY}")
for fault in FAULTS:
    print(f"{sys.argv[1]}: {fault}")
sys.exit(1 if FAULTS else 0)
