r"""Writes Jane Austen's six novels as text, from the data of the R package janeaustenr.

    apt-get download r-cran-janeaustenr && dpkg -x r-cran-janeaustenr_*.deb janeaustenr
    python scripts/make_novels.py janeaustenr -o novels

The novels, of 1803 to 1818, are in the public domain; models/README.md says more. No R is needed:
its database is read here, one zlib stream after another, each a vector of lines.
"""

from __future__ import annotations

import argparse
import struct
import zlib
from pathlib import Path

DATABASE = "data/Rdata.rdb"
NOVELS = (  # in the database's order
    "emma",
    "mansfield_park",
    "northanger_abbey",
    "persuasion",
    "pride_and_prejudice",
    "sense_and_sensibility",
)
STRINGS = b"\0\0\0\x10"  # the tag of a vector of strings in R's serialization
STRING = 9  # of one string, in the lowest byte of its flags


def lines_of(raw: bytes) -> list[bytes]:
    """Lines of a serialized vector of strings.

    Raises:
        ValueError: it is another vector.
    """
    at = raw.index(STRINGS) + len(STRINGS)
    (count,) = struct.unpack_from(">i", raw, at)
    at += 4
    found = []
    for _ in range(count):
        flags, size = struct.unpack_from(">ii", raw, at)
        if flags & 0xFF != STRING:
            raise ValueError(f"byte {at}: type {flags & 0xFF}; wanted {STRING}, a string")
        found.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    return found


def texts_of(database: bytes) -> list[bytes]:
    """Texts of a database of R, each a vector of lines."""
    found = []
    while database:
        stream = zlib.decompressobj()
        raw = stream.decompress(database[4:])  # behind the size of what comes out
        database = stream.unused_data
        found.append(b"\n".join(lines_of(raw)) + b"\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, help="folder with the R package in it")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder")
    args = parser.parse_args()
    (database,) = args.package.rglob(DATABASE)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, text in zip(NOVELS, texts_of(database.read_bytes()), strict=True):
        (args.output / f"{name}.txt").write_bytes(text)
        print(f"wrote {args.output / name}.txt: {len(text)} bytes")


if __name__ == "__main__":
    main()
