"""Files of kinds that Python and Pillow write, each from the bytes of another file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import plistlib
import sqlite3
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from collections.abc import Callable

COARSE, SIDE = 6, 96
"""Sides of the pictures in pixels, before they are smoothed and after."""


def _tar(data: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("data.bin")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def _zip(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for i, half in enumerate((data[::2], data[1::2])):
            archive.writestr(zipfile.ZipInfo(f"part{i}.txt"), half.hex(), zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _sqlite(data: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="onnxq-corpus-") as folder:
        path = Path(folder) / "data.db"
        base = sqlite3.connect(path)
        base.execute("create table lines (number integer, line blob)")
        base.executemany("insert into lines values (?, ?)", enumerate(data.split(b"\n")))
        base.commit()
        base.close()
        return path.read_bytes()


def _pickle(data: bytes) -> bytes:
    return pickle.dumps(
        {word: (len(word), data.count(word)) for word in sorted(data.split()[:500])}
    )


def _plist(data: bytes) -> bytes:
    return plistlib.dumps({"data": data, "size": len(data)})


def _picture(form: str) -> Callable[[bytes], bytes]:
    def write(data: bytes) -> bytes:
        pixels = np.resize(np.frombuffer(data, np.uint8), (COARSE, COARSE, 3))
        file = io.BytesIO()
        Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(file, form)
        return file.getvalue()

    return write


WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip": bz2.compress,
    "xz": lzma.compress,
    "tar": _tar,
    "zip": _zip,
    "sqlite": _sqlite,
    "pickle": _pickle,
    "appleplist": _plist,
    "png": _picture("PNG"),
    "jpeg": _picture("JPEG"),
    "gif": _picture("GIF"),
    "bmp": _picture("BMP"),
    "tiff": _picture("TIFF"),
    "webp": _picture("WEBP"),
}
"""Kind, as magika calls it -> what makes such a file of the bytes of another one."""
