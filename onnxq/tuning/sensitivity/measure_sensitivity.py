"""Measures what each group of nodes costs alone: on few samples first, the dearest on more.

    alone      the model in which this group alone is quantized: cost at the outputs, and the
               group's local error, since its inputs are float
    together   the model in which all groups are: their errors, accumulated ones included

Each of these models is one that `quantize` makes, run as it is: integer kernels, all forms. What
grows with the model are the runs, and these are on few samples.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from onnxq.checking.integers import find_integers
from onnxq.checking.side_by_side import Pair, SideBySide
from onnxq.core.saved import Saved
from onnxq.errors import CalibrationError, ModelError, first_line
from onnxq.graph.quantized import INPUTS_KEY, read_quantized_io
from onnxq.graph.walk import node_name, walk
from onnxq.jobs import in_order
from onnxq.ort.expose import observable
from onnxq.samples import as_taken, input_specs
from onnxq.tuning.evaluation.evaluations import REFUSALS, REFUSED, MakeEvaluator, Refusal, key_of
from onnxq.tuning.scoring.baseline import baseline_of
from onnxq.tuning.scoring.metric import MetricError
from onnxq.tuning.scoring.node_group import NodeGroup
from onnxq.tuning.sensitivity.sensitivity import ALL_GROUPS, GroupCost, Sensitivity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Executor

    import onnx_ir as ir

    from onnxq.qconfig import QConfigMapping
    from onnxq.qparams import QParams
    from onnxq.tuning.evaluation.evaluations import Evaluations
    from onnxq.tuning.evaluation.evaluator import Evaluator
    from onnxq.tuning.scoring.tuning_samples import TuningSamples

FEW_SHARE, LEAST_ROWS = 16, 4
"""Groups are first measured on this part of the search samples, and on so many at least."""
MORE_SHARE = 4
"""The dearest are measured again on this part."""
DEAREST = 4
"""Groups that are."""
ROUNDING = 1e-9
"""Part of a run that is none: runs are sums of shares, which are rounded."""
ALONE, TOGETHER = "alone", "together"
"""Kinds of records in the journal."""


class Grouped(Protocol):
    """Parts of a group that are read here."""

    @property
    def node_group(self) -> NodeGroup:
        """Name and nodes."""


G = TypeVar("G", bound=Grouped)


@dataclass(frozen=True)
class AloneScore(Saved):
    """Measurement of one group alone.

    Attributes:
        metric: of the model with this group alone quantized.
        sqnr_db: output name -> dB.
        local_db: dB at the group's results; NaN: the quantized model does not show them.
    """

    FORMAT: ClassVar[str] = "onnxq group alone 1"
    NOUN: ClassVar[str] = "a group's score"
    ANEW: ClassVar[str] = "Begin a new journal."

    metric: float
    sqnr_db: Mapping[str, float] = field(hash=False)
    local_db: float


@dataclass(frozen=True)
class Together(Saved):
    """Errors at the results of the groups in the model in which all are quantized.

    Attributes:
        total_db: name of a group -> dB; NaN: the model does not show them.
        refused: why there is no such model; empty: there is one.
    """

    FORMAT: ClassVar[str] = "onnxq groups together 1"
    NOUN: ClassVar[str] = "errors of groups"
    ANEW: ClassVar[str] = "Begin a new journal."

    total_db: Mapping[str, float] = field(hash=False)
    refused: str = ""


def sensitivity_of(
    evaluations: Evaluations,
    alone: Callable[[G], QConfigMapping],
    groups: Sequence[G],
    together: QConfigMapping,
    executor: Executor | None = None,
    most_runs: float = math.inf,
) -> Sensitivity:
    """Costs of groups of nodes, dearest first; of those that give no model, why.

    Args:
        evaluations: of the search: their evaluator and journal.
        alone: mapping in which the group is quantized, and all others are float.
        groups: of nodes.
        together: mapping in which all of them are quantized.
        executor: runs the groups; None: this process.
        most_runs: that it may take. The dearest are confirmed as far as these go; groups that they
            do not go for, the last ones, are among the refused.

    Raises:
        CalibrationError: unusable samples.
        MetricError: the user's metric fails.
    """
    evaluator = evaluations.evaluator
    samples = evaluator.samples
    few = _few(samples)
    more = samples.few(max(samples.rows // MORE_SHARE, 2 * few.rows))
    measuring = _Measuring(evaluations, executor)
    most_rows = most_runs * samples.rows
    asked = {each.node_group.name: (alone(each), each.node_group) for each in groups}
    measuring.leave_out(list(asked)[_fitting(most_rows, few.rows) :])
    asked = {name: item for name, item in asked.items() if name not in measuring.refused}
    first = measuring.costs(asked, few, together)
    rows = few.rows * (len(asked) + bool(asked))
    dearest = first[: min(DEAREST, _fitting(most_rows - rows, more.rows))]
    if more.rows <= few.rows:
        dearest = []
    again = measuring.costs({c.group: asked[c.group] for c in dearest}, more, together)
    rows += more.rows * (len(dearest) + bool(dearest))
    return Sensitivity(
        (*again, *first[len(dearest) :]),
        len(again),
        [c.group for c in again] == [c.group for c in dearest],
        rows / max(samples.rows, 1),
        measuring.refused,
    )


def _few(samples: TuningSamples) -> TuningSamples:
    return samples.few(max(samples.rows // FEW_SHARE, LEAST_ROWS))


def _fitting(most_rows: float, rows: int) -> int:
    """Models that may run on so many rows each, beside the one of all groups."""
    if math.isinf(most_rows):
        return sys.maxsize
    return max(math.floor(most_rows / max(rows, 1) + ROUNDING) - 1, 0)


Asked = Mapping[str, tuple["QConfigMapping", NodeGroup]]
"""Name of a group -> (mapping in which it is alone, the group)."""


class _Measuring:
    """Measurements over a journal and an Executor."""

    def __init__(self, evaluations: Evaluations, executor: Executor | None) -> None:
        self._evaluator, self._journal = evaluations.evaluator, evaluations.journal
        self._executor = executor
        self.refused: dict[str, str] = {}  # group -> why nothing is known of it

    def leave_out(self, names: Sequence[str]) -> None:
        """Says of groups that there is no run for them."""
        self.refused |= dict.fromkeys(names, "no run was left for it")

    def costs(
        self, asked: Asked, samples: TuningSamples, together: QConfigMapping
    ) -> list[GroupCost]:
        """Cost of each group on these samples, dearest first."""
        if not asked:
            return []
        all_of_them = self._together(together, [group for _, group in asked.values()], samples)
        if all_of_them.refused:
            self.refused[ALL_GROUPS] = all_of_them.refused
        evaluator = self._on(samples)
        keys = {name: _key(samples, *item) for name, item in asked.items()}
        lacking = [name for name in asked if self._found(keys[name]) is None]
        items = [asked[name] for name in lacking]
        for name, outcome in zip(lacking, self._run(evaluator, items), strict=True):
            kind = ALONE if isinstance(outcome, AloneScore) else REFUSED
            self._journal.append(kind, keys[name], outcome)
        found = []
        for name in asked:
            score = self._found(keys[name])
            if isinstance(score, Refusal):
                self.refused[name] = score.reason
            elif score is not None:
                drop = _drop(evaluator.baseline.metric, score.metric)
                total = all_of_them.total_db.get(name, math.nan)
                rows = samples.rows
                found.append(GroupCost(name, drop, score.sqnr_db, score.local_db, total, rows))
        return sorted(found, key=lambda cost: (cost.worst_db, -cost.metric_drop))

    def _together(
        self, mapping: QConfigMapping, groups: Sequence[NodeGroup], samples: TuningSamples
    ) -> Together:
        """Errors at the results of groups with all of them quantized."""
        key = _key(samples, mapping, NodeGroup("", tuple(n for g in groups for n in g.nodes)))
        known = self._journal.find(TOGETHER, key, Together)
        if known is None:
            try:
                known = Together(_errors(self._evaluator, mapping, groups, samples))
            except REFUSALS as error:
                known = Together({}, first_line(error))
            self._journal.append(TOGETHER, key, known)
        return known

    def _on(self, samples: TuningSamples) -> Evaluator:
        """The evaluator on fewer samples, calibrated on all."""
        mine = self._evaluator
        baseline = baseline_of(mine.subject, samples, mine.metric)
        return mine.on(baseline)

    def _found(self, key: str) -> AloneScore | Refusal | None:
        score = self._journal.find(ALONE, key, AloneScore)
        return score or self._journal.find(REFUSED, key, Refusal)

    def _run(
        self, evaluator: Evaluator, items: Sequence[tuple[QConfigMapping, NodeGroup]]
    ) -> Iterator[AloneScore | Refusal]:
        if self._executor is None:
            return (_alone(evaluator, *item) for item in items)
        made = MakeAlone(MakeEvaluator.of(evaluator))
        return in_order(self._executor, made, items, named=lambda item: f"group '{item[1].name}'")


@dataclass(frozen=True, eq=False)
class MakeAlone:
    """Makes in another process what measures groups alone.

    Attributes:
        evaluator: makes the evaluator.
    """

    evaluator: MakeEvaluator

    def __call__(self) -> Callable[[tuple[QConfigMapping, NodeGroup]], AloneScore | Refusal]:
        """The function that a worker runs on groups."""
        evaluator = self.evaluator.evaluator()
        return lambda item: _alone(evaluator, *item)


def _alone(evaluator: Evaluator, mapping: QConfigMapping, group: NodeGroup) -> AloneScore | Refusal:
    """The group alone, or why it gives no model."""
    try:
        score = evaluator(mapping)
        own = _errors(evaluator, mapping, [group], evaluator.baseline.samples)
    except MetricError:
        raise
    except REFUSALS as error:
        return Refusal(first_line(error))
    return AloneScore(score.metric, score.sqnr_db, own[group.name])


def _errors(
    evaluator: Evaluator,
    mapping: QConfigMapping,
    groups: Sequence[NodeGroup],
    samples: TuningSamples,
) -> dict[str, float]:
    """Name of a group -> dB at its results, in the model of that mapping; as `quantized` raises."""
    made = evaluator.quantized(mapping)
    source = evaluator.prepared(mapping).model
    results = {group.name: results_of(source, group) for group in groups}
    tensors = list(dict.fromkeys(tensor for each in results.values() for tensor in each))
    feedback = evaluator.subject.wishes.feedback
    errors = errors_inside(source, made.model, tensors, samples, feedback)
    return {name: worst(errors, tensors) for name, tensors in results.items()}


def _key(samples: TuningSamples, mapping: QConfigMapping, group: NodeGroup) -> str:
    nodes = hashlib.blake2b(" ".join(group.nodes).encode(), digest_size=6).hexdigest()
    return f"{samples.fingerprint} {key_of(mapping)} {nodes}"


def _drop(float_metric: float, metric: float) -> float:
    """Loss of the metric; inf for SQNR, which the float model has without bound."""
    return 0.0 if metric == float_metric else float_metric - metric


def results_of(model: ir.Model, group: NodeGroup) -> list[str]:
    """Tensors that the nodes of a group give to others, or to the caller, in graph order.

    Args:
        model: the float model, as prepared.
        group: of its nodes.
    """
    names = set(group.nodes)
    inside = {node: None for node, _ in walk(model.graph) if node_name(node) in names}
    return [
        value.name
        for node in inside
        for value in node.outputs
        if value.name
        and (value.is_graph_output() or any(use.node not in inside for use in value.uses()))
    ]


def errors_inside(
    source: ir.Model,
    target: ir.Model,
    tensors: Sequence[str],
    samples: TuningSamples,
    feedback: Mapping[str, str],
) -> dict[str, float]:
    """Tensor -> dB in the quantized model; without those that it does not show.

    A tensor shows as its integers, or under its own name where it holds numbers. Integers that
    carry a factor per channel are left out.

    Args:
        source: the float model, as prepared.
        target: the quantized one.
        tensors: of the float model.
        samples: to run both on.
        feedback: output name -> input name.

    Raises:
        ModelError: the quantized model does not run on the samples, on which the float one did.
    """
    shown = _shown(source, target, tensors)
    if not shown:
        return {}
    pairs = [Pair(tensor, tensor, name, qparams) for tensor, (name, qparams) in shown.items()]
    inputs = input_specs(source, tuple(feedback.values()), read_quantized_io(target, INPUTS_KEY))
    with SideBySide(source, target, pairs, [], feedback, threads=1) as run:
        compare = run.open()
        for batch in samples.batches:
            try:
                found = compare(as_taken(samples.fed(batch), inputs))
            except CalibrationError as error:
                raise ModelError(str(error)) from error  # the float model ran on it
            for pair, sums in zip(pairs, found, strict=True):
                pair.sums.add(sums)
    compared = {pair.name: pair.sums.compared for pair in pairs}
    return {tensor: sums.sqnr_db for tensor, sums in compared.items() if sums.elements}


def worst(errors: Mapping[str, float], tensors: Sequence[str]) -> float:
    """Least dB of those tensors; NaN where none of them was seen."""
    found = [errors[tensor] for tensor in tensors if tensor in errors]
    return min(found, key=lambda db: -math.inf if math.isnan(db) else db, default=math.nan)


def _shown(
    source: ir.Model, target: ir.Model, tensors: Sequence[str]
) -> dict[str, tuple[str, QParams | None]]:
    """Tensor -> (its name in the quantized model, what its integers mean)."""
    ours, theirs = set(observable(source)), set(observable(target))
    integers = {found.tensor: found for found in find_integers(target) if found.problem == ""}
    shown: dict[str, tuple[str, QParams | None]] = {}
    for tensor in tensors:
        if tensor not in ours:
            continue
        found = integers.get(tensor)
        if found is not None and found.channel_scale is None:
            shown[tensor] = (found.name, found.qparams)
        elif found is None and tensor in theirs:
            shown[tensor] = (tensor, None)
    return shown
