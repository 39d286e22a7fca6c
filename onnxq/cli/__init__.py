"""The command line: one command per stage. Heavy imports are inside the commands: --help is quick.

Results go to stdout: tables, or JSON with --json; progress, warnings and errors to stderr. Errors
end with the exit code that errors.py draws. Every output path is checked before the work begins.
"""

from __future__ import annotations

import click

from onnxq.cli.group import Commands
from onnxq.cli.looking import bench, inspect, targets, verify
from onnxq.cli.making import calibrate, export, quantize

__all__ = ["main"]


@click.group(cls=Commands)
@click.version_option(package_name="onnxq", message="onnxq %(version)s")
def main() -> None:
    """Quantize ONNX models, run them on ONNX Runtime, and check every integer."""


for command in (export, inspect, calibrate, quantize, verify, bench, targets):
    main.add_command(command)
