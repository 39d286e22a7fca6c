"""The numeric core against ONNX Runtime, bit for bit, and against exact arithmetic elsewhere."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from onnxq import affine
from onnxq.affine import dequantize, fake_quantize, integer_bounds, quantize, requantize
from onnxq.dtypes import INT8, INT32, UINT8, QDType
from onnxq.qparams import (
    Granularity,
    PerBlock,
    PerChannel,
    PerTensor,
    QParams,
    per_tensor,
)
from tests.random_qparams import CASES, GRANULARITIES, RUNS, SHAPE, make, random_qparams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FLOATS: list[type[np.float32 | np.float16]] = [np.float32, np.float16]
Array = npt.NDArray[Any]


def opset_of(dtype: QDType, granularity: Granularity, real: type) -> int:
    needs = 21 if isinstance(granularity, PerBlock) else 19 if real is np.float16 else 13
    return max(dtype.min_opset, needs)


def session(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, type],
    opset: int,
    initializers: Sequence[onnx.TensorProto] = (),
) -> Callable[..., Array]:
    """A function of the inputs that gives the value named `out`."""
    kinds = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), None)
        for n, t in inputs.items()
    ]
    out = helper.make_empty_tensor_value_info("out")
    graph = helper.make_graph(nodes, "test", kinds, [out], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10 if opset < 25 else 13
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    made = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda *arrays: np.asarray(made.run(None, dict(zip(inputs, arrays, strict=True)))[0])


@cache
def ort_linear(
    op_type: str, dtype: QDType, granularity: Granularity, real: type
) -> Callable[[Array, Array, Array], Array]:
    """ORT's QuantizeLinear or DequantizeLinear; integers below 8 bits are cast at the edges."""
    kind = getattr(TensorProto, dtype.onnx)
    storage = helper.np_dtype_to_tensor_dtype(dtype.storage)
    attributes: dict[str, Any] = {}
    if not isinstance(granularity, PerTensor):
        attributes["axis"] = granularity.axis
    if isinstance(granularity, PerBlock):
        attributes["block_size"] = granularity.size
    narrow = dtype.bits < 8
    is_q = op_type == "QuantizeLinear"
    x, zp, y = ("x", "zp4", "y4") if narrow else ("x", "zp", "out")
    cast = [helper.make_node("Cast", ["zp"], ["zp4"], to=kind)] if narrow else []
    if narrow and not is_q:
        cast += [helper.make_node("Cast", ["x"], ["x4"], to=kind)]
        x, y = "x4", "out"
    back = [helper.make_node("Cast", ["y4"], ["out"], to=storage)] if narrow and is_q else []
    scaled = [x, "scale"] if dtype == INT32 else [x, "scale", zp]
    node = helper.make_node(op_type, scaled, [y], **attributes)
    x_type = real if is_q else dtype.storage.type
    inputs = {"x": x_type, "scale": real, "zp": dtype.storage.type}
    if dtype == INT32:
        del inputs["zp"]
        run = session([node], inputs, 13)
        return lambda x, scale, _: run(x, scale)
    return session([*cast, node, *back], inputs, opset_of(dtype, granularity, real))


def nasty(rng: np.random.Generator, p: QParams, shape: Sequence[int], real: type) -> Array:
    """Values of which many are ties, near the ends of the range, or no finite numbers."""
    step = float(p.scale.flat[0])
    span = min(p.dtype.qmax - p.dtype.qmin, 2**17)
    x = np.asarray(rng.normal(0, span * step / 3, shape))
    ties = (rng.integers(-span - 2, span + 3, shape) + 0.5) * step
    x = np.where(rng.random(shape) < 0.4, ties, x)
    x = np.where(rng.random(shape) < 0.05, np.nextafter(np.float32(x), np.float32(0)), x)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 65504, -65504, 6e-8, 3e38, -3e38, 1e-45]
    x = np.where(rng.random(shape) < 0.1, rng.choice(special, shape), x)
    with np.errstate(over="ignore"):
        return x.astype(real)


@pytest.mark.parametrize("real", FLOATS, ids=lambda t: t.__name__)
@pytest.mark.parametrize("dtype", RUNS, ids=str)
@settings(max_examples=30, deadline=None)
@given(seed=CASES, granularity=st.sampled_from(GRANULARITIES))
def test_quantize_equals_onnx_runtime(
    dtype: QDType, real: type, seed: int, granularity: Granularity
) -> None:
    rng = np.random.default_rng(seed)
    p = random_qparams(rng, dtype, granularity, SHAPE)
    x = nasty(rng, p, SHAPE, real)
    wanted = ort_linear("QuantizeLinear", dtype, granularity, real)(
        x, p.scale.astype(real), p.zero_point
    )
    got = quantize(x, p)
    assert got.dtype == dtype.storage
    steps = steps_of(x, p)
    defined = np.abs(steps) < 2.0**30 if converts_to_int32(p, real) else np.full(SHAPE, True)
    np.testing.assert_array_equal(got[defined], wanted[defined])
    assert (got[steps >= 2.0**30] == dtype.qmax).all()
    assert (got[(steps <= -(2.0**30)) | np.isnan(steps)] == dtype.qmin).all()


def steps_of(x: Array, p: QParams) -> Array:
    """x / scale in float32."""
    ones = np.ones(x.shape, np.float32)
    unscaled = QParams(p.scale, np.zeros_like(p.zero_point), p.dtype, p.granularity)
    scale = dequantize(ones.astype(p.dtype.storage), unscaled)
    with np.errstate(all="ignore"):
        return np.asarray(x.astype(np.float32) / scale)


def converts_to_int32(p: QParams, real: type) -> bool:
    """Whether ORT's kernel converts x / scale to int32 before it clamps.

    C++ leaves that undefined beyond 2^31 and for NaN: x86 gives -2^31, so that +Inf becomes code 0;
    ARM saturates. onnxq saturates, as the ONNX text and all other kernels of ORT do.
    """
    granularity = p.granularity
    inner = isinstance(granularity, PerBlock) and granularity.axis not in (-1, len(SHAPE) - 1)
    # below 8 bits: the integers at both ends of a channel that share a byte with the next channel's
    return real is np.float16 or p.dtype.bits < 8 or inner


@pytest.mark.parametrize("real", FLOATS, ids=lambda t: t.__name__)
@pytest.mark.parametrize("dtype", [*RUNS, INT32], ids=str)
@settings(max_examples=20, deadline=None)
@given(seed=CASES, granularity=st.sampled_from(GRANULARITIES))
def test_dequantize_equals_onnx_runtime(
    dtype: QDType, real: type, seed: int, granularity: Granularity
) -> None:
    if dtype == INT32 and (real is np.float16 or isinstance(granularity, PerBlock)):
        return  # no kernel in opset 13, and later ones only repeat it
    rng = np.random.default_rng(seed)
    p = random_qparams(rng, dtype, granularity, SHAPE)
    if dtype == INT32:
        p = QParams(p.scale, np.zeros_like(p.zero_point), dtype, granularity)
    q = rng.integers(dtype.qmin, dtype.qmax + 1, SHAPE).astype(dtype.storage)
    q.flat[:2] = dtype.qmin, dtype.qmax
    wanted = ort_linear("DequantizeLinear", dtype, granularity, real)(
        q, p.scale.astype(real), p.zero_point
    )
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(dequantize(q, p).astype(real), wanted)


@pytest.mark.parametrize("dtype", RUNS, ids=str)
def test_every_tie_of_every_zero_point_equals_onnx_runtime(dtype: QDType) -> None:
    span = min(dtype.qmax - dtype.qmin, 300)
    x = (np.arange(-2 * span - 4, 2 * span + 5) / 2).astype(np.float32)
    run = ort_linear("QuantizeLinear", dtype, PerTensor(), np.float32)
    count = min(dtype.qmax - dtype.qmin + 1, 256)
    for zero_point in np.linspace(dtype.qmin, dtype.qmax, count).astype(int):
        p = per_tensor(1.0, int(zero_point), dtype)
        np.testing.assert_array_equal(quantize(x, p), run(x, p.scale, p.zero_point))


@pytest.mark.parametrize("shape", [(0,), (0, 8, 5), (6, 8, 0), ()])
def test_empty_tensors_and_scalars_keep_their_shape(shape: tuple[int, ...]) -> None:
    p = per_tensor(0.1, 3, UINT8)
    q = quantize(np.ones(shape, np.float32), p)
    assert q.shape == dequantize(q, p).shape == shape
    assert isinstance(q, np.ndarray)
    run = ort_linear("QuantizeLinear", UINT8, PerTensor(), np.float32)
    np.testing.assert_array_equal(q, run(np.ones(shape, np.float32), p.scale, p.zero_point))
    assert requantize(np.ones(shape, np.int32), np.float32(1), p).shape == shape


def test_no_channels_and_no_blocks() -> None:
    none = np.zeros(0)
    q = quantize(np.zeros((3, 0), np.float32), make(none, none, INT8, PerChannel(1)))
    assert q.shape == (3, 0)
    blocks = make(np.zeros((0, 2)), np.zeros((0, 2)), INT8, PerBlock(1, 4))
    assert dequantize(quantize(np.zeros((0, 7), np.float32), blocks), blocks).shape == (0, 7)


def test_rounding_happens_before_the_zero_point_is_added() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5], np.float32)
    assert quantize(x, per_tensor(1, 1, UINT8)).tolist() == [1, 3, 3, 1]


@settings(max_examples=200, deadline=None)
@given(seed=CASES)
def test_int32_is_computed_in_float64_and_saturates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = np.float32(10.0 ** rng.uniform(-9, 1))
    zero_point = int(rng.choice([INT32.qmin, INT32.qmax, 0, int(rng.integers(-(2**31), 2**31))]))
    x = rng.normal(0, 1, 50).astype(np.float32) * np.float32(10.0 ** rng.uniform(-3, 3))
    x = np.append(x, np.array([np.inf, -np.inf, 3e38, -3e38, np.nan], np.float32))
    got = quantize(x, per_tensor(scale, zero_point, INT32))
    assert got.dtype == np.int32
    for value, code in zip(x.tolist()[:-1], got.tolist(), strict=False):
        exact = zero_point + round(value / float(scale)) if np.isfinite(value) else value
        assert code == max(INT32.qmin, min(INT32.qmax, exact))
    assert got[-1] == INT32.qmin


def test_dequantizing_int32_does_not_wrap() -> None:
    p = per_tensor(1.0, INT32.qmax, INT32)
    assert dequantize(np.array([INT32.qmin], np.int32), p) == np.float32(-(2**32))


# requantize: two small models of ONNX Runtime that do nothing but sum products and requantize


@cache
def ort_qlinear_matmul(x: QDType, w: QDType) -> Callable[..., Array]:
    names = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    inputs = {
        n: np.float32 if n.endswith("s") else (x if n in "az yz" else w).storage.type for n in names
    }
    return session([helper.make_node("QLinearMatMul", names, ["out"])], inputs, 21)


@cache
def ort_qlinear_conv(x: QDType, w: QDType) -> Callable[..., Array]:
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "bias"]
    kinds = {"x": x, "xz": x, "w": w, "wz": w, "yz": x, "bias": INT32}
    inputs = {n: kinds[n].storage.type if n in kinds else np.float32 for n in names}
    return session([helper.make_node("QLinearConv", names, ["out"])], inputs, 13)


PAIRS = [(UINT8, INT8), (UINT8, UINT8), (INT8, INT8)]


def integers(rng: np.random.Generator, dtype: QDType, shape: Sequence[int], limit: int) -> Array:
    """Integers; int8 weights within +-limit, so that no instruction set saturates or wraps."""
    low, high = (dtype.qmin, dtype.qmax) if dtype == UINT8 else (-limit, limit)
    return rng.integers(low, high + 1, shape).astype(dtype.storage)


@pytest.mark.parametrize(("x", "w"), PAIRS, ids=str)
@settings(max_examples=40, deadline=None)
@given(seed=CASES)
def test_requantize_equals_qlinear_matmul(x: QDType, w: QDType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, depth, columns = rng.integers(1, 20, 3)
    a, b = integers(rng, x, (rows, depth), 127), integers(rng, w, (depth, columns), 64)
    per_column = rng.random() < 0.5
    bs = np.asarray(2.0 ** rng.integers(-8, 0, columns if per_column else ()), np.float32)
    bz = np.zeros(bs.shape, w.storage)
    xs = np.float32(rng.choice([0.5, 0.02, rng.uniform(0.001, 1)]))
    ys = np.float32(rng.choice([0.5, 8.0, 100.0, rng.uniform(0.01, 10)]))
    az, yz = (np.asarray(rng.integers(x.qmin, x.qmax + 1), x.storage) for _ in range(2))
    acc = (a.astype(np.int32) - az.astype(np.int32)) @ b.astype(np.int32)
    multiplier = np.asarray((xs * bs) / ys, np.float32)
    got = requantize(acc, multiplier, per_tensor(ys, int(yz), x))
    wanted = ort_qlinear_matmul(x, w)(a, np.asarray(xs), az, b, bs, bz, np.asarray(ys), yz)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("x", "w"), PAIRS, ids=str)
@settings(max_examples=40, deadline=None)
@given(seed=CASES)
def test_requantize_equals_qlinear_conv_beyond_24_bits_and_at_ties(
    x: QDType, w: QDType, seed: int
) -> None:
    """A 1x1 convolution of one integer by one weight of 1, so that the bias is the accumulator."""
    rng = np.random.default_rng(seed)
    channels = int(rng.integers(1, 40))
    image = integers(rng, x, (1, 1, 3, 5), 127)
    weight = np.ones((channels, 1, 1, 1), w.storage)
    bias = rng.integers(-(2**31) + 999, 2**31 - 999, channels)
    bias >>= rng.integers(0, 32, channels)  # all magnitudes
    ws = np.asarray(2.0 ** rng.integers(-20, 1, channels), np.float32)
    xs, ys = np.float32(rng.uniform(0.001, 1)), np.float32(1.0)
    if rng.random() < 0.5:
        xs = np.float32(0.5)  # with powers of two: many exact ties
    xz, yz = (np.asarray(rng.integers(x.qmin, x.qmax + 1), x.storage) for _ in range(2))
    acc = image.astype(np.int32) - xz.astype(np.int32) + bias.astype(np.int32)[:, None, None]
    multiplier = np.asarray((xs * ws) / ys, np.float32)[:, None, None]
    got = requantize(acc, multiplier, per_tensor(ys, int(yz), x))
    wz = np.zeros(channels, w.storage)
    wanted = ort_qlinear_conv(x, w)(
        image, np.asarray(xs), xz, weight, ws, wz, np.asarray(ys), yz, bias.astype(np.int32)
    )
    np.testing.assert_array_equal(got, wanted)


@given(seed=CASES, dtype=st.sampled_from([*RUNS, INT32]))
@settings(max_examples=100, deadline=None)
def test_requantize_is_exact_where_the_multiplier_is_a_power_of_two(
    seed: int, dtype: QDType
) -> None:
    rng = np.random.default_rng(seed)
    acc = rng.integers(-(2**24), 2**24, 100).astype(np.int32)
    shift, zero_point = int(rng.integers(0, 24)), int(rng.integers(dtype.qmin, dtype.qmax + 1))
    got = requantize(acc, np.float32(2.0**-shift), per_tensor(1, zero_point, dtype))
    for a, code in zip(acc.tolist(), got.tolist(), strict=True):
        exact = round(a / 2**shift) + zero_point  # Python rounds halves to even
        assert code == max(dtype.qmin, min(dtype.qmax, exact))


# properties


@given(
    seed=CASES, dtype=st.sampled_from([*RUNS, INT32]), granularity=st.sampled_from(GRANULARITIES)
)
@settings(max_examples=100, deadline=None)
def test_integers_survive_a_round_trip(seed: int, dtype: QDType, granularity: Granularity) -> None:
    rng = np.random.default_rng(seed)
    p = random_qparams(rng, dtype, granularity, SHAPE)
    if dtype == INT32:  # float32 holds 24 bits
        p = QParams(p.scale, np.zeros_like(p.zero_point), dtype, granularity)
    low, high = max(dtype.qmin, -(2**22)), min(dtype.qmax, 2**22)
    q = rng.integers(low, high + 1, SHAPE).astype(dtype.storage)
    np.testing.assert_array_equal(quantize(dequantize(q, p), p), q)


@given(seed=CASES, dtype=st.sampled_from(RUNS))
@settings(max_examples=100, deadline=None)
def test_values_inside_the_range_move_by_half_a_step_at_most(seed: int, dtype: QDType) -> None:
    rng = np.random.default_rng(seed)
    p = random_qparams(rng, dtype, PerTensor(), ())
    low, high = (float(dequantize(np.array([c]), p)[0]) for c in (dtype.qmin, dtype.qmax))
    x = np.clip(rng.uniform(low, high, 200), low, high).astype(np.float32)
    # 2^17 integers of 24 bits each: rounding x / scale and the product costs 2^-6 steps at most
    assert np.abs(fake_quantize(x, p) - x).max() <= (0.5 + 2**-6) * p.scale


@given(seed=CASES, dtype=st.sampled_from([*RUNS, INT32]))
@settings(max_examples=50, deadline=None)
def test_quantize_is_monotonic(seed: int, dtype: QDType) -> None:
    rng = np.random.default_rng(seed)
    p = random_qparams(rng, dtype, PerTensor(), ())
    x = np.sort(np.nan_to_num(nasty(rng, p, (300,), np.float32)))
    assert (np.diff(quantize(x, p).astype(np.int64)) >= 0).all()


@pytest.mark.parametrize("granularity", [*GRANULARITIES, PerBlock(2, 2), PerChannel(2)], ids=str)
@pytest.mark.parametrize("chunk", [1, 7, 13, 40, 100, 240])
def test_chunks_do_not_change_the_result(
    granularity: Granularity, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(chunk)
    p = random_qparams(rng, INT8, granularity, SHAPE)
    x = nasty(rng, p, SHAPE, np.float32)
    whole = quantize(x, p)
    wanted = dequantize(whole, p)
    monkeypatch.setattr(affine, "_CHUNK", chunk)
    np.testing.assert_array_equal(quantize(x, p), whole)
    np.testing.assert_array_equal(dequantize(whole, p), wanted)
    turned = np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0)
    np.testing.assert_array_equal(quantize(turned, p), whole)


@pytest.mark.parametrize("shape", [(5000, 300), (1, 1_500_000), (3, 2, 250_000), (1_500_000,)])
def test_temporaries_stay_small(shape: tuple[int, ...]) -> None:
    import tracemalloc

    x = np.ones(shape, np.float32)
    for p in (
        per_tensor(0.1, 3, UINT8),
        make(np.ones(shape[0]), np.zeros(shape[0]), INT8, PerChannel(0)),
    ):
        tracemalloc.start()
        try:
            q = quantize(x, p)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # beside the integers: a few chunks of float32, and the scales
        scales = 16 * p.scale.size
        assert peak < q.nbytes + 6 * 4 * affine._CHUNK + scales


def test_inputs_are_not_changed_and_other_floats_are_taken() -> None:
    x = np.linspace(-2, 2, 9)
    p = per_tensor(0.25, 0, INT8)
    wanted = quantize(x.astype(np.float32), p)
    others: list[Array] = [x, x.astype(np.float16), x.astype(ml_dtypes.bfloat16)]
    for other in others:
        before = other.copy()
        np.testing.assert_array_equal(quantize(other, p), wanted)
        np.testing.assert_array_equal(other, before)


def test_bounds_of_integers_are_those_of_the_clamp_within_the_type() -> None:
    assert integer_bounds((0.0, 6.0), per_tensor(0.5, 3, UINT8)) == (3, 15)
    assert integer_bounds((-np.inf, 2.0), per_tensor(0.5, 3, INT8)) == (-128, 7)
    assert integer_bounds((-np.inf, np.inf), per_tensor(0.5, 3, UINT8)) == (0, 255)
