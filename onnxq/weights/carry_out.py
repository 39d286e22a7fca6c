"""Improvements that a qconfig asks for, carried out in the flow."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from onnxq.dtypes import BYTE_BITS
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import (
    CalibrationError,
    OnnxqError,
    QConfigError,
    UnsupportedError,
    first_line,
    kind_of,
)
from onnxq.ort.target_here import saturates_here_alone
from onnxq.quantized.outcome import Outcome
from onnxq.samples import Batches, Samples, open_samples
from onnxq.samples.excerpt import HANDFUL
from onnxq.static.deciders import decided_again
from onnxq.static.plan import Plan
from onnxq.static.prepare import prepared_again
from onnxq.static.prepared import Prepared
from onnxq.weights.algorithm import (
    EqualModel,
    Improved,
    ModelAlgorithm,
    PTQAlgorithm,
    WeightAlgorithm,
    find,
)
from onnxq.weights.judgement import enough_of, in_smaller_batches, row_count, thinned
from onnxq.weights.smooth import Smooth, smoothed_for_outliers

Made = TypeVar("Made", EqualModel, Improved)
DEFAULT: tuple[str, ...] = ("auto",)
"""Algorithms where a qconfig names none: they cost nothing at run time, and bounded work here."""
FEW_BITS = ("round", "bias")
"""Algorithms of weights below 8 bits: ResNet-20 keeps 16 dB at 4 bits without them, 26 dB with."""
OURS = __name__.partition(".")[0]


def wanted(names: Sequence[str]) -> tuple[PTQAlgorithm, ...]:
    """The PTQ algorithms of these names, in the order in which they are carried out.

    Those of the model come first, then those of weights, then those of biases alone; else they
    stand as they were given.

    Raises:
        QConfigError: a name is not known.
    """
    return tuple(sorted(map(find, names), key=_turn))


def _turn(algorithm: PTQAlgorithm) -> int:
    if isinstance(algorithm, WeightAlgorithm):
        return 2 if algorithm.biases_alone else 1
    return 0


def check_samples(names: Sequence[str], samples: object | None) -> None:
    """Passes where PTQ algorithms have samples to work on."""
    wanted(names)
    if names and samples is None:
        raise CalibrationError(
            f"improve: {', '.join(names)} need the samples, which statistics do not hold: give "
            "SAMPLES in place of statistics (or of a run function), or leave `improve` out."
        )


def with_algorithms(
    prepared: Prepared, samples: Samples | None, size: float | None = None
) -> Prepared:
    """The Prepared with DEFAULT where its qconfig names no algorithms, FEW_BITS for few bits."""
    asked = prepared.qconfig
    has_few = asked.weight_bits < BYTE_BITS or size is not None
    if has_few and samples is not None and asked.improve is None:
        return dataclasses.replace(prepared, qconfig=asked.set_improve(FEW_BITS))
    if asked.improve is not None or not DEFAULT:
        return prepared
    if why := _why_none(prepared, samples):
        untried = (Outcome(DEFAULT[0], "", kept=False, why=why),)
        return dataclasses.replace(prepared, outcomes=(*prepared.outcomes, *untried))
    return dataclasses.replace(prepared, qconfig=asked.set_improve(DEFAULT))


def _why_none(prepared: Prepared, samples: Samples | None) -> str:
    """Reason why no algorithm is tried by default; the empty string: DEFAULT is."""
    if samples is None:
        return "they fit samples, and there are only statistics"
    if samples.is_one_shot:
        return "the samples come only once"
    if prepared.feedback:
        return "each sample hands its state to the next one"
    if saturates_here_alone(prepared.target):
        return f"this machine does not add as {prepared.target} does, and cannot judge them"
    count = in_smaller_batches(open_samples(samples, prepared.inputs), prepared).count
    if count is None or count < HANDFUL:
        return f"wanted {HANDFUL} batches of samples or more, their number known"
    return ""


def improve_model(
    prepared: Prepared, samples: Batches, objective: Objective = Objective.SPEED
) -> Prepared:
    """The Prepared of a model that its ModelImprovements made; itself where it asks for none.

    DEFAULT alone asks for `smooth` where outlying channels cost the model much.
    """
    if prepared.qconfig.algorithms == DEFAULT:
        alone = dataclasses.replace(prepared, qconfig=prepared.qconfig.set_improve([Smooth.name]))
        some = thinned(samples, enough_of(row_count(samples)))
        # judged as if nothing followed: that takes half the time
        smoothed = smoothed_for_outliers(alone, some, objective)
        return prepared if smoothed is None else _made_of(prepared, Smooth.name, smoothed)
    for algorithm in wanted(prepared.qconfig.algorithms):
        if isinstance(algorithm, ModelAlgorithm):
            work = partial(algorithm.improve, prepared, samples, objective)
            prepared = _made_of(prepared, algorithm.name, _result(algorithm, work, EqualModel))
    return prepared


def _made_of(prepared: Prepared, name: str, made: EqualModel) -> Prepared:
    """The Prepared with the model that a PTQ algorithm made in its place."""
    prepared = prepared_again(prepared, made.model, made.outcomes)
    return decided_again(prepared, name, made.naming) if made.naming else prepared


def improve_weights(prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
    """The plan that its WeightAlgorithms make, with notes; itself where it asks for none."""
    improved = Improved(prepared, plan)
    for algorithm in wanted(prepared.qconfig.algorithms):
        if isinstance(algorithm, WeightAlgorithm):
            work = partial(algorithm.improve, improved.prepared, improved.plan, samples)
            improved = _result(algorithm, work, Improved)
    return improved


def _result(algorithm: PTQAlgorithm, work: Callable[[], object], kind: type[Made]) -> Made:
    """Result of the algorithm; one of a user's own may fail, or give something else."""
    module = type(algorithm).__module__
    where = f"PTQ algorithm '{algorithm.name}' (module {module})"
    try:
        made = work()
    except OnnxqError:
        raise
    except Exception as error:  # a user's algorithm may raise anything
        if module.partition(".")[0] == OURS:  # our own fault, to be reported as such
            raise
        raise UnsupportedError(
            f"{where} fails: {type(error).__name__}: {first_line(error)}. Repair it, or leave it "
            "out of `improve`."
        ) from error
    if not isinstance(made, kind):
        raise QConfigError(
            f"{where} gives {kind_of(made)}; wanted an onnxq.weights.{kind.__name__}."
        )
    return made
