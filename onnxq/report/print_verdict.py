"""A verdict for people: what the run showed, and the command to go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.quantized.verdict import InputSource

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from onnxq.quantized.verdict import Verdict


def print_verdict(console: Console, verdict: Verdict, source: Path, file: Path) -> None:
    """The verdict line by line, then what to do next.

    Args:
        console: to print on.
        verdict: on the quantized model.
        source: file of the float model.
        file: of the quantized one.
    """
    first, *more = verdict.sentences()
    lines = [f"verdict: {first}", *(f"  {line}" for line in more)]
    if verdict.input_source in (InputSource.MADE_UP, InputSource.NONE):
        lines.append("  without samples nothing is known of its accuracy: give --check SAMPLES")
    for line in lines:
        console.print(line)
    commands = [
        f"next: onnxq verify {source} {file} SAMPLES   # every tensor beside float",
        f"      onnxq bench {source} {file} SAMPLES    # speed, in pairs of runs",
        f"      onnxq report {source} {file} SAMPLES -o report.html   # what costs what",
        f"      onnxq tune {source} SAMPLES -o OUT --min-sqnr DB   # reach what you name",
    ]
    for line in commands:
        console.print(line, soft_wrap=True)  # commands are there to be copied
