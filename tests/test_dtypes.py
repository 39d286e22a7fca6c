from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxq import dtypes
from onnxq.dtypes import FLOAT16, INT8, INT32, UINT4, UINT8, QDType
from onnxq.errors import QConfigError, ShapeError

INTEGERS = [t for t in dtypes.all_qdtypes() if t.is_integer]


@pytest.mark.parametrize("t", INTEGERS, ids=str)
def test_range_is_that_of_the_type_of_that_name(t: QDType) -> None:
    native = np.dtype(t.name) if t.bits >= 8 else np.dtype(getattr(ml_dtypes, t.name))
    limits = ml_dtypes.iinfo(native)  # type: ignore[no-untyped-call]  # has no types
    assert (t.qmin, t.qmax) == (limits.min, limits.max)
    assert t.bits == limits.bits
    assert t.signed == (t.qmin < 0)


@pytest.mark.parametrize("t", dtypes.all_qdtypes(), ids=str)
def test_onnx_has_the_type(t: QDType) -> None:
    kind = getattr(onnx.TensorProto, t.onnx)
    assert onnx.helper.tensor_dtype_to_np_dtype(kind).name == t.name


@pytest.mark.parametrize("t", [t for t in INTEGERS if t != INT32], ids=str)
def test_min_opset_is_the_first_whose_quantize_linear_takes_the_type(t: QDType) -> None:
    versions = []
    for version in range(10, onnx.defs.onnx_opset_version() + 1):
        schema = onnx.defs.get_schema("QuantizeLinear", version)
        allowed = {s for c in schema.type_constraints for s in c.allowed_type_strs}
        if f"tensor({t.name})" in allowed:
            versions.append(version)
    assert versions[0] == t.min_opset


@pytest.mark.parametrize("t", dtypes.all_qdtypes(), ids=str)
def test_find_knows_every_name(t: QDType) -> None:
    assert dtypes.find(t.name) is t
    assert dtypes.find(t) is t
    assert str(t) == t.name
    assert pickle.loads(pickle.dumps(t)) == t
    assert hash(pickle.loads(pickle.dumps(t))) == hash(t)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("quint8", UINT8),
        ("qint8", INT8),
        ("qint32", INT32),
        ("torch.quint8", UINT8),
        ("torch.quint4x2", UINT4),
        ("torch.float16", FLOAT16),
        ("half", FLOAT16),
    ],
)
def test_torch_names_are_known(name: str, wanted: QDType) -> None:
    assert dtypes.find(name) is wanted


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(QConfigError, match=r"dtype 'unit8' is not known.*Did you mean 'uint8'\?"):
        dtypes.find("unit8")


def test_float16_is_storage() -> None:
    assert not FLOAT16.is_integer
    assert FLOAT16.storage == np.float16
    assert (FLOAT16.qmin, FLOAT16.qmax) == (-65504, 65504)


def test_a_registered_type_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtypes, "_table", dict(dtypes._table))
    uint6 = QDType("uint6", 6, False, np.dtype(np.uint8), "UINT8", 10)
    assert dtypes.register_qdtype(uint6) is uint6
    assert dtypes.register_qdtype(uint6) is uint6
    assert dtypes.find("uint6") is uint6
    assert (uint6.qmin, uint6.qmax) == (0, 63)


@pytest.mark.parametrize("name", ["uint8", "quint8"])
def test_names_are_taken_once(name: str) -> None:
    other = QDType(name, 7, False, np.dtype(np.uint8), "UINT8", 10)
    with pytest.raises(QConfigError, match="is registered already"):
        dtypes.register_qdtype(other)


@pytest.mark.parametrize(
    ("bits", "signed", "storage"),
    [(9, False, np.uint8), (8, True, np.uint8), (8, False, np.int8), (0, False, np.uint8)],
)
def test_storage_must_hold_the_integers(bits: int, signed: bool, storage: type) -> None:
    with pytest.raises(ShapeError, match="does not hold"):
        QDType("odd", bits, signed, np.dtype(storage), "UINT8", 10)


def test_integers_below_8_bits_are_stored_one_to_an_element() -> None:
    assert UINT4.storage == np.uint8
