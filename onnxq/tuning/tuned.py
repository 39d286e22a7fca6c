"""Tuned: a model that a search chose, the points that it chose from, and their report."""

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from onnxq.core.saved import plain
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.page.card import Table, card_of
from onnxq.qconfig import QConfig, QConfigMapping
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.report.console import open_console
from onnxq.static.plan import Plan
from onnxq.times.model_times import Times
from onnxq.tuning import tables
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.left_in_float import LeftInFloat
from onnxq.tuning.search.local_search import SearchEnd
from onnxq.tuning.search.quantization_groups import NodeGroup
from onnxq.tuning.sensitivity import Sensitivity


class MissedGoalWarning(UserWarning):
    """A search ended without a model that keeps the bounds of its goal."""


@dataclass(frozen=True)
class Checked:
    """Scores of the float model and of the chosen one, on samples that chose nothing.

    Attributes:
        where: these samples come from.
        float_metric: the float model's.
        score: the chosen model's.
    """

    where: str
    float_metric: float
    score: Score


@dataclass(frozen=True)
class Spent:
    """Work that a search took.

    Attributes:
        runs: models that were quantized and run on all samples of the search; those on fewer count
            by their share.
        cpu_s: CPU seconds of this process, other processes not counted.
        pass_s: CPU seconds of the float model on the same samples.
    """

    runs: float
    cpu_s: float
    pass_s: float

    def __str__(self) -> str:
        passes = self.cpu_s / max(self.pass_s, 1e-9)
        return (
            f"{self.runs:.1f} runs, {self.cpu_s:.1f} CPU seconds of this process: {passes:.0f} "
            "times the float model on these samples"
        )


@dataclass(frozen=True)
class Tuned:
    """A quantized model that a search chose.

    Attributes:
        model: the best one, with its verdict.
        qconfig: names the precision of every node: `quantize` with it, and with the calibration
            samples, gives the model byte for byte.
        score: on the samples of the search.
        held_apart: on samples that chose nothing: what the goal was checked on.
        float_metric: the float model's, on the samples of the search.
        missed: bounds that it does not keep, on either samples, in words; empty: it keeps all.
        steps: every model that was measured, in order; the first is where the search began.
        front: those of which no other is as accurate, as fast and as small; most accurate first.
        sensitivity: what each group of nodes costs alone.
        times: what each node takes in each precision.
        layer_types: groups of nodes that the report shows times of.
        goal: as it was asked for.
        labels: names of arrays in the samples that are no inputs.
        refused: (changes, why) of each model that could not be made, or did not run.
        left_in_float: layers that compute in float in the best one, and why.
        why: the search ended.
        spent: work that it took; it differs from run to run.
        plan: that the model was made with: the reason of every node's precision; None: not known.
        metric_layout: how a metric of onnxq.metrics read the outputs; empty: it was another one.
    """

    model: QuantizedModel = field(repr=False, compare=False)
    qconfig: QConfigMapping = field(repr=False)
    score: Score
    held_apart: Checked
    float_metric: float
    missed: tuple[str, ...]
    steps: tuple[tables.Milestone, ...] = field(repr=False)
    front: tuple[tables.Milestone, ...] = field(repr=False)
    sensitivity: Sensitivity = field(repr=False)
    times: Times | None = field(repr=False)
    goal: Goal
    layer_types: tuple[NodeGroup, ...] = field(default=(), repr=False)
    labels: tuple[str, ...] = ()
    refused: tuple[tuple[tuple[str, ...], str], ...] = ()
    left_in_float: tuple[LeftInFloat, ...] = ()
    why: SearchEnd = SearchEnd.NO_CHANGE
    spent: Spent = field(default=Spent(0.0, 0.0, 1.0), compare=False)
    plan: Plan | None = field(default=None, repr=False, compare=False)
    metric_layout: str = ""

    def __eq__(self, other: object) -> bool:
        """Whether another search found the same, whatever it spent; NaN is what it is."""
        if not isinstance(other, Tuned):
            return NotImplemented
        return self._facts() == other._facts()

    def _repr_html_(self) -> str:
        rows = tuple(tables.front_rows(self.front, self.qconfig, self.metric_digits))
        return card_of(self, Table(tables.FRONT_HEADER, rows))

    @property
    def is_slower(self) -> bool:
        """Whether whole runs took longer than the float model's, their interval included."""
        return self.score.time_range is not None and self.score.time_range[0] > 1

    @property
    def is_float(self) -> bool:
        """Whether no node is quantized."""
        return is_all_float(self.qconfig)

    @property
    def metric_digits(self) -> int:
        """Decimals of a metric that show a hundredth of the drop that is allowed; at least 4."""
        allowed = self.goal.max_drop
        return max(4, 2 - math.floor(math.log10(allowed))) if allowed else 4

    def _facts(self) -> dict[str, object]:
        kept = {key: value for key, value in self.to_dict().items() if key != "spent"}
        return {**kept, "qconfig": self.qconfig.to_yaml(), "labels": self.labels}

    def save(self, path: str | Path) -> None:
        """Writes the model.

        Raises:
            OutputError: the path cannot be written.
        """
        self.model.save(path)

    def save_front(self, folder: str | Path) -> list[Path]:
        """Writes the front as point-1.yaml and on, the most accurate first, and front.json.

        Returns:
            the YAML files; `quantize --qconfig` makes the model of each.
        """
        return tables.save_milestones(folder, self.front)

    def report(self) -> str:
        """The stages as tables: decibels and times of groups, the steps, the front, the choice."""
        file = io.StringIO()
        print_tuned(open_console(file), self)
        return file.getvalue()

    def to_dict(self) -> Mapping[str, object]:
        """Plain values of all but the model."""
        return {
            "goal": plain(self.goal),
            "missed": list(self.missed),
            "score": plain(self.score),
            "held_apart": plain(
                {
                    "where": self.held_apart.where,
                    "float_metric": self.held_apart.float_metric,
                    "score": self.held_apart.score,
                }
            ),
            "float_metric": plain(self.float_metric),
            "metric_layout": self.metric_layout,
            "steps": [plain(step) for step in self.steps],
            "front": [plain(point) for point in self.front],
            "sensitivity": plain(self.sensitivity),
            "times": plain(self.times),
            "group_times": self._group_times(),
            "refused": [{"changes": list(changes), "why": why} for changes, why in self.refused],
            "left_in_float": [plain(each) for each in self.left_in_float],
            "why": self.why.value,
            "spent": plain(self.spent),
        }

    def _group_times(self) -> list[dict[str, object]]:
        """Nodes of each layer type, with their nanoseconds by precision, as far as measured."""
        if self.times is None:
            return []
        return [
            {
                "group": group.name,
                "nodes": list(group.nodes),
                "ns": {
                    precision.value: ns
                    for precision, ns in self.times.by_precision(group.nodes).items()
                },
            }
            for group in self.layer_types
        ]


def print_tuned(console: Console, tuned: Tuned) -> None:
    """Sensitivity, steps, front, and both scores of what was chosen."""
    tables.print_sensitivity(console, tuned.sensitivity)
    tables.print_revert(console, tuned.sensitivity, tuned.layer_types)
    if tuned.times is not None and tuned.layer_types:
        tables.print_group_times(console, tuned.times, tuned.layer_types)
    tables.print_steps(console, tuned.steps, tuned.metric_digits)
    tables.print_front(console, tuned.front, tuned.qconfig, tuned.metric_digits)
    more = option_to_go_on(tuned)
    tables.print_left_in_float(console, tuned.left_in_float, tuned.score, tuned.goal, more=more)
    for change in chosen_changes(tuned):
        console.print(f"chosen: {change}")
    apart, digits = tuned.held_apart, tuned.metric_digits
    console.print(f"goal: {tuned.goal}")
    for where, of in (("the samples of the search", tuned), (apart.where, apart)):
        console.print(f"on {where}: {tables.score_words(of.score, of.float_metric, digits)}")
    _print_verdict(console, tuned)
    _print_notes(console, tuned)


def option_to_go_on(tuned: Tuned) -> str:
    """Option by which the search goes on; empty: it had tried all that is worth a run."""
    if tuned.why is SearchEnd.NO_RUN:
        return f"--max-runs {2 * tuned.goal.max_runs} (there was no run left)"
    return "a larger --max-seconds (the time was up)" if tuned.why is SearchEnd.LATE else ""


def _print_notes(console: Console, tuned: Tuned) -> None:
    """Notes on the choice, the end of the search, and what was refused."""
    for note in notes_on_choice(tuned):
        console.print(note)
    console.print(f"it ended because {tuned.why.value}; {tuned.spent}")
    for changes, why in tuned.refused:
        console.print(f"note: not possible: {'; '.join(changes)}: {why}")
    for note in (*tuned.sensitivity.notes, *(tuned.times.notes if tuned.times else ())):
        console.print(f"note: {note}")


def notes_on_choice(tuned: Tuned) -> Iterator[str]:
    """Bounds that are missed, why nothing computes in integers, and what the goal leaves open."""
    for missed in tuned.missed:
        yield f"missed: {missed}"
    if tuned.metric_layout:
        yield f"metric {tuned.goal.by.name}: {tuned.metric_layout}"
    is_asked_for = (
        tuned.goal.objective is Objective.SIZE and not tuned.is_float
    )  # stored weights are small
    if _computes_in_float(tuned.qconfig) and not is_asked_for:
        others = [step.score for step in tuned.steps if not _computes_in_float(step.qconfig)]
        stored = "weights are stored as integers, and all computes in float"
        what = "nothing is quantized" if tuned.is_float else stored
        why = tables.why_float(others, tuned.goal, more=option_to_go_on(tuned))
        yield f"note: {what}: {why}"
    if tuned.is_slower and tuned.goal.max_time is None:
        yield "note: it is slower than float here; --max-time 1 bounds the time."
    if not tuned.goal.bounds_accuracy and tuned.goal.objective is not Objective.ACCURACY:
        yield ("note: the goal bounds no accuracy; --min-sqnr, or --metric with --max-drop, does.")


def _print_verdict(console: Console, tuned: Tuned) -> None:
    """Verdict on the model."""
    verdict = tuned.model.verdict
    if verdict is not None:
        again = "the float model again; " if tuned.is_float else ""
        console.print(f"verdict: {again}{next(iter(verdict.sentences()))}")
        if verdict.collapse is not None:
            console.print(f"  {verdict.collapse}")


def chosen_changes(tuned: Tuned) -> tuple[str, ...]:
    """The changes to the best model, in words; of the float model, that it is that one."""
    if tuned.is_float:
        return ("everything in float: this is your float model again, nothing is quantized",)
    found = next((step for step in tuned.steps if step.qconfig == tuned.qconfig), None)
    return ("where it begins",) if found is None or not found.changes else found.changes


def is_all_float(mapping: QConfigMapping) -> bool:
    """Whether a mapping that names the precision of every node quantizes none."""
    return all(
        isinstance(entry, QConfig) and entry.precision is Precision.FLOAT
        for entry in mapping.nodes.values()
        if entry is not None
    )


def _computes_in_float(mapping: QConfigMapping) -> bool:
    """Whether no node computes in integers; weights may be stored in them."""
    return all(
        entry.precision is Precision.FLOAT
        if isinstance(entry, QConfig)
        else entry.precision not in (None, Precision.DYNAMIC_INT8)
        for entry in mapping.nodes.values()
        if entry is not None
    )
