"""Trials of factors: the float model with them, in the whole flow, and what its outputs lose."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from onnxq.improve.factor_sites import with_factors
from onnxq.improve.held_back import is_held_back
from onnxq.improve.judgement import Judgement, powers_of
from onnxq.improve.layerwise import all_feeds, is_float
from onnxq.ort import runtime
from onnxq.samples.excerpt import rows_of
from onnxq.static.calibrate import calibrate
from onnxq.static.choosing.again import chosen_again
from onnxq.static.placing.decision import Quantize
from onnxq.static.plan import plan
from onnxq.static.prepare import prepared_again
from onnxq.static.rewrite import rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx_ir as ir

    from onnxq.core.arrays import Reals
    from onnxq.improve.factor_sites import Site
    from onnxq.improve.judgement import Compared
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
        signal: float64 (samples,), squares of the float model's outputs.
        errors: float64 (samples,), squares of what this one misses.
        decisions: of the plan.
        dynamic: names of the nodes whose codes are made at run time.
    """

    model: ir.Model
    naming: Naming
    sites: frozenset[Site]
    signal: Reals
    errors: Reals
    decisions: Mapping[str, Decision]
    dynamic: frozenset[str]

    def runs_in_integers(self, node: str) -> bool:
        """Whether the plan has the product in integers."""
        return isinstance(self.decisions[node], Quantize) or node in self.dynamic

    def beside(self, plain: Trial) -> Judgement:
        """The judgement of this one beside the model as it is, on the same samples."""
        return Judgement(plain.signal, plain.errors, self.errors)


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
    with (
        runtime.open_session(prepared.model, threads=1) as floats,
        runtime.open_session(rewrite(made, planned), threads=1) as session,
    ):
        found = powers_of(_compared(prepared, batches, floats, session))
    signal, errors = np.zeros((2, 1)) if found is None else found
    return Trial(
        made.model,
        naming,
        frozenset(factors),
        signal,
        errors,
        planned.decisions,
        frozenset(planned.dynamic),
    )


def _compared(
    prepared: Prepared,
    batches: Sequence[Batch],
    floats: runtime.Session,
    session: runtime.Session,
) -> Iterator[Compared]:
    """Outputs of the batches held back: of the float model, and of the other one."""
    for index, feeds in enumerate(all_feeds(prepared, batches)):
        if is_held_back(index):
            pairs = zip(floats.run(feeds), session.run(feeds, floats.outputs), strict=True)
            yield rows_of(batches[index]), [pair for pair in pairs if is_float(pair[0])]
