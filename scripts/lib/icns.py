#!/usr/bin/env python3
"""Puts PNG pictures of one icon into an icns file, which macOS shows for an app.

The file is a head and one entry for each picture: a type of four letters, the entry's length, the PNG as it is. All
numbers are big-endian. The types are those that `iconutil` writes for an .iconset.
"""

import struct
import sys
from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n"
# Pixels along an edge, and the sizes in points at one and at two pixels a point that they serve.
TYPES = {32: ["ic11"], 64: ["ic12"], 128: ["ic07"], 256: ["ic13", "ic08"], 512: ["ic14", "ic09"], 1024: ["ic10"]}


def icns(pictures):
    """The file's bytes. Raises ValueError for a picture that is no square PNG of a size that the format has."""
    body = b""
    for picture in sorted(pictures, key=_edge):
        for kind in TYPES[_edge(picture)]:
            body += struct.pack(">4sI", kind.encode(), 8 + len(picture)) + picture
    return struct.pack(">4sI", b"icns", 8 + len(body)) + body


def entries(data):
    """Each type with its picture. Raises ValueError for what is no icns file."""
    if len(data) < 8 or struct.unpack_from(">4sI", data) != (b"icns", len(data)):
        raise ValueError("it is no icns file, or not the whole of one")
    found, offset = {}, 8
    while offset < len(data):
        kind, size = struct.unpack_from(">4sI", data, offset)
        picture = data[offset + 8 : offset + size]
        if size != 8 + len(picture) or kind.decode() not in TYPES.get(_edge(picture), []):
            raise ValueError(f"its entry {kind.decode(errors='replace')} is none of that type")
        found[kind.decode()] = picture
        offset += size
    return found


def _edge(picture):
    if picture[:8] != PNG or picture[12:16] != b"IHDR":
        raise ValueError("it is no PNG")
    width, height = struct.unpack_from(">2I", picture, 16)
    if width != height or width not in TYPES:
        raise ValueError(f"{width} × {height} pixels are none of the sizes {', '.join(map(str, TYPES))}")
    return width


def self_test():
    def picture(width, height):
        return PNG + struct.pack(">I4s2I", 13, b"IHDR", width, height) + bytes(range(width % 251))

    written = icns([picture(edge, edge) for edge in reversed(TYPES)])
    wanted = {kind: picture(edge, edge) for edge, kinds in TYPES.items() for kind in kinds}
    faults = [] if entries(written) == wanted else ["what was written is not what is read"]
    for bad in ([picture(32, 64)], [picture(48, 48)], [b"GIF89a" + bytes(40)]):
        try:
            icns(bad)
            faults.append("a picture that does not fit was taken")
        except ValueError:
            pass
    for data in (written[:-1], b"icnt" + written[4:], written.replace(b"ic07", b"ic09")):
        try:
            entries(data)
            faults.append("a spoiled file was taken")
        except ValueError:
            pass
    for fault in faults:
        print(f"icns: {fault}")
    return 1 if faults else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) < 2:
        print(f"usage: {sys.argv[0]} OUTPUT.icns PICTURE.png... | --self-test", file=sys.stderr)
        return 2
    output, *pictures = map(Path, arguments)
    try:
        output.write_bytes(icns([picture.read_bytes() for picture in pictures]))
    except ValueError as error:
        print(f"✗ {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
