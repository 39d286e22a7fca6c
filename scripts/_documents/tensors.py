"""Quantized tensors: onnxq.qtensor beside torch's quantized tensors, method by method."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq import functional as of
from onnxq import qtensor as ours
from onnxq.qtensor import QTensor
from scripts._documents.check import COVERAGE, DESIGN, Check, Difference
from scripts._documents.compare import (
    array_of,
    close,
    holds,
    same,
    same_array,
    same_integers,
    same_quantized,
)

TOPIC = "quantized tensors"
EMPTY = vars(ours)["_empty_affine_quantized"]  # documented with the underscore
TORCHS_EMPTY = vars(torch)["_empty_affine_quantized"]
DTYPES = {"quint8": (0.05, 120), "qint8": (0.07, -3), "qint32": (0.001, 0)}

# --- The same tensor twice: onnxq's, and torch's.


def floats(*shape: int) -> Tensor:
    """Normal numbers times 2, always the same ones; none lies on a tie."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(11)) * 2


def pair(dtype: str = "quint8", shape: tuple[int, ...] = (2, 3, 4)) -> tuple[Any, Tensor]:
    """Both quantized tensors of the same values."""
    scale, zero_point = DTYPES[dtype]
    x = floats(*shape)
    mine = ours.quantize_per_tensor(x.numpy(), scale, zero_point, getattr(ours, dtype))
    return mine, torch.quantize_per_tensor(x, scale, zero_point, getattr(torch, dtype))


def channels(dtype: str = "qint8", axis: int = 0) -> tuple[Any, Tensor]:
    """Both quantized tensors with a scale for each channel."""
    x = floats(3, 3, 4)
    scales, zero_points = torch.tensor([0.02, 0.05, 0.11]), torch.tensor([0, 3, -7])
    if dtype == "quint8":
        zero_points = zero_points + 128
    mine = ours.quantize_per_channel(
        x.numpy(), scales.numpy(), zero_points.numpy(), axis, getattr(ours, dtype)
    )
    torchs = torch.quantize_per_channel(x, scales, zero_points, axis, getattr(torch, dtype))
    return mine, torchs


# --- Calls that both take, and whose results are compared.

Call = Callable[[Any], Any]


def _words(scheme: Any) -> str:
    return str(getattr(scheme, "value", scheme)).removeprefix("torch.")


def _compared(q: Any) -> Any:
    """The tensor itself; of torch's its integers, for torch lost argmax of quantized tensors."""
    return q.int_repr() if isinstance(q, Tensor) else q


SAME_CALL: dict[str, Call] = {
    "view": lambda q: q.view(6, 4),
    "view, -1": lambda q: q.view(-1),
    "as_strided": lambda q: q.as_strided((3, 4), (1, 2), 1),
    "expand": lambda q: q.view(1, 2, 3, 4).expand(5, 2, 3, 4),
    "flatten": lambda q: q.flatten(),
    "flatten, start_dim": lambda q: q.flatten(1),
    "select": lambda q: q.select(1, 2),
    "select, negative": lambda q: q.select(-1, -2),
    "q[0]": lambda q: q[0],
    "q[:, 1:3]": lambda q: q[:, 1:3],
    "q[..., ::2]": lambda q: q[..., ::2],
    "q[None, 1]": lambda q: q[None, 1],
    "ne, a number": lambda q: q.ne(0.3),
    "eq, a number": lambda q: q.eq(0.0),
    "ge, a number": lambda q: q.ge(0.3),
    "le, a number": lambda q: q.le(0.3),
    "gt, a number": lambda q: q.gt(0.3),
    "lt, a number": lambda q: q.lt(0.3),
    "ne, a tensor": lambda q: q.ne(q[:1].expand(2, 3, 4)),
    "eq, a tensor": lambda q: q.eq(q[:1].expand(2, 3, 4)),
    "ge, a tensor": lambda q: q.ge(q[:1].expand(2, 3, 4)),
    "le, a tensor": lambda q: q.le(q[:1].expand(2, 3, 4)),
    "gt, a tensor": lambda q: q.gt(q[:1].expand(2, 3, 4)),
    "lt, a tensor": lambda q: q.lt(q[:1].expand(2, 3, 4)),
    "clone": lambda q: q.clone(),
    "dequantize": lambda q: q.dequantize(),
    "int_repr": lambda q: q.int_repr(),
    "max": lambda q: q.max(),
    "min": lambda q: q.min(),
    "mean": lambda q: q.mean(),
    "mean, dim": lambda q: q.mean(dim=2),
    "mean, dims and keepdim": lambda q: q.mean((1, 2), True),
    "q_scale": lambda q: q.q_scale(),
    "q_zero_point": lambda q: q.q_zero_point(),
    "qscheme": lambda q: _words(q.qscheme()),
    "resize_, smaller": lambda q: q.clone().resize_(2, 3),
    "sort, values": lambda q: q.sort()[0],
    "sort, dim, descending": lambda q: q.sort(1, True)[0],
    "topk, values": lambda q: q.topk(3)[0],
    "topk, smallest": lambda q: q.topk(2, 2, False)[0],
    "topk, indices": lambda q: q.flatten()[:7].topk(1)[1],
}
OF_DESIGN: dict[str, Call] = {
    "size()": lambda q: tuple(q.size()),
    "size(dim)": lambda q: q.size(1),
    "argmin": lambda q: _compared(q).argmin(),
    "argmax": lambda q: _compared(q).argmax(),
    "argmax, dim": lambda q: _compared(q).argmax(2),
    "argsort": lambda q: q.argsort(),
    "transpose": lambda q: q.transpose(0, 2),
    "permute": lambda q: q.permute(2, 0, 1),
    "contiguous": lambda q: q.permute(2, 0, 1).contiguous(),
    "torch.max(q)": lambda q: torch.max(q),
    "torch.min(q)": lambda q: torch.min(q),
    "torch.argmin(q)": lambda q: torch.argmin(_compared(q)),
    "torch.argmax(q)": lambda q: torch.argmax(_compared(q)),
    "torch.sort(q), values": lambda q: torch.sort(q)[0],
    "torch.argsort(q)": lambda q: torch.argsort(q),
    "torch.transpose(q, 0, 1)": lambda q: torch.transpose(q, 0, 1),
    "torch.mean(q)": lambda q: torch.mean(q),
    "torch.topk(q, 2), values": lambda q: torch.topk(q, 2)[0],
    "torch.flatten(q)": lambda q: torch.flatten(q),
    "torch.equal(q, q)": lambda q: torch.equal(q, q),
    "torch.dequantize(q)": lambda q: torch.dequantize(q),
}
ON_CHANNELS: dict[str, Call] = {
    "per channel: int_repr": lambda q: q.int_repr(),
    "per channel: dequantize": lambda q: q.dequantize(),
    "per channel: q_per_channel_axis": lambda q: q.q_per_channel_axis(),
    "per channel: q_per_channel_scales": lambda q: q.q_per_channel_scales(),
    "per channel: q_per_channel_zero_points": lambda q: q.q_per_channel_zero_points(),
    "per channel: clone": lambda q: q.clone(),
    "per channel: qscheme": lambda q: _words(q.qscheme()),
}


def answered(mine: Any, torchs: Any) -> None:
    """Two answers are equal: integers and qparams, or values bit for bit, or plain values."""
    if isinstance(torchs, Tensor) and torchs.is_quantized:
        holds(isinstance(mine, QTensor), f"a {type(mine).__name__} in place of a quantized tensor")
        same_quantized(mine, torchs)
    elif isinstance(torchs, Tensor):
        same_array(mine, torchs)
    elif isinstance(torchs, float):
        same(np.float32(mine), np.float32(torchs))  # onnxq's scales are float32
    else:
        same(str(mine) if isinstance(torchs, str) else mine, torchs)


def call(make: Callable[[], tuple[Any, Tensor]], asked: Call) -> None:
    """The call gives the same of both tensors."""
    mine, torchs = make()
    answered(asked(mine), asked(torchs))


def checks() -> Iterator[Check]:
    """All checks of quantized tensors."""
    for dtype, x in itertools.product(DTYPES, ("normal", "beyond the range")):
        if (dtype, x) == ("qint32", "beyond the range"):
            continue  # torch's qint32 wraps there
        ask = partial(quantized, dtype, 1.0 if x == "normal" else 1e12)
        yield Check(COVERAGE, TOPIC, f"quantize_per_tensor, {dtype}, {x}", ask)
    for dtype in DTYPES:
        ask = partial(call, partial(pair, dtype), SAME_CALL["dequantize"])
        yield Check(COVERAGE, TOPIC, f"dequantize, {dtype}", ask)
        yield Check(DESIGN, TOPIC, f"repr shows real values, {dtype}", partial(shown, dtype))
        same_call = partial(linear, dtype)
        yield Check(DESIGN, TOPIC, f"quantize_linear, {dtype}", same_call)
    for dtype, axis in itertools.product(("quint8", "qint8"), (0, 1)):
        ask = partial(both_channels, dtype, axis)
        yield Check(COVERAGE, TOPIC, f"quantize_per_channel, {dtype}, axis {axis}", ask)
    for document, calls in ((COVERAGE, SAME_CALL), (DESIGN, OF_DESIGN)):
        for name, asked in calls.items():
            yield Check(document, TOPIC, name, partial(call, pair, asked))
    for name, asked in ON_CHANNELS.items():
        yield Check(COVERAGE, TOPIC, name, partial(call, channels, asked))
    for name, (document, alone) in _ALONE.items():
        yield Check(document, TOPIC, name, alone)


# --- What is more than one call.


def quantized(dtype: str, factor: float) -> None:
    """The integers of quantize_per_tensor, saturated where values lie beyond the range."""
    scale, zero_point = DTYPES[dtype]
    x = floats(4, 5, 6) * factor
    mine = ours.quantize_per_tensor(x.numpy(), scale, zero_point, getattr(ours, dtype))
    same_quantized(mine, torch.quantize_per_tensor(x, scale, zero_point, getattr(torch, dtype)))


def linear(dtype: str) -> None:
    """quantize_linear(x, scale=..., zero_point=..., dtype=...), as the document calls it."""
    scale, zero_point = DTYPES[dtype]
    mine = ours.quantize_linear(
        floats(100).numpy(), scale=scale, zero_point=zero_point, dtype=getattr(ours, dtype)
    )
    wanted = torch.quantize_per_tensor(floats(100), scale, zero_point, getattr(torch, dtype))
    same_quantized(mine, wanted)


def shown(dtype: str) -> None:
    """The text has the dequantized values, as torch's."""
    mine, torchs = pair(dtype, (3,))
    shown, wanted = (repr(q).split("[")[1].split("]")[0] for q in (mine, torchs))
    close([float(x) for x in shown.split(",")], [float(x) for x in wanted.split(",")], 0.0, 1e-4)


def both_channels(dtype: str, axis: int) -> None:
    """Integers, scales, zero points and axis."""
    same_quantized(*channels(dtype, axis))


def of_torch_tensor() -> None:
    """quantize_per_tensor takes torch tensors, with torch's types."""
    mine = ours.quantize_per_tensor(floats(8), 0.05, 120, torch.quint8)  # type: ignore[arg-type]
    same_quantized(mine, torch.quantize_per_tensor(floats(8), 0.05, 120, torch.quint8))


def copied() -> None:
    """copy_ writes src's values into the tensor itself."""
    answers = []
    for target, source in zip(pair(), pair("quint8"), strict=True):
        other = target.clone()
        result = other.copy_(source[:1].expand(2, 3, 4))
        holds(result is other, "another tensor came back")
        answers.append(other)
    answered(*answers)


def cloned() -> None:
    """Clone is deep: what changes in the copy does not change the tensor."""
    mine, _ = pair()
    before = mine.int_repr().copy()
    mine.clone().copy_(mine[:1].expand(2, 3, 4).clone())
    same_integers(mine, before)


def are_equal() -> None:
    """Equal compares integers and qparams, and nothing less."""
    for tensors in (pair(), pair("qint8")):
        same(tensors[0].equal(tensors[0].clone()), tensors[1].equal(tensors[1].clone()))
    mine, _ = pair()
    x = floats(2, 3, 4).numpy()
    same(mine.equal(ours.quantize_per_tensor(x, 0.06, 120, ours.quint8)), False)
    other = mine.clone()
    other.copy_(mine[:1].expand(2, 3, 4))
    same(mine.equal(other), False)


def mean_out() -> None:
    """mean(out=...) writes into a tensor with qparams of its own: the nearest level of the mean."""
    mine, _ = pair()
    out = EMPTY([2, 3], scale=0.013, zero_point=100, dtype=ours.quint8)
    mine.mean(2, out=out)
    exact = mine.dequantize().astype(np.float64).mean(axis=2) / 0.013 + 100
    same_integers(out, np.clip(np.rint(exact), 0, 255).astype(np.int64))


def resized() -> None:
    """resize_ grows in place, and keeps what was there."""
    mine, torchs = pair()
    small, wanted = mine.clone(), torchs.clone()
    holds(small.resize_(2, 3, 5) is small, "another tensor came back")
    wanted.resize_(2, 3, 5)
    same(tuple(small.size()), tuple(wanted.size()))
    same_integers(small.int_repr().reshape(-1)[:24], wanted.int_repr().reshape(-1)[:24])


def written() -> None:
    """A saved quantized tensor takes a quarter of the float one, and is read as it was."""
    x = torch.rand(100, 100, generator=torch.Generator().manual_seed(1))
    mine = ours.quantize_linear(x.numpy(), scale=0.05, zero_point=0, dtype=ours.qint8)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("float.npy", "integers.npz")]
        np.save(paths[0], x.numpy())
        ours.save(mine, paths[1])
        sizes = [os.path.getsize(path) for path in paths]  # noqa: PTH202  # the document's call
        holds(sizes[1] < 0.3 * sizes[0], f"{sizes[1]} bytes of {sizes[0]}")
        holds(ours.load(paths[1]).equal(mine), "another tensor was read")


def empty() -> None:
    """_empty_affine_quantized has the qparams that were said."""
    mine = EMPTY([2, 2], scale=0.5, zero_point=32, dtype=ours.qint8)
    torchs = TORCHS_EMPTY([2, 2], scale=0.5, zero_point=32, dtype=torch.qint8)
    same((mine.q_scale(), mine.q_zero_point()), (torchs.q_scale(), torchs.q_zero_point()))
    same(tuple(mine.size()), tuple(torchs.size()))


def added(name: str) -> None:
    """torch.ops.quantized.add and cat with output qparams: the same integers."""
    a, torchs_a = pair()
    y = floats(2, 3, 4).flip(0) * 0.8
    b = ours.quantize_per_tensor(y.numpy(), 0.0431, 101, ours.quint8)
    torchs_b = torch.quantize_per_tensor(y, 0.0431, 101, torch.quint8)
    operation = getattr(torch.ops.quantized, name)
    if name == "cat":
        mine, torchs = (
            of.cat([a, b], 1, 0.0931, 113),
            operation([torchs_a, torchs_b], 1, 0.0931, 113),
        )
    else:
        mine, torchs = of.add(a, b, 0.0931, 113), operation(torchs_a, torchs_b, 0.0931, 113)
    same_quantized(mine, torchs)


def added_out() -> None:
    """add(a, b, out=c) writes into c, with c's qparams: the document's out-variant."""
    mine, _ = pair("qint8")
    out = EMPTY([2, 3, 4], scale=0.5, zero_point=32, dtype=ours.qint8)
    torch.add(mine, mine, out=out)
    exact = np.rint(2 * mine.dequantize().astype(np.float64) / 0.5) + 32
    same_integers(out, np.clip(exact, -128, 127).astype(np.int64))


def added_plainly() -> None:
    """torch.add(a, b) of quantized tensors gives a quantized tensor."""
    mine, _ = pair()
    result = torch.add(mine, mine)
    holds(isinstance(result, QTensor), f"a {type(result).__name__}")
    apart = np.abs(array_of(result) - 2 * mine.dequantize()).max()
    holds(apart <= result.q_scale() / 2 + 1e-6 or result.q_scale() == 1, f"{apart:.3g} apart")


def refused_view() -> None:
    """Views work where quantization is not per channel; else both raise."""
    for tensor in channels():
        try:
            tensor.as_strided((3, 4), (1, 2), 0)
        except Exception:  # torch's is a RuntimeError
            continue
        raise Difference(f"{type(tensor).__name__} gives a view")


def linear_map() -> None:
    """Min and max are mapped to the ends of the type, and zero without error."""
    for dtype, low, high in ((ours.quint8, 0, 255), (ours.qint8, -128, 127)):
        scale = np.float32(4 / 255)
        zero_point = round(low + 1 / scale)
        x = np.array([-zero_point * scale + low * scale, 0.0], np.float32)
        q = ours.quantize_per_tensor(x, float(scale), zero_point, dtype)
        same_integers(q, np.array([low, zero_point]))
        same(float(q.dequantize()[1]), 0.0)
        largest = np.array([(high - zero_point) * scale], np.float32)
        top = ours.quantize_per_tensor(largest, float(scale), zero_point, dtype)
        same_integers(top, np.array([high]))


_ALONE: dict[str, tuple[str, Callable[[], None]]] = {
    "quantize_per_tensor of a torch tensor": (COVERAGE, of_torch_tensor),
    "copy_ in place": (COVERAGE, copied),
    "clone is deep": (COVERAGE, cloned),
    "equal": (COVERAGE, are_equal),
    "mean, out": (COVERAGE, mean_out),
    "resize_, larger": (COVERAGE, resized),
    "per channel: as_strided is refused": (COVERAGE, refused_view),
    "serialization in a quarter": (DESIGN, written),
    "_empty_affine_quantized": (DESIGN, empty),
    "torch.ops.quantized.add": (DESIGN, partial(added, "add")),
    "torch.ops.quantized.cat": (DESIGN, partial(added, "cat")),
    "torch.add, out": (DESIGN, added_out),
    "torch.add without output qparams": (DESIGN, added_plainly),
    "min, max and zero are mapped without error": (COVERAGE, linear_map),
}
