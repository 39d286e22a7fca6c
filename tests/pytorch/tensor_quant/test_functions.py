from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from onnxq.errors import QConfigError
from onnxq.pytorch.tensor_quant import (
    FakeTensorQuantFunction,
    TensorQuantFunction,
    fake_tensor_quant,
    tensor_quant,
)

F64 = npt.NDArray[np.float64]
CASES = 3000


class Case(NamedTuple):
    x: Tensor
    amax: Tensor
    bits: int
    unsigned: bool
    narrow: bool


def cases(count: int = CASES) -> list[Case]:
    """Random shapes, axes, magnitudes 1e-6 .. 1e6, 2 to 16 bits, each kind of range."""
    rng = np.random.default_rng(11)
    made = []
    for _ in range(count):
        shape = tuple(rng.integers(1, 6, size=rng.integers(1, 5)).tolist())
        unsigned, narrow = bool(rng.integers(2)), bool(rng.integers(2))
        x = rng.normal(size=shape) * 10.0 ** rng.uniform(-6, 6)
        x = np.abs(x) if unsigned else x
        x[rng.random(shape) < 0.1] = 0
        kept = [axis for axis in range(len(shape)) if rng.random() < 0.4]
        others = tuple(axis for axis in range(len(shape)) if axis not in kept)
        amax = np.abs(x).max(axis=others, keepdims=bool(kept)) * rng.uniform(0.3, 1.2)
        made.append(
            Case(
                torch.tensor(x, dtype=torch.float32),
                torch.tensor(amax, dtype=torch.float32),
                int(rng.integers(2, 17)),
                unsigned,
                narrow,
            )
        )
    return made


def expected(case: Case) -> tuple[F64, F64, F64]:
    """(exact value before rounding, lowest integer, largest integer) in float64."""
    bound = 2 ** (case.bits if case.unsigned else case.bits - 1) - 1
    lowest = 0 if case.unsigned else -bound if case.narrow else -bound - 1
    x, amax = case.x.double().numpy(), case.amax.double().numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.where(amax <= 2.0**-24, 0.0, x * bound / amax)
    return exact, np.float64(lowest), np.float64(bound)  # type: ignore[return-value]


def test_integers_are_those_of_the_formula_in_float64() -> None:
    ties = elements = 0
    for case in cases():
        outputs, scale = tensor_quant(*case)
        exact, lowest, bound = expected(case)
        integers = outputs.double().numpy()
        assert outputs.dtype == scale.dtype == torch.float32
        assert scale.shape == case.amax.shape
        wanted = np.clip(np.rint(exact), lowest, bound)
        # x * scale has an error of 2^-23 relative: it matters only that near to a tie
        near = np.abs(np.abs(exact - np.floor(exact)) - 0.5) <= 2.0**-22 * np.abs(exact)
        np.testing.assert_array_equal(integers[~near], wanted[~near])
        assert np.abs(integers - wanted).max(initial=0) <= 1
        ties, elements = ties + int(near.sum()), elements + near.size
        live = case.amax.numpy() > 2.0**-24
        amax = case.amax.double().numpy()
        np.testing.assert_array_equal(scale.numpy()[live], (bound / amax[live]).astype(np.float32))
        assert (scale.numpy()[~live] == 1).all()
    assert ties < 0.01 * elements  # measured: 0.4%, of 16-bit integers nearly all


def test_fake_is_integers_by_scale() -> None:
    for case in cases():
        outputs, scale = tensor_quant(*case)
        assert torch.equal(fake_tensor_quant(*case), outputs / scale)


def test_every_integer_is_reached_and_none_beyond() -> None:
    for bits in range(2, 9):
        for unsigned, narrow in ((False, True), (False, False), (True, True)):
            low = 0.0 if unsigned else -1.5
            x = torch.linspace(low, 1.5, 20001)
            integers, _ = tensor_quant(x, torch.tensor(1.0), bits, unsigned, narrow)
            bound = 2 ** (bits - (not unsigned)) - 1
            lowest = 0 if unsigned else -bound - (not narrow)
            assert sorted(set(integers.tolist())) == list(range(lowest, bound + 1))


@pytest.mark.parametrize("function", [tensor_quant, fake_tensor_quant])
def test_gradient_passes_where_amax_holds_the_input_and_nowhere_else(function: Any) -> None:
    for case in cases(1000):
        x = case.x.clone().requires_grad_()
        made = function(x, *case[1:])
        y = made[0] if isinstance(made, tuple) else made
        grad = torch.randn(y.shape)
        y.backward(grad)
        assert x.grad is not None
        inside = np.abs(case.x.double().numpy()) <= case.amax.double().numpy()
        np.testing.assert_array_equal(x.grad.numpy(), np.where(inside, grad.numpy(), 0.0))


def test_gradient_is_the_slope_of_the_clipped_identity() -> None:
    """A straight-through gradient is exact for the function without rounding: clamp(x)."""
    x = torch.randn(200, dtype=torch.float64, requires_grad=True)
    amax = torch.tensor(0.8, dtype=torch.float64)
    step = 1e-6
    weights = torch.randn(200, dtype=torch.float64)
    (fake_tensor_quant(x, amax) * weights).sum().backward()  # type: ignore[no-untyped-call]
    ends = [(x.detach() + d).clamp(-amax, amax) * weights for d in (step, -step)]
    slope = (ends[0] - ends[1]) / (2 * step)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, slope, rtol=1e-6, atol=1e-8)


def test_a_value_at_amax_has_a_gradient() -> None:
    x = torch.tensor([-2.0, 2.0, 2.0000002, -2.0000002], requires_grad=True)
    fake_tensor_quant(x, torch.tensor(2.0)).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 0, 0]


def test_amax_broadcasts_from_the_right() -> None:
    x = torch.randn(4, 3, 2)
    amax = torch.rand(3, 1) + 0.1
    whole = fake_tensor_quant(x, amax)
    for c in range(3):
        assert torch.equal(whole[:, c], fake_tensor_quant(x[:, c], amax[c, 0]))


@pytest.mark.parametrize("amax", [0.0, 1e-30, 2.0**-24])
def test_a_tiny_amax_gives_integers_0_and_scale_1(amax: float) -> None:
    x = torch.tensor([0.0, 1.0, -3.0, 1e-30])
    integers, scale = tensor_quant(x, torch.tensor(amax))
    assert integers.tolist() == [0, 0, 0, 0]
    assert scale == 1
    assert (fake_tensor_quant(x, torch.tensor(amax)) == 0).all()
    mixed = fake_tensor_quant(torch.ones(2, 2), torch.tensor([[amax], [1.0]]))
    assert mixed.tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_computed_in_float32(dtype: torch.dtype) -> None:
    for case in cases(300):
        x = case.x.clamp(-6e4, 6e4).to(dtype)
        amax = case.amax.clamp(2.0, 6e4)  # 65535 / 2 is a float16
        outputs, scale = tensor_quant(x, amax, *case[2:])
        wide, _ = tensor_quant(x.float(), amax, *case[2:])
        assert outputs.dtype == scale.dtype == dtype
        assert torch.equal(outputs, wide.to(dtype))
        y = fake_tensor_quant(x, amax, *case[2:])
        assert torch.equal(y, fake_tensor_quant(x.float(), amax, *case[2:]).to(dtype))


def test_float64_is_computed_in_float64() -> None:
    x, amax = torch.tensor([1.0 + 2**-40], dtype=torch.float64), torch.tensor(3.0)
    integers, scale = tensor_quant(x, amax, 16)
    assert integers.dtype == scale.dtype == torch.float64
    assert float(scale) == 32767 / 3


def test_a_scale_that_float16_does_not_hold_is_the_documented_error() -> None:
    x = torch.zeros(3, dtype=torch.float16)
    with pytest.raises(ValueError, match="too large for FP16"):
        tensor_quant(x, torch.tensor(1e-3), 8)
    tensor_quant(x, torch.tensor(2e-3), 8)


def test_output_dtype_is_int32_or_float32() -> None:
    x = torch.randn(50, requires_grad=True)
    amax = torch.tensor(1.0)
    arguments = (x, amax, 8, False, True)
    integers, _ = tensor_quant(*arguments, torch.int32)
    floats, _ = tensor_quant(*arguments, torch.float32)
    assert (integers.dtype, floats.dtype) == (torch.int32, torch.float32)
    assert torch.equal(integers, floats.to(torch.int32))
    assert not integers.requires_grad
    assert floats.requires_grad
    with pytest.raises(TypeError, match=r"torch.int8.*torch.int32 or torch.float32"):
        tensor_quant(*arguments, torch.int8)


ONE = torch.tensor(1.0)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ((torch.ones(2), torch.tensor(-1.0)), ValueError, "negative values in amax"),
        ((torch.ones(2, 2), torch.tensor([[1.0], [-1.0]])), ValueError, "negative values in amax"),
        ((torch.ones(2), torch.tensor(float("nan"))), ValueError, "NaN or Inf"),
        ((torch.ones(2), torch.tensor(float("inf"))), ValueError, "NaN or Inf"),
        ((torch.ones(2, 3), torch.ones(2)), ValueError, r"\[2\] does not broadcast.*\[2, 3\]"),
        ((torch.ones(3), torch.ones(2, 3)), ValueError, "does not broadcast"),
        ((torch.ones(1, 3), torch.ones(2, 3)), ValueError, "does not broadcast"),
        ((-torch.ones(2), ONE, 8, True), TypeError, "Negative values .*, down to -1"),
        ((torch.ones(2), 1.0), TypeError, "amax: got float"),
        ((torch.ones(2), torch.tensor(1)), TypeError, "amax: got torch.int64"),
        ((torch.ones(2, dtype=torch.int32), ONE), TypeError, "got torch.int32"),
        ((torch.ones(2, dtype=torch.bool), ONE), TypeError, "got torch.bool"),
        (([1.0], ONE), TypeError, "got list"),
        ((torch.ones(2), ONE, 1), ValueError, "2 to 16"),
        ((torch.ones(2), ONE, 17), ValueError, "2 to 16"),
        ((torch.ones(2), ONE, 8.0), TypeError, "an integer"),
    ],
)
@pytest.mark.parametrize("function", [tensor_quant, fake_tensor_quant])
def test_bad_arguments_are_the_documented_errors(
    function: Any, arguments: tuple[Any, ...], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        function(*arguments)
    assert isinstance(caught.value, QConfigError)


def test_empty_tensors_pass() -> None:
    assert fake_tensor_quant(torch.empty(0, 3), ONE, 8, True).shape == (0, 3)


def test_aliases_are_apply() -> None:
    assert tensor_quant == TensorQuantFunction.apply
    assert fake_tensor_quant == FakeTensorQuantFunction.apply


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_gives_the_same_integers() -> None:
    for case in cases(200):
        on_gpu = tensor_quant(case.x.cuda(), case.amax.cuda(), *case[2:])[0]
        assert (on_gpu.cpu() - tensor_quant(*case)[0]).abs().max() <= 1
