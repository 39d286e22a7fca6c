"""Models of float32 tensors, made from their nodes, for the bench scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    Shape = Sequence[int | str] | None


def model_of(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, npt.NDArray[np.generic]],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    opset: int,
) -> onnx.ModelProto:
    """The model with these tensors of float32.

    Args:
        nodes: of ONNX and of other domains, those in version 1.
        constants: name -> value; float64 becomes float32.
        inputs: name -> shape.
        outputs: name -> shape; None: not declared.
        opset: version of ONNX's operators.
    """
    graph = helper.make_graph(
        nodes,
        "bench",
        [float_tensor(*item) for item in inputs.items()],
        [float_tensor(*item) for item in outputs.items()],
        [
            numpy_helper.from_array(x.astype(np.float32) if x.dtype.kind == "f" else x, name)
            for name, x in constants.items()
        ],
    )
    domains = sorted({node.domain for node in nodes if node.domain})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(each, 1) for each in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset > 20 else 9)


def float_tensor(name: str, shape: Shape) -> onnx.ValueInfoProto:
    """Declaration of an input or output."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def proto_of(model: onnx.ModelProto | ir.Model) -> onnx.ModelProto:
    """The model as onnx's own type."""
    return ir.to_proto(model) if isinstance(model, ir.Model) else model
