"""Gathers the page of a report: what both models, their findings and a plan or a search tell."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from onnxq.core.brief import size_text
from onnxq.errors import OnnxqError, first_line
from onnxq.page.content import Fact, FrontPoint, Page, TensorPart, TensorQParams
from onnxq.page.drawing import ENDS
from onnxq.survey.channel_reaches import median_share
from onnxq.survey.file_forms import forms_in, planned, shown_by_file, with_reasons
from onnxq.survey.heading import NO_BOUNDS, Bounds, heading
from onnxq.survey.layers_on_machines import layers_on_machines
from onnxq.survey.local_errors import TensorErrors, errors_of
from onnxq.survey.stored_ranges import stored_ranges
from onnxq.survey.surveyed_graph import INSIDE, OUTPUT, surveyed_graph
from onnxq.times.paired_node_times import paired_node_times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnxq.checking.findings import Findings
    from onnxq.checking.sides import Sides
    from onnxq.dynamic.dynamic_decision import DynamicDecision
    from onnxq.page.content import Edge, NodePart, WeightPart
    from onnxq.qparams import QParams
    from onnxq.samples.inputs import Batch
    from onnxq.static.plan import Plan
    from onnxq.survey.heading import ReportSubject
    from onnxq.tuning.milestones import Milestone
    from onnxq.tuning.tuned import Tuned

T = TypeVar("T")
MOST_CHANGES = 4
"""Moves of a model that its row names."""


@dataclass(frozen=True)
class BesideFiles:
    """Knowledge beside the two files.

    Attributes:
        plan: that the quantized model was made with; None: the file alone says what was decided.
        weights: likewise, decisions on weights alone, of dynamic quantization or of blocks.
        tuned: search that it comes of; None: none.
        bounds: to be shown.
        notes: for a reader.
    """

    plan: Plan | None = None
    weights: Mapping[str, DynamicDecision] | None = None
    tuned: Tuned | None = None
    bounds: Bounds = NO_BOUNDS
    notes: tuple[str, ...] = ()


NOTHING_BESIDE = BesideFiles()


def survey(
    subject: ReportSubject,
    sides: Sides,
    findings: Findings,
    batches: Sequence[Batch],
    feedback: Mapping[str, str],
    beside: BesideFiles = NOTHING_BESIDE,
) -> Page:
    """The page of a report; what cannot be measured is left out, and the page says why.

    Args:
        subject: names of the models.
        sides: both of them.
        findings: of verify.
        batches: a few of its samples; the first is timed.
        feedback: output name -> input name, of state.
        beside: plan, search, bounds.
    """
    why = _Missing(beside)
    source, target = sides.source, sides.target
    choices = shown_by_file(source, target)
    if beside.plan is not None:
        reasons = planned(beside.plan, is_searched=beside.tuned is not None)
        choices |= {n: c for n, c in reasons.items() if n in choices}
    if beside.weights is not None:
        choices = with_reasons(choices, beside.weights)
    errors = why.tried("accuracy", lambda: errors_of(sides, batches, feedback)) or {}
    times = why.tried(
        "time", lambda: paired_node_times(source, target, forms_in(choices), batches[0])
    )
    machines = why.tried("machines", lambda: layers_on_machines(target))
    graph = surveyed_graph(source, choices, {} if times is None else times.nodes)
    tensors = tuple(_tensors(sides, findings, errors, graph.makers))
    weights = stored_ranges(target, graph.places)
    whole = None if times is None else times.whole
    return Page(
        heading(subject, findings, beside.bounds, times, beside.notes),
        tuple(_joined(graph.nodes, graph.edges, tensors, weights)),
        tensors,
        weights,
        graph.edges,
        tuple(Fact(each.name, each.reason) for each in findings.unmatched),
        () if times is None else tuple((op, *pair) for op, pair in times.others.items()),
        whole,
        machines,
        () if beside.tuned is None else tuple(_front(beside.tuned)),
        tuple(Fact(section, words) for section, words in why.said.items()),
        None if beside.tuned is None else beside.tuned.goal.min_sqnr_db,
    )


class _Missing:
    """Sections that are not there, and why."""

    def __init__(self, beside: BesideFiles) -> None:
        self.said: dict[str, str] = {}
        if beside.plan is None and beside.weights is None:
            self.said["decisions"] = (
                "The forms are read from the quantized file. With the plan that it was made with "
                "(quantize --save-plan FILE, then report --plan FILE) the reasons are the plan’s."
            )

    def tried(self, section: str, measure: Callable[[], T]) -> T | None:
        """The measurement; None, and words on it, where it fails."""
        try:
            return measure()
        except OnnxqError as error:
            self.said[section] = f"Not measured: {first_line(error)}"
            return None


def _tensors(
    sides: Sides,
    findings: Findings,
    errors: Mapping[str, TensorErrors],
    makers: Mapping[str, int],
) -> list[TensorPart]:
    """Tensors in graph order, then the outputs that are no tensors with integers."""
    all_qparams = {pair.name: pair.qparams for pair in sides.tensors}
    nothing = TensorErrors()
    parts = []
    for found in findings.tensors:
        one = errors.get(found.name, nothing)
        parts.append(
            TensorPart(
                found.name,
                makers.get(found.name),
                found.sqnr_db,
                one.local_db,
                one.accumulated_db,
                found.max_error_lsb,
                found.saturated_share,
                _qparams(all_qparams[found.name]),
                one.histogram,
                any(found.name == output.name for output in findings.outputs),
                _sampled(one),
                _channel_share(one, all_qparams[found.name]),
            )
        )
    known = {part.name for part in parts}
    for output in findings.outputs:
        if output.name in known:
            continue
        one = errors.get(output.name, nothing)
        parts.append(
            TensorPart(
                output.name,
                makers.get(output.name),
                output.sqnr_db,
                one.local_db,
                one.accumulated_db,
                output.max_error_lsb,
                histogram=one.histogram,
                is_output=True,
                sampled_db=_sampled(one),
            )
        )
    return parts


def _sampled(one: TensorErrors) -> float | None:
    """SQNR of whole runs on the samples of local errors; None: these are not known."""
    return None if one.local is None else one.whole.compared.sqnr_db


def _channel_share(one: TensorErrors, p: QParams | None) -> float | None:
    return None if p is None or one.reaches is None else median_share(one.reaches, p)


def _qparams(p: QParams | None) -> TensorQParams | None:
    if p is None:
        return None
    scale, zero = float(p.scale), int(p.zero_point)
    low, high = ((code - zero) * scale for code in (p.dtype.qmin, p.dtype.qmax))
    return TensorQParams(str(p.dtype), scale, zero, low, high)


def _joined(
    nodes: Sequence[NodePart],
    edges: Sequence[Edge],
    tensors: Sequence[TensorPart],
    weights: Sequence[WeightPart],
) -> list[NodePart]:
    """The nodes with the places of what they give and read.

    What a node gives behind others that it carries out, as a Conv its Relu, is its result too.
    """
    given: dict[int, list[int]] = defaultdict(list)
    read: dict[int, list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        if tensor.node is not None:
            given[tensor.node].append(place)
    for place, weight in enumerate(weights):
        if weight.node is not None:
            read[weight.node].append(place)
    results = {tensor.name: place for place, tensor in enumerate(tensors) if tensor.is_output}
    for place, node in enumerate(nodes):
        if node.op_type == OUTPUT and node.form == ENDS and node.name in results:
            given[place] = [results[node.name]]
    behind = {source: reader for source, reader in edges if nodes[reader].form == INSIDE}
    for place in reversed(range(len(nodes))):
        if not given[place] and place in behind:
            given[place] = given[behind[place]]
    return [
        replace(node, tensors=tuple(given[place]), weights=tuple(read[place]))
        for place, node in enumerate(nodes)
    ]


def _front(tuned: Tuned) -> list[FrontPoint]:
    """Every model of a search: those of the front first, under the names of their files."""
    front = [
        _point(f"point-{number}", step, tuned, is_front=True)
        for number, step in enumerate(tuned.front, 1)
    ]
    ahead = {id(step) for step in tuned.front}
    known = [step.qconfig for step in tuned.front]
    rest = [s for s in tuned.steps if id(s) not in ahead and s.qconfig not in known]
    return [
        *front,
        *(_point(f"model {n}", step, tuned, is_front=False) for n, step in enumerate(rest, 1)),
    ]


def _point(name: str, step: Milestone, tuned: Tuned, *, is_front: bool) -> FrontPoint:
    more = len(step.changes) - MOST_CHANGES
    changes = "; ".join(step.changes[:MOST_CHANGES]) or "where the search began"
    score = step.score
    return FrontPoint(
        name,
        score.metric,
        score.worst_db,
        score.time_ratio,
        size_text(score.size_bytes),
        f"{changes}; and {more} more" if more > 0 else changes,
        is_front,
        step.qconfig == tuned.qconfig,
    )
