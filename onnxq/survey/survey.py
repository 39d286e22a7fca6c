"""Gathers the page of a report: what both models, their findings and a plan or a search tell."""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import onnx_ir as ir

from onnxq.checking.findings import Findings, OutputFinding, TensorFinding
from onnxq.checking.predict import predict
from onnxq.checking.prediction import LayerPrediction, MachinePrediction
from onnxq.checking.sides import Sides
from onnxq.checking.summary import NodeCounts, summarize, summarize_precisions
from onnxq.core.brief import size_text
from onnxq.dynamic.dynamic_decision import DynamicDecision
from onnxq.errors import OnnxqError, first_line
from onnxq.graph.walk import bodies, node_name, op_label, value_name, walk
from onnxq.operator import Precision
from onnxq.page.content import (
    Edge,
    FrontPoint,
    MachineColumn,
    MachineTable,
    NamedText,
    NodePart,
    Page,
    TensorPart,
    TensorQParams,
    WeightPart,
)
from onnxq.page.drawing import MODEL_IO
from onnxq.page.wording import counting
from onnxq.qparams import QParams
from onnxq.samples.inputs import Batch
from onnxq.static.plan import Plan
from onnxq.survey import file_precisions
from onnxq.survey.file_precisions import ShownPrecision
from onnxq.survey.heading import NO_BOUNDS, Bounds, ReportSubject, heading
from onnxq.survey.local_errors import TensorErrors, errors_of, median_share
from onnxq.survey.stored_ranges import stored_ranges
from onnxq.times.attribution import paired_node_times
from onnxq.tuning.tables import Milestone
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
    """The page of a report; what cannot be measured is left out, and the page says why."""
    why = _Missing(beside)
    source, target = sides.source, sides.target
    choices = file_precisions.shown_by_file(source, target)
    if beside.plan is not None:
        reasons = (file_precisions.planned if beside.tuned is None else file_precisions.searched)(
            beside.plan
        )
        choices |= {n: c for n, c in reasons.items() if n in choices}
    if beside.weights is not None:
        choices = file_precisions.with_reasons(choices, beside.weights)
    errors = why.tried("accuracy", lambda: errors_of(sides, batches, feedback)) or {}
    times = None
    is_float = all(c.precision in (Precision.FLOAT, None) for c in choices.values())
    if is_float:
        why.said["time"] = "nothing is quantized: both models take the same time"
    else:
        precisions = file_precisions.precisions_in(choices)
        times = why.tried("time", lambda: paired_node_times(source, target, precisions, batches[0]))
    machines = why.tried("machines", lambda: layers_on_machines(target))
    graph = surveyed_graph(source, choices, {} if times is None else times.nodes)
    tensors = tuple(_tensors(sides, findings, errors, graph.makers))
    weights = stored_ranges(target, graph.places)
    whole = None if times is None else times.whole
    nodes = _node_counts(source, choices, beside, findings)
    return Page(
        heading(subject, findings, nodes, beside.bounds, times, beside.notes),
        tuple(_joined(graph.nodes, graph.edges, tensors, weights)),
        tensors,
        weights,
        graph.edges,
        tuple(NamedText(each.name, each.reason) for each in findings.unmatched),
        () if times is None else tuple((op, *pair) for op, pair in times.others.items()),
        whole,
        machines,
        () if beside.tuned is None else tuple(_front(beside.tuned)),
        tuple(NamedText(section, words) for section, words in why.said.items()),
        None if beside.tuned is None else beside.tuned.goal.min_sqnr_db,
    )


def _node_counts(
    source: ir.Model, choices: Mapping[str, ShownPrecision], beside: BesideFiles, findings: Findings
) -> NodeCounts:
    """Nodes of the float model, as the verdict counts them; as the file shows them without one."""
    plan, weights, runs = beside.plan, beside.weights, findings.execution
    if plan is not None and choices.keys() <= plan.decisions.keys():
        summary = summarize_precisions(source, plan.decisions, plan.precisions, plan.dtypes)
        return summary.node_counts(runs)
    if weights is not None and choices.keys() <= weights.keys():
        return summarize(source, weights).node_counts(runs)
    return file_precisions.counted_by_file(source, choices, runs)


class _Missing:
    """Sections that are not there, and why."""

    def __init__(self, beside: BesideFiles) -> None:
        self.said: dict[str, str] = {}
        if beside.plan is None and beside.weights is None:
            self.said["decisions"] = (
                "Precisions are read from the quantized file. With the plan that it was made with "
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
    sides: Sides, findings: Findings, errors: Mapping[str, TensorErrors], makers: Mapping[str, int]
) -> list[TensorPart]:
    """Tensors in graph order, then the outputs that are no tensors with integers."""
    all_qparams = {pair.name: pair.qparams for pair in sides.tensors}
    shares = {found.name: found.saturated_share for found in findings.tensors}
    outputs = {output.name for output in findings.outputs}
    others = [output for output in findings.outputs if output.name not in shares]
    nothing = TensorErrors()
    parts = []
    every: list[TensorFinding | OutputFinding] = [*findings.tensors, *others]
    for found in every:
        one = errors.get(found.name, nothing)
        qparams = all_qparams[found.name] if found.name in shares else None
        parts.append(
            TensorPart(
                found.name,
                makers.get(found.name),
                found.sqnr_db,
                one.local_db,
                one.accumulated_db,
                found.max_error_lsb,
                shares.get(found.name),
                _qparams(qparams),
                one.histogram,
                found.name in outputs,
                None if one.local is None else one.whole.compared.sqnr_db,
                median_share(one.maxima, qparams) if qparams and one.maxima is not None else None,
            )
        )
    return parts


def _qparams(p: QParams | None) -> TensorQParams | None:
    if p is None:
        return None
    scale, zero = float(p.scale), int(p.zero_point)
    low, high = ((integer - zero) * scale for integer in (p.dtype.qmin, p.dtype.qmax))
    return TensorQParams(str(p.dtype), scale, zero, low, high)


def _joined(
    nodes: Sequence[NodePart],
    edges: Sequence[Edge],
    tensors: Sequence[TensorPart],
    weights: Sequence[WeightPart],
) -> list[NodePart]:
    """The nodes with the places of what they give and read."""
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
        if node.op_type == OUTPUT and node.precision == MODEL_IO and node.name in results:
            given[place] = [results[node.name]]
    behind = {source: reader for source, reader in edges if nodes[reader].precision == INSIDE}
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


# --- Layers of a quantized model on every machine, from its weights alone


KNOWN_AT_RUN_TIME = "may differ: its weights are known at run time"


def layers_on_machines(target: ir.Model) -> MachineTable:
    """Layers whose integers can differ from exact ones, by machine."""
    found = predict(target)
    risky = [layer.name for machine in found.machines for layer in machine.risky_layers]
    order = [layer.name for machine in found.machines[:1] for layer in machine.layers]
    names = sorted(dict.fromkeys(risky), key=lambda n: order.index(n) if n in order else len(order))
    columns = tuple(MachineColumn(m.targets, _cells(m, names)) for m in found.machines)
    said = (
        "The integers of every layer are the same on all machines, whatever the inputs: no sum of "
        "two products leaves 16 bits anywhere."
    )
    if names:
        said = (
            f"{counting(len(names), 'layer')} {'adds' if len(names) == 1 else 'add'} products in "
            "16 bits on some machines, where sums can saturate; “onnxq predict” with samples says "
            "which inputs do it."
        )
    if found.floats:
        ops = ", ".join(f"{op} {count}" for op, count in found.floats.items())
        said += f" What is computed in floats may differ in last bits: {ops}."
    return MachineTable(tuple(names), columns, said)


def _cells(machine: MachinePrediction, names: list[str]) -> tuple[str, ...]:
    layers = {layer.name: layer for layer in machine.risky_layers}
    return tuple(_words(layers[name]) if name in layers else "" for name in names)


def _words(layer: LayerPrediction) -> str:
    if layer.possible is None:
        return KNOWN_AT_RUN_TIME
    pairs, channels = counting(layer.possible, "pair"), counting(len(layer.channels), "channel")
    return f"can differ: {pairs} in {channels}"


# --- The graph of a float model as a page shows it: nodes of bodies beside those that hold them


INPUT, OUTPUT = "input", "output"
"""Operators of ends, in words."""
INSIDE = "inside"
"""Precision of a node that another one carries out."""


@dataclass(frozen=True)
class SurveyedGraph:
    """A float model's graph."""

    nodes: tuple[NodePart, ...]
    edges: tuple[Edge, ...]
    places: Mapping[str, int]
    makers: Mapping[str, int]


def surveyed_graph(
    source: ir.Model,
    choices: Mapping[str, ShownPrecision],
    times: Mapping[str, tuple[float, float]],
) -> SurveyedGraph:
    """The graph with the precision and the times of every node."""
    inputs = [v for v in source.graph.inputs if not v.is_initializer()]
    nodes = [node for node, _ in walk(source.graph)]
    parts = [NodePart(value_name(v), INPUT, MODEL_IO, "") for v in inputs]
    parts += [_part(node, choices[node_name(node)], times.get(node_name(node))) for node in nodes]
    places = {node_name(node): len(inputs) + place for place, node in enumerate(nodes)}
    makers = {value_name(v): place for place, v in enumerate(inputs)}
    makers |= {v.name: places[node_name(n)] for n in nodes for v in n.outputs if v.name}
    edges = [edge for node in nodes for edge in _edges(node, places, makers)]
    for output in source.graph.outputs:
        name = value_name(output)
        if name in makers:
            edges.append((makers[name], len(parts)))
        parts.append(NodePart(name, OUTPUT, MODEL_IO, ""))
    return SurveyedGraph(tuple(parts), tuple(dict.fromkeys(edges)), places, makers)


def _part(node: ir.Node, choice: ShownPrecision, times: tuple[float, float] | None) -> NodePart:
    precision = INSIDE if choice.precision is None else choice.precision.value
    name = node_name(node)
    # every command that quantizes has this option
    revert = "" if choice.precision in (Precision.FLOAT, None) else f"--exclude {shlex.quote(name)}"
    before, after = times or (None, None)
    return NodePart(name, op_label(node), precision, choice.reason, before, after, revert=revert)


def _edges(node: ir.Node, places: Mapping[str, int], makers: Mapping[str, int]) -> Iterator[Edge]:
    """From what a node reads; and from the last nodes of its bodies, which give its results."""
    place = places[node_name(node)]
    for value in node.inputs:
        if value is not None and (maker := makers.get(value.name or "")) is not None:
            yield maker, place
    for body in bodies(node):
        for output in body.outputs:
            if (maker := makers.get(output.name or "")) is not None:
                yield maker, place
