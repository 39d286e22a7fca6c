"""Bounds as codes, for Relu and Clip. The codes of a clamped tensor keep its qparams."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxq.affine import quantize
from onnxq.operator import Call, Site
from onnxq.qparams import IntArray, QParams

Bounds = tuple[float, float]


def bound_codes(bounds: Bounds, qparams: QParams) -> tuple[IntArray, IntArray]:
    """The codes nearest to the real bounds, rank 0; infinities give the type's ends."""
    low, high = (quantize(np.asarray(bound, np.float32), qparams) for bound in bounds)
    return low, high


def lower_clamp(site: Site, bounds: Bounds) -> list[ir.Value]:
    """Clip-13 on codes."""
    qparams = site.shared()
    low, high = bound_codes(bounds, qparams)
    slots = [
        site.inputs[0],
        site.initializer("low", low, qparams.dtype),
        site.initializer("high", high, qparams.dtype),
    ]
    return site.emit(slots, op_type="Clip", attributes={})


def clamp_codes(call: Call, bounds: Bounds) -> IntArray:
    """min(max(x, low), high) on codes."""
    x = call.codes(0)
    low, high = bound_codes(bounds, call.shared())
    return np.asarray(np.minimum(np.maximum(x, low), high))
