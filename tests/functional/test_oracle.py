"""The quantized functions against PyTorch's (qnnpack): shapes, qparams, dtypes, integers, refusals.

Integers differ by one LSB at most, and only where the exact result lies within 2e-5 steps of the
middle between two integers: on exact ties (avg_pool, adaptive_avg_pool2d), which PyTorch rounds
before or after it adds the zero point and ONNX Runtime the other way, and where float32 falls to
either side (elu, hardswish, mul, bilinear). How many do, on fixed data, is pinned for uint8 and
int8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.ao.nn.quantized import functional as untyped

from onnxq import functional
from onnxq.qtensor import _empty_affine_quantized
from tests.torch_oracle import EIGHT_BITS, QUIET, differing, ours, reals, refused, theirs

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.qtensor import QTensor

quantized: Any = untyped

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings(*QUIET)]

VECTORS = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
"""PyTorch's exp depends on the machine, and so do the ties of its elu."""


@pytest.fixture(autouse=True)
def _qnnpack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")


def pair(dtype: torch.dtype, *shape: int, spread: float = 1.0) -> tuple[torch.Tensor, QTensor]:
    zero_point = 101 if dtype == torch.quint8 else 3  # odd: ties fall apart
    q = theirs(reals(*shape, spread=spread), 0.03, zero_point, dtype)
    return q, ours(q)


# the same words on both: name, arguments, integers that differ for uint8 and for int8
CALLS: list[tuple[str, tuple[Any, ...], tuple[int, int]]] = [
    ("elu", (0.02, 30), (111, 24)),
    ("elu", (0.02, 30, 0.7), (111, 24)),
    ("hardsigmoid", (), (0, 0)),
    ("hardswish", (0.02, 30), (6, 0)),
    ("hardtanh", (), (0, 0)),
    ("hardtanh", (-0.5, 0.7), (0, 0)),
    ("max_pool2d", (2,), (0, 0)),
    ("max_pool2d", ((3, 2), (2, 1), (1, 0), 1, True), (0, 0)),
    ("max_pool2d", (2, 2, 0, 2), (0, 0)),
    ("max_pool2d", (3, 2, 1, 1, True), (0, 0)),
    ("avg_pool2d", (2,), (91, 24)),
    ("avg_pool2d", ((3, 2), (2, 1), (1, 0), True, False), (6, 42)),
    ("avg_pool2d", ((3, 2), (2, 1), (1, 0), True, True), (4, 38)),
    ("avg_pool2d", (3, 2, 1, True, True), (0, 2)),
    ("avg_pool2d", (2, 3, 1, True), (0, 12)),
    ("avg_pool2d", (3, 2, 1, True, True, 5), (0, 0)),
    ("adaptive_avg_pool2d", (1,), (0, 0)),
    ("adaptive_avg_pool2d", ((3, 2),), (0, 3)),
    ("adaptive_avg_pool2d", ((None, 8),), (401, 72)),
    ("adaptive_avg_pool2d", ((20, 3),), (40, 36)),
    ("interpolate", (None, 2), (0, 0)),
    ("interpolate", ((5, 9),), (0, 0)),
    ("interpolate", (5,), (0, 0)),
    ("interpolate", (None, (1.5, 0.7)), (0, 0)),
    ("interpolate", (None, 2, "bilinear"), (394, 418)),
    ("interpolate", (None, 1.7, "bilinear", True), (15, 14)),
    ("interpolate", ((1, 5), None, "bilinear"), (2, 3)),
    ("interpolate", ((9, 31), None, "bilinear", False), (6, 5)),
    ("upsample", (None, 2), (0, 0)),
    ("upsample_bilinear", (None, 2), (0, 0)),
    ("upsample_nearest", (7,), (0, 0)),
]


@pytest.mark.filterwarnings("ignore:.*upsample.* is deprecated")
@pytest.mark.parametrize(("name", "arguments", "counts"), CALLS, ids=str)
def test_functions_differ_in_so_many_integers(
    name: str, arguments: tuple[Any, ...], counts: tuple[int, int]
) -> None:
    found = []
    for dtype in EIGHT_BITS:
        q, mine = pair(dtype, 2, 3, 17, 16, spread=2.0)
        expected = getattr(quantized, name)(q, *arguments)
        found.append(differing(expected, getattr(functional, name)(mine, *arguments)))
    assert tuple(found) == counts or (name == "elu" and not VECTORS)


VOLUMES: list[tuple[str, tuple[Any, ...], tuple[int, int]]] = [
    ("avg_pool3d", (2,), (0, 5)),
    ("avg_pool3d", ((3, 2, 1), (2, 1, 1), (1, 0, 0), True, False), (0, 33)),
    ("avg_pool3d", ((3, 2, 2), (2, 1, 2), (1, 0, 1), True, True), (0, 7)),
    ("avg_pool3d", (2, 2, 1, True, True, 3), (0, 0)),
    ("interpolate", (None, 2), (0, 0)),
    ("interpolate", ((3, 8, 5),), (0, 0)),
]


@pytest.mark.parametrize(("name", "arguments", "counts"), VOLUMES, ids=str)
def test_functions_of_volumes_differ_in_so_many_integers(
    name: str, arguments: tuple[Any, ...], counts: tuple[int, int]
) -> None:
    found = []
    for dtype in EIGHT_BITS:
        q, mine = pair(dtype, 2, 3, 5, 7, 6)
        expected = getattr(quantized, name)(q, *arguments)
        found.append(differing(expected, getattr(functional, name)(mine, *arguments)))
    assert tuple(found) == counts


def test_a_divisor_is_forgotten_by_qnnpack() -> None:
    """PyTorch 2.13 with uint8 and without ceil_mode; its own int8 path divides by it."""
    q, mine = pair(torch.quint8, 2, 3, 17, 16)
    plain = quantized.avg_pool2d(q, 3, 2, 1)
    assert torch.equal(quantized.avg_pool2d(q, 3, 2, 1, divisor_override=5), plain)
    assert not functional.avg_pool2d(mine, 3, 2, 1, divisor_override=5).equal(
        functional.avg_pool2d(mine, 3, 2, 1)
    )


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_sizes_of_a_scaled_image_are_torchs(dtype: torch.dtype) -> None:
    q, mine = pair(dtype, 1, 1, 11, 10)
    for factor in np.linspace(0.1, 3, 59).tolist():
        expected = quantized.interpolate(q, scale_factor=factor)
        assert differing(expected, functional.interpolate(mine, scale_factor=factor)) == 0


@pytest.mark.parametrize("dtype", EIGHT_BITS, ids=str)
def test_rectifiers_give_the_same_integers(dtype: torch.dtype) -> None:
    q, mine = pair(dtype, 2, 3, 17, 16)
    assert differing(torch.nn.functional.relu(q), functional.relu(mine)) == 0
    returned = functional.relu_(mine)
    assert returned is mine
    assert differing(torch.nn.functional.relu_(q), mine) == 0


@pytest.mark.filterwarnings("ignore:All inputs of this cat operator")
@pytest.mark.parametrize(
    ("dtype", "counts"), [(torch.quint8, (0, 11, 0)), (torch.qint8, (0, 23, 0))]
)
def test_arithmetic_differs_in_so_many_integers(
    dtype: torch.dtype, counts: tuple[int, int, int]
) -> None:
    (a, mine), other = pair(dtype, 2, 3, 17, 16), reals(2, 3, 17, 16, seed=1)
    b = theirs(other, 0.05, 4, dtype)
    ops, scale = torch.ops.quantized, float(np.float32(0.07))
    found = (
        differing(ops.add(a, b, scale, 61), functional.add(mine, ours(b), scale, 61)),
        differing(ops.mul(a, b, scale, 61), functional.mul(mine, ours(b), scale, 61)),
        differing(ops.cat([a, b], 1, scale, 61), functional.cat([mine, ours(b)], 1, scale, 61)),
    )
    assert found == counts
    wide = b[:1, :, :1]
    assert differing(ops.add(a, wide, scale, 61), functional.add(mine, ours(wide), scale, 61)) == 0
    assert differing(torch.cat([a, b]), functional.cat([mine, ours(b)])) == 0
    out = torch._empty_affine_quantized([2, 3, 17, 16], scale=0.25, zero_point=9, dtype=dtype)
    mine_out = _empty_affine_quantized(scale=0.25, zero_point=9, dtype=str(dtype))
    assert differing(ops.add(a, b, out=out), functional.add(mine, ours(b), out=mine_out)) == 0


def weights(*shape: int) -> tuple[torch.Tensor, torch.Tensor, np.ndarray[Any, Any]]:
    """Per tensor, per channel, and a bias."""
    w = torch.from_numpy(reals(*shape, seed=2))
    scales = torch.from_numpy(np.linspace(0.01, 0.03, shape[0], dtype=np.float32))
    zeros = torch.zeros(shape[0], dtype=torch.int64)
    channels = torch.quantize_per_channel(w, scales, zeros, 0, torch.qint8)
    return theirs(w.numpy(), 0.02, 0, torch.qint8), channels, reals(shape[0], seed=3)


LAYERS: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = [
    ("conv1d", (2, 4, 30), (6, 4, 3), (2, 1, 2)),
    ("conv2d", (2, 4, 9, 8), (6, 4, 3, 3), ()),
    ("conv2d", (2, 4, 9, 8), (6, 2, 3, 3), ((2, 1), (1, 0), 1, 2)),
    ("conv2d", (2, 4, 9, 8), (4, 1, 3, 3), (1, 1, 1, 4)),
    ("conv3d", (2, 3, 5, 7, 6), (6, 3, 2, 3, 2), (2, 1)),
]


@pytest.mark.parametrize(("name", "x", "w", "steps"), LAYERS, ids=str)
def test_convolutions_give_the_same_integers(
    name: str, x: tuple[int, ...], w: tuple[int, ...], steps: tuple[Any, ...]
) -> None:
    q, mine = pair(torch.quint8, *x)
    *both, bias = weights(*w)
    for weight in both:
        for b in (bias, None):
            tensor = None if b is None else torch.from_numpy(b)
            keywords = {"scale": float(np.float32(0.07)), "zero_point": 121}
            expected = getattr(quantized, name)(q, weight, tensor, *steps, **keywords)
            got = getattr(functional, name)(mine, ours(weight), b, *steps, **keywords)
            assert differing(expected, got) == 0


def test_linear_layers_give_the_same_integers_but_for_a_tie() -> None:
    q, mine = pair(torch.quint8, 2, 4, 9, 8)
    *both, bias = weights(5, 8)
    scale = float(np.float32(0.07))
    # the multiplier x_scale * w_scale / y_scale, rounded to float32 in another order, at a tie
    for weight, ties in zip(both, (1, 4), strict=True):
        expected = quantized.linear(q, weight, torch.from_numpy(bias), scale, 121)
        assert differing(expected, functional.linear(mine, ours(weight), bias, scale, 121)) == 0
        assert differing(quantized.linear(q, weight), functional.linear(mine, ours(weight))) == ties


# refusals: True where PyTorch refuses too

REFUSED: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "max_pool2d, padding": (lambda f, q: f.max_pool2d(q, 2, 2, 2), True),
    "max_pool2d, rank": (lambda f, q: f.max_pool2d(q[0, 0], 2), True),
    "max_pool2d, indices": (lambda f, q: f.max_pool2d(q, 2, return_indices=True), True),
    "max_pool2d, kernel": (lambda f, q: f.max_pool2d(q, 99), True),
    "avg_pool2d, padding": (lambda f, q: f.avg_pool2d(q, 2, padding=2), True),
    "avg_pool2d, rank": (lambda f, q: f.avg_pool2d(q[0, 0], 2), True),
    "avg_pool2d, divisor": (lambda f, q: f.avg_pool2d(q, 2, divisor_override=0), False),
    "avg_pool3d, rank": (lambda f, q: f.avg_pool3d(q, 2), True),
    "adaptive_avg_pool2d, rank": (lambda f, q: f.adaptive_avg_pool2d(q[0, 0], 2), True),
    "interpolate, nothing": (lambda f, q: f.interpolate(q), True),
    "interpolate, both": (lambda f, q: f.interpolate(q, 2, 2), True),
    "interpolate, sizes": (lambda f, q: f.interpolate(q, (2, 2, 2)), True),
    "interpolate, empty": (lambda f, q: f.interpolate(q, None, 0.01), True),
    "interpolate, corners": (lambda f, q: f.interpolate(q, 2, align_corners=True), True),
    "interpolate, cubic": (lambda f, q: f.interpolate(q, 2, mode="bicubic"), True),
    "interpolate, rank 3": (lambda f, q: f.interpolate(q[0], 2), True),
    "interpolate, rank 3 bilinear": (lambda f, q: f.interpolate(q[0], 2, mode="bilinear"), True),
    "interpolate, volume": (lambda f, q: f.interpolate(q[:, :, None], 2, mode="trilinear"), True),
    # PyTorch has it, by adaptive_avg_pool2d, and documents nearest and bilinear
    "interpolate, area": (lambda f, q: f.interpolate(q, 2, mode="area"), False),
    "hardtanh, bounds": (lambda f, q: f.hardtanh(q, 1.0, -1.0), True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_means_nothing_is_refused(name: str) -> None:
    function, by_torch = REFUSED[name]
    q, mine = pair(torch.quint8, 2, 3, 17, 16)
    assert refused(lambda x: function(quantized, x), q) is by_torch
    assert refused(lambda x: function(functional, x), mine)


class Operands(NamedTuple):
    """uint8 and int8 activations, a weight and a bias, of PyTorch or of ours."""

    q: Any
    s: Any
    w: Any
    b: Any


CONVOLUTIONS: dict[str, tuple[Callable[[Any, Operands], Any], bool]] = {
    "activations": (lambda f, o: f.conv2d(o.s, o.w, o.b), True),
    "weights": (lambda f, o: f.conv2d(o.q, o.q, o.b), True),
    "padding_mode": (lambda f, o: f.conv2d(o.q, o.w, o.b, padding_mode="reflect"), True),
    "rank": (lambda f, o: f.conv2d(o.q[0], o.w, o.b), True),
    "bias": (lambda f, o: f.conv2d(o.q, o.w, o.b[:3]), True),
    "groups": (lambda f, o: f.conv2d(o.q, o.w, o.b, groups=2), True),
    "window": (lambda f, o: f.conv2d(o.q[:, :, :2, :2], o.w, o.b), True),
    "linear, activations": (lambda f, o: f.linear(o.s, o.w[:, 0, 0]), True),
    "linear, rank": (lambda f, o: f.linear(o.q[0, 0, 0], o.w[:, 0, 0]), True),
    "linear, bias": (lambda f, o: f.linear(o.q[..., :3], o.w[:, 0, 0], o.b[:2]), True),
    # PyTorch 2.13 with qnnpack reads beyond the weight, and takes an integer that is none
    "linear, features": (lambda f, o: f.linear(o.q[..., :4], o.w[:, 0, 0]), False),
    "zero point": (lambda f, o: f.conv2d(o.q, o.w, o.b, zero_point=300), False),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_layers_that_do_not_fit_are_refused(name: str) -> None:
    function, by_torch = CONVOLUTIONS[name]
    q, mine = pair(torch.quint8, 2, 3, 9, 8)
    s, mine_s = pair(torch.qint8, 2, 3, 9, 8)
    w, _, bias = weights(6, 3, 3, 3)
    b = torch.from_numpy(bias)
    assert refused(lambda x: function(quantized, Operands(x, s, w, b)), q) is by_torch
    assert refused(lambda x: function(functional, Operands(x, mine_s, ours(w), bias)), mine)


def test_operands_that_do_not_fit_are_refused_by_both() -> None:
    a, mine = pair(torch.quint8, 2, 3, 4)
    s, mine_s = pair(torch.qint8, 2, 3, 4)
    ops = torch.ops.quantized
    for op in ("add", "mul"):
        assert refused(lambda x, op=op: getattr(ops, op)(x, s, 0.5, 3), a)
        assert refused(lambda x, op=op: getattr(functional, op)(x, mine_s, 0.5, 3), mine)
    assert refused(lambda x: ops.cat([x, s], 1, 0.5, 3), a)
    assert refused(lambda x: functional.cat([x, mine_s], 1, 0.5, 3), mine)
    assert refused(lambda x: ops.cat([x, x[:, :1]], 0, 0.5, 3), a)
    assert refused(lambda x: functional.cat([x, x[:, :1]], 0, 0.5, 3), mine)


def test_torch_has_32_bits_where_the_kernels_have_8() -> None:
    q = theirs(reals(2, 3, 4, 4), 0.05, 0, torch.qint32)
    for name, arguments in [
        ("hardsigmoid", ()),
        ("avg_pool2d", (2,)),
        ("adaptive_avg_pool2d", (2,)),
    ]:
        theirs_too, mine_too = getattr(quantized, name), getattr(functional, name)
        assert not refused(lambda x, f=theirs_too, a=arguments: f(x, *a), q)
        assert refused(lambda x, f=mine_too, a=arguments: f(x, *a), ours(q))
