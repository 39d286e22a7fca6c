"""Tensors: a type that is known, sizes that are none below zero, and as much data as both want."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.dtypes import BYTE_BITS
from onnxq.graph.untrusted.problem import DAMAGED, Problem
from onnxq.graph.untrusted.scopes import all_tensors, scopes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx
    from google.protobuf.internal.containers import RepeatedScalarFieldContainer

_T = ir.DataType
_FIELDS = {
    "int32_data": None,  # every other type
    "int64_data": (_T.INT64,),
    "uint64_data": (_T.UINT64, _T.UINT32),
    "float_data": (_T.FLOAT, _T.COMPLEX64),
    "double_data": (_T.DOUBLE, _T.COMPLEX128),
}
"""Field of a TensorProto -> types whose numbers it holds, in the order in which onnx_ir asks."""
_PARTS = {_T.COMPLEX64: 2, _T.COMPLEX128: 2}
"""Type -> numbers of an element."""
_FLOAT6 = (_T.FLOAT6E2M3, _T.FLOAT6E3M2)  # unpacked where they are not raw


def check_tensors(model: ir.Model) -> Iterator[Problem]:
    """Finds a constant whose data do not fit its type and sizes; data themselves are not read."""
    for name, tensor in all_tensors(model):
        problem = _of_tensor(name, tensor)
        if problem is not None:
            yield problem


def check_initializers_have_data(model: ir.Model) -> Iterator[Problem]:
    """Finds an initializer without a tensor: only code can make one."""
    for scope in scopes(model):
        if not isinstance(scope.graph, ir.Graph):
            continue
        for name, value in scope.graph.initializers.items():
            if value.const_value is None:
                yield Problem(f"initializer '{name}' has no tensor", "Set its const_value.")


def _of_tensor(name: str, tensor: ir.TensorProtocol) -> Problem | None:
    if tensor.dtype == ir.DataType.UNDEFINED:
        return Problem(f"tensor '{name}' has no type")
    shape = tuple(tensor.shape.numpy())
    if any(n < 0 for n in shape):
        return Problem(f"tensor '{name}' has a size below zero: {shape}")
    if isinstance(tensor, ir.StringTensor):
        what = f"tensor '{name}' of type STRING and shape {shape}"
        if not all(map(_is_text, np.asarray(tensor.raw, object).reshape(-1))):
            return Problem(f"{what} has a text that is no UTF-8")
        return _count(what, "texts", np.size(tensor.raw), tensor.size)
    if not isinstance(tensor, ir.TensorProtoTensor):
        return None
    return _of_proto(name, tensor.raw, tensor.dtype, tensor.size)


def _of_proto(name: str, proto: onnx.TensorProto, dtype: ir.DataType, size: int) -> Problem | None:
    what = f"tensor '{name}' of type {dtype.name} and shape {tuple(proto.dims)}"
    if dtype == ir.DataType.STRING:
        return _count(what, "texts in string_data", len(proto.string_data), size)
    if proto.HasField("raw_data"):
        return _count(what, "bytes", len(proto.raw_data), -(-size * dtype.bitwidth // BYTE_BITS))
    own = next((f for f, types in _FIELDS.items() if types and dtype in types), "int32_data")
    for field in _FIELDS:
        held: RepeatedScalarFieldContainer[int] = getattr(proto, field)
        if field != own and len(held):  # onnx and onnx_ir read other fields first
            return Problem(f"{what} has numbers in {field}, where its type has none", DAMAGED)
    packed = 1
    if dtype.bitwidth < BYTE_BITS and dtype not in _FLOAT6:
        packed = BYTE_BITS // dtype.bitwidth
    wanted = -(-size * _PARTS.get(dtype, 1) // packed)
    return _count(what, f"numbers in {own}", len(getattr(proto, own)), wanted)


def _is_text(text: object) -> bool:
    try:
        return not isinstance(text, bytes) or bool(text.decode()) or not text
    except UnicodeDecodeError:
        return False


def _count(what: str, unit: str, got: int, wanted: int) -> Problem | None:
    return None if got == wanted else Problem(f"{what} has {got} {unit}; it wants {wanted}")
