"""Quantized tensors against PyTorch's: shapes, qparams, dtypes, integers and refusals.

Where integers differ, they do by one LSB, and the count on fixed data is pinned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from onnxq import qtensor
from onnxq.qtensor import (
    _empty_affine_quantized,
    quantize_per_channel,
    quantize_per_tensor,
)
from tests.torch_oracle import QUIET, TYPES, differing, ours, reals, refused, theirs

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings(*QUIET)]


@pytest.fixture(autouse=True)
def _qnnpack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.quantized, "engine", "qnnpack")


X = reals(2, 3, 4)
SCALES, ZERO_POINTS = [0.1, 0.2, 0.3], [0, 1, 2]


def per_channel(x: np.ndarray[Any, np.dtype[np.float32]]) -> torch.Tensor:
    scales, zero_points = torch.tensor(SCALES), torch.tensor(ZERO_POINTS)
    return torch.quantize_per_channel(torch.from_numpy(x), scales, zero_points, 1, torch.qint8)


# quantize: torch computes rint(x * (1 / scale) + zero_point), ONNX rint(x / scale) + zero_point


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_random_numbers_quantize_to_the_same_integers(dtype: torch.dtype) -> None:
    x = reals(100_000)
    mine = quantize_per_tensor(x, 0.05, 7, str(dtype))
    assert differing(theirs(x, 0.05, 7, dtype), mine) == 0


@pytest.mark.parametrize(("zero_point", "ties"), [(0, 0), (4, 0), (7, 200)])
def test_ties_differ_where_the_zero_point_is_odd(zero_point: int, ties: int) -> None:
    x = np.asarray((np.arange(200) + 0.5 - zero_point) * 0.25, np.float32)
    mine = quantize_per_tensor(x, 0.25, zero_point, "quint8")
    assert differing(theirs(x, 0.25, zero_point, torch.quint8), mine) == ties


def test_channels_quantize_to_the_same_integers() -> None:
    x = reals(2, 3, 10_000)
    q, mine = per_channel(x), quantize_per_channel(x, SCALES, ZERO_POINTS, 1, "qint8")
    assert np.count_nonzero(q.int_repr().numpy() != mine.int_repr()) == 0
    assert mine.q_per_channel_scales().dtype == np.float64
    assert mine.q_per_channel_scales().tolist() == q.q_per_channel_scales().tolist()
    assert mine.q_per_channel_zero_points().dtype == np.int64
    assert mine.q_per_channel_zero_points().tolist() == q.q_per_channel_zero_points().tolist()
    assert mine.q_per_channel_axis() == q.q_per_channel_axis()
    assert str(q.qscheme()) == f"torch.{mine.qscheme().value}"
    assert np.array_equal(mine.dequantize(), q.dequantize().numpy())


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3), (40, 50), (2, 2, 2)])
def test_tensors_print_alike(shape: tuple[int, ...]) -> None:
    q = theirs(reals(*shape), 0.5, 3, torch.qint8)
    expected = repr(q).replace("torch.", "").replace("tensor(", "QTensor(", 1)
    assert repr(ours(q)).split() == expected.split()


# methods: called in the same words on both

SAME: dict[str, Callable[[Any], Any]] = {
    "view": lambda q: q.view(6, -1),
    "as_strided": lambda q: q.as_strided((2, 2), (4, 1), 3),
    "as_strided of a view": lambda q: q[1].as_strided((2, 2), (1, 4)),
    "expand": lambda q: q[:1].expand(5, -1, 4),
    "flatten": lambda q: q.flatten(1),
    "select": lambda q: q.select(1, -1),
    "indexing": lambda q: q[..., 1:, ::2],
    "mask": lambda q: q[q.int_repr() > 3],
    "transpose": lambda q: q.transpose(0, -1),
    "permute": lambda q: q.permute(2, 0, 1),
    "contiguous": lambda q: q.permute(2, 0, 1).contiguous(),
    "view behind contiguous": lambda q: q.transpose(0, 1).contiguous().view(-1),
    "clone": lambda q: q.transpose(0, 1).clone(),
    "copy_": lambda q: q.clone().copy_(q.flatten().view(2, 3, 4)),
    "resize_": lambda q: q.clone().resize_(4, 3),
    "resize_ of a view": lambda q: q.clone()[1].resize_(2, 2),
    "max": lambda q: q.max(),
    "min": lambda q: q.min(),
    "max along": lambda q: q.max(1)[0],
    "min along": lambda q: q.min(dim=-1, keepdim=True)[0],
    "sort": lambda q: q.sort()[0],
    "sort down": lambda q: q.sort(1, descending=True)[0],
    "topk": lambda q: q.topk(2)[0],
    "topk smallest": lambda q: q.topk(2, 1, largest=False)[0],
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", SAME)
def test_methods_give_the_same_tensors(name: str, dtype: torch.dtype) -> None:
    q = theirs(X, 0.05, 10, dtype)
    expected, got = SAME[name](q), SAME[name](ours(q))
    assert differing(expected, got) == 0
    if name != "mask":
        assert tuple(expected.stride()) == got.stride()


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "int_repr": lambda q: q.int_repr(),
    "dequantize": lambda q: q.dequantize(),
    "eq": lambda q: q.eq(q[:1]),
    "ne": lambda q: q.ne(q[:1]),
    "ge": lambda q: q.ge(0.5),
    "le": lambda q: q <= q[:1],
    "gt": lambda q: q > 0.1,
    "lt": lambda q: q.lt(q[:, :1]),
    "max indices": lambda q: q.max(1)[1],
    "min indices": lambda q: q.min(1)[1],
    "sort indices": lambda q: q.sort(1)[1],
    "argsort": lambda q: q.argsort(),
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ARRAYS)
def test_methods_give_the_same_arrays(name: str, dtype: torch.dtype) -> None:
    q = theirs(X, 0.05, 10, dtype)
    expected, got = ARRAYS[name](q).numpy(), ARRAYS[name](ours(q))
    assert expected.dtype == got.dtype
    assert np.array_equal(expected, got)


def test_arguments_of_extremes_are_those_of_the_real_values() -> None:
    """PyTorch 2.13 has lost argmin and argmax of quantized tensors; documented, they are here."""
    q = theirs(X, 0.05, 10, torch.quint8)
    real = q.dequantize()
    assert refused(q.argmax)
    assert np.array_equal(ours(q).argmax(1), real.argmax(1).numpy())
    assert np.array_equal(ours(q).argmin(), real.argmin().numpy())


def test_copies_between_tensors_take_the_qparams() -> None:
    a, b = theirs(X, 0.05, 10, torch.quint8), theirs(2 * X, 0.1, 3, torch.quint8)
    mine = ours(a).copy_(ours(b))
    assert differing(a.copy_(b), mine) == 0
    assert differing(a.copy_(torch.from_numpy(X)), mine.copy_(X)) == 0


def test_empty_tensors_are_the_same() -> None:
    q = torch._empty_affine_quantized([2, 3], scale=0.5, zero_point=32, dtype=torch.qint8)
    mine = _empty_affine_quantized([2, 3], scale=0.5, zero_point=32, dtype="qint8")
    assert (tuple(q.shape), q.q_scale(), q.q_zero_point()) == (mine.size(), 0.5, 32)


@pytest.mark.parametrize(
    ("dim", "zero_point", "count"),
    [(None, 7, 0), (1, 7, 2), ((0, 2), 7, 0), (-1, 7, 145), (-1, 8, 0)],
)
def test_means_differ_in_ties(
    dim: int | tuple[int, ...] | None, zero_point: int, count: int
) -> None:
    """Torch quantizes the mean of the real values: rint(mean * (1 / scale) + zero_point).

    So all exact ties are one LSB apart where the zero point is odd, and nothing else is.
    """
    q = theirs(reals(20, 30, 4), 0.25, zero_point, torch.quint8)
    mine = ours(q).mean(dim)
    expected = q.mean() if dim is None else q.mean(dim)
    assert differing(expected, mine) == count
    means = q.int_repr().numpy().mean(dim, dtype=np.float64)
    assert count == (0 if zero_point % 2 == 0 else np.count_nonzero(means % 1 == 0.5))


def test_mean_writes_to_out_where_torch_forgets_to() -> None:
    """PyTorch 2.13 returns another tensor, with the input's qparams, and leaves `out` as it was."""
    q = theirs(X, 0.05, 10, torch.quint8)
    out = theirs(np.zeros((2, 4), np.float32), 0.3, 7, torch.quint8)
    returned = torch.mean(q, dim=1, out=out)
    assert returned is not out
    assert (out.int_repr() == 7).all()
    mine = ours(out)
    assert ours(q).mean(1, out=mine) is mine
    assert mine.q_scale() == np.float32(0.3)


# refusals

REFUSED: dict[str, Callable[[Any], Any]] = {
    "view": lambda q: q.view(5, 5),
    "view of what is not in order": lambda q: q.transpose(0, 1).view(-1),
    "as_strided": lambda q: q.as_strided((100,), (1,)),
    "as_strided, strides": lambda q: q.as_strided((2, 2), (1,)),
    "expand": lambda q: q.expand(2, 5, 4),
    "flatten": lambda q: q.flatten(2, 1),
    "select": lambda q: q.select(0, 7),
    "select, dim": lambda q: q.select(4, 0),
    "step back": lambda q: q[::-1],
    "index": lambda q: q[7],
    "transpose": lambda q: q.transpose(0, 5),
    "permute": lambda q: q.permute(0, 1),
    "permute twice": lambda q: q.permute(0, 1, 1),
    "comparison": lambda q: q == q[:, :2],
    "bool": lambda q: bool(q),
    "item": lambda q: q.item(),
    "copy_, shape": lambda q: q.clone().copy_(q[:, :2]),
    "max of nothing": lambda q: q[:0].max(),
    "max, dim": lambda q: q.max(3),
    "topk": lambda q: q.topk(9),
    "sort, dim": lambda q: q.sort(3),
    "mean, dim": lambda q: q.mean(3),
    "channels": lambda q: q.q_per_channel_scales(),
    "channel zero points": lambda q: q.q_per_channel_zero_points(),
    "channel axis": lambda q: q.q_per_channel_axis(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_both_refuse(name: str) -> None:
    q = theirs(X, 0.05, 10, torch.quint8)
    assert refused(REFUSED[name], q)
    assert refused(REFUSED[name], ours(q))


@pytest.mark.parametrize(
    ("x", "scale", "zero_point"),
    [
        (X.astype(np.float64), 0.1, 0),
        (X.astype(np.float16), 0.1, 0),
        (X.astype(np.int32), 0.1, 0),
        (X, 0.1, 300),
        (X, 0.1, -1),
        (X, 0.1, 0.5),
    ],
)
def test_both_refuse_to_quantize(x: Any, scale: float, zero_point: float) -> None:
    tensor = torch.from_numpy(x)
    assert refused(torch.quantize_per_tensor, tensor, scale, zero_point, torch.quint8)
    assert refused(quantize_per_tensor, x, scale, zero_point, "quint8")


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan])
def test_torch_takes_scales_that_mean_nothing(scale: float) -> None:
    assert not refused(torch.quantize_per_tensor, torch.from_numpy(X), scale, 0, torch.quint8)
    assert refused(quantize_per_tensor, X, scale, 0, "quint8")


@pytest.mark.parametrize(
    ("scales", "zero_points", "axis"),
    [([0.1] * 2, [0] * 2, 1), ([0.1] * 3, [0] * 2, 1), ([0.1] * 4, [0] * 4, -1), ([0.1], [0], 3)],
)
def test_both_refuse_channels(scales: list[float], zero_points: list[int], axis: int) -> None:
    arguments = torch.tensor(scales), torch.tensor(zero_points), axis, torch.quint8
    assert refused(torch.quantize_per_channel, torch.from_numpy(X), *arguments)
    assert refused(quantize_per_channel, X, scales, zero_points, axis, "quint8")


PER_CHANNEL: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "as_strided": (lambda q: q.as_strided((2,), (1,)), True),
    "expand": (lambda q: q.expand(2, 2, 3, 4), True),
    "transpose": (lambda q: q.transpose(0, 1), True),
    "permute": (lambda q: q.permute(2, 0, 1), True),
    "picking": (lambda q: q[np.array([0, 1])], True),
    "max": (lambda q: q.max(), True),
    "min": (lambda q: q.min(), True),
    "mean": (lambda q: q.mean(), True),
    "sort": (lambda q: q.sort(), True),
    "argsort": (lambda q: q.argsort(), True),
    "topk": (lambda q: q.topk(2), True),
    "resize_": (lambda q: q.resize_(3), True),
    "q_scale": (lambda q: q.q_scale(), True),
    "q_zero_point": (lambda q: q.q_zero_point(), True),
    # documented for per-tensor only, and taken by PyTorch 2.13: view and flatten then name an axis
    # of channels that has another size
    "view": (lambda q: q.view(-1), False),
    "flatten": (lambda q: q.flatten(), False),
    "select": (lambda q: q.select(0, 0), False),
    "indexing": (lambda q: q[0], False),
}


@pytest.mark.parametrize("name", PER_CHANNEL)
def test_views_and_order_of_channels_are_refused_as_documented(name: str) -> None:
    operation, by_torch = PER_CHANNEL[name]
    assert refused(operation, per_channel(X)) is by_torch
    assert refused(operation, ours(per_channel(X)))


def test_a_view_of_channels_is_wrong_in_torch() -> None:
    y = per_channel(X).view(-1)
    assert (y.q_per_channel_axis(), y.dim()) == (1, 1)


def test_torch_repeats_what_is_copied() -> None:
    """PyTorch broadcasts a quantized source and refuses to broadcast a float one."""
    q = theirs(X, 0.05, 10, torch.quint8)
    assert not refused(q.clone().copy_, q[:1])
    assert refused(q.clone().copy_, torch.from_numpy(X[:1]))
    assert refused(ours(q).copy_, ours(q[:1]))


def test_types_are_not_mixed() -> None:
    a, b = theirs(X, 0.05, 10, torch.quint8), theirs(X, 0.05, 10, torch.qint8)
    for q, other in (
        (a, b),
        (a, per_channel(X)),
        (per_channel(X), b),
        (a, a.dequantize().double()),
    ):
        assert refused(q.clone().copy_, other)
        mine = ours(other) if other.is_quantized else other.numpy()
        assert refused(ours(q).copy_, mine)


def test_names_of_types_are_torchs() -> None:
    assert [str(t) for t in TYPES] == [f"torch.{n}" for n in ("quint8", "qint8", "qint32")]
    found = [qtensor.quint8, qtensor.qint8, qtensor.qint32]
    assert [quantize_per_tensor(X, 1.0, 0, t).dtype for t in TYPES] == found  # type: ignore[arg-type]  # the types themselves do
