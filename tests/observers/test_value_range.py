"""Scale and zero_point of the documented observers, bit for bit those of torch.ao.quantization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import onnxq.observers as ours
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import MinMaxObserver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.qparams import QParams

torch_observers = torch.ao.quantization

F32 = npt.NDArray[np.float32]
NAMES = [
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "PerChannelMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
]
INTEGERS: list[dict[str, Any]] = [
    {"dtype": "quint8"},
    {"dtype": "quint8", "reduce_range": True},
    {"dtype": "qint8"},
    {"dtype": "qint8", "reduce_range": True},
    {"dtype": "qint32"},
    {"dtype": "quint8", "quant_min": 0, "quant_max": 15},
    {"dtype": "qint8", "quant_min": -8, "quant_max": 7},
    {"dtype": "qint8", "quant_min": -127, "quant_max": 127, "reduce_range": True},
    {"dtype": "qint8", "eps": 1e-3},
]
CORNERS: dict[str, F32] = {
    "zeros": np.zeros((2, 3), np.float32),
    "tiny": np.full((2, 3), 1e-9, np.float32),
    "constant": np.full((2, 3), 5.0, np.float32),
    "negative constant": np.full((2, 3), -5.0, np.float32),
    "min above zero": np.asarray([[2.0, 3.0, 4.0]], np.float32),
    "max below zero": np.asarray([[-2.0, -3.0, -4.0]], np.float32),
    "one element": np.asarray([[0.3]], np.float32),
    "subnormal": np.asarray([[1e-42, -1e-42]], np.float32),
    "large": np.asarray([[1.6e38, -1.6e38]], np.float32),
}


@pytest.fixture(autouse=True)
def _torch_warnings() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.ao.quantization is deprecated", DeprecationWarning)
        warnings.filterwarnings("ignore", "Please use quant_min and quant_max", UserWarning)
        yield


def pair(name: str, scheme: str, integers: dict[str, Any], **extra: Any) -> tuple[Any, Any]:
    """(onnxq's observer, torch's) of the same arguments."""
    kind = "channel" if "PerChannel" in name else "tensor"
    arguments = {**integers, **extra, "qscheme": f"per_{kind}_{scheme}"}
    native = {
        **arguments,
        "dtype": getattr(torch, integers["dtype"]),
        "qscheme": getattr(torch, arguments["qscheme"]),
    }
    return getattr(ours, name)(**arguments), getattr(torch_observers, name)(**native)


def assert_equal_bits(own: QParams, reference: tuple[torch.Tensor, torch.Tensor]) -> None:
    scale, zero_point = (t.numpy() for t in reference)
    shape = own.scale.shape or (1,)
    np.testing.assert_array_equal(own.scale.reshape(shape).view(np.int32), scale.view(np.int32))
    np.testing.assert_array_equal(own.zero_point.reshape(shape), zero_point)


def torch_overflows(own: QParams, minimum: npt.ArrayLike) -> bool:
    """Whether torch's int32 rint(min / scale) wraps; the zero point is wrong (qint32 affine)."""
    return bool((np.abs(np.minimum(minimum, 0) / own.scale) >= 2.0**31).any())


def random_tensors(rng: np.random.Generator, count: int) -> list[F32]:
    channels = int(rng.integers(1, 5))
    kind = rng.integers(0, 4)
    tensors = []
    for _ in range(count):
        x = rng.normal(rng.normal(), 1, (int(rng.integers(1, 4)), channels, 3))
        x = x * 10.0 ** rng.integers(-6, 7)
        x = [x, np.abs(x), -np.abs(x), np.round(x)][kind]
        tensors.append(x.astype(np.float32))
    return tensors


@pytest.mark.oracle
@pytest.mark.parametrize("scheme", ["affine", "symmetric"])
@pytest.mark.parametrize("integers", INTEGERS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_equals_torch_over_random_batches(name: str, integers: dict[str, Any], scheme: str) -> None:
    if scheme == "symmetric" and integers["dtype"] == "quint8" and integers.get("reduce_range"):
        with pytest.raises(QConfigError):
            pair(name, scheme, integers)
        return
    rng = np.random.default_rng([NAMES.index(name), INTEGERS.index(integers), len(scheme)])
    extra: dict[str, Any] = {"ch_axis": 1} if "PerChannel" in name else {}
    compared = 0
    for _ in range(40):
        if "Moving" in name:
            extra["averaging_constant"] = float(rng.choice([0.01, 0.1, 0.5, 1.0]))
        own, reference = pair(name, scheme, integers, **extra)
        for index, x in enumerate(random_tensors(rng, int(rng.integers(1, 5)))):
            own.observe(x, index)
            reference(torch.from_numpy(x))
        qparams = own.calculate_qparams()
        if (
            reference.min_val > reference.max_val
        ).any():  # averages of one value, apart by rounding
            assert "Moving" in name
            with pytest.raises(AssertionError):
                reference.calculate_qparams()
            continue
        if scheme == "affine" and torch_overflows(qparams, reference.min_val.numpy()):
            assert integers["dtype"] == "qint32"
            continue
        compared += 1
        assert_equal_bits(qparams, reference.calculate_qparams())
    assert compared >= 20


@pytest.mark.oracle
@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("integers", INTEGERS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_equals_torch_in_corner_cases(name: str, integers: dict[str, Any], corner: str) -> None:
    for scheme in ("affine", "symmetric"):
        if scheme == "symmetric" and integers["dtype"] == "quint8" and integers.get("reduce_range"):
            continue
        own, reference = pair(name, scheme, integers)
        own.observe(CORNERS[corner], 0)
        reference(torch.from_numpy(CORNERS[corner]))
        qparams = own.calculate_qparams()
        if scheme == "affine" and torch_overflows(qparams, reference.min_val.numpy()):
            assert integers["dtype"] == "qint32"
            continue
        assert_equal_bits(qparams, reference.calculate_qparams())


def test_qint32_zero_point_saturates_where_torchs_wraps() -> None:
    observer = MinMaxObserver(dtype="qint32")
    observer.observe(np.asarray([-4e6], np.float32), 0)
    # rint(-4e6 / (4e6 / 2^32)) = -2^32; torch makes that -2^31, and the zero point 0
    assert observer.calculate_qparams().zero_point == 2**31 - 1


def test_range_that_overflows_float32_names_the_batch() -> None:
    observer = MinMaxObserver()
    observer.observe(np.asarray([3e38], np.float32), 0)
    with pytest.raises(CalibrationError, match=r"batch 4: values range from -3e\+38"):
        observer.observe(np.asarray([-3e38], np.float32), 4)
    symmetric = MinMaxObserver(dtype="qint8", qscheme="per_tensor_symmetric")
    symmetric.observe(np.asarray([3e38, -3e38], np.float32), 0)
    assert np.isfinite(symmetric.calculate_qparams().scale)


def test_overflow_that_only_the_merge_shows_is_an_error_too() -> None:
    low, high = MinMaxObserver(), MinMaxObserver()
    low.observe(np.asarray([-3e38], np.float32), 0)
    high.observe(np.asarray([3e38], np.float32), 1)
    with pytest.raises(CalibrationError, match="wider than float32"):
        low.merge(high).calculate_qparams()


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "bool", "bfloat16"])
def test_other_real_types_are_observed_as_float32(dtype: str) -> None:
    import ml_dtypes

    given = np.asarray([0, 1, 0, 1]).astype(getattr(ml_dtypes, dtype, None) or np.dtype(dtype))
    observer = MinMaxObserver()
    observer.observe(given, 0)
    assert [float(observer.min_val), float(observer.max_val)] == [0, 1]


def test_text_is_refused() -> None:
    with pytest.raises(CalibrationError, match="array of real numbers"):
        MinMaxObserver().observe(np.asarray(["a"]), 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"quant_min": 0}, "give both or none"),
        ({"quant_min": 3, "quant_max": 7}, "encloses 0"),
        ({"quant_min": 0, "quant_max": 256}, "inside uint8's 0..255"),
        ({"eps": 0.0}, "smallest scale"),
        ({"eps": 1e-50}, "smallest scale"),
        ({"qscheme": "per_channel_affine"}, "PerChannelMinMaxObserver"),
        ({"qscheme": "per_tensor_symmetric", "reduce_range": True}, "zero point 128"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        MinMaxObserver(**arguments)


def test_large_array_is_read_in_chunks_to_its_end() -> None:
    x = np.zeros(1_000_003, np.float32)
    x[-1], x[70_000] = 9.0, -4.0
    observer = MinMaxObserver()
    observer.observe(x, 0)
    assert [float(observer.min_val), float(observer.max_val)] == [-4, 9]
    strided = x.reshape(-1, 1)[::-1, 0]
    again = MinMaxObserver()
    again.observe(strided, 0)
    assert [float(again.min_val), float(again.max_val)] == [-4, 9]


def test_an_eps_of_any_size_is_refused_by_name() -> None:
    with pytest.raises(QConfigError, match=r"eps: got 1000.*at most 1"):
        MinMaxObserver(eps=10**40)  # a saved file may hold any number
