"""Trials of factors: the float model with them, in the whole flow, and what its outputs lose.

The flow is the one that the model will be made by: with its qconfig, target, reduced range and
objective. Each sample that was held back is judged by the mean of two errors: with ranges that have
not seen it, as those of samples to come, which cut off what is beyond them; and with the ranges of
all samples, as calibration will have. Where one of them has more in a channel than its factor was
made for, these grow for the whole tensor, which the others alone would not show.

Where `bias` or `round` follow, biases are corrected here, too: the part of the error that is the
same for all samples falls by luck, hides what factors do, and is taken away with them or without.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Reals
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.ort import runtime
from onnxq.qconfig import QConfigMapping
from onnxq.samples import Batches
from onnxq.samples.excerpt import is_held_apart, rows_of
from onnxq.samples.inputs import Batch
from onnxq.static.calibrate import Statistics, calibrate
from onnxq.static.choosing.node_precisions import named_mapping
from onnxq.static.observed_range import plan_as_targeted
from onnxq.static.plan import Plan
from onnxq.static.prepare import prepared_again
from onnxq.static.prepared import Prepared
from onnxq.static.rewrite import rewrite
from onnxq.weights.algorithm import WeightAlgorithm, find
from onnxq.weights.bias import Bias
from onnxq.weights.judgement import Judgement, enough, powers_of
from onnxq.weights.layerwise import all_feeds, compared
from onnxq.weights.smoothing_sites import SmoothingSite, with_smoothing_scales


@dataclass(frozen=True, slots=True, eq=False)
class SmoothingRun:
    """A model in the whole flow."""

    model: ir.Model
    sites: frozenset[SmoothingSite]
    signal: Reals
    errors: Reals
    integers: frozenset[str]

    def runs_in_integers(self, node: str) -> bool:
        """Whether the plan has the layer in integers."""
        return node in self.integers

    def compared_with(self, plain: SmoothingRun) -> Judgement:
        """The judgement of this one beside the model as it is, on the same samples."""
        return Judgement(plain.signal, plain.errors, self.errors)


def observed(prepared: Prepared, batches: Sequence[Batch]) -> tuple[Statistics, Statistics]:
    """Statistics of the batches that are not held back, and of all."""
    some, held = ([b for i, b in enumerate(batches) if is_held_apart(i) == k] for k in (0, 1))
    unseen = calibrate(prepared, some, threads=1)
    return unseen, calibrate(prepared, held, statistics=unseen, threads=1)


@dataclass(frozen=True, eq=False)
class Flow:
    """The whole flow, as it will be carried out.

    Attributes:
        batches: as many of the samples as tell enough, for trials.
    """

    prepared: Prepared
    batches: Sequence[Batch]
    objective: Objective

    @classmethod
    def of(cls, prepared: Prepared, samples: Batches, objective: Objective) -> Flow:
        """The flow on these samples."""
        return cls(prepared, enough(samples, prepared), objective)

    @cached_property
    def as_it_is(self) -> tuple[Statistics, Statistics]:
        """Statistics of the model without factors; see `observed`."""
        return observed(self.prepared, self.batches)

    def planned(self) -> Plan:
        """The plan of the model as it is."""
        return plan_as_targeted(self.prepared, self.as_it_is[1], self.batches, self.objective)

    @property
    def corrects_biases(self) -> bool:
        """Whether a PTQ algorithm follows that does."""
        asked = map(find, self.prepared.qconfig.algorithms)
        return any(isinstance(each, WeightAlgorithm) and each.corrects_biases for each in asked)

    def asking(self, name: str) -> Flow:
        """The flow in which that algorithm alone is asked for."""
        qconfig = self.prepared.qconfig.set_improve([name])
        return replace(self, prepared=replace(self.prepared, qconfig=qconfig))

    def written(self, made: Prepared, plan: Plan, batches: Sequence[Batch]) -> ir.Model:
        """A quantized model of the flow, with biases from these batches where they follow."""
        if not self.corrects_biases:
            return rewrite(made, plan)
        samples = Batches("samples of a trial", len(batches), lambda: iter(batches))
        improved = Bias().improve(made, plan, samples)
        return rewrite(improved.prepared, improved.plan)


NO_SMOOTHING: Mapping[SmoothingSite, Reals] = {}


def in_integers(flow: Flow, planned: Plan, layers: Collection[str]) -> QConfigMapping:
    """The precisions of a plan, but for these layers, which run in integers anyway.

    Named one by one, so that the few samples of a trial choose none.
    """
    asked = named_mapping(flow.prepared.qconfig, flow.prepared.precisions, {})
    nodes = {name: asked.nodes[name] for name in layers if name not in planned.dynamic}
    return replace(planned.qconfig, nodes={**planned.qconfig.nodes, **nodes})


def validation_of(
    flow: Flow, factors: Mapping[SmoothingSite, Reals], mapping: QConfigMapping
) -> SmoothingRun:
    """The model with these factors and precisions, quantized, judged on the batches held back."""
    prepared, batches = flow.prepared, flow.batches
    model = with_smoothing_scales(prepared.model, factors) if factors else prepared.model
    made = prepared_again(prepared, model, mapping=mapping)
    made = replace(made, quantized_input={}, quantized_output=())
    some = [batch for index, batch in enumerate(batches) if not is_held_apart(index)]
    seen = observed(made, batches) if factors else flow.as_it_is
    before, planned = (
        plan_as_targeted(made, statistics, looked_at, flow.objective)
        for statistics, looked_at in zip(seen, (some, batches), strict=True)
    )
    with (
        runtime.open_session(prepared.model, threads=1) as floats,
        runtime.open_session(flow.written(made, before, some), threads=1) as without,
        runtime.open_session(flow.written(made, planned, batches), threads=1) as session,
    ):
        pairs = enumerate(zip(map(rows_of, batches), all_feeds(prepared, batches), strict=True))
        held = (pair for index, pair in pairs if is_held_apart(index))
        found = powers_of(compared(held, floats, (without, session)))
    signal, *errors = np.zeros((3, 1)) if found is None else found
    return SmoothingRun(
        made.model,
        frozenset(factors),
        signal,
        np.mean(errors, axis=0),
        frozenset({*planned.weights, *planned.dynamic}),
    )
