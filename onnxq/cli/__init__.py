"""The command line: one command per stage. Heavy imports are inside the commands: --help is quick.

Results go to stdout: tables, or JSON with --json; progress, warnings and errors to stderr. Errors
end with the exit code that errors.py draws. Every output path is checked before the work begins.
"""

from __future__ import annotations

import click

from onnxq.cli.commands import Commands
from onnxq.cli.looking import bench, inspect, targets, verify
from onnxq.cli.making import calibrate, export, quantize, quantize_dynamic

__all__ = ["main"]


EXIT_CODES = (
    "Exit codes: 0 done, 2 wrong usage, 3 the model is refused, 4 shapes or types of arrays, "
    "5 names or values in the configuration, 6 samples or statistics, 7 not supported, 8 a bound "
    "(--min-sqnr, --max-steps, or export's comparison) is broken, 9 a file cannot be written, "
    "10 a named machine would compute other integers (verify --isa), 130 stopped by Ctrl-C."
)


@click.group(cls=Commands, epilog=EXIT_CODES)
@click.version_option(package_name="onnxq", message="onnxq %(version)s")
def main() -> None:
    """Quantize ONNX models, run them on ONNX Runtime, and check every integer."""


for command in (export, inspect, calibrate, quantize, quantize_dynamic, verify, bench, targets):
    main.add_command(command)
