"""Commands for language models: quantize-cache and genai-folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from onnxq.cli.common_options import say_written
from onnxq.cli.options import PATH, external_option, made_output_option
from onnxq.cli.samples_options import stateless_samples_options
from onnxq.cli.steps import claim_outputs, load_model, made_output

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.samples import Samples


@click.command("quantize-cache")
@click.argument("model", type=PATH)
@click.argument("samples", type=PATH)
@made_output_option
@external_option
@stateless_samples_options
def quantize_cache(
    model: Path, samples: Path, output: Path | None, inline_bytes: int | None, reading: Samples
) -> None:
    """Keep keys and values of MODEL's cache in int8, with scales from SAMPLES.

    MODEL is a decoder whose attention is GroupQueryAttention, as the builder of onnxruntime-genai
    writes it; its weights may be float or quantized.
    """
    output = made_output(output, model, "int8_cache")
    claim_outputs(model, [output], [samples])
    source = load_model(model, [output])
    from onnxq.checking import cache_verdict
    from onnxq.graph.saving import save
    from onnxq.language import quantized_cache

    texts = replace(reading, source=samples)
    made = quantized_cache.quantize_cache(source, texts)
    verdict = cache_verdict.cache_verdict(source, made, texts)
    save(made, output, inline_bytes=inline_bytes)
    say_written(f"wrote {output}: its cache is int8")
    say_written(str(verdict))


@click.command("genai-folder")
@click.argument("model", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="Folder to write.")
@click.option(
    "--tokenizer",
    type=PATH,
    help="Folder with tokenizer.json, as save_pretrained writes it. Without: tokens are bytes.",
)
@click.option(
    "--context",
    type=click.IntRange(min=1),
    help="Most tokens of prompt and text together. Without: as many as the model says it knows.",
)
@click.option(
    "--end-token",
    type=click.IntRange(min=0),
    multiple=True,
    help="A token that ends a text. Without: as genai_config.json beside MODEL has it, or the "
    "configuration of transformers beside it or in --tokenizer; else 0.",
)
@click.option(
    "--begin-token", type=click.IntRange(min=0), help="The token before a text; found likewise."
)
@click.option("--pad-token", type=click.IntRange(min=0), help="Fills shorter rows; found likewise.")
@click.option(
    "--like",
    type=PATH,
    help="Folder that genai's builder wrote of the float model; MODEL takes the place of the part "
    "with its inputs and outputs. For encoder-decoders, images, sound, and states.",
)
def genai_folder(
    model: Path,
    output: Path,
    tokenizer: Path | None,
    context: int | None,
    end_token: tuple[int, ...],
    begin_token: int | None,
    pad_token: int | None,
    like: Path | None,
) -> None:
    """Make a folder that onnxruntime-genai loads, of a decoder with its cache.

    The decoder takes input_ids, attention_mask, position_ids and past_key_values.I.key and .value,
    and gives logits and present.I.key and .value, as onnxq and genai's own builder export it.
    """
    from onnxq.language import genai_folder as folders

    tokens = folders.Tokens(end_token or None, pad_token, begin_token)
    made = folders.genai_folder(
        model, output, tokenizer=tokenizer, context=context, tokens=tokens, like=like
    )
    say_written(f"wrote {output}: {', '.join(sorted(path.name for path in made.iterdir()))}")
