"""Sensitivity of a model: what it loses where one group of nodes alone is quantized.

Each group gives a model that `quantize` makes, run as it is: integer kernels, all precisions. What
grows with the model are the runs, and these are on few samples. Local and accumulated errors of
tensors inside of one quantized model are another question: onnxq.survey.local_errors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping  # the codec reads annotations at run time
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import ClassVar

from onnxq.core.saved import Saved
from onnxq.qconfig import QConfigMapping
from onnxq.tuning.evaluation.evaluations import Evaluations, Refusal
from onnxq.tuning.evaluation.evaluator import baseline_of
from onnxq.tuning.scoring.objective_function import finite_noise_at
from onnxq.tuning.scoring.score import db_text, least_db

FEW_SHARE, LEAST_ROWS = 16, 4
"""Groups are measured on this part of the samples of the search, and on so many at least."""
ROUNDING = 1e-9
"""Part of a run that is none: runs are sums of shares, which are rounded."""
ALONE = "alone"
"""Kind of the records in the journal."""
NO_RUN_LEFT = "no run was left for it"


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Cost of one group of nodes in its quantized precision.

    Attributes:
        metric_drop: the metric of the float model, less the metric with this group alone
            quantized; inf for SQNR, which the float model has without bound.
        alone_db: output name -> dB at that output, with this group alone quantized and all else in
            float; inf: no error.
    """

    group: str
    metric_drop: float
    alone_db: Mapping[str, float] = field(hash=False)

    @property
    def worst_db(self) -> float:
        """Least dB at any output; -inf where one cannot be compared, inf where there is none."""
        return least_db(self.alone_db.values())

    @property
    def noise(self) -> float:
        """Power of the error over that of the numbers, at the worst output; errors add up.

        Finite where all is lost: an infinite one would leave nothing known of all other groups.
        """
        return finite_noise_at(self.worst_db)


@dataclass(frozen=True)
class Sensitivity(Saved):
    """Costs of all groups of a model, dearest first."""

    FORMAT: ClassVar[str] = "onnxq sensitivity 2"
    NOUN: ClassVar[str] = "a sensitivity"
    ANEW: ClassVar[str] = "Measure it again, with `onnxq tune` and a new journal."

    costs: tuple[GroupCost, ...]
    runs: float
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)

    def of(self, group: str) -> GroupCost | None:
        """The cost of that group; None: none of its nodes is quantized."""
        return next((cost for cost in self.costs if cost.group == group), None)

    def beside(self, other: Sensitivity) -> Sensitivity:
        """The costs of both, dearest first."""
        return Sensitivity(
            _dearest_first((*self.costs, *other.costs)),
            self.runs + other.runs,
            {**self.refused, **other.refused},
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Models that could not be made, and why, in words."""
        return tuple(f"not measured: {group}: {why}" for group, why in self.refused.items())

    def __str__(self) -> str:
        rows = ["group  dB alone  metric's drop"]
        for cost in self.costs:
            drop = f"{cost.metric_drop:.4g}" if math.isfinite(cost.metric_drop) else "-"
            rows.append("  ".join([cost.group, db_text(cost.worst_db), drop]))
        return "\n".join([*rows, *self.notes])


def sensitivity_of(
    evaluations: Evaluations,
    alone: Mapping[str, QConfigMapping],
    executor: Executor | None = None,
    most_runs: float = math.inf,
) -> Sensitivity:
    """Costs of groups of nodes, dearest first; of those that give no model, why.

    `alone`: name of a group -> mapping in which it is quantized, and all others are float.
    `most_runs`: that it may take; groups that these do not go for, the last ones, are among the
    refused.
    """
    evaluator = evaluations.evaluator
    samples = evaluator.samples
    few = samples.few(max(samples.rows // FEW_SHARE, LEAST_ROWS))
    kept = list(alone)[: _fitting(most_runs * samples.rows, few.rows)]
    refused = dict.fromkeys(list(alone)[len(kept) :], NO_RUN_LEFT)
    if not kept:
        return Sensitivity((), 0.0, refused)
    baseline = baseline_of(evaluator.subject, few, evaluator.metric)
    on_few = Evaluations(evaluator.on(baseline), evaluations.journal, ALONE)
    costs = []
    for name, found in zip(kept, on_few.all([alone[n] for n in kept], executor), strict=True):
        if isinstance(found, Refusal):
            refused[name] = found.reason
        else:
            drop = 0.0 if found.metric == baseline.metric else baseline.metric - found.metric
            costs.append(GroupCost(name, drop, found.sqnr_db))
    return Sensitivity(_dearest_first(costs), len(kept) * few.rows / max(samples.rows, 1), refused)


def _fitting(most_rows: float, rows: int) -> int:
    """Models that may run on so many rows each."""
    if math.isinf(most_rows):
        return sys.maxsize
    return max(math.floor(most_rows / max(rows, 1) + ROUNDING), 0)


def _dearest_first(costs: list[GroupCost] | tuple[GroupCost, ...]) -> tuple[GroupCost, ...]:
    return tuple(sorted(costs, key=lambda cost: (cost.worst_db, -cost.metric_drop)))
