"""The command that makes a folder for model hubs: hub-folder."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.options import PATH, Bound, external_option, json_option, names, target_option
from onnxq.cli.samples_options import stateless_samples_options
from onnxq.cli.steps import claim_folder
from onnxq.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onnxq.hub import HubFile
    from onnxq.samples import Samples


@click.command("hub-folder")
@click.argument("model", metavar="MODEL_OR_FOLDER", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="Folder to make.")
@click.option(
    "--variants",
    default="fp32,fp16,q8,q4,q4f16",
    show_default=True,
    metavar="NAME,...",
    callback=names,
    help="Of fp32, fp16, q8 (model_quantized.onnx), int8, q4, q4f16: a file each.",
)
@click.option(
    "--samples",
    "source",
    type=PATH,
    help="To calibrate on, which makes 8 bits static, and to judge on; default: made-up inputs.",
)
@click.option(
    "--files",
    "beside",
    type=PATH,
    metavar="FOLDER",
    help="Folder with config.json and the tokenizer's files; default: beside the model.",
)
@click.option(
    "--min-sqnr",
    type=Bound(),
    metavar="DB",
    default=10.0,
    show_default=True,
    help="Leave a variant out whose outputs fall below this SQNR.",
)
@target_option
@external_option
@stateless_samples_options
@json_option
def hub_folder(
    model: Path,
    output: Path,
    variants: tuple[str, ...],
    source: Path | None,
    beside: Path | None,
    min_sqnr: float,
    target: str | None,
    inline_bytes: int | None,
    reading: Samples,
    as_json: bool,
) -> None:
    """Make a folder that transformers.js and optimum load: a model in several precisions.

    MODEL_OR_FOLDER is a float ONNX file, or a folder with ONNX files or PyTorch weights; it has
    config.json. Each variant is run beside the float model before it is written. Exit code 8 where
    one is left out.
    """
    claim_folder(output)
    from onnxq.core.brief import size_text
    from onnxq.hub import hub_folder as made_folder
    from onnxq.report import console, json_values, tables
    from onnxq.report.detail import is_quiet
    from onnxq.report.wrapping import say

    made = made_folder(
        model,
        output,
        None if source is None else replace(reading, source=source),
        variants=variants,
        files=beside,
        min_sqnr_db=min_sqnr,
        target=target,
        inline_bytes=inline_bytes,
    )
    if as_json:
        files = [asdict(replace(f, verdict=None)) for f in made.files]
        for value, file in zip(files, made.files, strict=True):
            value["verdict"] = None if file.verdict is None else file.verdict.to_dict()
        click.echo(json_values.to_text({"output": str(output), "files": files}))
    elif not is_quiet():
        on = "made-up inputs" if source is None else source
        title = f"{output}, beside the float model on {on}"
        header = ("variant", "file", "size", "of float", "worst output", "speed")
        rows = [_row(file, size_text(file.size_bytes)) for file in made.files if not file.why]
        tables.print_table(console.open_console(), title, header, rows, (2, 3, 4, 5))
        for sentence in _remarks(made.files):
            say(sentence)
    if made.left_out:
        said = "; ".join(f"{file.variant}: {file.why}" for file in made.left_out)
        raise VerificationError(f"the folder is written, and variants are left out. {said}")


def _row(file: HubFile, size: str) -> tuple[str, ...]:
    verdict = file.verdict
    db = "" if verdict is None or not verdict.outputs else f"{verdict.likeness_db:.1f} dB"
    speed = "" if verdict is None or verdict.speedup is None else f"{verdict.speedup:.2f}x"
    return file.variant, file.file, size, f"{file.ratio:.0%}", db, speed


def _remarks(files: Sequence[HubFile]) -> list[str]:
    """A warning of variants that are there, and not near to float."""
    found = [f.variant for f in files if not f.why and f.verdict is not None and f.verdict.low]
    if not found:
        return []
    named = ", ".join(dict.fromkeys(found))
    return [f"{named}: measure your own metric, such as accuracy, before you publish them"]
