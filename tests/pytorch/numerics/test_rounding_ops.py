from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnxq import affine, dtypes
from onnxq.errors import ShapeError
from onnxq.ort import runtime
from onnxq.pytorch import export
from onnxq.pytorch.numerics import rounding_ops
from onnxq.pytorch.numerics.fake_quantize import fake_quantize
from onnxq.qconfig import ScaleRule
from onnxq.qparams import PerChannel, PerTensor, QParams

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.dtypes import QDType

STORED = {
    dtypes.UINT8: torch.uint8,
    dtypes.INT8: torch.int8,
    dtypes.UINT16: torch.uint16,
    dtypes.INT16: torch.int16,
}
AXIS = 1


def drawn(dtype: QDType, channels: int | None, seed: int) -> tuple[Tensor, Tensor, Tensor, QParams]:
    """(x, scale, zero_point, the same as QParams): random values, ties and far ends among them."""
    rng = np.random.default_rng(seed)
    shape = () if channels is None else (channels,)
    scale = np.asarray(2.0 ** rng.uniform(-8, 2, shape), np.float32)
    if seed % 2:
        scale = np.asarray(2.0 ** np.round(np.log2(scale)), np.float32)  # halves are exact
    zero_point = rng.integers(dtype.qmin, dtype.qmax, shape, endpoint=True)
    granularity = PerTensor() if channels is None else PerChannel(AXIS)
    p = QParams(scale, zero_point, dtype, granularity)
    spread = (dtype.qmax - dtype.qmin) * rng.uniform(0.1, 2)
    steps = np.round(rng.normal(size=(2, channels or 3, 5)) * spread * 2) / 2
    wide = scale if channels is None else scale[:, None]
    x = np.asarray(steps * wide + (rng.normal(size=steps.shape) * wide * (seed % 3)), np.float32)
    x[0, 0] = [0, 1e30, -1e30, np.inf, -np.inf]
    stored = STORED[dtype]
    tensors = (torch.from_numpy(np.array(a)) for a in (x, p.scale, p.zero_point.astype(np.int64)))
    x_, scale_, zero_point_ = tensors
    return x_, scale_, zero_point_.to(stored), p


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_integers_and_values_are_those_of_the_numeric_core(
    dtype: QDType, channels: int | None
) -> None:
    for seed in range(60):
        x, scale, zero_point, p = drawn(dtype, channels, seed)
        integers = rounding_ops.quantize_linear(x, scale, zero_point, AXIS)
        assert integers.dtype == zero_point.dtype
        np.testing.assert_array_equal(integers.numpy(), affine.quantize(x.numpy(), p))
        values = rounding_ops.dequantize_linear(integers, scale, zero_point, AXIS)
        np.testing.assert_array_equal(values.numpy(), affine.dequantize(integers.numpy(), p))
        rounded = rounding_ops.fake_quantize(
            x, scale, zero_point.to(torch.int32), dtype.qmin, dtype.qmax, AXIS
        )
        np.testing.assert_array_equal(rounded.numpy(), values.numpy())


def test_int32_integers_of_a_bias_are_dequantized_exactly() -> None:
    integers = torch.tensor([2**31 - 1, -(2**31), 2**24 + 1, -7], dtype=torch.int32)
    scale = torch.tensor([0.1, 0.2, 1e-5, 3.0])
    values = rounding_ops.dequantize_linear(integers, scale, torch.zeros(4, dtype=torch.int32), 0)
    p = QParams(scale.numpy(), np.zeros(4, np.int32), dtypes.INT32, PerChannel(0))
    np.testing.assert_array_equal(values.numpy(), affine.dequantize(integers.numpy(), p))


def test_nan_becomes_the_smallest_integer_and_stays_nan_in_training() -> None:
    x, scale = torch.tensor([float("nan"), 1.0]), torch.tensor(0.5)
    for stored, least in ((torch.uint8, 0), (torch.int8, -128)):
        integers = rounding_ops.quantize_linear(x, scale, torch.tensor(3, dtype=stored), -1)
        assert integers.tolist() == [least, 5]
    rounded = rounding_ops.fake_quantize(x, scale, torch.tensor(3, dtype=torch.int32), 0, 255, -1)
    assert rounded.isnan().tolist() == [True, False]


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_types_are_computed_in_float32_and_come_back(half: torch.dtype) -> None:
    x, scale, zero_point, p = drawn(dtypes.UINT8, 3, 4)
    x = x[1:].clamp(-60000, 60000).to(half)
    exact = affine.fake_quantize(x.to(torch.float32).numpy(), p)
    rounded = rounding_ops.fake_quantize(x, scale, zero_point.to(torch.int32), 0, 255, AXIS)
    assert rounded.dtype == half
    assert torch.equal(rounded, torch.from_numpy(exact).to(half))
    integers = rounding_ops.quantize_linear(x, scale, zero_point, AXIS)
    np.testing.assert_array_equal(integers.numpy(), affine.quantize(x.to(torch.float32).numpy(), p))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_any_axis_is_the_channels(axis: int) -> None:
    rng = np.random.default_rng(3)
    x = torch.from_numpy(rng.normal(size=(4, 3, 5)).astype(np.float32))
    scale = torch.from_numpy(rng.uniform(0.01, 0.1, x.shape[axis]).astype(np.float32))
    zero = torch.zeros(scale.shape, dtype=torch.int8)
    p = QParams(scale.numpy(), zero.numpy(), dtypes.INT8, PerChannel(axis))
    integers = rounding_ops.quantize_linear(x, scale, zero, axis)
    np.testing.assert_array_equal(integers.numpy(), affine.quantize(x.numpy(), p))


NARROW = [(-7, 7), (-127, 127), (0, 15), (0, 127), (-8, 7), (-64, 63)]


@pytest.mark.parametrize(("qmin", "qmax"), NARROW)
def test_narrow_ranges_clamp_the_integers(qmin: int, qmax: int) -> None:
    x = torch.linspace(-20, 20, 4001)
    zero_point = torch.tensor(max(qmin, 0) + (3 if qmin == 0 else 0), dtype=torch.int32)
    scale = torch.tensor(0.07)
    integers = torch.clamp(torch.round(x / scale) + zero_point, qmin, qmax)
    rounded = rounding_ops.fake_quantize(x, scale, zero_point, qmin, qmax, -1)
    assert torch.equal(rounded, (integers - zero_point) * scale)


@pytest.mark.parametrize("channels", [None, 3])
def test_gradient_is_one_where_the_integer_is_inside_and_zero_where_it_was_clamped(
    channels: int | None,
) -> None:
    for seed in range(40):
        x, scale, zero_point, p = drawn(dtypes.UINT8, channels, seed)
        x.requires_grad_()
        zero = zero_point.to(torch.int32)
        upstream = torch.from_numpy(np.random.default_rng(seed).normal(size=x.shape)).float()
        torch.autograd.backward(fake_quantize(x, scale, zero, 0, 255, AXIS), upstream)
        assert x.grad is not None
        wide = QParams(p.scale, p.zero_point.astype(np.int64), dtypes.INT16, p.granularity)
        integers = torch.from_numpy(affine.quantize(x.detach().numpy(), wide).astype(np.int64))
        inside = (integers >= 0) & (integers <= 255)
        assert torch.equal(x.grad, torch.where(inside, upstream, 0.0))


@pytest.mark.parametrize(("qmin", "qmax", "zero"), [(0, 255, 7), (-7, 7, 0), (0, 65535, 32768)])
def test_ties_at_min_and_max_pass_where_they_round_inwards(qmin: int, qmax: int, zero: int) -> None:
    """The same by channels, which read no number off a device."""
    ends = torch.tensor([qmin - zero, qmax - zero], dtype=torch.float32)
    near = torch.tensor([-0.5, 0.0, 0.5])
    x = (ends[:, None] + near).flatten()
    x = torch.cat([x, x.nextafter(torch.tensor(1e9)), x.nextafter(torch.tensor(-1e9))])
    one, zero_point = torch.tensor(1.0), torch.tensor(zero, dtype=torch.int32)
    single = x.clone().requires_grad_()
    torch.autograd.backward(fake_quantize(single, one, zero_point, qmin, qmax, 0).sum())
    channels = x.clone().requires_grad_()
    wide = (one.expand(len(x)).clone(), zero_point.expand(len(x)).clone())
    torch.autograd.backward(fake_quantize(channels, *wide, qmin, qmax, 0).sum())
    rounded = x.double().round() + zero
    wanted = ((rounded >= qmin) & (rounded <= qmax)).float()
    assert single.grad is not None
    assert channels.grad is not None
    assert torch.equal(single.grad, wanted)
    assert torch.equal(channels.grad, wanted)


def test_gradient_agrees_with_finite_differences_of_the_straight_through_surrogate() -> None:
    """The surrogate is the rounding left out: clamp(x, (qmin - zp) s, (qmax - zp) s)."""
    rng = np.random.default_rng(8)
    x = torch.from_numpy(rng.normal(size=4000) * 6)
    scale, zero_point = torch.tensor(0.05), torch.tensor(90, dtype=torch.int32)
    low, high = -90 * 0.05, 165 * 0.05
    edge = 0.05  # between the surrogate's corner and the code's there is half an LSB
    x = x[((x - low).abs() > edge) & ((x - high).abs() > edge)]
    h = 1e-4
    numeric = (torch.clamp(x + h, low, high) - torch.clamp(x - h, low, high)) / (2 * h)
    leaf = x.float().requires_grad_()
    torch.autograd.backward(fake_quantize(leaf, scale, zero_point, 0, 255, -1).sum())
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad.double(), numeric, rtol=0, atol=1e-6)
    assert 0.5 < leaf.grad.mean() < 1


@pytest.mark.parametrize("bound", ["inside", "outside"])
def test_the_mask_is_exact_in_bfloat16_too(bound: str) -> None:
    # integers 127 and 128: bfloat16 has no 127.5 between them
    x = torch.tensor([127.0 if bound == "inside" else 128.0], dtype=torch.bfloat16)
    x.requires_grad_()
    one, zero = torch.tensor(1.0), torch.tensor(0, dtype=torch.int32)
    torch.autograd.backward(fake_quantize(x, one, zero, -128, 127, -1).sum())
    assert x.grad is not None
    assert x.grad.item() == (bound == "inside")


def test_learned_scale_has_the_gradient_of_the_paper() -> None:
    """Equations 3 and 5 of LSQ, element by element in float64."""
    rng = np.random.default_rng(11)
    for channels in (None, 4):
        shape = () if channels is None else (channels,)
        x = torch.from_numpy(rng.normal(size=(6, 4, 9)).astype(np.float32)).requires_grad_()
        scale = torch.from_numpy(np.asarray(rng.uniform(0.05, 0.4, shape), np.float32))
        scale.requires_grad_()
        zero = torch.zeros(shape, dtype=torch.int32)
        upstream = torch.from_numpy(rng.normal(size=x.shape).astype(np.float32))
        rounded = fake_quantize(x, scale, zero, -7, 7, AXIS, ScaleRule.LEARNED)
        plain = fake_quantize(x, scale.detach(), zero, -7, 7, AXIS)
        assert torch.equal(rounded, plain)
        torch.autograd.backward(rounded, upstream)
        s = scale.detach().double() if channels is None else scale.detach().double()[:, None]
        v = x.detach().double() / s
        slope = torch.where(v <= -7, -7.0, torch.where(v >= 7, 7.0, v.round() - v))
        by_element = upstream.double() * slope
        total = by_element.sum() if channels is None else by_element.sum((0, 2))
        n = x.numel() // scale.numel()
        wanted = total / np.sqrt(n * 7)
        assert scale.grad is not None
        assert x.grad is not None
        # sums of n float32 products, each below 7 * 4
        torch.testing.assert_close(scale.grad.double(), wanted, rtol=1e-5, atol=1e-5)
        assert torch.equal(x.grad, torch.where((v > -7) & (v < 7), upstream, 0.0))


def test_learned_scale_agrees_with_finite_differences_away_from_the_steps() -> None:
    """Integers held, d out / d scale = code: LSQ's formula plus the straight-through path v."""
    x = torch.tensor([0.21, -0.37, 3.3, -5.0, 0.02])
    scale = torch.tensor(0.1, requires_grad=True)
    zero = torch.tensor(0, dtype=torch.int32)
    h = 1e-4

    def rounded(s: float) -> Tensor:
        out: Tensor = fake_quantize(x, torch.tensor(s), zero, -7, 7, -1)
        return out.double()

    numeric = (rounded(0.1 + h) - rounded(0.1 - h)) / (2 * h)  # the integers
    torch.autograd.backward(fake_quantize(x, scale, zero, -7, 7, -1, ScaleRule.LEARNED).sum())
    clamped = torch.round(x / 0.1).abs() > 7
    wanted = torch.where(clamped, numeric, numeric - x.double() / 0.1).sum() / np.sqrt(5 * 7)
    assert scale.grad is not None
    assert scale.grad.item() == pytest.approx(wanted.item(), abs=1e-2)


CHECKED: dict[str, Callable[[], tuple[Any, tuple[object, ...]]]] = {
    "quantize_linear": lambda: (
        rounding_ops.quantize_linear,
        (torch.randn(2, 3), torch.tensor([0.1, 0.2, 0.3]), torch.zeros(3, dtype=torch.int8), 1),
    ),
    "dequantize_linear": lambda: (
        rounding_ops.dequantize_linear,
        (torch.ones(2, dtype=torch.int8), torch.tensor(0.1), torch.tensor(1, dtype=torch.int8), -1),
    ),
    "fake_quantize": lambda: (
        rounding_ops.fake_quantize,
        (
            torch.randn(2, 3),
            torch.tensor(0.01),
            torch.tensor(3, dtype=torch.int32),
            0,
            255,
            -1,
        ),
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:.*TF32:UserWarning")
@pytest.mark.parametrize("name", CHECKED)
def test_torch_finds_no_fault_with_the_operator(name: str) -> None:
    op, arguments = CHECKED[name]()
    torch.library.opcheck(op, arguments)


def test_an_axis_that_is_not_there_is_refused() -> None:
    scale, zero = torch.ones(3), torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ShapeError, match=r"axis 2 is outside a tensor of rank 2"):
        rounding_ops.fake_quantize(torch.randn(2, 3), scale, zero, 0, 255, 2)


def test_a_scale_on_another_device_is_refused_by_name() -> None:
    """torch would take it, and multiply by its reciprocal."""
    x = torch.empty(2, 3, device="meta")
    scale, zero = torch.tensor(1.0), torch.tensor(0, dtype=torch.int32)
    with pytest.raises(ShapeError, match=r"x is on meta, its scale on cpu.*model.to\('meta'\)"):
        rounding_ops.fake_quantize(x, scale, zero, 0, 255, -1)


def test_runs_wherever_x_is() -> None:
    """CUDA is not needed: fake tensors go through the same shape and device rules."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():  # without autograd: its engine wants a real device
        x = torch.empty(2, 3, device="cuda")
        scale = torch.ones(3, device="cuda")
        zero = torch.zeros(3, device="cuda", dtype=torch.int32)
        arguments = (x, scale, zero, 0, 255, 1)
        found = [rounding_ops.fake_quantize(*arguments)]
        integers = rounding_ops.quantize_linear(x, scale, zero.to(torch.uint8), 1)
        found += [
            integers,
            rounding_ops.dequantize_linear(integers, scale, zero.to(torch.uint8), 1),
        ]
        assert {y.device.type for y in found} == {"cuda"}
        assert integers.dtype == torch.uint8


class Rounds(nn.Module):
    """Every operator once, integers of four types."""

    scale: Tensor
    zero: Tensor
    scales: Tensor
    zeros: Tensor
    stored: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.05))
        self.register_buffer("zero", torch.tensor(0, dtype=torch.int32))
        self.register_buffer("scales", torch.tensor([0.05, 0.02, 0.1]))
        self.register_buffer("zeros", torch.tensor([1, -2, 3], dtype=torch.int32))
        self.register_buffer("stored", torch.tensor(7, dtype=torch.uint8))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        ranges = {"u8": (0, 255), "s8": (-128, 127), "narrow": (-7, 7), "s16": (-32768, 32767)}
        found = {
            name: rounding_ops.fake_quantize(x, self.scale, self.zero, *ends, -1)
            for name, ends in ranges.items()
        }
        integers = rounding_ops.quantize_linear(x, self.scale, self.stored, -1)
        return found | {
            "channels": fake_quantize(x, self.scales, self.zeros, -128, 127, 1, ScaleRule.LEARNED),
            "explicit": rounding_ops.dequantize_linear(integers, self.scale, self.stored, -1),
        }


def test_exported_nodes_compute_the_same_integers_on_onnx_runtime() -> None:
    torch.manual_seed(0)
    module, x = Rounds().eval(), torch.randn(5, 3, 40) * 8
    model = export(module, x, tolerance=0.0)
    ops_used = [node.op_type for node in model.graph]
    assert set(ops_used) == {"QuantizeLinear", "DequantizeLinear", "Clip"}
    assert ops_used.count("Clip") == 1  # of the integers, where they do not fill their type
    with runtime.open_session(model) as session:
        got = session.run({"x": x.numpy()})
    for (name, wanted), array in zip(module(x).items(), got, strict=True):
        np.testing.assert_array_equal(array, wanted.numpy(), err_msg=name)


@pytest.mark.parametrize("opset", [19, 22])
def test_nodes_are_those_of_the_opset_asked_for(opset: int) -> None:
    class One(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            zero = torch.tensor(3, dtype=torch.int32)
            return torch.relu(rounding_ops.fake_quantize(x, torch.tensor(0.1), zero, 0, 255, -1))

    model = export(One().eval(), torch.randn(2, 3), opset=opset)
    assert model.opset_imports[""] == opset
