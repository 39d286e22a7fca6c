"""One run of an operator's kernel as a value: its arrays, its numbers, its attributes.

    NodeCall                 op_type, inputs, attributes; every reader below raises ShapeError
    ├── Call                 + plan: integers and qparams, for the kernels of float operators
    └── IntegerCall          scales and zero points among the inputs: integer_call.py

A kernel reads its slots and attributes through these methods, so that each refusal names the
operator and says what was wanted.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from onnxq.core.arrays import Array
from onnxq.errors import ShapeError
from onnxq.operator.node_plan import NodePlan
from onnxq.qparams import IntArray, PerChannel, PerTensor, QParams

AttributeValue = int | float | str | bytes | Sequence[int] | Sequence[float] | Sequence[str] | Array


@dataclass(frozen=True, slots=True, eq=False)
class NodeCall:
    """A node's name, inputs and attributes, read with the defaults that the ONNX schema gives.

    Attributes:
        op_type: of the operator, for messages.
        inputs: one array per input slot, None for an absent one; trailing ones may be missing.
        attributes: of the node.
    """

    op_type: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict, kw_only=True)

    def optional(self, slot: int) -> Array | None:
        """The array in an input slot, or None."""
        x = self.inputs[slot] if slot < len(self.inputs) else None
        return None if x is None else np.asarray(x)  # a Python number has the wrong type, in words

    def plain(self, slot: int) -> Array:
        """The array in an input slot that is not quantized.

        Raises:
            ShapeError: absent.
        """
        x = self.optional(slot)
        if x is None:
            raise self.shape_error(f"input {slot} is absent; it is needed.")
        return x

    def vector(self, slot: int) -> list[int]:
        """The whole numbers in an input slot: axes, sizes, pads.

        Raises:
            ShapeError: absent, not of rank 1, or no integers.
        """
        x = self.plain(slot)
        if x.ndim != 1 or not np.issubdtype(x.dtype, np.integer):
            raise self.shape_error(
                f"input {slot} is {x.dtype} of shape {x.shape}; wanted a vector."
            )
        return [int(n) for n in x]

    def optional_vector(self, slot: int) -> list[int] | None:
        """The whole numbers in an input slot, as `vector`; None where it is absent."""
        return None if self.optional(slot) is None else self.vector(slot)

    def integer(self, name: str, default: int) -> int:
        """The attribute as an int. Raises ShapeError where it is none."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int | np.integer):
            raise self._attribute_error(name, value, "an int")
        return int(value)

    def real(self, name: str, default: float) -> float:
        """The attribute as a float. Raises ShapeError where it is no number."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int | float | np.integer | np.floating):
            raise self._attribute_error(name, value, "a float")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """The attribute as a str; onnx hands strings over as bytes in some places."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def ints(self, name: str, default: Sequence[int]) -> list[int]:
        """The attribute as a list of int; an empty list counts as absent.

        Raises:
            ShapeError: it is something else.
        """
        value = self.attributes.get(name)
        if value is None:
            return [int(i) for i in default]
        if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
            raise self._attribute_error(name, value, "a list of ints")
        if not all(isinstance(i, int | np.integer) for i in value):
            raise self._attribute_error(name, value, "a list of ints")
        return [int(i) for i in (value if len(value) else default)]

    def axis(self, name: str, default: int, rank: int) -> int:
        """The attribute as an axis of a tensor of that rank, counted from the front.

        Raises:
            ShapeError: no int, or a tensor of that rank has no such axis.
        """
        axis = self.integer(name, default)
        if not -rank <= axis < rank:
            raise self.shape_error(f"axis {axis} is outside a tensor of rank {rank}.")
        return axis % rank

    def shape_error(self, words: str) -> ShapeError:
        """The refusal, in the operator's name."""
        return ShapeError(f"{self.op_type}: {words}")

    def _attribute_error(self, name: str, value: object, wanted: str) -> ShapeError:
        return self.shape_error(f"attribute {name} is {value!r}; wanted {wanted}.")

    @contextmanager
    def shape_errors(self) -> Iterator[None]:
        """Turns NumPy's refusals of shapes, axes and indices into ShapeError."""
        try:
            yield
        except (ValueError, IndexError) as error:
            raise self.shape_error(str(error)) from error


@dataclass(frozen=True, slots=True, eq=False)
class Call(NodeCall):
    """One run of `Operator.kernel`.

    Attributes:
        inputs: per input slot, integers where plan.inputs has qparams, else the array as it is.
        plan: qparams per slot.
    """

    plan: NodePlan

    def integers(self, slot: int) -> IntArray:
        """The integers in an input slot.

        Raises:
            ShapeError: absent, without qparams, or of another dtype than its qparams say.
        """
        x = self.inputs[slot] if slot < len(self.inputs) else None
        qparams = self.plan.inputs[slot] if slot < len(self.plan.inputs) else None
        if x is None or qparams is None:
            raise self.shape_error(f"input {slot} has no integers or no qparams; give both.")
        if x.dtype != qparams.dtype.storage:
            raise self.shape_error(
                f"input {slot} has dtype {x.dtype}; its qparams say {qparams.dtype}."
            )
        return np.asarray(x, qparams.dtype.storage)

    def qparams_in(self, slot: int) -> QParams:
        """Per-tensor qparams of an input.

        Raises:
            ShapeError: there are none, or they are not per-tensor.
        """
        return self.plan.per_tensor_in(self.op_type, slot)

    def qparams_out(self, slot: int = 0) -> QParams:
        """Per-tensor qparams of an output.

        Raises:
            ShapeError: there are none, or they are not per-tensor.
        """
        return self.plan.per_tensor_out(self.op_type, slot)

    def shared(self, slots: Sequence[int] = (0,)) -> QParams:
        """The qparams that the inputs in `slots` and all outputs have in common.

        Raises:
            ShapeError: they differ: integers can be copied only between tensors of equal qparams.
        """
        return self.plan.shared(self.op_type, slots)

    def weight_qparams(self, slot: int, w: Array, axis: int) -> QParams:
        """Qparams of a weight: per-tensor, or one scale per w.shape[axis] along `axis`.

        Raises:
            ShapeError: another granularity, axis or number of channels.
        """
        qparams = self.plan.inputs[slot]
        if qparams is None:
            raise self.shape_error(f"the weight in input {slot} needs qparams.")
        if qparams.granularity == PerTensor():
            return qparams
        if not isinstance(qparams.granularity, PerChannel) or (
            qparams.granularity.axis % w.ndim != axis or qparams.scale.size != w.shape[axis]
        ):
            raise self.shape_error(
                f"the weight of shape {w.shape} has {qparams.scale.size} scales, "
                f"{qparams.granularity}; wanted per-tensor, or {w.shape[axis]} along axis {axis}."
            )
        return qparams
