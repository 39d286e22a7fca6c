"""Weights that are stored as integers: what they say, and how to exchange them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.dtypes import INT8
from onnxq.graph.edit import FreeNames
from onnxq.operator.nodes import input_at
from onnxq.qdq.read import SCALE, WEIGHT, Unread, array_of, dequantizer, is_constant, qparams_of
from onnxq.qdq.write import constants_of, feed, new_integers
from onnxq.qparams import PerBlock, PerChannel, PerTensor, QParams


@dataclass(frozen=True, eq=False)
class Int8Weight:
    """An int8 weight around 0.

    Attributes:
        integers: int8, any rank.
        scale: float32, shape () or (channels,).
        axis: of the output channels in integers.
    """

    name: str
    integers: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float32]
    axis: int

    @property
    def channels(self) -> int:
        """Number of output channels."""
        return int(self.integers.shape[self.axis])

    @property
    def stem(self) -> str:
        """Name of the weight, as far as its integers' name tells."""
        return self.name.rstrip("_0123456789").removesuffix("_quantized").removesuffix("_folded")

    def store(
        self,
        integers: npt.NDArray[np.int8],
        scale: npt.NDArray[np.float32],
        node: ir.Node,
        names: FreeNames,
    ) -> Int8Weight:
        """Makes these the integers and scales of the node's weight; returns them."""
        old = dequantizer(node.inputs[WEIGHT])
        assert old is not None, "weight_of looked"
        stem = f"{self.stem}_folded"
        granularity = PerChannel(self.axis) if scale.ndim else PerTensor()
        qparams = QParams(scale, np.zeros(scale.shape, np.int8), INT8, granularity)
        stored, graph_qparams = new_integers(constants_of(node, names), stem, integers, qparams)
        name = names.node(f"{old.name}_folded")
        feed(
            node, WEIGHT, graph_qparams.dequantize(stored, name, names.value(f"{stem}_dequantized"))
        )
        return Int8Weight(str(stored.name), integers, scale, self.axis)


def weight_of(node: ir.Node) -> Int8Weight | None:
    """The weight of a Conv, ConvTranspose of one group or Gemm, if it is stored as int8 around 0.

    None also where its scales are not those of the output channels.
    """
    axis = _output_axis(node)
    source = dequantizer(node.inputs[WEIGHT]) if axis is not None else None
    if axis is None or source is None or not is_constant(source):
        return None
    integers, scale, qparams = array_of(source, 0), array_of(source, SCALE), qparams_of(source)
    if integers is None or scale is None or isinstance(qparams, Unread):
        return None
    if qparams.dtype != INT8 or qparams.zero_point.any():
        return None
    along = qparams.granularity
    if isinstance(along, PerBlock):
        return None
    if isinstance(along, PerChannel) and along.axis % integers.ndim != axis:
        return None
    if scale.shape != (integers.shape[axis],):  # else a weight of one channel keeps its shape (1,)
        scale = qparams.scale
    return Int8Weight(str(input_at(source, 0).name), integers, scale, axis)


def _output_axis(node: ir.Node) -> int | None:
    if node.domain or len(node.inputs) <= WEIGHT:
        return None
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose" and node.attributes.get_int("group", 1) == 1:
        return 1
    if node.op_type == "Gemm":
        return 0 if node.attributes.get_int("transB", 0) else 1
    return None
