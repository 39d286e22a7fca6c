"""Commands that only look: inspect, targets, doctor."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from onnxq.cli import options
from onnxq.cli.io_options import InputsOutputs, io_options
from onnxq.cli.steps import load_model, merged_files, plan_dynamic_model, prepare_model

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.report.inspection import QuantizedFile


@click.command()
@click.argument("model", type=options.PATH)
@options.qconfig_option
@options.set_option
@options.choice_option
@io_options
@options.target_option
@click.option("--dynamic", is_flag=True, help="What quantize-dynamic would do.")
@options.objective_option
@click.option(
    "--stats",
    multiple=True,
    type=options.PATH,
    help="Statistics of calibrate: what is chosen with them, and what ONNX Runtime runs of it.",
)
@options.costs_option
@click.option(
    "--why", metavar="NODE", help="What each decider said of this node, in order, and the outcome."
)
@options.json_option
def inspect(
    model: Path,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    choice: str | None,
    target: str | None,
    dynamic: bool,
    objective: str,
    stats: tuple[Path, ...],
    costs: Path | None,
    why: str | None,
    as_json: bool,
    io: InputsOutputs,
) -> None:
    """Say of every node which precision it would have, and why. Needs no data.

    With --stats the data and the costs have a say, as in `quantize`, and the kernels that ONNX
    Runtime runs on this machine are named.

    Of a quantized model, whoever wrote it (QDQ, operators on integers, weights in blocks): which
    weights are integers, with how many scales; sizes; what ONNX Runtime runs, and what stays float.

    MODEL may be a folder of onnxruntime-genai: its decoder is looked at, with its cache.

    --json lists the names of all tensors too, for the qconfig and --set tensor:NAME=...
    """
    from onnxq.language.genai_folder import model_in

    source = load_model(model_in(model))
    from onnxq.report.inspection import look_at

    quantized = look_at(source)
    if quantized is not None:
        refused: dict[str, object] = {
            "--qconfig": qconfig,
            "--set or --exclude": overrides or None,
            "--all-integers": choice,
            "--target": target,
            "--stats": stats or None,
            "--costs": costs,
            "--why": why,
        }
        options.refuse_options("for a model that is quantized already", refused)
        _show(quantized, as_json)
        return
    if dynamic:
        refused = {
            "--all-integers": choice,
            "--stats": stats or None,
            "--costs": costs,
            "--why": why,
        }
        options.refuse_options("with --dynamic", refused)
        _inspect_dynamic(source, (qconfig, overrides, target, objective), as_json)
        return
    from onnxq.report.console import open_console
    from onnxq.report.inspection import inspected

    if not stats:
        options.refuse_options("without --stats", {"--costs": costs})
    prepared = prepare_model(source, qconfig, overrides, target, choice=choice, io=io, costs=costs)
    found = inspected(prepared, merged_files(stats) if stats else None, objective, why or "")
    if as_json:
        from onnxq.report.json_values import to_text

        click.echo(to_text(found.to_dict()))
        return
    if why:
        found.print_why(open_console())
        return
    found.print_on(open_console())


def _show(found: QuantizedFile, as_json: bool) -> None:
    from onnxq.report.json_values import to_text

    if as_json:
        click.echo(to_text(found.to_dict()))
    else:
        found.print()


def _inspect_dynamic(
    model: ir.Model, asked: tuple[Path | None, tuple[str, ...], str | None, str], as_json: bool
) -> None:
    from onnxq.checking.summary import summarize
    from onnxq.graph.walk import tensor_names
    from onnxq.report import console, json_values

    source, made = plan_dynamic_model(model, *asked)
    summary = summarize(source, made.decisions)
    if as_json:
        value = {
            "target": made.target,
            "objective": made.objective.value,
            "notes": list(made.notes),
            "tensors": tensor_names(source),
        }
        click.echo(json_values.to_text(value | json_values.summary(summary)))
        return
    console.print_inspection(console.open_console(), summary, made.notes, made.target)


@click.command()
@options.json_option
def targets(as_json: bool) -> None:
    """List the machines that models can be quantized for."""
    from onnxq import targets as known
    from onnxq.report import console, json_values

    if as_json:
        value = {
            "default": known.get_default().name,
            "aliases": known.aliases(),
            "targets": json_values.targets(known.all_targets()),
        }
        click.echo(json_values.to_text(value))
        return
    console.print_targets(
        console.open_console(), known.all_targets(), known.get_default().name, known.aliases()
    )


# --- The command that looks at the installation: doctor


@click.command()
@options.json_option
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
