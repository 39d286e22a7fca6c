"""A float graph that grows node by node, and its weights."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import onnx
import onnx.defs
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Array = npt.NDArray[np.generic]
    Attribute = int | float | str | Sequence[int] | onnx.GraphProto

T = TypeVar("T")

BATCH = 2
ATTRIBUTES = {
    "Clip": (11, ("", "min", "max")),
    "Pad": (11, ("", "pads", "value")),
    "Slice": (10, ("", "starts", "ends", "axes")),
    "Split": (13, ("", "split")),
    "Squeeze": (13, ("", "axes")),
    "TopK": (10, ("", "k")),
    "Unsqueeze": (13, ("", "axes")),
    "Upsample": (9, ("", "scales")),
    "ReduceSum": (13, ("", "axes")),
    **dict.fromkeys(
        [
            f"Reduce{n}"
            for n in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
        ],
        (18, ("", "axes")),
    ),
}
"""Operators -> (opset from which on these are inputs, attributes that they were before)."""
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


class Storage(enum.Enum):
    """Where constants are: initializers, initializers that are inputs of the graph, or nodes."""

    INITIALIZERS = enum.auto()
    INPUTS = enum.auto()
    NODES = enum.auto()


class NoStepError(Exception):
    """The opset does not have the node."""


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
        half: whether it is in float16.
        values: inputs and results that a node may read.
    """

    random: np.random.Generator
    opset: int
    kind: Weights
    half: bool = False
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
        inputs, attributes = self._of_opset(op_type, list(inputs), attributes)
        node = helper.make_node(op_type, inputs, names, self.name(op_type.lower()))
        node.attribute.extend(helper.make_attribute(*each) for each in attributes.items())
        self.nodes.append(node)
        return made

    def _of_opset(
        self, op_type: str, inputs: list[str], attributes: dict[str, Attribute]
    ) -> tuple[list[str], dict[str, Attribute]]:
        """Inputs and attributes as the opset has them; NoStepError where it has no such node."""
        since, names = ATTRIBUTES.get(op_type, (0, ()))
        if self.opset < since:
            given = dict(zip(names[1:], inputs[1:], strict=False))
            attributes |= {n: self.constants[i].tolist() for n, i in given.items() if i}
            inputs = inputs[:1]
        try:
            known = onnx.defs.get_schema(op_type, self.opset).attributes
        except onnx.defs.SchemaError as error:
            raise NoStepError(op_type) from error
        return inputs, {name: value for name, value in attributes.items() if name in known}

    def op(self, op_type: str, *inputs: str, **attributes: Attribute) -> str:
        """Name of the result of a new node, whose shape nobody needs."""
        return self.node(op_type, inputs, (), **attributes).name

    def ops(
        self, op_type: str, *inputs: str, outputs: int, **attributes: Attribute
    ) -> tuple[str, ...]:
        """Names of the results of a new node of several."""
        made = self.nodes_of(op_type, inputs, [()] * outputs, **attributes)
        return tuple(value.name for value in made)

    def float_of(self, name: str) -> str:
        """The tensor, cast to the type of the graph's numbers."""
        return self.op("Cast", name, to=self.float_type)

    def cut(self, start: int, end: int, axis: int) -> list[str]:
        """Inputs of a Slice behind the first."""
        return [self.integers([n]) for n in (start, end, axis)]

    def like(self, value: Value) -> str:
        """A constant that has the sizes of the value, without the batch's."""
        return self.constant(self.random.standard_normal((1, *value.shape[1:])))

    def pick(self, *values: T) -> T:
        """One of them."""
        return values[self.below(len(values))]

    def below(self, end: int) -> int:
        """A number of 0 ... end - 1."""
        return int(self.random.integers(end))

    def chance(self, share: float) -> bool:
        """Whether something is so that is in that share of the cases."""
        return bool(self.random.random() < share)

    @property
    def float_type(self) -> int:
        """ONNX's type of the numbers."""
        return int(TensorProto.FLOAT16 if self.half else TensorProto.FLOAT)

    @property
    def float_dtype(self) -> type[np.floating]:
        """NumPy's type of the numbers."""
        return np.float16 if self.half else np.float32

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Name of a new initializer; of the graph's numbers where no type is given."""
        name = self.name("k")
        self.constants[name] = np.asarray(values, dtype or self.float_dtype)
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
        self.constants[name] = self._spoilt(weight, axis).astype(self.float_dtype)
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

    def model(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        *,
        static: bool,
        storage: Storage = Storage.INITIALIZERS,
    ) -> bytes:
        """The model, serialized."""

        def declared(value: Value) -> onnx.ValueInfoProto:
            sizes: list[int | str] = [BATCH if static else "N", *value.shape[1:]]
            return helper.make_tensor_value_info(value.name, self.float_type, sizes)

        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        nodes, taken = list(self.nodes), [declared(value) for value in inputs]
        if storage is Storage.NODES:
            nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in constants] + nodes
            constants = []
        if storage is Storage.INPUTS:
            taken += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in constants]
        results = [
            helper.make_tensor_value_info(value.name, self.float_type, None) for value in outputs
        ]
        graph = helper.make_graph(nodes, "random", taken, results, constants)
        opsets = [helper.make_opsetid("", self.opset)]
        made_model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return bytes(made_model.SerializeToString())
