"""FakeQuantize beside torch.ao's: the scales are equal, and so are the values but for ties.

torch multiplies by 1 / scale where ONNX divides. The two quotients are within 2^-22 of each other,
relatively, so that rint can differ only where the quotient is that near to a half.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onnxq import qconfig
from onnxq.observers import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    Observer,
    PerChannelMinMaxObserver,
)
from onnxq.pytorch import FakeQuantize, fake_quantize_module

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore:.*deprecated"),
    pytest.mark.filterwarnings("ignore:Please use quant_min"),
    pytest.mark.filterwarnings("ignore:.*reduce_range"),
]

OBSERVERS: dict[str, type[Observer]] = {
    "MinMaxObserver": MinMaxObserver,
    "MovingAverageMinMaxObserver": MovingAverageMinMaxObserver,
    "PerChannelMinMaxObserver": PerChannelMinMaxObserver,
    "MovingAveragePerChannelMinMaxObserver": MovingAveragePerChannelMinMaxObserver,
}
CASES = 200  # for each of the four observers; three batches each
BATCHES = 3


def arguments(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """Constructor arguments that torch takes, with its names."""
    granularity = "per_channel" if "PerChannel" in name else "per_tensor"
    symmetric, signed = rng.random(2) < 0.5
    drawn: dict[str, Any] = {
        "dtype": "qint8" if signed else "quint8",
        "qscheme": f"{granularity}_{'symmetric' if symmetric else 'affine'}",
    }
    if rng.random() < 0.5:
        ranges = [(-128, 127), (-7, 7), (-127, 127), (-8, 7), (-64, 63)]
        low, high = ranges[rng.integers(5)]
        shift = 0 if signed else -low  # unsigned: 0..255, 0..14, ...
        drawn |= {"quant_min": low + shift, "quant_max": high + shift}
    elif signed or not symmetric:
        drawn["reduce_range"] = bool(rng.random() < 0.5)
    if granularity == "per_channel":
        drawn["ch_axis"] = int(rng.integers(3))
    if "Moving" in name:
        drawn["averaging_constant"] = float(rng.choice([0.01, 0.3, 1.0]))
    return drawn


def batches(rng: np.random.Generator) -> list[Tensor]:
    spread, shift = 10 ** rng.uniform(-4, 3), rng.choice([0, 0, 3, -3])
    shape = tuple(rng.integers(1, 6, 3))
    found = [rng.normal(size=shape) * spread + shift * spread for _ in range(BATCHES)]
    kind = rng.integers(5)
    if kind == 0:
        found = [np.maximum(x, 0) for x in found]
    if kind == 1:
        found = [np.round(x / spread * 4) / 4 * spread for x in found]  # equal values, and zeros
    return [torch.from_numpy(np.asarray(x, np.float32)) for x in found]


def theirs(name: str, drawn: dict[str, Any]) -> Any:
    observer = getattr(torch.ao.quantization, name)
    plain = {k: getattr(torch, v) if k in ("dtype", "qscheme") else v for k, v in drawn.items()}
    return torch.ao.quantization.FakeQuantize(observer, **plain)  # type: ignore[no-untyped-call]


def on_tie(x: Tensor, scale: Tensor) -> Tensor:
    """Where both quotients, a division's and a multiplication's, can be a half."""
    quotient = x.double() / scale
    return ((quotient - quotient.floor()) - 0.5).abs() <= quotient.abs() * 2.0**-22


def wide_scale(fake: FakeQuantize, rank: int) -> Tensor:
    shape = [1] * rank
    if fake.is_per_channel:
        shape[fake.ch_axis] = -1
    return fake.scale.reshape(shape).double()


def check_values(x: Tensor, ours: Tensor, torchs: Tensor, fake: FakeQuantize) -> int:
    """Number of values that differ; each lies on a tie and differs by one LSB."""
    scale = wide_scale(fake, x.ndim)
    steps = ((ours.double() - torchs.double()) / scale).abs()
    differ = steps > 0.5
    assert (steps.round() <= 1).all()
    assert on_tie(x, scale)[differ].all()
    # else the same code times the same scale, in float32 both
    assert torch.equal(ours[~differ], torchs[~differ])
    return int(differ.sum())


@pytest.mark.parametrize("name", OBSERVERS)
def test_scales_are_torchs_and_values_differ_on_ties_alone(name: str) -> None:
    rng = np.random.default_rng(len(name))
    values = differing = 0
    for _ in range(CASES):
        drawn = arguments(rng, name)
        fake, reference = FakeQuantize(OBSERVERS[name], **drawn), theirs(name, drawn)
        for x in batches(rng):
            ours, torchs = x.clone().requires_grad_(), x.clone().requires_grad_()
            out, wanted = fake(ours), reference(torchs)
            assert torch.equal(fake.scale.reshape(-1), reference.scale), drawn
            assert torch.equal(fake.zero_point.reshape(-1), reference.zero_point.int()), drawn
            differing += check_values(x, out, wanted, fake)
            out.sum().backward()
            wanted.sum().backward()
            assert ours.grad is not None
            assert torchs.grad is not None
            # a tie between the last integer and the first that is clamped
            assert on_tie(x, wide_scale(fake, x.ndim))[ours.grad != torchs.grad].all()
            values += x.numel()
        assert fake.quant_min == reference.quant_min
        assert fake.quant_max == reference.quant_max
    assert values > 8_000
    # the two ends of an affine range often are ties, and a channel has few values here (0.5%)
    assert differing < values * 2e-2


NAMED = ["default_fake_quant", "default_weight_fake_quant", "default_per_channel_weight_fake_quant"]


@pytest.mark.parametrize("name", NAMED)
def test_the_documented_instances_train_with_torchs_scales(name: str) -> None:
    rng = np.random.default_rng(5)
    fake = fake_quantize_module(getattr(qconfig, name))
    reference: Any = getattr(torch.ao.quantization, name)()
    for _ in range(50):
        x = torch.from_numpy(rng.normal(size=(5, 4, 3, 3)).astype(np.float32))
        check_values(x, fake(x), reference(x), fake)
        assert torch.equal(fake.scale.reshape(-1), reference.scale)
        assert torch.equal(fake.zero_point.reshape(-1), reference.zero_point.int())


@pytest.mark.parametrize("shape", ["normal", "relu", "heavy"])
def test_a_histogram_rounds_no_worse_than_torchs(shape: str) -> None:
    """onnxq's searches integer zero points, torch's does not: the errors are compared."""
    rng = np.random.default_rng(6)
    draws: dict[str, Callable[[], Any]] = {
        "normal": lambda: rng.normal(size=40_000),
        "relu": lambda: np.maximum(rng.normal(size=40_000), 0),
        "heavy": lambda: rng.standard_t(3, 40_000),
    }
    fake = FakeQuantize(HistogramObserver)
    reference = theirs("HistogramObserver", {})
    seen = [torch.from_numpy(draws[shape]().astype(np.float32)) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in seen:
            out, wanted = fake(x), reference(x)
    fake.disable_observer()
    reference.disable_observer()
    everything = torch.cat(seen)
    ours = (fake(everything) - everything).square().mean()
    torchs = (reference(everything) - everything).square().mean()
    assert ours <= 1.002 * torchs
    assert out.shape == wanted.shape


def test_values_are_those_of_torchs_kernel_over_many_random_qparams() -> None:
    rng = np.random.default_rng(7)
    ties = 0
    for _ in range(2000):
        scale = np.float32(2.0 ** rng.uniform(-12, 6))
        zero_point = int(rng.integers(0, 256))
        x = torch.from_numpy((rng.normal(size=200) * 100 * scale).astype(np.float32))
        fake = FakeQuantize(MinMaxObserver).disable_observer()
        fake.scale.fill_(float(scale))
        fake.zero_point.fill_(zero_point)
        wanted = torch.fake_quantize_per_tensor_affine(x, float(scale), zero_point, 0, 255)
        ties += check_values(x, fake(x), wanted, fake)
    assert ties <= 40  # of 400,000
