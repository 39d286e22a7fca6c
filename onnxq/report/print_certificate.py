"""Prints a Certificate for people. Renders values; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.report.tables import print_table

if TYPE_CHECKING:
    from rich.console import Console

    from onnxq.checking.certificate import Certificate, MachineCertificate

HEADER = ("node", "op", "worst sum", "of int32", "worst pair", "of int16", "for any input")


def print_certificate(console: Console, found: Certificate) -> None:
    """A line per group of machines, then a table of the nodes of each."""
    for machine in found.machines:
        console.print(f"{', '.join(machine.targets)}: {_in_a_line(machine)}")
    for machine in found.machines:
        rows = [
            (
                node.name,
                node.op_type,
                _number(node.accumulator),
                _share(node.accumulator_share),
                _number(node.pair),
                _share(node.pair_share),
                node.verdict,
            )
            for node in machine.nodes
        ]
        title = f"{', '.join(machine.targets)} ({machine.saturation_mode})"
        print_table(console, title, HEADER, rows, numbers=(2, 3, 4, 5))
    console.print(f"model {found.model_hash[:12]}")


def _in_a_line(machine: MachineCertificate) -> str:
    """Counts of verdicts, and the bound of each output."""
    counts: dict[str, int] = {}
    for node in machine.nodes:
        counts[node.verdict] = counts.get(node.verdict, 0) + 1
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    bounds = ", ".join(
        f"{output.name} {'no bound' if output.bound is None else f'{output.bound:g}'}"
        for output in machine.outputs
    )
    return f"{said or 'no sums of products'}; error of outputs beside exact integers: {bounds}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
