"""Layers behind functions that average or clamp: their input keeps the qparams ahead of these."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

import onnxq
from onnxq.pytorch import (
    DeQuantStub,
    QuantStub,
    convert,
    disable_observer,
    export,
    prepare,
    prepare_qat,
)
from onnxq.qconfig import get_default_qat_qconfig, get_default_qconfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    """A model that averages by a function, like those of torch's quantization tutorials."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.between = between
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Any:
        x = self.between(self.conv(self.quant(x)))
        return self.dequant(self.classifier(x.flatten(1)))


def mean(x: Tensor) -> Tensor:
    return x.mean([2, 3])


def trained(between: Callable[[Tensor], Tensor] = mean) -> Any:
    """A model for QAT that has seen data."""
    net = Net(between).train()
    net.qconfig = get_default_qat_qconfig()  # type: ignore[assignment]
    made = prepare_qat(net)
    made(IMAGES).sum().backward()
    return made.eval().apply(disable_observer)


def observed() -> Any:
    net = Net(mean).eval()
    net.qconfig = get_default_qconfig()  # type: ignore[assignment]
    made = prepare(net)
    made(IMAGES)
    return made


BETWEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": mean,
    "torch.mean": lambda x: torch.mean(x, (2, 3)),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 8),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (1, 1)).reshape(x.shape[0], -1),
    "interpolate": lambda x: F.interpolate(x, (1, 1), mode="bilinear", align_corners=False),
    "relu6": lambda x: F.relu6(x)[:, :, 0, 0],
    "clamp": lambda x: F.max_pool2d(x, 8).clamp(-0.3, 0.3),
    "twice": lambda x: F.avg_pool2d(x, 2).mean([2, 3]),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_the_layer_reads_the_qparams_of_what_the_function_read(name: str) -> None:
    net = trained(BETWEEN[name])
    linear, fake = net.classifier[1], net.conv.activation_post_process
    seen: list[Tensor] = []
    linear.register_forward_pre_hook(lambda _, args: seen.append(args[0]))  # after onnxq's
    net(IMAGES)
    assert linear.input_fake_quant is fake
    assert torch.equal(seen[0], fake.rounded(seen[0]))


@pytest.mark.parametrize("name", ["mean", "adaptive_avg_pool2d"])
def test_a_mean_of_integers_is_rounded_as_their_sum_in_integers(name: str) -> None:
    net = trained(BETWEEN[name])
    images = torch.randn(64, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    net(images)
    quantized: Any = convert(net)
    means: list[Tensor] = []
    quantized.classifier[1].register_forward_pre_hook(lambda _, args: means.append(args[0]))
    assert torch.equal(quantized(images), net(images))
    scale = quantized.conv.output.scale
    sums = (quantized.conv(quantized.quant(images)) / scale).round().sum((2, 3)).double()
    assert torch.equal((means[0] / scale).round().double(), (sums / 16).round())
    assert int((sums % 16 == 8).sum()) > 10, "ties"


def test_training_reaches_what_is_ahead_of_an_average() -> None:
    assert trained().conv.weight.grad.abs().sum() > 0


def test_converting_changes_no_value() -> None:
    net = trained()
    quantized: Any = convert(net)
    assert torch.equal(quantized(IMAGES), net(IMAGES))
    assert "classifier.1.input_requantize.scale" in quantized.state_dict()


def test_an_observed_model_rounds_once_it_is_converted() -> None:
    net = observed()
    assert torch.equal(net(IMAGES), net.dequant(net.classifier(mean(net.conv(IMAGES)))))
    quantized: Any = convert(net)
    assert quantized.classifier[1].input_requantize.scale == quantized.conv.output.scale


def test_copies_pickles_and_state_dicts_round_too() -> None:
    net = trained()
    quantized: Any = convert(net)
    for made, wanted in ((net, net(IMAGES)), (quantized, quantized(IMAGES))):
        assert torch.equal(copy.deepcopy(made)(IMAGES), wanted)
        file = io.BytesIO()
        torch.save(made, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=False)(IMAGES), wanted)
    other: Any = convert(trained())
    other.load_state_dict(quantized.state_dict())
    assert torch.equal(other(IMAGES), quantized(IMAGES))


def test_it_is_deployed_in_integers(tmp_path: Path) -> None:
    quantized = convert(trained())
    export(quantized, IMAGES, tmp_path / "net.onnx")  # holds ONNX Runtime against the module
    assert onnxq.cross_check(
        tmp_path / "net.onnx", onnxq.Samples({"x": IMAGES.numpy()}, batch_size=2)
    ).exact
