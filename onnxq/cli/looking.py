"""Commands that only look: inspect, targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from onnxq.cli.end_options import Ends, ends_options
from onnxq.cli.options import (
    PATH,
    choice_option,
    costs_option,
    json_option,
    objective_option,
    qconfig_option,
    refuse_options,
    set_option,
    target_option,
)
from onnxq.cli.steps import load_model, merged_files, plan_dynamic_model, prepare_model

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.checking.findings import Execution
    from onnxq.static.plan import Plan
    from onnxq.static.prepared import Prepared


@click.command()
@click.argument("model", type=PATH)
@qconfig_option
@set_option
@choice_option
@ends_options
@target_option
@click.option("--dynamic", is_flag=True, help="What quantize-dynamic would do.")
@objective_option
@click.option(
    "--stats",
    multiple=True,
    type=PATH,
    help="Statistics of calibrate: what is chosen with them, and what ONNX Runtime runs of it.",
)
@costs_option
@json_option
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
    as_json: bool,
    ends: Ends,
) -> None:
    """Say of every node which form it would have, and why. Needs no data.

    With --stats the data and the costs have a say, as in `quantize`, and the kernels that ONNX
    Runtime runs on this machine are named.

    Of a model that onnxq has quantized: what it takes and gives, and what ONNX Runtime runs.

    --json lists the names of all tensors too, for the qconfig and --set tensor:NAME=...
    """
    source = load_model(model)
    if _inspect_quantized(source, as_json):
        return
    if dynamic:
        unfit = {"--all-integers": choice, "--stats": stats or None, "--costs": costs}
        refuse_options("with --dynamic", unfit)
        _inspect_dynamic(source, (qconfig, overrides, target, objective), as_json)
        return
    from onnxq.graph.walk import tensor_names
    from onnxq.report import console, json_values
    from onnxq.report.summary import summarize_choices

    if not stats:
        refuse_options("without --stats", {"--costs": costs})
    prepared = prepare_model(
        source, qconfig, overrides, target, choice=choice, ends=ends, costs=costs
    )
    decisions, choices, notes = prepared.decisions, prepared.choices, prepared.notes
    runs: Execution | None = None
    if stats:
        made, runs = _planned(prepared, stats, objective)
        decisions, choices, notes = made.decisions, made.choices, made.notes
    summary = summarize_choices(prepared.model, decisions, choices)
    if as_json:
        value = {
            "target": prepared.target.name,
            "notes": list(notes),
            "tensors": tensor_names(prepared.model),
            **({} if runs is None else {"execution": json_values.execution(runs)}),
        }
        click.echo(json_values.to_text(value | json_values.summary(summary)))
        return
    terminal = console.open_console()
    console.print_inspection(terminal, summary, notes)
    if runs is not None:
        console.print_execution(terminal, runs)


def _planned(prepared: Prepared, stats: tuple[Path, ...], objective: str) -> tuple[Plan, Execution]:
    """(the plan that `quantize` would make of these statistics, what ONNX Runtime runs of it)."""
    from onnxq.checking.execution import execution
    from onnxq.dynamic.dynamic_decision import as_objective
    from onnxq.static.plan import plan
    from onnxq.static.rewrite import rewrite

    made = plan(prepared, merged_files(stats), as_objective(objective))
    return made, execution(rewrite(prepared, made))


def _inspect_quantized(model: ir.Model, as_json: bool) -> bool:
    """Whether onnxq has quantized the model; then it was shown."""
    from onnxq.checking.execution import execution_in
    from onnxq.graph.checks import FORMAT_KEY
    from onnxq.ort import runtime
    from onnxq.report import console, json_values
    from onnxq.report.quantized_file import print_quantized, quantized_values

    if not model.metadata_props.get(FORMAT_KEY):
        return False
    runs = execution_in(model, runtime.optimized_graph(model))
    if as_json:
        click.echo(json_values.to_text(quantized_values(model, runs)))
    else:
        print_quantized(console.open_console(), model, runs)
    return True


def _inspect_dynamic(
    model: ir.Model, asked: tuple[Path | None, tuple[str, ...], str | None, str], as_json: bool
) -> None:
    from onnxq.graph.walk import tensor_names
    from onnxq.report import console, json_values
    from onnxq.report.summary import summarize

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
    console.print_inspection(console.open_console(), summary, made.notes)


@click.command()
@json_option
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
