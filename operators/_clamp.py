"""Bounds as integers, for Relu and Clip; the result has its input's qparams, or its own."""

import numpy as np
import onnx_ir as ir

from onnxq.affine import dequantize, quantize
from onnxq.operator import Call, Site
from onnxq.operators._function import lower_around
from onnxq.qparams import IntArray, QParams

Bounds = tuple[float, float]


def bound_integers(bounds: Bounds, qparams: QParams) -> tuple[IntArray, IntArray]:
    """The integers nearest to the real bounds, rank 0; infinities give the type's min and max."""
    low, high = (quantize(np.asarray(bound, np.float32), qparams) for bound in bounds)
    return low, high


def lower_clamp(site: Site, bounds: Bounds) -> list[ir.Value]:
    """Clip-13 on integers; between two qparams, the operator in float."""
    if site.qparams_in(0) != site.qparams_out():
        return lower_around(site)
    qparams = site.shared()
    low, high = bound_integers(bounds, qparams)
    slots = [
        site.inputs[0],
        site.initializer("low", low, qparams.dtype),
        site.initializer("high", high, qparams.dtype),
    ]
    return site.emit(slots, op_type="Clip", attributes={})


def clamp_integers(call: Call, bounds: Bounds) -> IntArray:
    """min(max(x, low), high): on integers, or of reals where the result has other qparams."""
    x, p, q = call.integers(0), call.qparams_in(0), call.qparams_out()
    if p != q:
        return quantize(np.clip(dequantize(x, p), *np.array(bounds, np.float32)), q)
    low, high = bound_integers(bounds, p)
    return np.asarray(np.minimum(np.maximum(x, low), high))
