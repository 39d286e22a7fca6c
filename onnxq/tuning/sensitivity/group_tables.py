"""Tables of what groups of nodes cost: decibels alone, and time in each form."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from onnxq.operator import Precision
from onnxq.report.tables import print_table
from onnxq.tuning.scoring.score import db_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from onnxq.times.model_times import Times
    from onnxq.tuning.scoring.node_group import NodeGroup
    from onnxq.tuning.sensitivity.sensitivity import Sensitivity

MOST_ROWS = 12
"""Rows of a table; those beyond are counted."""
FORMS = (Precision.FLOAT, Precision.INT8, Precision.INT8_FLOAT_OUTPUT, Precision.DYNAMIC_INT8)
"""Forms with kernels of their own."""
MOST_NAMED = 8
"""Nodes of a group that are named; more do not fit a command that is typed."""
MICRO_NS = 1e3
SENSITIVITY_WORDS = (
    "dB alone: at the outputs, this group alone in integers; local: its error on float inputs; "
    "accumulated: what comes in; exact: no error; -: not seen"
)
FORM_WORDS = {
    Precision.INT8_FLOAT_OUTPUT: "int8_float_output: products of integers, results in float",
    Precision.DYNAMIC_INT8: "dynamic_int8: ranges found in each run",
}
"""Forms whose names do not say all."""


def print_sensitivity(console: Console, sensitivity: Sensitivity) -> None:
    """A row of decibels for each group, the dearest first."""
    costs = sensitivity.costs
    rows = [
        (cost.group, db_text(cost.worst_db), db_text(cost.local_db), db_text(cost.accumulated_db))
        for cost in costs[:MOST_ROWS]
    ]
    header = ("group of nodes", "dB alone", "local dB", "accumulated dB")
    title = "what each group costs alone, the dearest first"
    print_table(console, title, header, rows, numbers=(1, 2, 3))
    count_others(console, len(costs))
    if costs:
        console.print(f"{SENSITIVITY_WORDS}\n")


def print_revert(console: Console, sensitivity: Sensitivity, groups: Iterable[NodeGroup]) -> None:
    """Options of `quantize` that leave the dearest of these groups in float; nothing without one.

    Groups that were measured in parts besides stand in the table by their parts, too.
    """
    nodes = {group.name: group.nodes for group in groups}
    name = next((cost.group for cost in sensitivity.costs if cost.group in nodes), None)
    if name is None:
        return
    if len(nodes[name]) > MOST_NAMED:
        console.print(f"{name} has {len(nodes[name])} nodes: --json names those of every group\n")
        return
    options = " ".join(f"--exclude {shlex.quote(node)}" for node in nodes[name])
    console.print(f"to leave {name} in float, add this to 'onnxq quantize':")
    console.print(f"  {options}\n", soft_wrap=True)  # to be copied


def print_group_times(console: Console, times: Times, groups: Iterable[NodeGroup]) -> None:
    """A row of microseconds for each group, the slowest in float first; -: not in that form."""
    found = [(group.name, times.by_precision(group.nodes)) for group in groups]
    known = [item for item in found if item[1]]
    known.sort(key=lambda item: -item[1].get(Precision.FLOAT, 0.0))
    shown = [form for form in FORMS if any(form in ns for _, ns in known)]
    rows = [
        (name, *(_micro(ns.get(form)) for form in shown), _share(ns, times))
        for name, ns in known[:MOST_ROWS]
    ]
    header = ("group of nodes", *(form.value for form in shown), "of float's run")
    title = f"microseconds of each group, without conversions ({times.source})"
    print_table(console, title, header, rows, numbers=range(1, len(header)))
    count_others(console, len(known))
    words = [FORM_WORDS[form] for form in shown if form in FORM_WORDS]
    console.print(f"{'; '.join([*words, '-: not in that precision'])}\n")


def count_others(console: Console, rows: int) -> None:
    """A line that counts the rows beyond those of a table."""
    if rows > MOST_ROWS:
        console.print(f"and {rows - MOST_ROWS} more\n")


def _micro(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / MICRO_NS:.1f}"


def _share(ns: dict[Precision, float], times: Times) -> str:
    share = ns.get(Precision.FLOAT, 0.0) / times.float_ns if times.float_ns > 0 else 0.0
    return f"{share:.0%}"
