"""A small model that repeats one link, so that the time of a link is a difference of two runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxq.core.arrays import Array, Singles

MICROSOFT = "com.microsoft"
BLOCKS = "com.microsoft.nchwc"
OPSETS = {"": 21, MICROSOFT: 1, BLOCKS: 1}
NO_ATTRIBUTES: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Parts:
    """Nodes and constants of a model that grows.

    Attributes:
        nodes: in the order of their adding.
        constants: name -> value.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def constant(self, value: Array) -> str:
        """Name of a new initializer."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        attributes: Mapping[str, object] = NO_ATTRIBUTES,
        domain: str = "",
        results: int = 1,
    ) -> str:
        """Name of the first result of a new node."""
        name = f"n{len(self.nodes)}"
        outputs = [f"{name}_{i}" if i else name for i in range(results)]
        node = helper.make_node(op_type, inputs, outputs, name=name, domain=domain)
        node.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
        self.nodes.append(node)
        return name

    def model(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> ir.Model:
        """The model; sizes of its inputs are left open, so that nothing is computed ahead."""
        graph = helper.make_graph(
            self.nodes,
            "link",
            [
                helper.make_tensor_value_info(
                    name,
                    helper.np_dtype_to_tensor_dtype(array.dtype),
                    [f"{name}{axis}" for axis in range(array.ndim)],
                )
                for name, array in inputs.items()
            ],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid(*item) for item in OPSETS.items()]
        return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def numbers(*shape: int) -> Singles:
    """Normally distributed float32 numbers, the same ones every time."""
    return np.resize(_NUMBERS, shape)


def integers(*shape: int) -> Array:
    """Integers of type uint8, the same ones every time."""
    return np.resize(_INTEGERS, shape)


def weights(*shape: int) -> Array:
    """Weights of type int8, the same ones every time."""
    return np.resize(np.maximum(_INTEGERS.view(np.int8), -127), shape)


_NUMBERS = np.random.default_rng(0).standard_normal(65_521, np.float32)  # a prime: rows differ
_INTEGERS = np.random.default_rng(0).integers(0, 256, 65_521).astype(np.uint8)
