from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from onnxq import dtypes
from onnxq.affine import dequantize, quantize
from onnxq.errors import QConfigError
from onnxq.pytorch.tensor_quant import (
    HistogramCalibrator,
    MaxCalibrator,
    QuantDescriptor,
    TensorQuantizer,
    fake_tensor_quant,
)
from onnxq.pytorch.tensor_quant.functions import scale_of
from onnxq.qparams import PerTensor, QParams


def onnx_rule(x: Tensor, amax: float, bits: int, unsigned: bool, narrow: bool) -> Tensor:
    """dequantize(quantize(x)) of onnxq.qparams, then cut to the integers."""
    bound = 2 ** (bits - (not unsigned)) - 1
    dtype = f"{'u' if unsigned else ''}int{8 if bits <= 8 else 16}"
    scale = np.asarray(np.float32(amax) / np.float32(bound))
    qparams = QParams(scale, np.asarray(0), dtypes.find(dtype), PerTensor())
    lowest = 0 if unsigned else -bound if narrow else -bound - 1
    integers = np.clip(quantize(x.numpy(), qparams), lowest, bound)
    return torch.from_numpy(dequantize(integers, qparams))


@pytest.mark.parametrize("bits", range(2, 17))
@pytest.mark.parametrize(("unsigned", "narrow"), [(False, False), (False, True), (True, False)])
def test_values_are_those_of_quantize_linear(bits: int, unsigned: bool, narrow: bool) -> None:
    rng = np.random.default_rng(bits)
    for _ in range(40):
        size = 10.0 ** rng.uniform(-4, 4)
        x = torch.tensor(rng.normal(size=500) * size, dtype=torch.float32)
        x = x.abs() if unsigned else x
        amax = float(np.float32(size * rng.uniform(0.3, 3)))
        desc = QuantDescriptor(bits, amax=amax, unsigned=unsigned, narrow_range=narrow)
        assert torch.equal(TensorQuantizer(desc)(x), onnx_rule(x, amax, bits, unsigned, narrow))


def test_it_differs_from_the_documented_formula_at_ties_by_one_lsb() -> None:
    x = torch.randn(400_000)
    quantizer = TensorQuantizer(QuantDescriptor(amax=3.0))
    steps = (quantizer(x) - fake_tensor_quant(x, torch.tensor(3.0), 8, False, False)) * 127 / 3
    assert steps.abs().max() < 1.01
    assert (steps.abs() > 0.5).float().mean() < 1e-5  # measured: 0 to 1 of 400,000


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1)])
def test_without_amax_every_tensor_gives_its_own(axis: int | tuple[int, ...] | None) -> None:
    quantizer = TensorQuantizer(QuantDescriptor(axis=axis))
    assert quantizer.amax is None
    assert quantizer.step_size is None
    for _ in range(3):
        x = torch.randn(4, 3, 6)
        kept = () if axis is None else tuple(a % 3 for a in np.atleast_1d(axis).tolist())
        others = [i for i in range(3) if i not in kept]
        amax = x.abs().amax(others, keepdim=True)
        step = amax / torch.tensor(127.0)
        wanted = (x / step).round().clamp(-128, 127) * step
        assert torch.equal(quantizer(x), wanted)


def test_calibrates_with_quantization_off_then_quantizes() -> None:
    quantizer = TensorQuantizer(QuantDescriptor(axis=0))
    assert isinstance(quantizer._calibrator, MaxCalibrator)
    quantizer.enable_calib()
    quantizer.disable_quant()
    batches = torch.randn(3, 2, 50)
    for x in batches:
        assert quantizer(x) is x
    quantizer.load_calib_amax()
    quantizer.disable_calib()
    quantizer.enable_quant()
    amax = batches.abs().amax((0, 2)).reshape(2, 1)
    assert quantizer.amax is not None
    assert torch.equal(quantizer.amax, amax)
    assert torch.equal(quantizer(batches[0]), (batches[0] / (amax / torch.tensor(127.0))).round()
                       * (amax / torch.tensor(127.0)))  # fmt: skip
    assert quantizer.step_size is not None
    torch.testing.assert_close(quantizer.scale, 127 / amax)
    torch.testing.assert_close(quantizer.step_size, amax / 127)


@pytest.mark.parametrize("method", ["percentile", "mse", "entropy"])
def test_calibrates_with_a_histogram(method: str) -> None:
    quantizer = TensorQuantizer(QuantDescriptor(calib_method="histogram"), if_calib=True)
    assert isinstance(quantizer._calibrator, HistogramCalibrator)
    x = torch.randn(20_000)
    quantizer(x)
    quantizer.load_calib_amax(method)
    found = quantizer._calibrator.compute_amax(method)
    assert found is not None
    assert quantizer.amax == found
    quantizer.load_calib_amax("percentile", percentile=50.0)
    assert float(quantizer.amax) == pytest.approx(0.6745, abs=0.03)  # the median of |normal|


def test_calibration_before_data_is_the_documented_error() -> None:
    quantizer = TensorQuantizer()
    with pytest.raises(RuntimeError, match="seen no data"):
        quantizer.load_calib_amax()
    with pytest.warns(UserWarning, match="seen no data"):
        quantizer.load_calib_amax(strict=False)
    with pytest.raises(ValueError, match="NaN or Inf"):
        quantizer(torch.ones(3))


def test_gradient_passes_where_amax_holds_the_input() -> None:
    for bits in range(2, 17):
        x = (torch.randn(300) * 2).requires_grad_()
        grad = torch.randn(300)
        TensorQuantizer(QuantDescriptor(bits, amax=1.5))(x).backward(grad)
        assert x.grad is not None
        assert torch.equal(x.grad, torch.where(x.abs() <= 1.5, grad, 0.0))


def test_learns_amax_by_the_gradient_of_the_clip() -> None:
    quantizer = TensorQuantizer(QuantDescriptor(amax=2.0, learn_amax=True))
    x = torch.tensor([-3.0, -2.0, 0.5, 2.0, 5.0, 7.0], requires_grad=True)
    grad = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    y = quantizer(x)
    assert y[[0, 1, 3, 4, 5]].tolist() == [-2, -2, 2, 2, 2]
    y.backward(grad)
    assert x.grad is not None
    assert x.grad.tolist() == [0, 2, 4, 8, 0, 0]
    assert quantizer.clip.clip_value_min.grad == 1
    assert quantizer.clip.clip_value_max.grad == 48


def test_a_learned_amax_finds_the_range_of_the_data() -> None:
    torch.manual_seed(0)
    quantizer = TensorQuantizer(QuantDescriptor(4, learn_amax=True, amax=0.2))
    optimizer = torch.optim.SGD(quantizer.parameters(), lr=0.02)
    x = torch.rand(4000) * 2 - 1
    errors = []
    for _ in range(60):
        optimizer.zero_grad()
        error = ((quantizer(x) - x) ** 2).mean() * 50
        error.backward()
        optimizer.step()
        errors.append(float(error.detach()))
    assert errors[-1] < 0.05 * errors[0]
    assert 0.8 < float(quantizer.learned_amax()) < 1.1


def test_learning_begins_at_the_calibrated_amax() -> None:
    quantizer = TensorQuantizer(QuantDescriptor(learn_amax=True))
    with pytest.raises(RuntimeError, match="there is no amax"):
        quantizer.init_learn_amax()
    quantizer.amax = 3.5
    quantizer.init_learn_amax()
    assert quantizer.learned_amax() == 3.5
    quantizer.disable_clip()
    assert not any(p.requires_grad for p in quantizer.parameters())
    quantizer.enable_clip()
    assert all(p.requires_grad for p in quantizer.parameters())


def test_without_learn_amax_there_is_nothing_to_learn() -> None:
    quantizer = TensorQuantizer()
    for call in (quantizer.enable_clip, quantizer.learned_amax):
        with pytest.raises(ValueError, match="learn_amax is False"):
            call()
    with pytest.raises(ValueError, match="learn_amax is False"):
        TensorQuantizer(if_clip=True)
    with pytest.raises(RuntimeError, match="learn_amax is False"):
        quantizer.init_learn_amax()


def test_amax_can_be_set_but_not_reshaped() -> None:
    quantizer = TensorQuantizer(QuantDescriptor(axis=0))
    quantizer.amax = [[1.0], [2.0]]
    quantizer.amax = torch.tensor([[3.0], [4.0]])
    assert quantizer.amax is not None
    assert quantizer.amax.tolist() == [[3.0], [4.0]]
    with pytest.raises(TypeError, match=r"\[2\].*\[2, 1\]"):
        quantizer.amax = [3.0, 4.0]
    with pytest.raises(TypeError, match="None"):
        quantizer.amax = None
    quantizer.amax = [[-1.0], [1.0]]
    with pytest.raises(ValueError, match="negative values in amax"):
        quantizer(torch.ones(2, 3))


def test_a_flat_amax_belongs_to_the_axis() -> None:
    x = torch.randn(2, 3, 3)
    flat = TensorQuantizer(QuantDescriptor(axis=1, amax=[1.0, 2.0, 3.0]))
    shaped = TensorQuantizer(QuantDescriptor(amax=[[1.0], [2.0], [3.0]]))
    assert torch.equal(flat(x), shaped(x))


def test_scale_amax_multiplies() -> None:
    x = torch.randn(100)
    desc = QuantDescriptor(amax=2.0, scale_amax=0.5)
    assert torch.equal(TensorQuantizer(desc)(x), TensorQuantizer(QuantDescriptor(amax=1.0))(x))
    assert TensorQuantizer(desc).scale == 127


def test_real_integers_come_with_a_scale() -> None:
    quantizer = TensorQuantizer(QuantDescriptor(fake_quant=False, amax=2.0))
    x = torch.randn(100)
    integers = quantizer(x)
    assert torch.equal(integers, integers.round())
    assert (integers / quantizer.scale - x.clamp(-2, 2)).abs().max() <= 1.01 / quantizer.scale
    fresh = TensorQuantizer(QuantDescriptor(fake_quant=False))
    with pytest.raises(ValueError, match="nothing was quantized"):
        _ = fresh.scale
    fresh(x)
    assert fresh.scale == pytest.approx(127 / float(x.abs().max()))


def test_disabled_returns_the_tensor_itself() -> None:
    quantizer = TensorQuantizer(QuantDescriptor(amax=1.0), disabled=True)
    x = torch.randn(3)
    assert quantizer(x) is x
    quantizer.enable()
    assert not torch.equal(quantizer(x), x)
    quantizer.disable()
    assert quantizer(x) is x
    assert repr(quantizer) == "TensorQuantizer(disabled)"


def test_attributes_are_the_descriptors() -> None:
    desc = QuantDescriptor(4, axis=0, unsigned=True)
    quantizer = TensorQuantizer(desc)
    assert (quantizer.num_bits, quantizer.axis, quantizer.unsigned) == (4, 0, True)
    assert (quantizer.fake_quant, quantizer.narrow_range) == (True, False)
    quantizer.num_bits, quantizer.unsigned, quantizer.narrow_range = 8, False, True
    assert quantizer.integer_range() == (-127, 127)
    with pytest.raises(ValueError, match="2 to 16"):
        quantizer.num_bits = 1
    assert "8 bits, axis=0, amax=dynamic, quant" in repr(quantizer)
    with pytest.raises(TypeError, match="wanted a QuantDescriptor"):
        TensorQuantizer({"num_bits": 8})  # type: ignore[arg-type]


def test_state_dict_round_trip_with_the_originals_names() -> None:
    one = TensorQuantizer(QuantDescriptor(axis=0))
    one.amax = [[1.0], [2.0]]
    assert list(one.state_dict()) == ["_amax"]
    fresh = nn.Sequential(TensorQuantizer(QuantDescriptor(axis=0)))
    fresh.load_state_dict(nn.Sequential(one).state_dict())
    x = torch.randn(2, 9)
    assert torch.equal(fresh(x), one(x))
    learned = TensorQuantizer(QuantDescriptor(learn_amax=True))
    assert list(learned.state_dict()) == ["clip.clip_value_min", "clip.clip_value_max"]
    assert torch.equal(copy.deepcopy(one)(x), one(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_computed_in_float32_and_returned_as_halves(dtype: torch.dtype) -> None:
    quantizer = TensorQuantizer(QuantDescriptor(amax=2.0))
    x = torch.randn(500, requires_grad=True)
    y = quantizer(x.to(dtype))
    assert y.dtype == dtype
    assert torch.equal(y, quantizer(x.to(dtype).float()).to(dtype))
    y.float().sum().backward()
    assert x.grad is not None


def test_a_dead_channel_stays_dead() -> None:
    quantizer = TensorQuantizer(QuantDescriptor(axis=0, amax=[0.0, 1.0]))
    y = quantizer(torch.ones(2, 3))
    assert y.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert scale_of(torch.tensor(2.0**-24), 127) == 2.0**127


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (torch.ones(3, dtype=torch.int64), TypeError),
        (-torch.ones(3), TypeError),
        (torch.ones(2, 2), ValueError),
    ],
)
def test_bad_tensors_are_the_documented_errors(x: Any, kind: type[Exception]) -> None:
    quantizer = TensorQuantizer(QuantDescriptor(unsigned=True, amax=[1.0, 2.0, 3.0]))
    with pytest.raises(kind) as caught:
        quantizer(x)
    assert isinstance(caught.value, QConfigError)


# torch.compile itself instantiates autograd functions
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_trains_under_autocast_and_compile() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(8, 4)
    quantizer = TensorQuantizer(QuantDescriptor(amax=2.0))
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = quantizer(layer(quantizer(x)))
    y.float().sum().backward()
    assert layer.weight.grad is not None
    compiled = torch.compile(lambda v: quantizer(v) * 1.0, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), quantizer(x))
