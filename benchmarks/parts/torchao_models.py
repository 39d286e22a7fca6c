"""Three models and the configs of torchao that they are quantized with; integers of both sides."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import torch
import transformers
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere
from torchao import quantization as ao
from torchao.quantization import qat

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Integers = npt.NDArray[np.int16]
    Feeds = dict[str, torch.Tensor]

WIDTH, HEADS, LAYERS, WORDS = 256, 4, 4, 1000
TOKENS, PIXELS, ROWS = 64, 64, 4
RATE, STEPS = 1e-4, 2
_AXES = {"input_ids": {0: "batch", 1: "tokens"}}
_SEED = 0


@dataclass(frozen=True, slots=True)
class Given:
    """A float model in eval mode, and what it is run on.

    Attributes:
        module: returns one tensor.
        samples: example inputs by name, some rows, on which results are compared.
        timed: rows that are timed, and tokens of each; None: all of them.
        takes: which layers are quantized.
        axes: dynamic ones.
    """

    module: nn.Module
    samples: Feeds
    timed: tuple[slice, ...]
    takes: Callable[[nn.Module, str], bool]
    axes: dict[str, dict[int, str]]

    def part(self) -> Feeds:
        """Inputs of the timed rows."""
        return {name: x[self.timed].contiguous() for name, x in self.samples.items()}


class _Text(nn.Module):
    """One tensor of a model of transformers, as a result."""

    def __init__(self, model: nn.Module, result: str) -> None:
        super().__init__()
        self.model, self.result = model, result

    def forward(self, input_ids: torch.Tensor) -> Any:
        """float32 (rows, tokens, width or words)."""
        return self.model(input_ids=input_ids)[self.result]


class _Block(nn.Module):
    """An inverted residual block, its batch norms folded."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(width, 4 * width, 1)
        self.depth = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)
        self.project = nn.Conv2d(4 * width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32, same shape as x."""
        return x + self.project(F.relu(self.depth(F.relu(self.expand(x)))))  # type: ignore[no-any-return]  # torch's


class _Images(nn.Module):
    """A stem, inverted residual blocks, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH // 4, 8, 8)
        self.blocks = nn.Sequential(*(_Block(WIDTH // 4) for _ in range(LAYERS)))
        self.head, self.classes = nn.Conv2d(WIDTH // 4, 4 * WIDTH, 1), nn.Linear(4 * WIDTH, WORDS)

    def forward(self, image: torch.Tensor) -> Any:
        """float32 (rows, classes)."""
        return self.classes(F.relu(self.head(self.blocks(self.stem(image)))).mean((2, 3)))


def _is_linear(module: nn.Module, path: str) -> bool:  # noqa: ARG001  # as quantize_ calls it
    return isinstance(module, nn.Linear)


def _is_linear_or_pointwise(module: nn.Module, path: str) -> bool:
    """Linear layers, and convolutions of 1 x 1."""
    return _is_linear(module, path) or getattr(module, "kernel_size", None) == (1, 1)


def _ids() -> Feeds:
    return {"input_ids": torch.randint(3, WORDS, (ROWS, TOKENS))}


def cnn() -> Given:
    """Convolutional network; one image is timed."""
    images = {"image": torch.randn(ROWS, 3, PIXELS, PIXELS)}
    return Given(
        _Images().eval(), images, (slice(1),), _is_linear_or_pointwise, {"image": {0: "batch"}}
    )


def encoder() -> Given:
    """BERT's encoder; a sentence is timed."""
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
    )
    model = transformers.BertModel(config, add_pooling_layer=False)
    text = _Text(model, "last_hidden_state")
    return Given(text.eval(), _ids(), (slice(1),), _is_linear, _AXES)


def decoder() -> Given:
    """Llama's decoder; a single token is timed, as each one that is generated costs."""
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        intermediate_size=4 * WIDTH,
        use_cache=False,
    )
    model = _Text(transformers.LlamaForCausalLM(config), "logits")
    return Given(model.eval(), _ids(), (slice(1), slice(1)), _is_linear, _AXES)


MODELS: dict[str, Callable[[], Given]] = {make.__name__: make for make in (cnn, encoder, decoder)}
"""Name -> what makes it, with random weights."""

_INT4 = {"weight_dtype": vars(torch)["int4"]}
_EIGHT_DA_FOUR_W = ao.Int8DynamicActivationIntxWeightConfig(
    **_INT4, weight_granularity=ao.PerGroup(32)
)


@dataclass(frozen=True, slots=True)
class Config:
    """A config of torchao as a row names it.

    Attributes:
        make: gives the config; where it is trained with, that of the `base`.
        steps: of QATConfig: none, "prepare", or "prepare" and "convert".
        all_layers: whether torchao has it for convolutions as well.
    """

    make: Callable[[], Any]
    steps: tuple[str, ...] = ()
    all_layers: bool = field(default=False, kw_only=True)


CONFIGS = {
    "Int8WeightOnly": Config(ao.Int8WeightOnlyConfig),
    "Int8DynamicActivationInt8Weight": Config(ao.Int8DynamicActivationInt8WeightConfig),
    "IntxWeightOnly, 8 bits, rows": Config(ao.IntxWeightOnlyConfig, all_layers=True),
    "IntxWeightOnly, 4 bits, rows": Config(
        lambda: ao.IntxWeightOnlyConfig(**_INT4), all_layers=True
    ),
    "IntxWeightOnly, 4 bits, groups of 32": Config(
        lambda: ao.IntxWeightOnlyConfig(**_INT4, granularity=ao.PerGroup(32))
    ),
    "8da4w, groups of 32": Config(lambda: _EIGHT_DA_FOUR_W),
    "Int4WeightOnly": Config(lambda: ao.Int4WeightOnlyConfig(group_size=32)),
    "Float8WeightOnly": Config(ao.Float8WeightOnlyConfig),
    "QAT of 8da4w, prepared": Config(lambda: _EIGHT_DA_FOUR_W, ("prepare",)),
    "QAT of 8da4w, converted": Config(lambda: _EIGHT_DA_FOUR_W, ("prepare", "convert")),
}
"""Name -> config."""


def build(name: str) -> Given:
    """The model of a name; the same in every process."""
    torch.manual_seed(_SEED)
    return MODELS[name]()


def quantized(given: Given, config: Config) -> nn.Module:
    """A copy that torchao quantized; trained for two steps where that is what the config is for."""
    model, takes = copy.deepcopy(given.module), given.takes
    if not config.all_layers:
        takes = _is_linear
    if not config.steps:
        ao.quantize_(model, config.make(), filter_fn=takes)
        return model
    ao.quantize_(model, qat.QATConfig(config.make(), step="prepare"), filter_fn=takes)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        loss: Any = model(**given.samples).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return converted(model, config) if "convert" in config.steps else model


def converted(model: nn.Module, config: Config) -> nn.Module:
    """A copy of a model in training, as torchao converts it."""
    made = copy.deepcopy(model)
    ao.quantize_(made, qat.QATConfig(config.make(), step="convert"))
    return made


def integers_of(model: nn.Module) -> dict[str, Integers]:
    """Integers of each weight that torchao quantized, by the layer's path."""
    weights: dict[str, Any] = {
        path: getattr(part, "weight", None) for path, part in model.named_modules()
    }
    return {
        path: weight.qdata.numpy().astype(np.int16)
        for path, weight in weights.items()
        if hasattr(weight, "qdata")
    }


def integers_in(model: ir.Model) -> list[Integers]:
    """Integers of each weight of an ONNX model, less its zero point where that is one number."""
    return [found for node in model.graph if (found := _weight_of(node)) is not None]


def _weight_of(node: ir.Node) -> Integers | None:
    arrays = [None if x is None or x.const_value is None else x.const_value.numpy()
              for x in node.inputs]  # fmt: skip
    if node.op_type == "MatMulNBits":
        packed, bits = arrays[1], node.attributes["bits"].as_int()
        assert packed is not None, "weights are constants"
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        parts = (packed[..., None] >> shifts) & ((1 << bits) - 1)
        rows = parts.reshape(packed.shape[0], -1)[:, : node.attributes["K"].as_int()]
        return rows.astype(np.int16) - (1 << (bits - 1))
    if node.op_type == "Cast" and arrays[0] is not None and arrays[0].dtype == np.int8:
        return arrays[0].astype(np.int16)
    place, zero = {"DequantizeLinear": (0, 2), "MatMulInteger": (1, 3)}.get(node.op_type, (0, 0))
    stored = arrays[place] if zero else None
    if stored is None:
        return None
    point = arrays[zero] if len(arrays) > zero else None
    middle = 0 if point is None else int(np.ravel(point)[0])
    return stored.astype(np.int16) - middle


def differing(wanted: Integers, found: list[Integers]) -> int:
    """Integers of a weight that are others in the nearest weight of its shape; all: there is none.

    Args:
        wanted: (outputs, ...).
        found: of the ONNX model, (outputs, ...) or (inputs, outputs).
    """
    turned = [x.T for x in found if x.ndim == wanted.ndim]
    near = [int((x != wanted).sum()) for x in [*found, *turned] if x.shape == wanted.shape]
    return min(near, default=wanted.size)
