"""Tables for people, with rich. Renders values; computes nothing."""

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console

from onnxq.checking.bench import Benchmark
from onnxq.checking.findings import Execution
from onnxq.checking.summary import Group, Summary
from onnxq.core.brief import size_text
from onnxq.errors import counted
from onnxq.report.detail import is_whole
from onnxq.report.tables import print_table
from onnxq.report.wrapping import wrapped
from onnxq.shown import shown_lines
from onnxq.targets import Target

MAX_NAMED = 3  # nodes named per reason
MOST_NODES = 10
MOST_GROUPS = 5
"""Rows that `inspect` shows, so that it has 40 lines, as a rule; -v shows all."""
MOST_NOTES = 1


class _Console(Console):
    """A console whose sentences fit a terminal, and stay lines in a pipe."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        objects = tuple(shown_lines(x) if isinstance(x, str) else x for x in objects)
        if soft_wrap is None and all(isinstance(one, str) for one in objects):
            soft_wrap = True
            if self.is_terminal:
                objects = tuple(wrapped(one, self.width) for one in objects)
        super().print(*objects, soft_wrap=soft_wrap, **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def open_console(file: TextIO | None = None) -> Console:
    """A console that takes names literally: "[0]" in a node name is no markup."""
    return _Console(file=file or sys.stdout, markup=False, highlight=False, emoji=False)


def print_inspection(
    console: Console, summary: Summary, notes: Sequence[str], target: str = ""
) -> None:
    """How many nodes compute in integers, precisions and why, then nodes, those in float first."""
    groups, nodes = summary.groups, summary.nodes
    machine = f" on {target}" if target else ""
    console.print(
        f"{summary.node_counts(None).integers} of {len(nodes)} nodes compute in integers{machine}"
    )
    most_groups = len(groups) if is_whole() else MOST_GROUPS
    most = sorted(groups, key=lambda g: -len(g.nodes))[:most_groups]
    kept = [group for group in groups if group in most]
    places = {(group.precision, group.why.kind): str(i) for i, group in enumerate(kept, 1)}
    why = [
        (str(i), g.precision.value, str(len(g.nodes)), ops_of(g), g.words)
        for i, g in enumerate(kept, 1)
    ]
    header = ("", "precision", "nodes", "op", "why, or how")
    print_table(console, "", header, why, numbers=(0, 2))
    if is_whole():
        _print_counts(console, summary)
    elif len(nodes) > MOST_NODES:
        said = {g.why.kind for g in kept}  # a node refers to its reason, so those that are said
        order = sorted(nodes, key=lambda n: (n.decision != "float", n.why.kind not in said))
        nodes = tuple(order[:MOST_NODES])
    rows = [
        (n.name, n.op_type, n.precision.value, places.get((n.precision, n.why.kind), "-"))
        for n in nodes
    ]
    print_table(console, "", ("node", "op", "precision", "why"), rows, numbers=(3,))
    left = (len(summary.nodes) - len(nodes), len(groups) - len(kept))
    print_left(console, {"nodes": left[0], "reasons": left[1]})
    print_notes(console, notes)


def ops_of(group: Group) -> str:
    """Op types of a group; unless all is to be shown, the most frequent."""
    if is_whole() or len(group.op_types) == 1:
        return group.ops
    return counted([f"{op} ({count})" for op, count in group.op_types.items()])


def print_left(console: Console, left: Mapping[str, int]) -> None:
    """How many rows of each kind were left out, and how to see them."""
    words = [f"{n} {what[:-1] if n == 1 else what}" for what, n in left.items() if n]
    if words:
        console.print(f"and {', '.join(words)} more; -v shows them")


def print_details(
    console: Console, summary: Summary, execution: Execution | None, notes: Sequence[str]
) -> None:
    """Counts per op type, precisions and why, kernels that ONNX Runtime runs, notes."""
    _print_counts(console, summary)
    rows = [
        (g.precision.value, str(len(g.nodes)), g.ops, g.words, counted(g.nodes, MAX_NAMED))
        for g in summary.groups
    ]
    header = ("precision", "nodes", "op", "why, or how", "which")
    print_table(console, "precisions of nodes", header, rows, numbers=(1,))
    if execution is not None:
        print_execution(console, execution)
    print_notes(console, notes)


def print_benchmark(console: Console, benchmark: Benchmark) -> None:
    """Times, sizes and what ONNX Runtime runs."""
    b = benchmark
    rows = [
        (
            "CPU time per run, median",
            f"{b.float_ms:.3f} ms",
            f"{b.quantized_ms:.3f} ms",
            f"{b.speedup:.2f}x ({b.speed_range[0]:.2f} to {b.speed_range[1]:.2f})",
        ),
        (
            "size",
            size_text(b.float_bytes),
            size_text(b.quantized_bytes),
            f"{b.float_bytes / b.quantized_bytes:.2f}x" if b.quantized_bytes else "-",
        ),
    ]
    print_table(console, "", ("", "float", "quantized", "ratio"), rows, numbers=(1, 2, 3))
    print_execution(console, b.execution)
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in b.input_shapes.items())
    console.print(
        f"{b.runs} interleaved pairs of runs, one thread, sessions opened anew; in brackets: "
        f"the interval; inputs: {shapes}"
    )


def print_targets(
    console: Console, targets: Sequence[Target], default: str, aliases: Mapping[str, str]
) -> None:
    """One row per target, and the other names."""
    rows = [
        (t.name + (" (default)" if t.name == default else ""), t.description, t.weights)
        for t in targets
    ]
    print_table(console, "", ("target", "what it is", "weights that follow"), rows)
    more = [
        (
            t.name,
            str(t.saturation_mode),
            t.activations,
            "-" if t.throughput is None else f"{t.throughput.uint8_int8:.0f}",
            f"{t.proof.value}: {t.measurement}",
        )
        for t in targets
    ]
    header = ("target", "sums of products", "activations", "GMAC/s", "proof")
    print_table(console, "", header, more, numbers=(3,))
    for t in targets:
        if t.caveat:
            console.print(f"{t.name}: {t.caveat}")
    slow = sorted({op for t in targets for op in t.slow_in_integers})
    console.print(f"left in float unless the qconfig names it, being faster so: {', '.join(slow)}")
    console.print("also: " + ", ".join(f"{alias} = {name}" for alias, name in aliases.items()))


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """One line per note; unless all is to be shown, for the first ones."""
    most = len(notes) if is_whole() else MOST_NOTES
    for note in notes[:most]:
        console.print(f"note: {note}")
    print_left(console, {"notes": len(notes[most:])})


def _print_counts(console: Console, summary: Summary) -> None:
    counts = summary.counts
    kinds = ("in integers", _stored_as(summary), "in float")
    rows = {op: (c.integers, c.dynamic, c.floats) for op, c in counts.items()}
    total = [sum(row[i] for row in rows.values()) for i in range(3)]
    # a kind of quantization that was not asked for has no column
    shown = [i for i in range(3) if i == 2 or total[i] or (i == 0 and not total[1])]
    print_table(
        console,
        "plan: nodes per op",
        ("op", *(kinds[i] for i in shown)),
        [(op, *(str(row[i]) for i in shown)) for op, row in (rows | {"total": total}).items()],
        numbers=range(1, len(shown) + 1),
    )


def _stored_as(summary: Summary) -> str:
    """Heading of the nodes whose weights alone are integers in the file: their precisions."""
    precisions = {node.precision.value for node in summary.nodes if node.dynamic}
    return " or ".join(sorted(precisions)) or "dynamic"


def print_execution(console: Console, execution: Execution) -> None:
    """Kernels that ONNX Runtime runs, by operator; nodes that fell back to float, in a line each.

    Unless all is to be shown, a line has the kernels.
    """
    if execution.providers:
        said = ", ".join(f"{count} of {name}" for name, count in execution.providers.items())
        console.print(f"nodes by execution provider: {said}")
        return
    if not is_whole():
        console.print(execution_line(execution))
        _print_fallbacks(console, execution)
        return
    rows = [(op, "integers", str(count)) for op, count in _by_count(execution.integer_nodes)]
    rows += [(op, "float", str(count)) for op, count in _by_count(execution.float_nodes)]
    rows += [(op, "conversion", str(count)) for op, count in _by_count(execution.conversions)]
    title = "kernels that ONNX Runtime runs on this machine, nodes of one kernel counted once"
    print_table(console, title, ("op", "in", "kernels"), rows, numbers=(2,))
    _print_fallbacks(console, execution)


def execution_line(execution: Execution) -> str:
    """Kernels in a sentence, by the most frequent operators."""
    integers, floats = _named(execution.integer_nodes), _named(execution.float_nodes)
    return f"kernels that ONNX Runtime runs here: {integers} in integers, {floats} in float"


def _named(counts: Mapping[str, int]) -> str:
    """The sum, and the most frequent operators: "24 (Conv 21, Add 2, Gemm 1)"."""
    names = counted([f"{op} {count}" for op, count in _by_count(counts)], MAX_NAMED)
    return f"{sum(counts.values())} ({names})" if counts else "0"


def _print_fallbacks(console: Console, execution: Execution) -> None:
    """A line for each op type of nodes that fell back to float."""
    fallen: dict[str, list[str]] = {}
    for fallback in execution.fallbacks:
        fallen.setdefault(fallback.op_type, []).append(f"'{fallback.name}'")
    for op_type, names in fallen.items():
        most = len(names) if is_whole() else MAX_NAMED
        console.print(
            f"fell back to float: {len(names)} {op_type} between integers in the file, for which "
            f"ONNX Runtime has no integer kernel here: {counted(names, most)}"
        )


def _by_count(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: -item[1])
