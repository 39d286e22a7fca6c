"""The command that looks at the installation: doctor."""

from __future__ import annotations

import dataclasses

import click

from onnxq.cli.options import json_option


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this machine is, what is installed, and which command installs what is missing.

    Fails (exit code 7) where a package that every command needs is missing or too old.
    """
    from onnxq.report.diagnosis import diagnose, print_diagnosis

    found = diagnose()
    if as_json:
        from onnxq.report.json_values import to_text

        click.echo(to_text(dataclasses.asdict(found)))
    else:
        from onnxq.report.console import open_console

        print_diagnosis(open_console(), found)
    found.check()
