"""A float model, its quantized form and a plan, made once in a process."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxq.checking.sides import Sides, sides_of
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import as_ir, images, network

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.samples.inputs import Batch
    from onnxq.static.plan import Plan

BATCH: Batch = {"x": images(4)}


@dataclass(frozen=True)
class Pair:
    """Both models; `plan` made the quantized one."""

    source: ir.Model
    target: ir.Model
    plan: Plan

    def sides(self) -> Sides:
        """Sides of their own: their sums are of one comparison."""
        return sides_of(self.source, self.target)


@functools.cache
def pair(form: str = "qdq") -> Pair:
    """The network of the examples; shared, so leave it as it is."""
    source = as_ir(network())
    prepared = prepare(source)
    made = plan(prepared, calibrate(prepared, [BATCH]))
    return Pair(source, rewrite(prepared, made, form), made)
