"""Puts the phases of a transposed convolution in their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx_ir.tape import Tape

    from onnxq.operators._transposed import PhaseAxis
    from onnxq.qparams import QParams

END = np.iinfo(np.int64).max  # Slice: up to the end


class _Writer:
    """Writes nodes named after the float node; each step takes the result of the one before."""

    def __init__(self, tape: Tape, node: ir.Node, value: ir.Value) -> None:
        self.tape, self.node, self.value = tape, node, value
        self.value.name = f"{node.name}_phases"
        self.steps = 0

    def step(
        self,
        op_type: str,
        constants: Sequence[Sequence[int]] = (),
        attributes: dict[str, Sequence[int]] | None = None,
    ) -> None:
        self.steps += 1
        name = f"{self.node.name}_interleave_{self.steps}"
        inputs = [
            self.tape.initializer(ir.tensor(np.array(c, np.int64)), name=f"{name}_{i}")
            for i, c in enumerate(constants)
        ]
        self.value = self.tape.op(op_type, [self.value, *inputs], attributes or {}, name=name)
        self.value.name = name

    def transpose(self, order: Sequence[int]) -> None:
        if list(order) != sorted(order):
            self.step("Transpose", (), {"perm": list(order)})

    def reshape(self, shape: Sequence[int]) -> None:
        self.step("Reshape", [shape])


def interleaved(
    tape: Tape,
    node: ir.Node,
    phases: ir.Value,
    axes: Sequence[PhaseAxis],
    outputs: tuple[int, ...],
    spatial: Sequence[int | None],
    y: QParams,
) -> ir.Value:
    """The output (N, O, *out) from (N, group * phases * outputs / group, *places).

    Channels go last; then, axis by axis from the last one, the axis moves beside the channels and
    takes its phases from them: a mere Reshape. So every transpose moves whole rows of channels, the
    first and the last cancel against those that ONNX Runtime puts around QLinearConv, and unknown
    sizes stay unknown (0 in a Reshape keeps a size).

    Args:
        tape: records the new nodes.
        node: the float node.
        phases: the convolution's result.
        axes: with their phases.
        outputs: (group, phases, outputs / group).
        spatial: sizes of the convolution's input, None where not known.
        y: qparams of the output.
    """
    writer, rank = _Writer(tape, node, phases), len(axes)
    unfolded = [i for i in reversed(range(rank)) if axes[i].phases > 1]
    group, count, each = outputs
    order = list(range(rank))
    if unfolded:
        writer.transpose([0, *range(2, rank + 2), 1])
    if unfolded and group > 1:
        keep = [0] * (1 + rank)
        writer.reshape([*keep, group, count, each])
        writer.transpose([*range(rank + 1), rank + 2, rank + 1, rank + 3])
        writer.reshape([*keep, count * group * each])
    channels = count * group * each
    for i in unfolded:
        channels //= axes[i].phases
        place = order.index(i)
        order.append(order.pop(place))
        others = [p for p in range(rank) if p != place]
        writer.transpose([0, *(p + 1 for p in others), place + 1, rank + 1])
        size = spatial[i]
        length = -1 if size is None else (size + axes[i].windows) * axes[i].phases
        writer.reshape([*[0] * rank, length, channels])
    first = 1 if unfolded else 2
    _crop(writer, [axes[i] for i in order], first)
    if unfolded:
        writer.transpose([0, rank + 1, *(1 + order.index(i) for i in range(rank))])
    value = writer.value
    value.type, value.shape = ir.TensorType(ir.DataType[y.dtype.onnx]), node.outputs[0].shape
    return value


def _crop(writer: _Writer, axes: Sequence[PhaseAxis], first: int) -> None:
    """Cuts off what the phases overhang; `axes` as they lie from axis `first` on."""
    cut = [i for i, axis in enumerate(axes) if any(axis.crop)]
    if not cut:
        return
    begins = [axes[i].crop[0] for i in cut]
    ends = [-axes[i].crop[1] or END for i in cut]
    writer.step("Slice", [begins, ends, [first + i for i in cut]])
