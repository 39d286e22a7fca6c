"""A float node with its arrays, to be measured: its Work is what `onnxq.times` says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnxq.graph.sizes import sizes_of
from onnxq.times import work_of
from onnxq.times.microbenchmarks.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.times import Work


@dataclass(frozen=True, eq=False)
class TimedNode:
    """A node of a float model.

    Attributes:
        op_type: of ONNX.
        inputs: one array per activation.
        constants: behind them, one per constant; None for one that is left out.
        attributes: of the node.
        results: number of its outputs.
        table: a constant ahead of the activations; None: there is none.
    """

    op_type: str
    inputs: tuple[Array, ...]
    constants: tuple[Array | None, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    results: int = 1
    table: Array | None = None

    def feeds(self) -> dict[str, Array]:
        """Arrays for the inputs: x, x1, x2 ..."""
        return {f"x{i or ''}": array for i, array in enumerate(self.inputs)}

    def build(self, parts: Parts, name: str) -> str:
        """Adds the node, as a link does."""
        others = [f"x{i}" for i in range(1, len(self.inputs))]
        ahead = [] if self.table is None else [parts.constant(self.table)]
        constants = ["" if c is None else parts.constant(c) for c in self.constants]
        return parts.add(
            self.op_type, [*ahead, name, *others, *constants], self.attributes, results=self.results
        )

    @property
    def work(self) -> Work:
        """Work of the node, as the model of one link states it."""
        parts = Parts()
        last = self.build(parts, "x")
        results = [last, *(f"{last}_{i}" for i in range(1, self.results))]
        model = parts.model(self.feeds(), results)
        sizes = sizes_of(model, {name: array.shape for name, array in self.feeds().items()})
        found = work_of(model.graph.node(0), sizes)
        assert found is not None, self.op_type
        return found
