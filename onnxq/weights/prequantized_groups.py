"""Group-wise weights that a file has already: taken over with their integers and scales.

w[o, i] = (integers[o, i] - zero_point[o, g]) * scale[o, g]        g = i // group_size
"""

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array, Singles
from onnxq.graph.folded import given_bytes
from onnxq.graph.prequantized_weights import find_prequantized, stored_bits
from onnxq.operator.nodes import tensor_of
from onnxq.qparams.group_spec import GROUP_SIZES, GroupSpec, Scheme
from onnxq.qparams.groups import GroupIntegers

HALF_BYTES = 2  # of a scale that float16 holds


def prequantized_spec(value: ir.Value, inputs_first: bool, asked: GroupSpec) -> GroupSpec | None:
    """Precision of the integers that the file has of a matrix; None: others have to be found.

    Args:
        value: the float weight.
        inputs_first: it is (inputs, outputs); else (outputs, inputs).
        asked: precision that it would get; the file's has no more bits.
    """
    if stored_bits(value) > asked.bits:
        return None
    made = _in_rows(value, inputs_first)
    if made is None:
        return None
    integers, scale, points = made
    bits = stored_bits(value)
    symmetric = bool((points == 1 << (bits - 1)).all())
    scheme = Scheme.SYMMETRIC if symmetric else Scheme.AFFINE
    for size in reversed(GROUP_SIZES):
        if _is_same(scale, size) and _is_same(points, size):
            spec = GroupSpec(bits, size, scheme, asked.signed)
            rows, inputs = integers.shape
            scales = rows * spec.groups(inputs) * HALF_BYTES
            is_kept = spec.size_bytes(rows, inputs) - scales <= given_bytes(tensor_of(value))
            return spec if is_kept else None
    return None


def prequantized_integers(value: ir.Value, inputs_first: bool, spec: GroupSpec) -> GroupIntegers:
    """The integers, scales and zero points that the file has, as `prequantized_spec` found them."""
    made = _in_rows(value, inputs_first)
    assert made is not None, "prequantized_spec looked"
    integers, scale, points = made
    first = slice(None, None, spec.group_size)
    return GroupIntegers(
        spec,
        integers.astype(np.uint8),
        np.ascontiguousarray(scale[:, first], np.float32),
        points[:, first].astype(np.uint8),
    )


def _in_rows(value: ir.Value, inputs_first: bool) -> tuple[Singles, Singles, Singles] | None:
    """(integers, scale, zero point) of each number of (outputs, inputs), the integers unsigned."""
    given = find_prequantized(value)
    if given is None:
        return None
    lowest = -(1 << (given.dtype.bitwidth - 1)) if given.dtype.is_signed() else 0
    points = given.zero_point - lowest
    integers = given.centred + points
    if not (integers.min(initial=0) >= 0 and integers.max(initial=0) < 1 << given.dtype.bitwidth):
        return None
    arrays = (integers, given.scale, points)
    return tuple(x.T if inputs_first else x for x in arrays)  # type: ignore[return-value]  # three


def _is_same(array: Array, size: int) -> bool:
    """Whether the numbers of each group of a row are the same."""
    inputs = array.shape[1]
    first = np.repeat(array[:, ::size], size, axis=1)[:, :inputs]
    return bool((array == first).all())
