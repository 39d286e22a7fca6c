"""Commands that change the form of a file: import-qdq, half."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.options import (
    PATH,
    annotations_option,
    json_option,
    made_output_option,
    target_option,
)
from onnxq.cli.samples_options import stateless_samples_options
from onnxq.cli.steps import claim_outputs, given, load_model, made_output

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.quantized.quantized_model import QuantizedModel
    from onnxq.samples import Samples


@click.command("import-qdq")
@click.argument("model", type=PATH)
@made_output_option
@click.option("--check", type=PATH, help="Samples to run both on; default: made-up inputs.")
@click.option(
    "--quantize-rest",
    "rest",
    type=PATH,
    metavar="SAMPLES",
    help="Quantize what the tool left in float, too: its ranges come from these samples.",
)
@click.option("--format", "written_as", default="qdq", show_default=True, metavar="qdq|qoperator")
@target_option
@annotations_option
@stateless_samples_options
@json_option
def import_qdq(
    model: Path,
    output: Path | None,
    check: Path | None,
    rest: Path | None,
    written_as: str,
    target: str | None,
    annotations: str,
    reading: Samples,
    as_json: bool,
) -> None:
    """Bring a file with Q and DQ from another tool to integers; every trained scale stays."""
    output = made_output(output, model, "int8")
    claim_outputs(model, [output], given(check, rest))
    load_model(model, [output])
    from onnxq.graph.annotations import Annotations
    from onnxq.graph.saving import save
    from onnxq.imported_qdq import import_qdq as imported

    def samples(path: Path | None) -> Samples | None:
        return None if path is None else replace(reading, source=path)

    made = imported(
        model, samples(check), quantize_rest=samples(rest), target=target, format=written_as
    )
    save(made, output, Annotations(annotations))
    _tell(made, f"{output}: imported from {model}", output, as_json)


@click.command("half")
@click.argument("model", type=PATH)
@click.argument("samples", type=PATH, required=False)
@made_output_option
@click.option(
    "--weight-bits",
    type=int,
    metavar="2|4|8",
    help="Group-wise weights in linear layers, float16 elsewhere (4: q4f16).",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="NODE",
    help="A node, or a glob of some, that stays float32; repeatable.",
)
@click.option(
    "--io-type",
    default="float32",
    show_default=True,
    metavar="float32|float16",
    help="Type of inputs and outputs.",
)
@annotations_option
@stateless_samples_options
@json_option
def half(
    model: Path,
    samples: Path | None,
    output: Path | None,
    weight_bits: int | None,
    keep: tuple[str, ...],
    io_type: str,
    annotations: str,
    reading: Samples,
    as_json: bool,
) -> None:
    """Make MODEL float16; what overflows on SAMPLES, sums, norms and exps stay float32."""
    output = made_output(output, model, "fp16")
    claim_outputs(model, [output], given(samples))
    load_model(model, [output])
    from onnxq.core.brief import size_text
    from onnxq.float16_model import half as made_half
    from onnxq.graph.annotations import Annotations
    from onnxq.graph.io import size_bytes
    from onnxq.graph.saving import save

    to_see = None if samples is None else replace(reading, source=samples)
    made = made_half(model, to_see, weight_bits=weight_bits, keep=keep, io_type=io_type)
    save(made, output, Annotations(annotations))
    sizes = [size_text(size_bytes(path)) for path in (model, output)]
    _tell(made, f"{output}: float16, {' -> '.join(sizes)}", output, as_json)


def _tell(made: QuantizedModel, head: str, output: Path, as_json: bool) -> None:
    """Prints the verdict."""
    from onnxq.report import json_values
    from onnxq.report.detail import is_quiet
    from onnxq.report.wrapping import say

    verdict = made.verdict
    assert verdict is not None, "it was run"
    if as_json:
        click.echo(json_values.to_text({"output": str(output), "verdict": verdict.to_dict()}))
    elif not is_quiet():
        say(head)
        for sentence in verdict.sentences():
            say(sentence)
