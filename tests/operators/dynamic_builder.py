"""Dynamically quantized models of operators' cases, and what ONNX Runtime makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

import onnxq
from onnxq.observers import NarrowRangeObserver, NoopObserver, PerChannelMinMaxObserver
from onnxq.qconfig import QConfigDynamic, QConfigMapping
from tests.operators import builder

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from onnxq.observers import ObserverSpec
    from onnxq.operator import Array, Case, Operator, Precision

SYMMETRIC = NarrowRangeObserver.with_args(ch_axis=0)
PER_TENSOR = NarrowRangeObserver.with_args(ch_axis=None)
HALF = NoopObserver.with_args(dtype="float16")


def affine(dtype: str) -> ObserverSpec:
    """Smallest and largest value of each channel or block, zero points included."""
    return PerChannelMinMaxObserver.with_args(dtype=dtype, qscheme="per_channel_affine")


def quantized(
    model: onnx.ModelProto | ir.Model,
    form: Precision,
    weight: ObserverSpec = SYMMETRIC,
    block_size: int | None = None,
) -> ir.Model:
    """The model with every node in that form."""
    mapping = QConfigMapping().set_global(QConfigDynamic(weight, form, block_size))
    return onnxq.quantize_dynamic(model, mapping, objective="size")


def quantized_case(
    operator: Operator,
    case: Case,
    form: Precision,
    weight: ObserverSpec = SYMMETRIC,
    block_size: int | None = None,
) -> ir.Model:
    """The case's model, quantized."""
    return quantized(builder.float_model(operator, case), form, weight, block_size)


def optimized_ops(model: ir.Model, folder: Path) -> list[str]:
    """Operators of the graph that ONNX Runtime runs, sorted."""
    return builder.optimized_ops(ir.to_proto(model), folder)


def samples(case: Case) -> dict[str, Array]:
    """The case's inputs that are no constants."""
    return {
        name: x
        for i, (name, x) in enumerate(zip(builder.names(case), case.inputs, strict=True))
        if x is not None and i not in case.constants
    }


def run(model: ir.Model, feeds: dict[str, Array]) -> list[Array]:
    """Outputs of ONNX Runtime."""
    return [np.asarray(y) for y in builder.session(model).run(None, feeds)]
