"""Data file of a model that is too large for one file, named by its bytes.

    model.onnx                  refers to
    model.onnx.5b1f0c9d.data    8 digits: CRC-32 of the file

The data file gets its name first, and no file of other bytes ever has that name. Then the graph
replaces the old one: two files, one event; then the old graph's data file is removed. Killed at any
moment, the graph that stands there has its own weights beside it. A kill can leave a data file that
no graph names.
"""

from __future__ import annotations

import contextlib
import filecmp
import re
import stat
import zlib
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from onnxq.core.regular import why_no_file
from onnxq.graph.skeleton import proto_graphs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PIECE = 1 << 24  # bytes that are read at once
_NAMES = 1 << 32


def data_name(part: Path, target: Path) -> str:
    """Name for a complete data file beside its graph: one that is free, or has the same bytes.

    Args:
        part: the data, under a temporary name in the target's folder.
        target: of the graph.
    """
    crc = 0
    with part.open("rb") as file:
        while piece := file.read(_PIECE):
            crc = zlib.crc32(piece, crc)
    while True:
        path = target.with_name(f"{target.name}.{crc:08x}.data")
        if not path.is_symlink() and not path.exists():
            return path.name
        if (
            not why_no_file(path)
            and not path.is_symlink()
            and filecmp.cmp(part, path, shallow=False)
        ):
            return path.name
        crc = (crc + 1) % _NAMES


def data_files(target: Path) -> set[Path]:
    """Data files beside a graph that the file at its path refers to by such a name.

    Empty where that file is no model: what cannot be read refers to nothing.
    """
    pattern = re.compile(rf"{re.escape(target.name)}\.[0-9a-f]{{8}}\.data")
    with contextlib.suppress(OSError):
        named = {
            path.name: path for path in target.parent.iterdir() if pattern.fullmatch(path.name)
        }
        if named and not why_no_file(target):  # most have none, and are not read
            return {named[name] for name in _locations(target.read_bytes()) if name in named}
    return set()


def remove_old(old: set[Path], target: Path) -> None:
    """Removes data files of the old graph that the graph at its path does not refer to.

    A link stays, and so does what cannot be removed: the new model is complete without that.
    """
    if not old:
        return
    for path in old - data_files(target):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(path.lstat().st_mode):
                path.unlink()


def locations(proto: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    """Entries that name the data file of an initializer."""
    for graph in proto_graphs(proto.graph):
        for tensor in graph.initializer:
            yield from (entry for entry in tensor.external_data if entry.key == "location")


def _locations(data: bytes) -> set[str]:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        return set()
    return {entry.value for entry in locations(proto)}
