"""Export of a local folder that save_pretrained of transformers wrote: config.json, safetensors.

Sizes of batch and text are dynamic. Inputs and outputs have the names that optimum gives them; a
decoder has its cache: past_key_values.I.key (batch, heads, past, head) -> present.I.key.
"""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.errors import ModelError, UnsupportedError, first_line
from onnxq.pytorch.exporting.exporter import export

ROWS, TOKENS, PAST = 2, 9, 5
"""Sizes of the example inputs; they are dynamic in the file."""
IMAGE = 224
"""Height and width of an image where the configuration names none."""
BATCH, LENGTH = "batch_size", "sequence_length"
"""Names of optimum for sizes; transformers.js makes an empty cache by them."""
LANGUAGE_MODELS = ("ForCausalLM", "GPT2LMHeadModel")
"""Endings of the classes of decoders."""
WITH_CACHE = ("input_ids", "attention_mask", "position_ids")


class _WithCache(nn.Module):
    """A decoder whose cache is a list of (keys, values) that go in and come out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past_key_values: Sequence[tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        from transformers import DynamicCache

        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=DynamicCache(past_key_values),
            use_cache=True,
        )
        return out.logits, [(layer.keys, layer.values) for layer in out.past_key_values.layers]


def export_folder(folder: Path, output: Path) -> Path:
    """Exports the model of a folder to a file, and returns the file."""
    model = _loaded(folder)
    config: Any = model.config
    takes = inspect.signature(model.forward).parameters
    is_decoder = type(model).__name__.endswith(LANGUAGE_MODELS)
    if is_decoder and takes.keys() >= set(WITH_CACHE) and _gives_cache(model):
        _export_decoder(model, output)
        return output
    main = model.main_input_name
    generates = config.is_encoder_decoder or model.can_generate()  # it would have no cache
    if generates or main not in ("input_ids", "pixel_values"):
        raise UnsupportedError(
            f"'{folder}': {type(model).__name__} is not exported here, which takes encoders of "
            "text, models of images and decoders with position_ids. Export it (`onnxq export`, "
            "or `optimum-cli export onnx`), and give the folder with its ONNX files."
        )
    if main == "pixel_values":
        size = getattr(config, "image_size", IMAGE)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        images = torch.randn(ROWS, getattr(config, "num_channels", 3), height, width)
        export(model, {main: images}, output, dynamic_axes={main: {0: BATCH}})
        return output
    example = {main: _tokens(config), "attention_mask": torch.ones(ROWS, TOKENS, dtype=torch.int64)}
    if "token_type_ids" in takes and getattr(config, "type_vocab_size", 0) > 1:
        example["token_type_ids"] = torch.zeros(ROWS, TOKENS, dtype=torch.int64)
    export(model, example, output, dynamic_axes={n: {0: BATCH, 1: LENGTH} for n in example})
    return output


def _loaded(folder: Path) -> Any:
    """The module of the first architecture that the configuration names, in float32 and eval."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"'{folder}' holds PyTorch weights, whose export needs transformers, which is not "
            "installed. Run: pip install transformers; or give a folder with ONNX files."
        ) from error
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = getattr(transformers, (config.architectures or ["AutoModel"])[0])
        model = kind.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
    except (OSError, ValueError, AttributeError, RuntimeError) as error:
        raise ModelError(f"transformers does not load '{folder}': {first_line(error)}") from error
    return model.eval()


def _tokens(config: Any) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, config.vocab_size, (ROWS, TOKENS), generator=generator)


def _gives_cache(model: Any) -> bool:
    """Whether a model is a decoder by its configuration: RobertaForCausalLM may be an encoder."""
    with torch.no_grad():
        out = model(_tokens(model.config), use_cache=True)
    return getattr(out, "past_key_values", None) is not None


def _export_decoder(model: Any, output: Path) -> None:
    config = model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape, layers = (ROWS, heads, PAST, size), range(config.num_hidden_layers)
    cache = [(torch.randn(shape), torch.randn(shape)) for _ in layers]
    mask = torch.ones(ROWS, PAST + TOKENS, dtype=torch.int64)
    positions = torch.arange(PAST, PAST + TOKENS).repeat(ROWS, 1)
    parts = [f"{layer}.{part}" for layer in layers for part in ("key", "value")]
    export(
        _WithCache(model),
        (_tokens(config), mask, positions, cache),
        output,
        input_names=[*WITH_CACHE, *(f"past_key_values.{part}" for part in parts)],
        output_names=["logits", *(f"present.{part}" for part in parts)],
        dynamic_axes={
            "input_ids": {0: BATCH, 1: LENGTH},
            "attention_mask": {0: BATCH, 1: f"past_{LENGTH} + {LENGTH}"},
            "position_ids": {0: BATCH, 1: LENGTH},
            "past_key_values": {0: BATCH, 2: f"past_{LENGTH}"},
        },
    )
