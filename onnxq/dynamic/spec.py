"""Requests for dynamic quantization: the documented forms of `qconfig_spec`."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import numpy as np
import onnx_ir as ir

from onnxq import catalog, dtypes
from onnxq.dtypes import FLOAT16, INT8, QDType
from onnxq.errors import QConfigError, kind_of, nearest
from onnxq.graph.walk import tensor_names, walk
from onnxq.qconfig import (
    QConfig,
    QConfigDynamic,
    QConfigMapping,
    float16_dynamic_qconfig,
    onnxq_default_dynamic_qconfig,
)
from onnxq.qconfig.names import absent_op_types

DynamicSpec = (
    QConfigMapping | AbstractSet[str] | Mapping[str, QConfigDynamic | None] | QConfigDynamic | None
)
"""None: every operator with a dynamic form; a set of op types; {op type, node name or glob: entry};
one entry for every operator; or a mapping, which says everything."""

_BY_DTYPE: dict[QDType, QConfigDynamic] = {
    INT8: onnxq_default_dynamic_qconfig,
    FLOAT16: float16_dynamic_qconfig,
}


def as_dtype(value: object) -> QDType:
    """The type that a QDType, a name, or a dtype of NumPy's or PyTorch's stands for."""
    if isinstance(value, type) and issubclass(value, np.generic):
        value = np.dtype(value).name
    named = isinstance(value, QDType | str | np.dtype) or str(value).startswith("torch.")
    if not named:
        raise QConfigError(
            f"dtype {value!r}: wanted 'qint8' or 'float16', or such a dtype of NumPy or PyTorch."
        )
    found = value if isinstance(value, QDType) else _named(str(value))
    if found not in _BY_DTYPE:
        raise QConfigError(
            f"dtype {found}: wanted qint8 or float16. Weights of other types are named in a "
            "QConfigDynamic: QConfigDynamic(NarrowRangeObserver.with_args(dtype='int4', "
            "quant_max=7), precision='weight_only_groupwise')."
        )
    return found


def _named(name: str) -> QDType:
    try:
        return dtypes.find(name)
    except QConfigError as error:
        known = [dtype.name for dtype in _BY_DTYPE]
        raise QConfigError(
            f"dtype '{name}' is not known; wanted qint8 or float16.{nearest(name, known)}"
        ) from error


def entry_for(dtype: object) -> QConfigDynamic:
    """The entry for weights of that type: qint8 or float16, under any of their names."""
    return _BY_DTYPE[as_dtype(dtype)]


def mapping_of(spec: DynamicSpec, dtype: QDType | str | None = None) -> QConfigMapping:
    """The mapping that a spec stands for."""
    entry = entry_for(INT8 if dtype is None else dtype)
    if spec is None:
        return QConfigMapping(entry)
    if isinstance(spec, QConfigDynamic):
        return QConfigMapping(spec)
    if isinstance(spec, QConfigMapping):
        return _dynamic_only(spec)
    if isinstance(spec, Mapping):
        return _dynamic_only(_of_entries(spec))
    if isinstance(spec, AbstractSet | list | tuple):
        for name in spec:
            _check_op_type(name)
        return QConfigMapping(None, dict.fromkeys(sorted(spec), entry))
    raise QConfigError(
        f"qconfig_spec is {kind_of(spec)} ({spec!r}); wanted None, a set of op types such "
        "as {'MatMul', 'LSTM'}, a dict {op type or node name: QConfigDynamic}, or a QConfigMapping."
    )


def check_names(model: ir.Model, mapping: QConfigMapping) -> list[str]:
    """Compares every name of the mapping with those of a canonical model.

    Returns:
        A note on op types that the model does not have: one file may serve several models.
    """
    nodes = [node for node, _ in walk(model.graph)]
    mapping.check(
        {node.op_type for node in nodes},
        {node.name for node in nodes if node.name},
        tensor_names(model),
    )
    return absent_op_types(nodes, mapping.op_types)


def dynamic_op_types() -> list[str]:
    """Op types that have a dynamic form, sorted."""
    return sorted({op.op_type for op in catalog.all_operators() if op.has_dynamic_rule()})


def _of_entries(spec: Mapping[str, QConfigDynamic | None]) -> QConfigMapping:
    """A key that is an op type names these; any other names nodes."""
    known = {operator.op_type for operator in catalog.all_operators()}
    op_types: dict[str, QConfigDynamic | None] = {}
    nodes: dict[str, QConfigDynamic | None] = {}
    for name, entry in spec.items():
        _check_text(name)
        if name in known:
            _check_op_type(name)
            op_types[name] = entry
            continue
        nodes[name] = entry
    return QConfigMapping(None, op_types, nodes)


def _dynamic_only(mapping: QConfigMapping) -> QConfigMapping:
    entries = {"global": mapping.global_qconfig}
    entries |= {f"op type '{name}'": entry for name, entry in mapping.op_types.items()}
    entries |= {f"node '{name}'": entry for name, entry in mapping.nodes.items()}
    for where, entry in entries.items():
        if isinstance(entry, QConfig):
            raise QConfigError(
                f"qconfig: {where} has a static QConfig, which needs samples. Give it a "
                "QConfigDynamic or None, or call onnxq.quantize with samples, which does both."
            )
    for name, entry in mapping.op_types.items():
        if entry is not None:
            _check_op_type(name)
    return mapping


def _check_op_type(name: object) -> None:
    text = _check_text(name)
    known = dynamic_op_types()
    if text not in known:
        raise QConfigError(
            f"qconfig: '{text}' is no op type with a dynamic form; these are "
            f"{', '.join(known)}.{nearest(text, known)}"
        )


def _check_text(name: object) -> str:
    if isinstance(name, str):
        return name
    shown = getattr(name, "__name__", repr(name))
    raise QConfigError(
        f"qconfig_spec: got {shown}, which is no name; wanted ONNX op types, such as 'MatMul', or "
        "names of nodes. For PyTorch modules and their types use onnxq.pytorch.quantize_dynamic."
    )
