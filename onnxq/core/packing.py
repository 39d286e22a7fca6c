"""Narrow integers in bytes, the first in the low bits, as MatMulNBits holds them."""

import numpy as np
import numpy.typing as npt

BYTE_BITS = 8

Bytes = npt.NDArray[np.uint8]


def packed_rows(integers: Bytes, bits: int) -> Bytes:
    """Rows of integers, 8 / bits to a byte; each row ends on a byte, filled up with zeros.

    Args:
        integers: uint8 (rows, width), each below 2^bits.
        bits: 2, 4 or 8.
    Returns:
        uint8 (rows, ceil(width * bits / 8)).
    """
    rows, width = integers.shape
    per_byte = BYTE_BITS // bits
    groups = np.zeros((rows, -(-width // per_byte), per_byte), np.uint8)
    groups.reshape(rows, -1)[:, :width] = integers
    shifts = np.arange(0, BYTE_BITS, bits, dtype=np.uint8)
    return np.asarray(np.bitwise_or.reduce(groups << shifts, axis=-1), np.uint8)


def unpacked_rows(packed: Bytes, bits: int) -> Bytes:
    """Integers of rows of bytes: uint8 (rows, bytes) -> (rows, bytes * 8 / bits)."""
    shifts = np.arange(0, BYTE_BITS, bits, dtype=np.uint8)
    parts = (packed[..., np.newaxis] >> shifts) & np.uint8((1 << bits) - 1)
    rows, width = packed.shape
    return np.asarray(parts.reshape(rows, width * len(shifts)), np.uint8)
