"""Integers that go back to float where a model is slower with them than without.

    slower than float      whole runs here, the interval included
    weighed anew           the same decider `by_time`, by the times of this model's own nodes
    still slower           everything that nobody named goes to float: "float is faster here"

Runs tell it on the machine that the model is made for, and on it alone. A model that is neither
faster nor smaller than float is treated alike. What the user named stays as it is, and so does
everything with all integers, objective "size", times from a file, or no repair asked for.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import onnx_ir as ir

from onnxq.checking.runnable import TIMED_S, Made, timed_in_pairs
from onnxq.checking.static_job import Observe, StaticJob, carry_out
from onnxq.core.reason import Reason
from onnxq.core.stopwatch import Stopwatch
from onnxq.dynamic.dynamic_decision import DynamicPlan, Objective
from onnxq.errors import counted
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import Float
from onnxq.ort.target_here import target_here
from onnxq.qconfig import Choice
from onnxq.static.choosing.proposals import in_float
from onnxq.static.deciders import decided_again
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.times.attribution import owners, paired_node_times
from onnxq.times.model_times import TimeModel
from onnxq.times.time_model import Precisions
from onnxq.times.work import moving

P = TypeVar("P")
PORTABLE = "portable"
LEAST_SMALLER = 0.99
"""Share of float's size from which on a file that is no faster has no gain; chosen."""
HERE = "this machine"


class SlowerHere(Reason):
    """The model was slower with the node in integers."""

    WORDS = "with integers the model took {ratio:.2f} of float's time on this machine"
    ratio: float


class LargerHere(Reason):
    """The file was no smaller with the node in integers, and the model no faster.

    Attributes:
        ratio: of its size to float's.
    """

    WORDS = "with integers the file has {ratio:.0%} of float's size, and no gain to show for it"
    ratio: float


def is_judged_here(target: str, objective: Objective) -> bool:
    """Whether bytes decide, or runs on this machine tell times of the target."""
    return objective is Objective.SIZE or target in (PORTABLE, target_here().name)


def why_not_worth(
    source: ir.Model, made: Made[P], objective: Objective, spent_s: float
) -> Reason | None:
    """Why float is better than a quantized model; None: it is not.

        speed   slower, or neither faster nor smaller
        size    larger

    The verdict gets the interval of the time where it leaves a doubt.
    """
    verdict = made.model.verdict
    if verdict is None or verdict.float_bytes is None:
        return None
    ratio = verdict.quantized_bytes / max(verdict.float_bytes, 1)
    if objective is Objective.SIZE:
        return LargerHere(ratio) if ratio > 1 and verdict.integer_nodes else None
    verdict = timed_in_pairs(source, made, spent_s).model.verdict
    if not (verdict and verdict.integer_nodes and verdict.speedup and verdict.speedup_range):
        return None
    if verdict.is_slower:
        return SlowerHere(float(f"{1 / verdict.speedup:.3g}"))
    return LargerHere(ratio) if ratio > LEAST_SMALLER and verdict.speedup_range[0] <= 1 else None


def _with_word_on_size(made: Made[P], objective: Objective) -> Made[P]:
    """The model, whose verdict says that it is larger than float, for its speed."""
    verdict = made.model.verdict
    if verdict is None or verdict.float_bytes is None or objective is Objective.SIZE:
        return made
    if verdict.quantized_bytes > verdict.float_bytes and verdict.integer_nodes:
        word = f"its file has {verdict.size}, for its speed; --objective size has less"
        made.model.attach(replace(verdict, notes=(*verdict.notes, word)))
    return made


# --- Static models


BY_RUNS_HERE = "by_runs_here"
"""Name of the decider, for `onnxq inspect --why`."""


def static_worth_it(job: StaticJob, made: Made[Plan], observe: Observe) -> Made[Plan]:
    """The model, or one with fewer integers that is worth its roundings, or float itself."""
    prepared, objective = job.prepared, job.objective
    is_asked = prepared.qconfig.choice is Choice.ALL_INTEGERS or prepared.costs is not None
    source = prepared.model
    if is_asked or not is_judged_here(prepared.target.name, objective):
        return timed_in_pairs(source, made, job.work.spent_s)
    if (reason := why_not_worth(source, made, objective, job.work.spent_s)) is None:
        return _with_word_on_size(made, objective)
    from onnxq.tuning.evaluation.evaluator import precisions_of  # few models need it
    from onnxq.tuning.measure_times import TimedModel, times_of_runs

    plain = replace(prepared, qconfig=prepared.qconfig.set_improve(()))

    def left(nodes: Iterable[ir.Node]) -> Prepared:
        return decided_again(plain, BY_RUNS_HERE, in_float(plain.qconfig, nodes, reason))

    precisions = precisions_of(made.plan)
    if isinstance(reason, LargerHere):
        fewer = left(_adding_bytes(source, made.model, precisions))
    else:
        timed = [TimedModel(source, {}), TimedModel(made.model, precisions)]
        times = replace(times_of_runs(source, made.timed_on, timed, seconds=TIMED_S), source=HERE)
        fewer = replace(prepared, costs=TimeModel(times, source))
    again, _ = carry_out(replace(job, prepared=fewer), observe)
    if why_not_worth(source, again, objective, job.work.spent_s) is not None:
        every = left(node for node, _ in walk(source.graph))
        again, _ = carry_out(replace(job, prepared=every), observe)
    rest = _in_integers(again.plan)
    lost = [name for name in _in_integers(made.plan) if name not in set(rest)]
    return _said(again, reason, lost, is_float=not rest)


def _in_integers(plan: Plan) -> list[str]:
    static = [name for name, decision in plan.decisions.items() if isinstance(decision, Quantize)]
    return [*static, *plan.dynamic]


def _adding_bytes(source: ir.Model, model: ir.Model, precisions: Precisions) -> list[ir.Node]:
    """Nodes that read more bytes of constants in a quantized model than in the float one."""
    of_node: dict[str, int] = defaultdict(int)
    known = owners(source, model, precisions)
    for node, _ in walk(model.graph):
        if (owner := known.get(node_name(node))) is not None:
            of_node[owner.name] += _constant_bytes(node)
    nodes = [node for node, _ in walk(source.graph)]
    return [node for node in nodes if of_node[node_name(node)] > _constant_bytes(node)]


def _constant_bytes(node: ir.Node) -> int:
    constants = [value.const_value for value in node.inputs if value is not None]
    return sum(each.nbytes for each in constants if each is not None)


# --- Dynamic models


def dynamic_worth_it(
    source: ir.Model,
    made: Made[DynamicPlan],
    make: Callable[[DynamicPlan], Made[DynamicPlan]],
    work: Stopwatch,
) -> Made[DynamicPlan]:
    """The model, or one with fewer integers that is worth its roundings, or float itself."""
    plan, objective = made.plan, made.plan.objective
    if not is_judged_here(plan.target, objective):
        return timed_in_pairs(source, made, work.spent_s)
    if (reason := why_not_worth(source, made, objective, work.spent_s)) is None:
        return _with_word_on_size(made, objective)
    is_larger = isinstance(reason, LargerHere)
    names = _stored_twice(plan, made.model) if is_larger else _slower_alone(source, made)
    again = make(_left(plan, names, reason))
    if not names or why_not_worth(source, again, objective, work.spent_s) is not None:
        names = list(plan.quantized)
        again = make(_left(plan, names, reason))
    return _said(again, reason, names, is_float=not again.plan.quantized)


def _stored_twice(plan: DynamicPlan, model: ir.Model) -> list[str]:
    """Quantized nodes whose float weights stay in the file, since another node reads them."""
    floats = {name for graph in model.graphs() for name in graph.initializers}
    return [
        name
        for name, decision in plan.quantized.items()
        if all(weight.tensor in floats for weight in decision.weights)
    ]


def _slower_alone(source: ir.Model, made: Made[DynamicPlan]) -> list[str]:
    """Nodes that take longer in integers; those that read one tensor share its rounding."""
    precisions = {name: each.precision for name, each in made.plan.quantized.items()}
    times = paired_node_times(source, made.model, precisions, dict(made.timed_on)).nodes

    def longer_us(names: list[str]) -> float:
        return sum(times[name][1] - times[name][0] for name in names)

    groups = reading_alike(source, precisions)
    return [name for names in groups if longer_us(names) > 0 for name in names]


def reading_alike(source: ir.Model, names: Container[str]) -> list[list[str]]:
    """The nodes of these names in groups that read one tensor, and share its rounding."""
    reading: dict[str, list[str]] = defaultdict(list)
    for node, _ in walk(source.graph):
        if node_name(node) in names:
            reading[next(map(value_name, moving(node)), "")].append(node_name(node))
    return list(reading.values())


def _left(plan: DynamicPlan, names: Iterable[str], reason: Reason) -> DynamicPlan:
    """The plan with these nodes in float, for the target's speed."""
    floats = dict.fromkeys(names, Float(reason))
    return replace(plan, decisions={**plan.decisions, **floats}, slower=(*plan.slower, *floats))


def _said(made: Made[P], reason: Reason, names: Sequence[str], *, is_float: bool) -> Made[P]:
    """The model, whose verdict says which nodes went to float, and why."""
    verdict = made.model.verdict
    assert verdict is not None
    told = replace(verdict, taken_back=tuple(names))
    what = f"{counted(names)}: in float, since {reason.words}"
    if is_float:
        what = f"float is better here: {reason.words}"
        # a speedup would be of float beside itself
        told = replace(told, float_because=what, speedup=None, speedup_range=None)
    made.model.attach(replace(told, notes=(what, *verdict.notes)))
    return made
