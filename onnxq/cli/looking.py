"""Commands that only look: inspect, verify, bench, targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from onnxq.cli.end_options import Ends, ends_options
from onnxq.cli.options import (
    PATH,
    Bound,
    batch_size_option,
    choice_option,
    costs_option,
    feedback_option,
    ignore_option,
    json_option,
    objective_option,
    qconfig_option,
    set_option,
    target_option,
)
from onnxq.cli.steps import load_model, merged_files, plan_dynamic_model, prepare_model
from onnxq.cli.worker_options import Workers, workers_options

if TYPE_CHECKING:
    from collections.abc import Mapping
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
        _refuse_options("with --dynamic", unfit)
        _inspect_dynamic(source, (qconfig, overrides, target, objective), as_json)
        return
    from onnxq.graph.walk import tensor_names
    from onnxq.report import console, json_values
    from onnxq.report.summary import summarize_choices

    if not stats:
        _refuse_options("without --stats", {"--costs": costs})
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
@click.argument("paths", metavar="[FLOAT] QUANTIZED SAMPLES", nargs=-1, type=PATH)
@click.option(
    "--reference",
    is_flag=True,
    help="Compare every integer with the reference kernels. Needs no FLOAT.",
)
@batch_size_option
@ignore_option
@feedback_option
@click.option(
    "--min-sqnr", type=Bound(), metavar="DB", help="Fail (exit code 8) where the SQNR is lower."
)
@click.option(
    "--max-steps",
    type=Bound(min=0),
    metavar="N",
    help="Fail where an error is larger, in steps.",
)
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Compare these tensors and outputs only."
)
@click.option(
    "--max-differing",
    type=Bound(0, 1),
    metavar="SHARE",
    help="With --reference: let this share of a node's integers differ.",
)
@click.option(
    "--max-output-steps",
    type=Bound(min=0),
    metavar="N",
    help="With --reference: of the outputs end to end; default: what float nodes round.",
)
@click.option(
    "--allow-unchecked",
    is_flag=True,
    help="With --reference: integer nodes without a kernel are noted, and do not fail.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="With --reference or --isa: of the kernels.",
)
@click.option(
    "--isa",
    metavar="all|NAME[,NAME]",
    help="Predict on which machines the integers differ. Needs no FLOAT; SAMPLES may be left out.",
)
@workers_options
@json_option
def verify(
    paths: tuple[Path, ...],
    reference: bool,
    batch_size: int | None,
    ignore: tuple[str, ...],
    feedback: dict[str, str],
    min_sqnr: float | None,
    max_steps: float | None,
    only: tuple[str, ...],
    max_differing: float | None,
    max_output_steps: float | None,
    allow_unchecked: bool,
    threads: int,
    isa: str | None,
    as_json: bool,
    workers: Workers,
) -> None:
    """Run both models on SAMPLES side by side: what did quantization change?

    The bounds hold for every tensor and output that is compared; --only narrows that down.

    With --reference: does ONNX Runtime compute the integers that the model says? Each integer node
    of its optimized graph is compared with the reference kernel, on the inputs that it had, then
    the whole model. Any difference fails (exit code 8), unless --max-steps or --max-differing
    allow it; but not some last digits of outputs behind float nodes, while all integers agree.

    With --isa: on which machines would the integers differ from exact ones, in which layers, and
    which weights cause it? See `onnxq targets` for the names. Fails (exit code 10) where a named
    machine would differ on SAMPLES; without SAMPLES, where it could.
    """
    reading = {"batch_size": batch_size, "ignore": ignore, "feedback": feedback}
    if isa is not None:
        bounds: dict[str, object] = {
            "--reference": reference or None,
            "--min-sqnr": min_sqnr,
            "--max-steps": max_steps,
            "--only": only or None,
            "--max-differing": max_differing,
            "--max-output-steps": max_output_steps,
            "--allow-unchecked": allow_unchecked or None,
        }
        _refuse_options("with --isa", bounds)
        with workers.executor() as executor:
            _predict(paths, isa, {**reading, "executor": executor}, threads, as_json)
        return
    if reference:
        _refuse_options("with --reference", {"--min-sqnr": min_sqnr, "--only": only or None})
        from onnxq.checking.cross_findings import Unchecked

        allowed = {
            "max_steps": max_steps,
            "max_differing": max_differing,
            "max_output_steps": max_output_steps,
            "unchecked": Unchecked.ALLOWED if allow_unchecked else Unchecked.REFUSED,
        }
        with workers.executor() as executor:
            _verify_reference(paths, {**reading, "executor": executor}, allowed, threads, as_json)
        return
    _refuse_options(
        "without --reference",
        {
            "--max-differing": max_differing,
            "--max-output-steps": max_output_steps,
            "--allow-unchecked": allow_unchecked or None,
        },
    )
    with workers.executor() as executor:
        given = {**reading, "executor": executor}
        _verify_float(paths, given, (min_sqnr, max_steps), only, as_json)


def _predict(
    paths: tuple[Path, ...], isa: str, reading: dict[str, Any], threads: int, as_json: bool
) -> None:
    from onnxq.checking.predict import predict
    from onnxq.report.console import open_console
    from onnxq.report.print_prediction import print_prediction
    from onnxq.report.progress import progress_bar

    if len(paths) not in (1, 2):
        raise click.UsageError(f"wanted QUANTIZED [SAMPLES]; got {len(paths)} path(s).")
    names = [name.strip() for name in isa.split(",")]
    samples = paths[1] if len(paths) > 1 else None
    with progress_bar("verify --isa") as progress:
        found = predict(paths[0], samples, names, **reading, threads=threads, progress=progress)
    if as_json:
        click.echo(found.to_json())
    else:
        print_prediction(open_console(), found)
    found.check()


def _refuse_options(when: str, given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(f"{name} has no meaning {when}.")


def _verify_float(
    paths: tuple[Path, ...],
    reading: dict[str, Any],
    bounds: tuple[float | None, float | None],
    only: tuple[str, ...],
    as_json: bool,
) -> None:
    from onnxq.checking.verify import EVERYTHING
    from onnxq.checking.verify import verify as run
    from onnxq.report import console
    from onnxq.report.progress import progress_bar

    if len(paths) != 3:
        raise click.UsageError(
            f"wanted FLOAT QUANTIZED SAMPLES; got {len(paths)} path(s). Without the float model, "
            "--reference compares QUANTIZED with the reference kernels."
        )
    with progress_bar("verify") as progress:
        findings = run(*paths, **reading, only=only or EVERYTHING, progress=progress)
    if as_json:
        click.echo(findings.to_json())
    else:
        console.print_findings(console.open_console(), findings)
    findings.check(*bounds)


def _verify_reference(
    paths: tuple[Path, ...],
    reading: dict[str, Any],
    bounds: Mapping[str, Any],
    threads: int,
    as_json: bool,
) -> None:
    from onnxq.checking.cross_check import cross_check
    from onnxq.report.console import open_console
    from onnxq.report.cross import print_cross_findings
    from onnxq.report.progress import progress_bar

    if len(paths) not in (2, 3):
        raise click.UsageError(f"wanted [FLOAT] QUANTIZED SAMPLES; got {len(paths)} path(s).")
    if len(paths) == 3:
        click.echo(f"note: --reference does not read the float model '{paths[0]}'", err=True)
    with progress_bar("verify --reference") as progress:
        findings = cross_check(*paths[-2:], **reading, threads=threads, progress=progress)
    if as_json:
        click.echo(findings.to_json())
    else:
        print_cross_findings(open_console(), findings)
    findings.check(**bounds)
    for node in findings.unchecked:
        click.echo(f"note: {node.op_type} '{node.name}' was not checked: {node.reason}", err=True)
    if findings.end_to_end:
        click.echo(f"note: end to end was not checked: {findings.end_to_end}", err=True)


@click.command()
@click.argument("model", metavar="FLOAT", type=PATH)
@click.argument("quantized", metavar="QUANTIZED", type=PATH)
@click.argument("samples", type=PATH, required=False)
@ignore_option
@click.option(
    "--batch", type=click.IntRange(min=1), help="Samples per run; default: the model's, else 1."
)
@click.option(
    "--runs", type=click.IntRange(min=1), default=50, show_default=True, help="Timed pairs."
)
@json_option
def bench(
    model: Path,
    quantized: Path,
    samples: Path | None,
    ignore: tuple[str, ...],
    batch: int | None,
    runs: int,
    as_json: bool,
) -> None:
    """Time both models in turns, on one thread; inputs are random where no SAMPLES are given."""
    from onnxq.checking.bench import bench as run
    from onnxq.report import console, json_values

    result = run(model, quantized, samples, batch_size=batch, ignore=ignore, runs=runs)
    if as_json:
        click.echo(json_values.to_text(json_values.benchmark(result)))
        return
    console.print_benchmark(console.open_console(), result)


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
