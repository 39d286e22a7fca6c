"""Tables for people, with rich. Renders values; computes nothing."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console

from onnxq.core.brief import size_text
from onnxq.errors import counted
from onnxq.report.detail import is_whole
from onnxq.report.tables import print_table
from onnxq.report.wrapping import wrapped
from onnxq.shown import shown_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxq.checking.bench import Benchmark
    from onnxq.checking.findings import Execution
    from onnxq.report.summary import Summary
    from onnxq.targets import Target


MAX_NAMED = 2  # nodes named per reason


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


def print_inspection(console: Console, summary: Summary, notes: Sequence[str]) -> None:
    """Every node with its precision, then the precisions and why, then counts per op type."""
    places = {(group.precision, group.why): str(i) for i, group in enumerate(summary.groups, 1)}
    rows = [
        (n.name, n.op_type, n.precision.value, places[n.precision, n.why]) for n in summary.nodes
    ]
    print_table(console, "", ("node", "op", "precision", "why"), rows, numbers=(3,))
    why = [
        (f"{i}", group.precision.value, str(len(group.nodes)), group.why.words)
        for i, group in enumerate(summary.groups, 1)
    ]
    print_table(
        console, "why, or how", ("", "precision", "nodes", "why, or how"), why, numbers=(0, 2)
    )
    _print_counts(console, summary)
    print_notes(console, notes)


def print_quantization(
    console: Console,
    summary: Summary,
    execution: Execution | None,
    sizes: tuple[int, int],
    notes: Sequence[str],
) -> None:
    """Counts per op type, precisions and why, what ONNX Runtime runs, sizes, notes."""
    _print_counts(console, summary)
    header = ["precision", "nodes", "op", "why, or how"]
    rows = [
        [group.precision.value, str(len(group.nodes)), _ops(group.op_types), group.why.words]
        for group in summary.groups
    ]
    if is_whole():
        header.append("which")
        rows = [
            [*row, counted(group.nodes, MAX_NAMED)]
            for row, group in zip(rows, summary.groups, strict=True)
        ]
    print_table(console, "precisions of nodes", header, rows, numbers=(1,))
    if execution is not None:
        print_execution(console, execution)
    before, after = sizes
    share = f" ({after / before:.0%})" if before else ""
    console.print(f"size: {size_text(before)} -> {size_text(after)}{share}")
    print_notes(console, notes)


def print_benchmark(console: Console, benchmark: Benchmark) -> None:
    """Times, sizes and what ONNX Runtime runs."""
    b = benchmark
    rows = [
        (
            "CPU time per run, median",
            f"{b.float_ms:.3f} ms",
            f"{b.quantized_ms:.3f} ms",
            f"{b.speedup:.2f}x",
        ),
        (
            "size",
            size_text(b.float_bytes),
            size_text(b.quantized_bytes),
            _ratio(b.float_bytes, b.quantized_bytes),
        ),
    ]
    print_table(console, "", ("", "float", "quantized", "ratio"), rows, numbers=(1, 2, 3))
    print_execution(console, b.execution)
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in b.input_shapes.items())
    console.print(f"{b.runs} interleaved pairs of runs, one thread; inputs: {shapes}")


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
    """One line per note."""
    for note in notes:
        console.print(f"note: {note}")


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
    """Nodes that ONNX Runtime runs, by operator; those that fell back to float, in a line each."""
    rows = [(op, "integers", str(count)) for op, count in _by_count(execution.integer_nodes)]
    rows += [(op, "float", str(count)) for op, count in _by_count(execution.float_nodes)]
    rows += [(op, "conversion", str(count)) for op, count in _by_count(execution.conversions)]
    title = "what ONNX Runtime runs on this machine (its optimized graph)"
    print_table(console, title, ("op", "in", "nodes"), rows, numbers=(2,))
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


def _ops(op_types: Mapping[str, int]) -> str:
    """One op type alone; of several, each with its count."""
    if len(op_types) == 1:
        return next(iter(op_types))
    return ", ".join(f"{op} ({count})" for op, count in op_types.items())


def _ratio(before: int, after: int) -> str:
    return f"{before / after:.2f}x" if after else "-"
