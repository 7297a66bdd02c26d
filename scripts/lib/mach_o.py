#!/usr/bin/env python3
"""Looks into a program linked for macOS and fails when it could not start there.

It must be a Mach-O executable for arm64 or x86-64, or a universal one of both, load libraries of the system alone, run
on the oldest macOS that we name, and carry a signature that fits its bytes where it is for arm64: macOS ends such a
program without one at its start. Every symbol that the linker left to be looked up at start must be one that the
frameworks are known to have: the stubs that we link against are empty, so the linker cannot tell.
"""

import hashlib
import os
import re
import struct
import sys
from pathlib import Path

MAGIC_64, MAGIC_FAT = 0xFEEDFACF, 0xCAFEBABE
CPUS = {0x0100000C: "arm64", 0x01000007: "x86_64"}
EXECUTABLE = 2
LC_SYMTAB, LC_LOAD_DYLIB, LC_SIGNATURE, LC_VERSION_MIN, LC_BUILD_VERSION = 0x2, 0xC, 0x1D, 0x24, 0x32
UNDEFINED, TYPE_BITS, DEBUG_BITS = 0x0, 0x0E, 0xE0
# A symbol of no library in particular: 0xFE by the format, 0 as zig's linker writes it.
LOOKED_UP_AT_START = (0xFE, 0x00)
# What codesign writes (xnu's osfmk/kern/cs_blobs.h); all of it is big-endian.
SIGNATURE, CODE_DIRECTORY, SHA256, AD_HOC, HARDENED = 0xFADE0CC0, 0xFADE0C02, 2, 0x2, 0x10000

SYSTEM_LIBRARY = re.compile(r"^(?:/usr/lib/lib[\w.+-]+\.dylib|/System/Library/Frameworks/.+)$")
# What the frameworks and libraries of FRAMEWORKS and LIBRARIES (macos_target.sh) call their symbols.
KNOWN_SYMBOL = re.compile(
    r"^_(?:CF|kCF|CG|kCG|CV|kCV|IO|kIO|NS|MTL|OD|kOD|Sec|kSec|SC|kSC|AE|LS|TIS|kTIS|UN|WK|__CF|__NS|sqlite3_|objc_|sel_|"
    r"class_|ivar_|method_|protocol_|object_|_objc_|OBJC_(?:CLASS|METACLASS|EHTYPE)_\$_|"
    # The Objective-C runtime's for exceptions, and Carbon's for the keyboard's layout and the kind of app.
    r"(?:OBJC_EHTYPE_id|__objc_personality_v0|LMGetKbdType|UCKeyTranslate|TransformProcessType)$)"
)


def look(data):
    """What is wrong with the program, and for each processor what it is."""
    faults, slices = [], []
    for piece in _slices(data):
        wrong, about = _look_at_slice(piece)
        faults += wrong
        slices.append(about)
    return faults, slices


def _slices(data):
    if len(data) < 8 or struct.unpack_from(">I", data)[0] != MAGIC_FAT:
        return [data]
    count = struct.unpack_from(">I", data, 4)[0]
    places = [struct.unpack_from(">5I", data, 8 + 20 * index)[2:4] for index in range(count)]
    return [data[start : start + size] for start, size in places]


def _look_at_slice(data):
    faults = []
    magic, cpu, _, kind, count, _, _, _ = struct.unpack_from("<8I", data)
    if magic != MAGIC_64 or kind != EXECUTABLE or cpu not in CPUS:
        return ["it is no 64-bit Mach-O executable"], {}
    about = {"cpu": CPUS[cpu], "bytes": len(data), "signature": None}
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
        elif command == LC_SIGNATURE:
            about["signature"] = _signature(data, *struct.unpack_from("<2I", data, offset + 8))
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
    if about["signature"] is None and about["cpu"] == "arm64":
        faults.append("it is for arm64 and not signed")
    elif about["signature"] and not about["signature"]["fits"]:
        faults.append("its signature does not fit its bytes")
    return faults, {**about, "libraries": libraries, "looked_up": looked_up}


def _looked_up(data, symbols, count, strings, _):
    for index in range(count):
        name, kind, _, description, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * index)
        if kind & DEBUG_BITS == 0 and kind & TYPE_BITS == UNDEFINED and description >> 8 in LOOKED_UP_AT_START:
            yield _string(data, strings + name)


def _signature(data, start, _):
    """Who the signature says the program is, and whether every page of it has the hash that stands there."""
    magic, _, count = struct.unpack_from(">3I", data, start)
    if magic != SIGNATURE:
        return None
    for index in range(count):
        place = start + struct.unpack_from(">2I", data, start + 12 + 8 * index)[1]
        if struct.unpack_from(">I", data, place)[0] == CODE_DIRECTORY:
            flags, hashes, name, _, pages, limit, size, kind, _, page_bits = struct.unpack_from(">6I4B", data, place + 12)
            page = 1 << page_bits
            fits = kind == SHA256 and pages == -(-limit // page) and all(
                hashlib.sha256(data[at : min(at + page, limit)]).digest() == data[told : told + size]
                for at, told in ((number * page, place + hashes + number * size) for number in range(pages))
            )
            identifier = _string(data, place + name)
            return {"identifier": identifier, "ad_hoc": bool(flags & AD_HOC), "hardened": bool(flags & HARDENED), "fits": fits}
    return None


def _string(data, start):
    return data[start : data.index(b"\0", start)].decode()


def described(about):
    """One line for a person."""
    signature = about["signature"]
    signed = "not signed"
    if signature:
        how = "ad hoc" if signature["ad_hoc"] else "with an identity"
        hardened = ", hardened" if signature["hardened"] else ""
        signed = f"signed {how} as {signature['identifier']}{hardened}"
    return (
        f"{about['cpu']}, {about['bytes']} bytes, {len(about['libraries'])} libraries, "
        f"{len(about['looked_up'])} symbols looked up at start, {signed}"
    )


def made_up(library="/usr/lib/libSystem.B.dylib", symbol="_CFRelease", cpu=0x0100000C, identifier="x", spoiled=False):
    """A program of one library, one version, two symbols and, with an identifier, a signature."""
    text = library.encode() + b"\0" * (8 - len(library) % 8)
    dylib = struct.pack("<6I", LC_LOAD_DYLIB, 24 + len(text), 24, 0, 0, 0) + text
    version = struct.pack("<6I", LC_BUILD_VERSION, 24, 1, 11 << 16, 11 << 16, 0)
    start = 32 + len(dylib) + len(version) + 24 + 16
    table = struct.pack("<6I", LC_SYMTAB, 24, start, 2, start + 32, 0)
    symbols = struct.pack("<IBBHQ", 1, 1, 0, LOOKED_UP_AT_START[0] << 8, 0) + struct.pack("<IBBHQ", 0, 1, 0, 1 << 8, 0)
    rest = symbols + b"\0" + symbol.encode() + b"\0"
    signed_at = start + len(rest)
    name = (identifier or "").encode() + b"\0"
    command = struct.pack("<4I", LC_SIGNATURE if identifier else 0x26, 16, signed_at, 0)
    header = struct.pack("<8I", MAGIC_64, cpu, 0, EXECUTABLE, 4, 0, 0, 0)
    body = header + dylib + version + table + command + rest
    if not identifier:
        return body
    head = 44
    digest = hashlib.sha256(body + (b"x" if spoiled else b"")).digest()
    directory = struct.pack(">9I", CODE_DIRECTORY, 0, 0x20400, AD_HOC, head + len(name), head, 0, 1, len(body))
    directory += struct.pack(">4BI", 32, SHA256, 0, 12, 0) + name + digest
    return body + struct.pack(">5I", SIGNATURE, 0, 1, 0, 20) + directory


def universal(*programs):
    """One file of several programs."""
    head, body, start = struct.pack(">2I", MAGIC_FAT, len(programs)), b"", 8 + 20 * len(programs)
    for data in programs:
        head += struct.pack(">5I", struct.unpack_from("<I", data, 4)[0], 0, start + len(body), len(data), 0)
        body += data
    return head + body


def self_test():
    """What must be found, and what must not."""
    intel = made_up(cpu=0x01000007, identifier=None)
    for data, count in [
        (made_up(), 0),
        (intel, 0),
        (universal(made_up(), intel), 0),
        (made_up(library="/opt/homebrew/lib/libx.dylib"), 1),
        (made_up(symbol="_nowhere"), 1),
        (made_up(identifier=None), 1),
        (made_up(spoiled=True), 1),
        (universal(intel, made_up(symbol="_nowhere", spoiled=True)), 2),
        (b"\x7fELF" + bytes(60), 1),
    ]:
        faults, _ = look(data)
        if len(faults) != count:
            print(f"mach_o: the check itself is wrong: {len(faults)} faults instead of {count}: {faults}")
            sys.exit(1)


def main(arguments):
    if arguments == ["--self-test"]:
        os.environ["MACOSX_DEPLOYMENT_TARGET"] = "11.0"
        self_test()
        return 0
    if len(arguments) != 1:
        print(f"usage: {sys.argv[0]} PROGRAM | --self-test", file=sys.stderr)
        return 2
    faults, slices = look(Path(arguments[0]).read_bytes())
    for about in filter(None, slices):
        print(f"{arguments[0]}: {described(about)}")
    for fault in faults:
        print(f"{arguments[0]}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
