"""Numbers that a plan has for one node: qparams per slot, or of the weights alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from onnxq.errors import ShapeError
from onnxq.operator.precision import Precision
from onnxq.qparams import PerTensor, QParams


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The numbers of one node that runs in integers.

    Attributes:
        inputs: one entry per input slot; None where the input is not quantized (absent, a shape).
            A bias has int32 qparams at x_scale * w_scale.
        outputs: one entry per output slot; None where the result stays in float32.
    """

    inputs: tuple[QParams | None, ...]
    outputs: tuple[QParams | None, ...]

    def per_tensor_in(self, op_type: str, slot: int) -> QParams:
        """Per-tensor qparams of an input.

        Raises:
            ShapeError: there are none, or they are not per-tensor; it names `op_type`.
        """
        return _per_tensor(op_type, self.inputs, slot, "input")

    def per_tensor_out(self, op_type: str, slot: int = 0) -> QParams:
        """Per-tensor qparams of an output.

        Raises:
            ShapeError: there are none, or they are not per-tensor; it names `op_type`.
        """
        return _per_tensor(op_type, self.outputs, slot, "output")

    def shared(self, op_type: str, slots: Sequence[int] = (0,)) -> QParams:
        """The qparams that the inputs in `slots` and all outputs have in common.

        Raises:
            ShapeError: they differ: integers can be copied only between tensors of equal qparams.
        """
        first = self.per_tensor_in(op_type, slots[0])
        others = [*(self.inputs[slot] for slot in slots), *self.outputs]
        if any(qparams is not None and qparams != first for qparams in others):
            raise ShapeError(
                f"{op_type}: it copies integers, so inputs and outputs must have equal qparams."
            )
        return first


def _per_tensor(op_type: str, known: Sequence[QParams | None], slot: int, place: str) -> QParams:
    qparams = known[slot] if slot < len(known) else None
    if qparams is None or qparams.granularity != PerTensor():
        got = "none" if qparams is None else str(qparams.granularity)
        raise ShapeError(f"{op_type}: {place} {slot} needs per-tensor qparams; got {got}.")
    return qparams


@dataclass(frozen=True, slots=True)
class DynamicNodePlan:
    """The numbers of one node that is quantized dynamically.

    Attributes:
        precision: one of the rule's.
        qparams: one entry per weight of the rule, in the layout in which its integers are stored;
            None for Precision.WEIGHT_ONLY_FLOAT16.
    """

    precision: Precision
    qparams: tuple[QParams | None, ...]
