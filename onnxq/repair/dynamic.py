"""Repair of what `quantize_dynamic` made, where samples to check on show that its verdict is low.

    slower than float     integers go back (onnxq.repair.slower)
    alone                 error at the outputs with each group of nodes quantized alone
    bisection             the fewest of the dearest groups in float that reach the floor

A group is the nodes that read one tensor; where there is no time for so many, neighbours together.
The first samples choose, and all of them are what the verdict is of.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxq.checking.check import Check, Repair
from onnxq.checking.runnable import Made, timed_in_pairs
from onnxq.checking.validation import Batch, Validation
from onnxq.checking.with_verdict import check_bound_is_seen, make_dynamic
from onnxq.core.arrays import Array
from onnxq.core.reason import Reason
from onnxq.dynamic.dynamic_decision import DynamicPlan
from onnxq.dynamic.rewrite_dynamic import rewrite_dynamic
from onnxq.errors import OnnxqError, counted, first_line
from onnxq.operator import Float
from onnxq.ort.runtime import open_session
from onnxq.repair.search import BETTER_DB, LEAST_SECONDS, MOST_RUNS, TIMES_SO_FAR
from onnxq.repair.slower import dynamic_worth_it, reading_alike
from onnxq.samples import as_taken, input_specs
from onnxq.samples.state import State

MOST_BATCHES = 4
"""Batches that choose."""


class FloatByRepair(Reason):
    """The node cost more than the outputs can bear.

    Attributes:
        before_db: likeness of the outputs to float with it in integers.
    """

    WORDS = "the outputs had {before_db:.1f} dB with it in integers"
    before_db: float


def make_and_repair(
    source: ir.Model, plan: DynamicPlan, validation: Validation | None, check: Check
) -> Made[DynamicPlan]:
    """Plan and model, repaired where the verdict is low; the bound is on the outcome."""
    bound = check.min_sqnr_db
    if validation is None or check.repair is None:
        spent_s = 0.0 if validation is None else validation.work.spent_s
        return timed_in_pairs(source, make_dynamic(source, plan, validation, bound), spent_s)
    check_bound_is_seen(validation, bound)

    def make(plan: DynamicPlan) -> Made[DynamicPlan]:
        return make_dynamic(source, plan, validation)

    made = dynamic_worth_it(source, make(plan), make, validation.work)
    verdict = made.model.verdict
    if verdict is not None and verdict.likeness_db < check.repair.floor_db:
        found = _repaired(check.repair, source, made, validation)
        if isinstance(found, str):
            note = f"not repaired: {found}"
            made.model.attach(replace(verdict, notes=(*verdict.notes, note)))
        else:
            made = found
    if bound is not None and made.model.verdict is not None:
        made.model.verdict.check(bound)
    return made


def _repaired(
    wanted: Repair, source: ir.Model, made: Made[DynamicPlan], validation: Validation
) -> Made[DynamicPlan] | str:
    """A better model, or why there is none, in words."""
    verdict = made.model.verdict
    assert verdict is not None
    before = verdict.likeness_db
    spent_s = validation.work.spent_s
    seconds = wanted.max_seconds or max(TIMES_SO_FAR * spent_s, LEAST_SECONDS)
    try:
        search = _Search.begun(source, made.plan, validation, before, seconds)
        names = search.fewest(wanted.floor_db)
        if not names or len(names) == len(made.plan.quantized):
            return "no model with integers is better; onnxq report shows the layers that cost most"
        again = make_dynamic(source, search.left(names), validation)
    except OnnxqError as error:
        return first_line(error)
    then = again.model.verdict
    if then is None or not then.likeness_db > before + BETTER_DB:
        return "of the models that were tried none is better"
    note = f"repaired, {before:.1f} dB -> {then.likeness_db:.1f} dB, by float: {counted(names)}"
    again.model.attach(replace(then, notes=(note, *then.notes)))
    return again


@dataclass(frozen=True, eq=False)
class _Search:
    """Models of one dynamic plan with some of its nodes in float, and their outputs."""

    source: ir.Model
    plan: DynamicPlan
    batches: Sequence[Batch]
    outputs: Sequence[Mapping[str, Array]]
    before_db: float
    until_s: float

    @classmethod
    def begun(
        cls,
        source: ir.Model,
        plan: DynamicPlan,
        validation: Validation,
        before_db: float,
        seconds: float,
    ) -> _Search:
        """The search on the first batches."""
        state = State(input_specs(source, validation.feedback.values()), validation.feedback)
        inputs = input_specs(source)
        batches, outputs = [], []
        with open_session(source, threads=1) as session:
            for batch in itertools.islice(validation.batches, MOST_BATCHES):
                batches.append(state.feeds(batch))
                outputs.append(session.run_named(as_taken(batches[-1], inputs)))
                state.keep(outputs[-1])
        return cls(source, plan, batches, outputs, before_db, time.monotonic() + seconds)

    def left(self, names: Iterable[str]) -> DynamicPlan:
        """The plan with these nodes in float."""
        floats = dict.fromkeys(names, Float(FloatByRepair(self.before_db)))
        return replace(self.plan, decisions={**self.plan.decisions, **floats})

    def likeness_db(self, floats: Iterable[str]) -> float:
        """Likeness of the outputs with these nodes in float; -inf where there is no model."""
        from onnxq.tuning.scoring.paired_outputs import PairedOutputs  # few models need it

        plan, found = self.left(floats), PairedOutputs()
        model = rewrite_dynamic(self.source, plan, plan.model_hash)
        inputs = input_specs(model)
        try:
            with open_session(model, threads=1) as session:
                for batch, x in zip(self.batches, self.outputs, strict=True):
                    found.update(x, session.run_named(as_taken(batch, inputs)))
        except OnnxqError:
            return -math.inf
        return found.likeness_db

    def fewest(self, floor_db: float) -> list[str]:
        """The fewest nodes in float that reach the floor, or else come nearest; empty: none do."""
        groups = reading_alike(self.source, self.plan.quantized)
        together = -(-len(groups) // MOST_RUNS)
        chunks = [
            list(itertools.chain(*groups[i : i + together]))
            for i in range(0, len(groups), together)
        ]
        errors = []
        for chunk in chunks:
            rest = [name for name in self.plan.quantized if name not in chunk]
            errors.append(-math.inf if self._is_late() else -self.likeness_db(rest))
        order = sorted(range(len(chunks)), key=lambda i: -errors[i])
        few, many, tried = 0, len(chunks), {0: self.before_db}
        while many - few > 1 and not self._is_late():
            middle = (few + many) // 2
            tried[middle] = self.likeness_db(_joined(chunks, order[:middle]))
            few, many = (few, middle) if tried[middle] >= floor_db else (middle, many)
        count = many if many in tried else max(tried, key=tried.__getitem__)
        return _joined(chunks, order[:count])

    def _is_late(self) -> bool:
        return time.monotonic() > self.until_s


def _joined(chunks: Sequence[Sequence[str]], chosen: Iterable[int]) -> list[str]:
    return [name for i in chosen for name in chunks[i]]
