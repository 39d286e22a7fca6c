"""The command that takes files with Q and DQ from other tools: import-qdq."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.options import PATH, annotations_option, json_option, output_option, target_option
from onnxq.cli.samples_options import stateless_samples_options
from onnxq.cli.steps import claim_beside, given, load_model

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.samples import Samples


@click.command("import-qdq")
@click.argument("model", type=PATH)
@output_option
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
    output: Path,
    check: Path | None,
    rest: Path | None,
    written_as: str,
    target: str | None,
    annotations: str,
    reading: Samples,
    as_json: bool,
) -> None:
    """Bring a file with Q and DQ from another tool to integers; every trained scale stays."""
    claim_beside(model, [output], given(check, rest))
    load_model(model, [output])
    from onnxq.graph.annotations import Annotations
    from onnxq.graph.saving import save
    from onnxq.imported_qdq import import_qdq as imported
    from onnxq.report import json_values
    from onnxq.report.detail import is_quiet
    from onnxq.report.wrapping import say

    def samples(path: Path | None) -> Samples | None:
        return None if path is None else replace(reading, source=path)

    made = imported(
        model, samples(check), quantize_rest=samples(rest), target=target, format=written_as
    )
    save(made, output, Annotations(annotations))
    verdict = made.verdict
    assert verdict is not None, "it was run"
    if as_json:
        value = {"output": str(output), "verdict": verdict.to_dict()}
        click.echo(json_values.to_text(value))
    elif not is_quiet():
        say(f"{output}: imported from {model}")
        for sentence in verdict.sentences():
            say(sentence)
