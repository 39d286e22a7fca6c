"""Trials of factors: the float model with them, in the whole flow, and what its outputs lose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from onnxq.improve.factor_sites import with_factors
from onnxq.improve.held_back import is_held_back
from onnxq.improve.layerwise import all_feeds, is_float
from onnxq.ort import runtime
from onnxq.static.calibrate import calibrate
from onnxq.static.choosing.again import chosen_again
from onnxq.static.placing.decision import Quantize
from onnxq.static.plan import plan
from onnxq.static.prepare import prepared_again
from onnxq.static.rewrite import rewrite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx_ir as ir

    from onnxq.core.arrays import Reals
    from onnxq.improve.factor_sites import Site
    from onnxq.samples.inputs import Batch
    from onnxq.static.choosing.named_forms import Naming
    from onnxq.static.placing.decision import Decision
    from onnxq.static.prepared import Prepared


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A model in the whole flow.

    Attributes:
        model: the float model.
        naming: forms that go with it.
        sites: that have factors.
        noise: at the outputs, over their power.
        decisions: of the plan.
        dynamic: names of the nodes whose codes are made at run time.
    """

    model: ir.Model
    naming: Naming
    sites: frozenset[Site]
    noise: float
    decisions: Mapping[str, Decision]
    dynamic: frozenset[str]

    def runs_in_integers(self, node: str) -> bool:
        """Whether the plan has the product in integers."""
        return isinstance(self.decisions[node], Quantize) or node in self.dynamic


def trial_of(
    prepared: Prepared, factors: Mapping[Site, Reals], naming: Naming, batches: Sequence[Batch]
) -> Trial:
    """The model with these factors, quantized on the batches to choose by, judged on the others."""
    made = prepared
    if factors:
        made = prepared_again(prepared, with_factors(prepared.model, factors))
    if naming:
        made = chosen_again(made, naming)
    made = replace(made, input_codes={}, output_codes=())
    seen = [batch for index, batch in enumerate(batches) if not is_held_back(index)]
    planned = plan(made, calibrate(made, seen, threads=1))
    noise = signal = 0.0
    with (
        runtime.open_session(prepared.model, threads=1) as beside,
        runtime.open_session(rewrite(made, planned), threads=1) as session,
    ):
        for index, feeds in enumerate(all_feeds(prepared, batches)):
            if not is_held_back(index):
                continue
            pairs = zip(beside.run(feeds), session.run(feeds, beside.outputs), strict=True)
            for wanted, got in pairs:
                if is_float(wanted):
                    signal += float(np.square(wanted, dtype=np.float64).sum())
                    noise += float(
                        np.square(wanted.astype(np.float64) - got.astype(np.float64)).sum()
                    )
    ratio = noise / max(signal, 1e-300)
    dynamic = frozenset(planned.dynamic)
    return Trial(made.model, naming, frozenset(factors), ratio, planned.decisions, dynamic)
