"""Improvements that a qconfig asks for, carried out in the flow."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import CalibrationError
from onnxq.improve.improvement import (
    Improved,
    Improvement,
    ModelImprovement,
    WeightImprovement,
    find,
)
from onnxq.quantized.outcome import summaries
from onnxq.static.choosing.again import chosen_again
from onnxq.static.prepare import prepared_again

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.samples import Samples
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared


def wanted(names: Sequence[str]) -> tuple[Improvement, ...]:
    """The improvements of these names, in the order in which they are carried out.

    Those of the model come first, then those of weights, then those of biases alone; else they
    stand as they were given.

    Raises:
        QConfigError: a name is not known.
    """
    return tuple(sorted(map(find, names), key=_turn))


def _turn(improvement: Improvement) -> int:
    if isinstance(improvement, WeightImprovement):
        return 2 if improvement.biases_alone else 1
    return 0


def check_samples(names: Sequence[str], samples: object | None) -> None:
    """Passes where improvements have samples to work on.

    Raises:
        QConfigError: a name is not known.
        CalibrationError: there are none.
    """
    wanted(names)
    if names and samples is None:
        raise CalibrationError(
            f"improve: {', '.join(names)} need the samples, which statistics do not hold: give "
            "SAMPLES in place of statistics (or of a run function), or leave `improve` out."
        )


def improve_model(
    prepared: Prepared, samples: Samples, objective: Objective = Objective.SPEED
) -> Prepared:
    """The Prepared of a model that its ModelImprovements made; itself where it asks for none."""
    for improvement in wanted(prepared.qconfig.improve):
        if isinstance(improvement, ModelImprovement):
            made = improvement.improve(prepared, samples, objective)
            prepared = prepared_again(prepared, made.model, made.outcomes)
            if made.naming:
                prepared = chosen_again(prepared, made.naming)
    return prepared


def improve_weights(prepared: Prepared, plan: Plan, samples: Samples) -> Improved:
    """The plan that its WeightImprovements make, with notes; itself where it asks for none."""
    improved = Improved(prepared, plan)
    for improvement in wanted(prepared.qconfig.improve):
        if isinstance(improvement, WeightImprovement):
            improved = improvement.improve(improved.prepared, improved.plan, samples)
    notes = (*improved.plan.notes, *summaries(improved.outcomes))
    return Improved(improved.prepared, dataclasses.replace(improved.plan, notes=notes))
