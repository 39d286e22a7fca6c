"""Quantized models that ONNX Runtime runs: nodes with which it does not are left in float.

ONNX Runtime has bugs: a graph that it runs in float may fail in integers, because an optimizer
moved a node to where no kernel is. The nodes to blame are found by bisection over the decisions:

    runs with nodes[:i] quantized, fails with nodes[:i + 1]   =>   nodes[i] goes to float

in about log2(nodes) trials each, until all that is left runs. Cheap nodes come last, so that they
are blamed rather than the MatMuls that they stand beside.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import onnx_ir as ir

from onnxq.checking.findings import Execution
from onnxq.checking.summary import Summary
from onnxq.checking.validation import REFUSALS, Batch, RefusalError, Validation, refusal
from onnxq.checking.validation_run import try_out
from onnxq.errors import LimitError, ModelError
from onnxq.graph.annotations import as_written
from onnxq.graph.given_file import given_file
from onnxq.operator import Float
from onnxq.operator.reasons import NotRun, NotTried
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import InputSource
from onnxq.times.timed_runs import time_beside_float

P = TypeVar("P")
Make = Callable[[Mapping[str, Float]], tuple[P, "QuantizedModel"]]
"""Makes plan and model with these nodes left in float."""
TIMED_S, TIMED_SHARE = 0.2, 0.1
"""CPU seconds of the runs that tell whether a model is slower, and share of the work so far, where
that is more. Runs of 1 ms take 20 rounds of each model in them."""
CLEAR_SPEEDUP = 1.2
"""Speedup of the validation run, few pairs of runs, from which on they are enough; chosen."""
IN_DOUBT = 4
"""Times as long are the runs of a model that seems slower, where their interval leaves a doubt."""


@dataclass(frozen=True, slots=True)
class Made(Generic[P]):
    """A quantized model and how it came about.

    Attributes:
        execution: nodes that ONNX Runtime runs of it; None: it was not tried.
        timed_on: sample on which it was timed beside the float model; empty: it was not.
    """

    plan: P
    model: QuantizedModel
    execution: Execution | None = None
    timed_on: Batch = field(default_factory=dict)


def runnable(
    make: Make[P],
    quantized: Callable[[P], Sequence[str]],
    summarize: Callable[[P], Summary],
    validation: Validation,
    min_sqnr_db: float | None = None,
) -> Made[P]:
    """A model that runs, with its verdict.

    Args:
        make: gives plan and model.
        quantized: names of a plan's quantized nodes, those first that gain most by it.
        summarize: counts the nodes of a plan.
        validation: what to run it on.
        min_sqnr_db: bound on every float output; None: none.
    """
    floats: dict[str, Float] = {}
    while True:
        plan, model = make(floats)
        try:
            verdict, execution, timed_on = try_out(model, validation)
            break
        except RefusalError as refused:
            if instead := _suiting_float(refused, validation):
                validation = instead
                continue
            floats |= _to_blame(make, quantized(plan), floats, refused)
    nodes = summarize(plan).node_counts(execution)
    verdict = replace(
        verdict,
        integer_nodes=nodes.integers,
        float_nodes=nodes.stored + nodes.floats,
        stored_nodes=nodes.stored,
        left_in_float=tuple(floats),
    )
    if min_sqnr_db is not None:
        verdict.check(min_sqnr_db)
    model.attach(verdict)
    return Made(plan, model, execution, timed_on)


def timed_in_pairs(source: ir.Model, made: Made[P], spent_s: float) -> Made[P]:
    """The model, its verdict with a time of several pairs of sessions where one leaves a doubt.

    `spent_s`: CPU time of the work so far, of which the runs may take a share.
    """
    verdict, model, feeds = made.model.verdict, made.model, made.timed_on
    if verdict is None or verdict.is_float or not feeds:
        return made
    if verdict.size_of is None and (verdict.speedup or CLEAR_SPEEDUP) >= CLEAR_SPEEDUP:
        return made
    seconds = max(TIMED_S, TIMED_SHARE * spent_s)
    # the file may be slower than the canonical model; bfloat16 has no kernels, and paths are UTF-8
    for file in dict.fromkeys((given_file(source), None)):
        with contextlib.suppress(*REFUSALS):
            time = time_beside_float(source, model, feeds, seconds, file)
            if time.low < 1 < time.ratio:
                time = time_beside_float(source, model, feeds, IN_DOUBT * seconds, file)
            told = replace(verdict, speed_of=None if file is None else verdict.size_of)
            interval = (1 / time.high, 1 / time.low)
            model.attach(replace(told, speedup=1 / time.ratio, speedup_range=interval))
            break
    else:
        note = "its speed is of one pair of sessions; onnxq bench opens several"
        model.attach(replace(verdict, notes=(*verdict.notes, note)))
    return made


def _suiting_float(refused: RefusalError, validation: Validation) -> Validation | None:
    """Other batches, where the float model does not run on the one either; None: it does.

    A batch that was cut is whole in them; in the place of one that was made up there is none.
    """
    reason = refusal(validation.source, refused.feeds)
    if reason:
        if validation.whole:
            return replace(validation, batches=validation.whole, whole=())
        made_up = validation.input_source is InputSource.MADE_UP
        if isinstance(refused.__cause__, LimitError):
            raise refused.__cause__
        if made_up and not refusal(validation.source, None):
            return replace(validation, input_source=InputSource.NONE, batches=())
        raise ModelError(
            f"the float model itself does not run on ONNX Runtime: {reason}. Repair it; or, if "
            "its operators are registered where it will run, and not here, ask for no verdict: "
            "check=onnxq.Check.NONE, on the command line --no-verdict."
        )
    return None


def _to_blame(
    make: Make[P], names: Sequence[str], floats: Mapping[str, Float], refused: RefusalError
) -> dict[str, Float]:
    """The first of the names with which what comes before it does not run any more."""

    def runs(count: int) -> bool:
        rest = dict.fromkeys(names[count:], Float(NotTried()))
        return not refusal(as_written(make({**floats, **rest})[1]), refused.feeds)

    if not names or not runs(0):
        raise refused  # no decision of ours is to blame: what else the rewrite did
    few, many = 0, len(names)
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if runs(middle) else (few, middle)
    name = names[few]
    return {name: Float(NotRun(refused.reason))}
