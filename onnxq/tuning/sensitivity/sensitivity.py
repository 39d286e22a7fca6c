"""Sensitivity of a model: what each group of nodes costs alone, local and accumulated errors."""

from __future__ import annotations

import math
from collections.abc import Mapping  # the codec reads annotations at run time
from dataclasses import dataclass, field
from typing import ClassVar

from onnxq.core.saved import Saved
from onnxq.observers.tensor_noise import accumulated_db
from onnxq.tuning.scoring.objective_function import finite_noise_at
from onnxq.tuning.scoring.score import db_text, least_db

ALL_GROUPS = "all groups together"
"""Name of the model in which every group is quantized, among those that were refused."""


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Cost of one group of nodes in its quantized form.

    Errors are given in dB, as the power of the float numbers over that of the error; inf: none,
    NaN: the quantized model does not show the group's results.

    Attributes:
        group: name of the NodeGroup.
        metric_drop: the metric of the float model, less the metric with this group alone
            quantized; inf for SQNR, which the float model has without bound.
        alone_db: output name -> dB at that output, with this group alone quantized and all else in
            float.
        local_db: dB at the group's results, of the error that it makes itself: on float inputs.
        total_db: dB at the group's results in the model in which every group is quantized.
        samples: that the first two were measured on.
    """

    group: str
    metric_drop: float
    alone_db: Mapping[str, float] = field(hash=False)
    local_db: float
    total_db: float
    samples: int

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

    @property
    def accumulated_db(self) -> float:
        """Error at the group's results that comes in through its inputs, in the quantized model.

        inf where the group's local error is all there is; NaN where the results do not show.
        """
        return accumulated_db(self.total_db, self.local_db)


@dataclass(frozen=True)
class Sensitivity(Saved):
    """Costs of all groups of a model, dearest first.

    Attributes:
        costs: of each group that is quantized at all; those with the largest error first.
        confirmed: number of costs at the head that were measured once more, on more samples, and
            whose order is of these.
        agreed: whether these were the dearest on few samples, too, in the same order.
        runs: passes over all search samples that the measurement is worth.
        refused: name of a group -> why there is no model in which it alone is quantized; of
            ALL_GROUPS, why nobody knows what is accumulated.
    """

    FORMAT: ClassVar[str] = "onnxq sensitivity 1"
    NOUN: ClassVar[str] = "a sensitivity"
    ANEW: ClassVar[str] = "Measure it again, with `onnxq tune` and a new journal."

    costs: tuple[GroupCost, ...]
    confirmed: int
    agreed: bool
    runs: float
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)

    def of(self, group: str) -> GroupCost | None:
        """The cost of that group; None: none of its nodes is quantized."""
        return next((cost for cost in self.costs if cost.group == group), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Models that could not be made, and why, in words."""
        return tuple(f"not measured: {group}: {why}" for group, why in self.refused.items())

    def __str__(self) -> str:
        rows = ["group  dB alone  local  accumulated  metric's drop"]
        for cost in self.costs:
            figures = map(db_text, (cost.worst_db, cost.local_db, cost.accumulated_db))
            drop = f"{cost.metric_drop:.4g}" if math.isfinite(cost.metric_drop) else "-"
            rows.append("  ".join([cost.group, *figures, drop]))
        return "\n".join([*rows, *self.notes])
