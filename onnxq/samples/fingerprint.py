"""Fingerprint of samples: tells whether those at hand are those that were seen before."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from onnxq.core.arrays import Array


def crc_of(batch: Mapping[str, Array], crc: int = 0) -> int:
    """CRC-32 of names, types, shapes and values, whatever the order of the names."""
    for name in sorted(batch):
        array = np.ascontiguousarray(batch[name])
        crc = zlib.crc32(f"{name}{array.dtype}{array.shape}".encode(), crc)
        if array.dtype.hasobject:  # texts
            crc = zlib.crc32(repr(array.tolist()).encode(), crc)
            continue
        crc = zlib.crc32(array.reshape(-1).view(np.uint8).data, crc)
    return crc
