"""Scan and Loop with all that ONNX allows.

onnx.reference lacks directions and axes of Scan, and joins what a Loop collects in place of
stacking it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Array

SCAN_OF_ONE_BATCH = 9  # Scan-8 has a batch axis and lengths


class _WithBody(OpRun):
    """A node that runs its attribute `body`, which sees the values around it."""

    body: Any  # set by the base from the node's attribute

    def need_context(self) -> bool:
        """Whether `_run` gets the values of the graph around."""
        return True

    def _body(self, feeds: Mapping[str, Any], context: Mapping[str, Any] | None) -> list[Any]:
        outputs: list[Any] = self.body.run(None, {**(context or {}), **feeds})
        return outputs


class Scan(_WithBody):
    """States and stacked results of the body over the slices of its scan inputs; ONNX Scan-9."""

    num_scan_inputs: int

    def _run(self, *inputs: Array, context: Mapping[str, Any] | None = None, **_: Any) -> Any:
        if self.run_params["opsets"][""] < SCAN_OF_ONE_BATCH:
            raise UnsupportedError("Scan before opset 9 has no reference; upgrade the model.")
        count = int(self.num_scan_inputs)
        states, scanned = list(inputs[:-count]), inputs[-count:]
        axes = self._per_value("scan_input_axes", count)
        backward = self._per_value("scan_input_directions", count)
        lengths = {x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}
        if len(lengths) != 1:
            raise ShapeError(f"Scan: its inputs have {sorted(lengths)} slices; wanted one number.")
        (length,) = lengths
        slices = [
            list(np.moveaxis(x, axis, 0)[:: -1 if from_end else 1])
            for x, axis, from_end in zip(scanned, axes, backward, strict=True)
        ]
        names = self.body.input_names
        collected: list[list[Array]] = [[] for _ in self.body.output_names[len(states) :]]
        for t in range(length):
            values = [*states, *(each[t] for each in slices)]
            results = self._body(dict(zip(names, values, strict=True)), context)
            for store, value in zip(collected, results[len(states) :], strict=True):
                store.append(value)
            states = results[: len(states)]
        return (*states, *self._stacked(collected))

    def _stacked(self, collected: Sequence[list[Array]]) -> Iterator[Array]:
        axes = self._per_value("scan_output_axes", len(collected))
        backward = self._per_value("scan_output_directions", len(collected))
        for values, axis, from_end in zip(collected, axes, backward, strict=True):
            if not values:
                raise UnsupportedError("Scan over no slices: the shape of its result is not known.")
            yield np.stack(values[::-1] if from_end else values, axis)

    def _per_value(self, name: str, count: int) -> list[int]:
        """An attribute with a number per scan input or output; 0 where it is absent."""
        given = getattr(self, name, None)
        return [0] * count if given is None or len(given) == 0 else [int(n) for n in given]


class Loop(_WithBody):
    """The body while its condition holds, at most M times; ONNX Loop-11."""

    def _run(
        self,
        limit: Array | None,
        going: Array | None,
        *inputs: Array,
        context: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        names = self.body.input_names
        states, condition = list(inputs), going is None or bool(np.asarray(going).item())
        last = None if limit is None else int(np.asarray(limit).item())
        collected: list[list[Any]] = [[] for _ in self.body.output_names[1 + len(states) :]]
        turn = 0
        while condition and (last is None or turn < last):
            values = [np.array(turn, np.int64), np.array(condition), *states]
            results = self._body(dict(zip(names, values, strict=True)), context)
            condition = bool(np.asarray(results[0]).item())
            for store, value in zip(collected, results[1 + len(states) :], strict=True):
                store.append(value)
            states = results[1 : 1 + len(states)]
            turn += 1
        if not turn:
            types = self.body.output_types_[1 + len(states) :]
            return (*states, *(_nothing_of(kind.tensor_type) for kind in types))
        return (*states, *(np.stack(values) for values in collected))


def _nothing_of(kind: onnx.TypeProto.Tensor) -> Array:
    """Empty result of no turns, as ONNX Runtime has it: sizes that the body does not tell are 0."""
    if not kind.elem_type:
        raise UnsupportedError(
            "Loop without a turn: the type of its results is not known. Run shape inference "
            "first (onnx.shape_inference.infer_shapes)."
        )
    shape = [max(size.dim_value, 0) for size in kind.shape.dim]
    return np.zeros((0, *shape), onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))


LOOPS: tuple[type[OpRun], ...] = (Loop, Scan)
