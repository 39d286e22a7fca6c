"""36 architectures in plain PyTorch, laid out as their papers and well-known integer have them.

Weights are random and inputs are made up: they show what runs, how fast, and which tool leaves less
error; they show no accuracy. `build` gives the same weights in every process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from scripts._architectures import classification, dense, mobile, other, sequence, text, vision
from scripts._architectures._parts import Made, Size, initialize, settle

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ARCHITECTURES", "Made", "Size", "build"]

ARCHITECTURES: dict[str, Callable[[Size], Made]] = {
    make.__name__: make
    for make in (
        vision.vit,
        vision.vit_sdpa,
        vision.swin,
        vision.mixer,
        text.gpt_cache,
        text.gpt_causal,
        text.bert,
        text.whisper,
        classification.convnext,
        classification.efficientnet,
        classification.mobilenetv3,
        classification.regnet_x,
        classification.regnet_y,
        classification.shufflenetv2,
        mobile.shufflenet,
        mobile.text_direction,
        mobile.lcnet,
        classification.densenet,
        classification.googlenet,
        dense.unet,
        dense.unet_up,
        dense.deeplab,
        dense.yolo,
        dense.ssd,
        dense.espcn,
        dense.edsr,
        sequence.wavenet,
        sequence.tcn,
        sequence.crnn,
        other.dlrm,
        other.autoencoder,
        other.siamese,
        other.multi_io,
        other.cond_if,
        sequence.c3d,
        other.diffusion,
    )
}
SETTLING = 32, 7  # samples and seed of what gives batch norms their statistics


def build(name: str, size: Size) -> Made:
    """The module in eval mode with its random weights, and what draws its inputs."""
    torch.manual_seed(1)
    module, feeds = ARCHITECTURES[name](size)
    initialize(module)
    settle(module, feeds(*SETTLING))
    return module, feeds
