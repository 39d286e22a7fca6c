"""Commands that write a quantized model: quantize, quantize-dynamic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli import options, steps
from onnxq.cli.io_options import InputsOutputs, io_options
from onnxq.cli.option_groups import GroupedCommand
from onnxq.cli.reporting import check_report, report_option, write_report
from onnxq.cli.samples_options import samples_options
from onnxq.cli.worker_options import Workers, workers_options
from onnxq.cli.written import (
    Asked,
    Written,
    check_quantized,
    report_dynamic,
    report_quantization,
    verdict_options,
)
from onnxq.core.stopwatch import Stopwatch

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.samples import Samples
    from onnxq.samples.excerpt import Excerpt
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics


REPAIR = click.option(
    "--repair",
    default="15dB",
    show_default=True,
    metavar="off|DB|SECONDS",
    help="Where the verdict is below this floor, search for something better, for as long: "
    "off, 20dB, 30s, 20dB,30s. Off also keeps integers that are slower than float.",
)


@click.command(cls=GroupedCommand)
@click.argument("model", type=options.PATH)
@click.argument("samples", type=options.PATH, required=False)
@options.made_output_option
@options.qconfig_option
@io_options
@options.set_option
@options.choice_option
@options.target_option
@options.reduce_range_option
@options.threads_option
@samples_options
@click.option(
    "--stats",
    multiple=True,
    type=options.PATH,
    help="Statistics in place of SAMPLES; repeated: merged.",
)
@click.option(
    "--format",
    "file_format",
    default="qdq",
    show_default=True,
    metavar="qdq|qoperator",
    help="Format of the integer graph: QuantizeLinear and DequantizeLinear around float operators, "
    "or operators on integers (QLinearConv ...).",
)
@options.objective_option
@options.costs_option
@options.improve_option
@options.fast_option
@options.weight_bits_option
@click.option(
    "--size",
    type=options.Bound(min=0, max=1, min_open=True),
    metavar="RATIO",
    help="Of the file, over that of MODEL (0.2): 8, 4 or 2 bits for each weight, by what that "
    "costs at the outputs; in place of --weight-bits.",
)
@options.annotations_option
@options.external_option
@verdict_options
@workers_options
@click.option(
    "--hold-apart",
    type=click.IntRange(min=2),
    metavar="N",
    help="Check on every N-th batch of SAMPLES, which is not calibrated on; `tune` does so.",
)
@click.option("--save-plan", type=options.PATH, help="Write the plan, as JSON.")
@click.option(
    "--save-qconfig",
    type=options.PATH,
    help="Write the chosen precisions: a qconfig that names every node, and gives this file.",
)
@click.option("--save-stats", type=options.PATH, help="Write the statistics.")
@REPAIR
@report_option
@options.json_option
def quantize(
    model: Path,
    samples: Path | None,
    output: Path | None,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    choice: str | None,
    target: str | None,
    reduce_range: str | None,
    threads: int | None,
    reading: Samples,
    stats: tuple[Path, ...],
    file_format: str,
    objective: str,
    costs: Path | None,
    annotations: str,
    inline_bytes: int | None,
    check: Path | None,
    min_sqnr: float | None,
    no_verdict: bool,
    save_plan: Path | None,
    save_qconfig: Path | None,
    save_stats: Path | None,
    report: Path | None,
    as_json: bool,
    io: InputsOutputs,
    improve: tuple[str, ...],
    fast: bool,
    weight_bits: int | None,
    size: float | None,
    workers: Workers,
    hold_apart: int | None,
    repair: str,
) -> None:
    """Quantize MODEL, calibrated on SAMPLES or with --stats, and run it before it is written."""
    work, asked = Stopwatch(), Asked(check, min_sqnr, no_verdict)
    _check_samples(samples, stats, alone=check is None and not no_verdict, hold_apart=hold_apart)
    if fast and improve:
        raise click.UsageError("--fast carries out no PTQ algorithm: leave it out, or --improve.")
    if size is not None and (weight_bits is not None or stats):
        raise click.UsageError("--size wants SAMPLES, and stands in place of --weight-bits.")
    check_report(report, check or samples)
    output = steps.made_output(output, model, "int8")
    outputs = [output, *steps.given(save_plan, save_qconfig, save_stats, report)]
    steps.claim_outputs(model, outputs, [*steps.given(samples, qconfig, check, costs), *stats])
    source = steps.load_model(model, outputs)
    from onnxq.checking.check import Repair
    from onnxq.checking.static_job import Shares, StaticJob, shares_of
    from onnxq.checking.summary import summarize_precisions
    from onnxq.core.atomic import write_atomically
    from onnxq.dynamic.dynamic_decision import as_objective
    from onnxq.graph.annotations import Annotations
    from onnxq.graph.saving import save
    from onnxq.repair.search import carry_out_and_repair
    from onnxq.report.progress import progress_bar
    from onnxq.survey.survey import BesideFiles
    from onnxq.weights.carry_out import with_algorithms

    wanted = Repair.of(repair)
    aim = as_objective(objective)
    prepared = steps.prepare_model(
        source,
        qconfig,
        overrides,
        target,
        reading.feedback,
        reduce_range,
        choice,
        io,
        costs,
        () if fast else improve or None,
        weight_bits,
    ).read_from(model)
    all_samples = replace(reading, source=samples)
    prepared = with_algorithms(prepared, None if stats else all_samples, size)
    shares = Shares(all_samples, all_samples, None, asked.as_check(reading, hold_apart))
    if not stats:
        shares = shares_of(all_samples, shares.check, prepared)

    def observe(prepared: Prepared, excerpt: Excerpt) -> tuple[Statistics, Excerpt]:
        if stats:
            return steps.merged_files(stats), excerpt
        see = shares.observed
        seen = steps.calibrate_model(
            prepared, see, excerpt=excerpt, threads=threads, workers=workers
        )
        return seen, excerpt

    fitted = None if stats else shares.fitted
    job = StaticJob(
        prepared, file_format, shares.check, fitted, aim, work, size, apart=shares.apart
    )
    made, statistics = carry_out_and_repair(wanted, source, job, observe, progress_bar)
    plan = made.plan
    summary = summarize_precisions(prepared.model, plan.decisions, plan.precisions, plan.dtypes)
    check_quantized(made.model.verdict, summary, objective)
    save(made.model, output, Annotations(annotations), inline_bytes)
    if save_plan is not None:
        plan.save(save_plan)
    if save_qconfig is not None:
        text = plan.qconfig.to_yaml().encode()
        write_atomically(save_qconfig, lambda file: file.write(text))
    if save_stats is not None:
        statistics.save(save_stats)
    compared = replace(reading, source=check or samples)
    written = Written(made, model, output, compared, all_samples)
    report_quantization(summary, plan, written, as_json)
    if report is not None:
        write_report((model, output, compared), report, BesideFiles(plan))


def _check_samples(
    samples: Path | None, stats: tuple[Path, ...], *, alone: bool, hold_apart: int | None
) -> None:
    """Refuses options on samples that exclude each other; alone: nothing else to check on."""
    if (samples is None) != bool(stats):
        raise click.UsageError("give SAMPLES or --stats, one of the two.")
    if hold_apart is not None and (stats or not alone):
        raise click.UsageError(
            "--hold-apart checks on some of SAMPLES: without --stats, --check and --no-verdict."
        )


@click.command("quantize-dynamic", cls=GroupedCommand)
@click.argument("model", type=options.PATH)
@options.made_output_option
@options.qconfig_option
@options.set_option
@options.target_option
@options.objective_option
@options.dtype_option
@options.weight_bits_option
@options.annotations_option
@options.external_option
@options.shape_option
@samples_options
@verdict_options
@click.option("--save-plan", type=options.PATH, help="Write the plan, as JSON.")
@REPAIR
@report_option
@options.json_option
def quantize_dynamic(
    model: Path,
    output: Path | None,
    qconfig: Path | None,
    overrides: tuple[str, ...],
    target: str | None,
    objective: str,
    dtype: str | None,
    weight_bits: int | None,
    annotations: str,
    inline_bytes: int | None,
    given_shapes: dict[str, tuple[int, ...]],
    reading: Samples,
    check: Path | None,
    min_sqnr: float | None,
    no_verdict: bool,
    save_plan: Path | None,
    report: Path | None,
    as_json: bool,
    repair: str,
) -> None:
    """Quantize the weights of MODEL; activations are quantized when it runs. Needs no samples."""
    work, asked = Stopwatch(), Asked(check, min_sqnr, no_verdict)
    check_report(report, check)
    output = steps.made_output(output, model, "int8")
    outputs = [output, *steps.given(save_plan, report)]
    steps.claim_outputs(model, outputs, steps.given(qconfig, check))
    source = steps.load_model(model, outputs)
    from onnxq.checking.check import Repair
    from onnxq.checking.summary import summarize
    from onnxq.checking.with_verdict import dynamic_validation
    from onnxq.graph.annotations import Annotations
    from onnxq.graph.saving import save
    from onnxq.repair.dynamic import make_and_repair
    from onnxq.survey.survey import BesideFiles

    to_check = replace(asked.as_check(reading), repair=Repair.of(repair))
    canonical, plan = steps.plan_dynamic_model(
        source, qconfig, overrides, target, objective, dtype, given_shapes, to_check, weight_bits
    )
    if check is None and reading.feedback:
        to_check = replace(to_check, samples=reading)  # its names are looked at
    validation = dynamic_validation(canonical, to_check, work, given_shapes)
    made = make_and_repair(canonical, plan, validation, to_check)
    summary = summarize(canonical, made.plan.decisions)
    check_quantized(made.model.verdict, summary, objective)
    save(made.model, output, Annotations(annotations), inline_bytes)
    if save_plan is not None:
        made.plan.save(save_plan)
    compared = replace(reading, source=check)
    written = Written(made, model, output, compared)
    report_dynamic(summary, made.plan, written, as_json)
    if report is not None:
        write_report((model, output, compared), report, BesideFiles(weights=made.plan.decisions))
