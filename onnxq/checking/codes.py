"""Finds the codes of activations in a quantized graph, by name, with their qparams."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq import dtypes
from onnxq.graph.expose import observable
from onnxq.qdq.fuse import QPARAMS_KEY
from onnxq.qparams import QParams
from onnxq.static.placing.channel_gains import GAINS_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = "_quantized"

_DTYPES = {dtypes.find(n).onnx: dtypes.find(n) for n in ("uint8", "int8", "uint16", "int16")}
"""Types of codes that ONNX Runtime hands out as NumPy arrays, one element per code."""


@dataclass(frozen=True, slots=True)
class Codes:
    """The integer twin of an activation.

    Attributes:
        name: of the value that holds the codes.
        tensor: name of the float tensor they stand for.
        qparams: per-tensor; None where they are not known.
        problem: why not; empty where they are.
        gain: one factor per channel (axis 1) that the codes carry; None: none.
    """

    name: str
    tensor: str
    qparams: QParams | None
    problem: str = ""
    gain: tuple[float, ...] | None = None


def find_codes(model: ir.Model) -> list[Codes]:
    """Every value named `<tensor>_quantized` and every output of a QuantizeLinear, in graph order.

    Constants, and bodies of Loop and Scan, are not looked at.
    """
    values = {v.name: v for v in _values(model.graph)}
    initializers = {v.name: v for v in _initializers(model)}
    return [
        _codes(values[name], initializers)
        for name in observable(model)
        if name in values and (name.endswith(SUFFIX) or _needs_codes(values[name]))
    ]


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    for node in graph.all_nodes():
        yield from node.outputs


def _initializers(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.initializers.values()
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from attribute.as_graph().initializers.values()


def _needs_codes(value: ir.Value) -> bool:
    """An output of QuantizeLinear, unless a Clip on codes behind it has the final ones."""
    node = value.producer()
    if node is None or node.op_type != "QuantizeLinear":
        return False
    return not any(use.node.op_type == "Clip" for use in value.uses())


def _codes(value: ir.Value, initializers: dict[str | None, ir.Value]) -> Codes:
    name = str(value.name)
    tensor = name.removesuffix(SUFFIX)
    if tensor == name:
        return Codes(name, tensor, None, f"its name does not end in {SUFFIX}")
    if QPARAMS_KEY in value.metadata_props:
        told = QParams.from_dict(json.loads(value.metadata_props[QPARAMS_KEY]))
        return Codes(name, tensor, told, gain=_gain(value))
    scale, zero_point = _parameters(value, tensor, initializers)
    if scale is None:
        return Codes(name, tensor, None, "its scale is not a constant of the model")
    if scale.size != 1:
        return Codes(name, tensor, None, f"it has {scale.size} scales; one per tensor is compared")
    kind = None if value.dtype is None else value.dtype.name
    if zero_point is not None:
        kind = kind or zero_point.dtype.name.upper()
    dtype = _DTYPES.get(kind or "UINT8")
    if dtype is None:
        return Codes(
            name, tensor, None, f"ONNX Runtime does not hand out {str(kind).lower()} codes"
        )
    zero = np.zeros((), dtype.storage) if zero_point is None else zero_point.reshape(())
    qparams = QParams(scale.reshape(()).astype(np.float32), zero, dtype)
    return Codes(name, tensor, qparams, gain=_gain(value))


def _gain(value: ir.Value) -> tuple[float, ...] | None:
    text = value.metadata_props.get(GAINS_KEY)
    return None if text is None else tuple(json.loads(text))


def _parameters(
    value: ir.Value, tensor: str, initializers: dict[str | None, ir.Value]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(scale, zero point): of a Q or DQ at the value, else initializers named after the tensor."""
    at = [use.node for use in value.uses() if use.node.op_type == "DequantizeLinear"]
    producer = value.producer()
    if producer is not None and producer.op_type == "QuantizeLinear":
        at.insert(0, producer)
    for node in at:
        scale = _array(node.inputs[1])
        if scale is not None:
            return scale, _array(node.inputs[2]) if len(node.inputs) > 2 else None
    return (
        _array(initializers.get(f"{tensor}_scale")),
        _array(initializers.get(f"{tensor}_zero_point")),
    )


def _array(value: ir.Value | None) -> np.ndarray | None:
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()
