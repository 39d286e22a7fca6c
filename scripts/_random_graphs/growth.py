"""A float graph that grows node by node, and its weights."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.generic]
    Attribute = int | float | str | Sequence[int] | onnx.GraphProto

BATCH = 2
TIED = 0.2  # of the weights whose shape another one has: they are one


class Weights(enum.Enum):
    """Kinds of weights; but for the first, in a third of the output channels or in all of them."""

    USUAL = "usual"
    PRUNED = "pruned"
    ZERO = "all zero"
    TINY = "tiny"
    DENORMAL = "denormal"
    HUGE = "huge"
    EQUAL = "equal"
    OUTLIER = "one outlier"


@dataclass(frozen=True, slots=True)
class Value:
    """A float32 tensor; the first axis is the batch."""

    name: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass
class Growth:
    """Nodes and constants so far.

    Attributes:
        random: what everything is drawn from.
        opset: of the model.
        kind: of the weights.
        values: inputs and results that a node may read.
    """

    random: np.random.Generator
    opset: int
    kind: Weights
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    count: int = 0

    def name(self, stem: str) -> str:
        """A name that nothing has."""
        self.count += 1
        return f"{stem}{self.count}"

    def node(
        self, op_type: str, inputs: Sequence[str], shape: Sequence[int], **attributes: Attribute
    ) -> Value:
        """The result of a new node of one output."""
        (value,) = self.nodes_of(op_type, inputs, [shape], **attributes)
        return value

    def nodes_of(
        self,
        op_type: str,
        inputs: Sequence[str],
        shapes: Sequence[Sequence[int]],
        **attributes: Attribute,
    ) -> list[Value]:
        """The results of a new node."""
        made = [Value(self.name(op_type[:1].lower()), tuple(shape)) for shape in shapes]
        names = [value.name for value in made]
        node = helper.make_node(op_type, inputs, names, self.name(op_type.lower()))
        node.attribute.extend(helper.make_attribute(*each) for each in attributes.items())
        self.nodes.append(node)
        return made

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> str:
        """Name of a new initializer."""
        name = self.name("k")
        self.constants[name] = np.asarray(values, dtype)
        return name

    def integers(self, values: npt.ArrayLike) -> str:
        """Name of a new initializer of int64."""
        return self.constant(values, np.int64)

    def weight(self, shape: tuple[int, ...], axis: int, inner: int) -> str:
        """Name of a weight, sums of `inner` products with which keep their size.

        Args:
            shape: of the weight.
            axis: of its output channels.
            inner: products in a sum.
        """
        tied = [n for n, a in self.constants.items() if n.startswith("w") and a.shape == shape]
        if tied and self.random.random() < TIED:
            return str(self.random.choice(tied))
        name = self.name("w")
        weight = self.random.standard_normal(shape) / np.sqrt(max(inner, 1))
        self.constants[name] = self._spoilt(weight, axis).astype(np.float32)
        return name

    def _spoilt(self, weight: npt.NDArray[np.float64], axis: int) -> npt.NDArray[np.float64]:
        third = np.arange(weight.shape[axis]) % 3 == self.random.integers(3)
        if self.kind is not Weights.PRUNED and self.random.random() < 0.3:
            third[:] = True
        where = third.reshape([-1 if i == axis else 1 for i in range(weight.ndim)])
        match self.kind:
            case Weights.PRUNED:
                return np.where(where, 0, weight)
            case Weights.ZERO:
                return weight * 0
            case Weights.TINY:
                return np.where(where, weight * 10.0 ** self.random.integers(-30, -6), weight)
            case Weights.DENORMAL:
                return np.where(where, weight * 1e-41, weight)
            case Weights.HUGE:
                return np.where(where, weight * 10.0 ** self.random.integers(1, 4), weight)
            case Weights.EQUAL:
                return np.where(where, 0.3, weight)
            case Weights.OUTLIER:
                weight.flat[self.random.integers(weight.size)] *= 100
        return weight

    def bias(self, size: int) -> str:
        """Name of a vector; of zeros now and then."""
        scale = self.random.choice([0.0, 0.1, 1.0, 5.0])
        return self.constant(self.random.standard_normal(size) * scale)

    def model(self, inputs: Sequence[Value], outputs: Sequence[Value], *, static: bool) -> bytes:
        """The model, serialized."""

        def declared(value: Value) -> onnx.ValueInfoProto:
            sizes: list[int | str] = [BATCH if static else "N", *value.shape[1:]]
            return helper.make_tensor_value_info(value.name, TensorProto.FLOAT, sizes)

        graph = helper.make_graph(
            self.nodes,
            "random",
            [declared(value) for value in inputs],
            [onnx.ValueInfoProto(name=value.name) for value in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        for made, value in zip(graph.output, outputs, strict=True):
            made.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, None))
        opsets = [helper.make_opsetid("", self.opset)]
        made_model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return bytes(made_model.SerializeToString())
