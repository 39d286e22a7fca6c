"""The command of weight-only quantization: quantize-weights."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli import options
from onnxq.cli.option_groups import GroupedCommand
from onnxq.cli.reporting import check_report, report_option, write_report
from onnxq.cli.samples_options import stateless_samples_options
from onnxq.cli.steps import claim_outputs, given, load_model, made_output
from onnxq.cli.worker_options import Workers, workers_options
from onnxq.cli.written import Asked, Written, report_weights, verdict_options
from onnxq.core.stopwatch import Stopwatch

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.samples import Samples


@click.command("quantize-weights", cls=GroupedCommand)
@click.argument("model", type=options.PATH)
@click.argument("samples", type=options.PATH, required=False)
@options.made_output_option
@click.option(
    "--bits", type=int, default=4, show_default=True, metavar="2|4|8", help="Bits per weight."
)
@click.option(
    "--group-size",
    type=int,
    default=32,
    show_default=True,
    metavar="16|32|64|128",
    help="Inputs that share a scale.",
)
@click.option(
    "--scheme",
    default="affine",
    show_default=True,
    metavar="affine|symmetric|real",
    help="affine: a zero point per group; symmetric: smaller by an integer per group; real: zero "
    "points are float32.",
)
@click.option(
    "--method",
    metavar="rtn|hqq|gptq",
    help="How integers are found; gptq looks at SAMPLES. Default: gptq with SAMPLES, else hqq.",
)
@click.option(
    "--accuracy-level",
    type=int,
    default=4,
    show_default=True,
    metavar="0|4",
    help="4: linear layers round activations to int8, the fastest; 0: they compute in float32.",
)
@click.option(
    "--format",
    "written_as",
    default="matmulnbits",
    show_default=True,
    metavar="matmulnbits|qdq",
    help="Operators of the linear layers; qdq is for runtimes with ai.onnx's alone.",
)
@click.option(
    "--embedding-bits",
    type=int,
    metavar="2|4|8",
    help="Bits of embeddings, and of an output matrix that is one; default: they stay in float.",
)
@click.option(
    "--exclude",
    multiple=True,
    metavar="NODE",
    help="A linear layer, or a glob of some, that stays in float; repeatable.",
)
@click.option(
    "--bits-average",
    type=float,
    metavar="BITS",
    help="2, 4, 8 bits or float per linear layer, so many on the average (4.5), by what they cost "
    "on SAMPLES. Scales come on top.",
)
@click.option(
    "--size",
    type=float,
    metavar="RATIO",
    help="Likewise, so that the file is this part of the float model's.",
)
@click.option(
    "--journal",
    type=options.PATH,
    help="Keep the integers that are found; the same command goes on from there.",
)
@options.annotations_option
@options.external_option
@stateless_samples_options
@verdict_options
@workers_options
@report_option
@options.json_option
def quantize_weights(
    model: Path,
    samples: Path | None,
    output: Path | None,
    bits: int,
    group_size: int,
    scheme: str,
    method: str | None,
    accuracy_level: int,
    written_as: str,
    embedding_bits: int | None,
    exclude: tuple[str, ...],
    bits_average: float | None,
    size: float | None,
    journal: Path | None,
    annotations: str,
    inline_bytes: int | None,
    reading: Samples,
    check: Path | None,
    min_sqnr: float | None,
    no_verdict: bool,
    report: Path | None,
    as_json: bool,
    workers: Workers,
) -> None:
    """Store weights of MODEL's linear layers in 2, 4 or 8 bits; activations stay float."""
    work, asked = Stopwatch(), Asked(check, min_sqnr, no_verdict)
    check_report(report, check or samples)
    output = made_output(output, model, f"int{bits}")
    outputs = [output, *given(journal, report)]
    claim_outputs(model, outputs, given(samples, check))
    from onnxq.errors import member
    from onnxq.weight_only import as_request, check_accuracy
    from onnxq.weights.mixed_bits import SizeAim
    from onnxq.weights.write_weights import WeightFormat

    as_format = member(WeightFormat, written_as, "format")
    request = as_request(
        bits, group_size, scheme, method, exclude, samples, as_format, embedding_bits
    )
    is_mixed = bits_average is not None or size is not None
    aim = SizeAim(bits_average, size) if is_mixed else None
    check_accuracy(accuracy_level)
    source = load_model(model, outputs)
    from onnxq.checking.weights_job import (
        WeightsJob,
        carry_out_weights,
        plan_job,
        with_samples_apart,
    )
    from onnxq.core.atomic import temporary
    from onnxq.graph.annotations import Annotations
    from onnxq.graph.canonical import canonicalize
    from onnxq.graph.saving import save
    from onnxq.ort.types_by_run import types_by_run
    from onnxq.survey.survey import BesideFiles
    from onnxq.weights.stacked_matmuls import split_stacked_matmuls

    canonical = canonicalize(source, types_by_run)
    split_stacked_matmuls(canonical.model, request.exclude)
    job = WeightsJob(
        canonical.model,
        request,
        None if samples is None else replace(reading, source=samples),
        accuracy_level,
        as_format,
        asked.as_check(reading),
        work,
        aim,
    )
    job = with_samples_apart(job)
    plan, mixed = plan_job(job)
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(workers.executor())
        # models of any size: integers lie beside the file that they end in, or in the journal
        place = journal or stack.enter_context(temporary(output))
        made = carry_out_weights(job, plan, place, executor)
        save(made.model, output, Annotations(annotations), inline_bytes)
        compared = replace(reading, source=check or samples)
        written = Written(made, model, output, compared)
        report_weights(canonical, made.plan, mixed, written, as_json)
    if report is not None:
        beside = BesideFiles(weights=made.plan.dynamic_decisions)
        write_report((model, output, compared), report, beside)
