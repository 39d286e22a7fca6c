from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import onnxq
from models import transformer as module
from models.cifar10 import load_sample
from models.transformer import Attention, example_inputs, transformer
from onnxq.graph.io import save
from onnxq.ort import runtime
from onnxq.pytorch import load_module

WEIGHTS = Path(module.__file__).with_name("transformer.safetensors")


def test_ten_logits_through_32_linear_layers() -> None:
    model = transformer().eval()
    assert sum(isinstance(m, nn.Linear) for m in model.modules()) == 5 * 6 + 2
    with torch.no_grad():
        assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_a_patch_is_4_by_4_pixels_of_3_channels() -> None:
    model = transformer().eval()
    image = torch.zeros(1, 3, 32, 32)
    changed = image.clone()
    changed[0, :, 4:8, 8:12] = 1  # the third patch of the second row
    seen: list[torch.Tensor] = []
    model.embed.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    with torch.no_grad():
        model(image)
        model(changed)
    different = (seen[0] != seen[1]).all(dim=2)[0]
    assert different.nonzero().flatten().tolist() == [1 * 8 + 2]


def test_attention_is_torchs() -> None:
    torch.manual_seed(0)
    own, theirs = Attention(8, 2), nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        layers = (own.query, own.key, own.value)
        theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
        theirs.out_proj.load_state_dict(own.out.state_dict())
        x = torch.randn(3, 5, 8)
        torch.testing.assert_close(own(x), theirs(x, x, x)[0])


@pytest.mark.nightly
def test_the_weights_are_those_of_the_embedded_accuracy() -> None:
    model = load_module("models.transformer:transformer", WEIGHTS)
    images, labels = load_sample("test")
    with torch.inference_mode():
        hits = (model(torch.from_numpy(images)).argmax(1).numpy() == labels).mean()
    with safe_open(WEIGHTS, "pt") as file:
        top1 = float(file.metadata()["top1"])
    assert top1 > 70
    assert abs(100 * hits - top1) < 4  # three standard deviations of 1,000 images


def test_example_inputs_suit_the_model() -> None:
    assert {name: x.shape for name, x in example_inputs().items()} == {"image": (4, 3, 32, 32)}


@pytest.mark.nightly
@pytest.mark.parametrize(("dtype", "share"), [("qint8", 0.3), ("float16", 0.51)])
def test_weights_are_a_share_of_their_float_size_and_nearly_as_right(
    dtype: str, share: float, tmp_path: Path
) -> None:
    net = load_module("models.transformer:transformer", WEIGHTS)
    model = onnxq.export(net, example_inputs(), tmp_path / "float.onnx")
    quantized = onnxq.quantize_dynamic(model, dtype=dtype, objective="size")
    save(quantized, tmp_path / "small.onnx")
    layers = [m for m in net.modules() if isinstance(m, nn.Linear)]
    weights = 4 * sum(layer.weight.numel() for layer in layers)  # bytes; 1 in 8 of the file are not
    small, whole = ((tmp_path / f"{name}.onnx").stat().st_size for name in ("small", "float"))
    assert whole - small > (1 - share) * weights
    images, labels = load_sample("test")
    right = []
    for made in (model, quantized):
        with runtime.open_session(made, threads=1) as session:
            logits = np.asarray(session.run({"image": images[:500]})[0])
            right.append((logits.argmax(1) == labels[:500]).sum())
    assert right[0] - right[1] <= 5  # 1% of 500; benchmarks/dynamic_accuracy.py has all 10,000
