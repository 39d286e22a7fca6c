from __future__ import annotations

import numpy as np
import pytest

from onnxq.dynamic.spec import dynamic_op_types, entry_for, mapping_of
from onnxq.errors import QConfigError
from onnxq.qconfig import (
    QConfigMapping,
    default_qconfig_mapping,
    float16_dynamic_qconfig,
    onnxq_default_dynamic_qconfig,
    per_channel_dynamic_qconfig,
)
from tests.dynamic_models import linear, planned

ENTRY = onnxq_default_dynamic_qconfig


def test_none_is_every_operator() -> None:
    assert mapping_of(None) == QConfigMapping(ENTRY)
    assert mapping_of(None, "float16") == QConfigMapping(float16_dynamic_qconfig)


def test_one_entry_is_for_every_operator() -> None:
    assert mapping_of(per_channel_dynamic_qconfig) == QConfigMapping(per_channel_dynamic_qconfig)


def test_a_set_names_op_types_and_the_rest_stays_float() -> None:
    assert mapping_of({"MatMul", "Gemm"}) == QConfigMapping(None, {"Gemm": ENTRY, "MatMul": ENTRY})
    half = mapping_of({"MatMul"}, "float16")
    assert half.op_types == {"MatMul": float16_dynamic_qconfig}


def test_a_set_may_name_what_the_model_does_not_have_and_a_note_says_so() -> None:
    _, plan = planned(linear(), {"MatMul", "Gemm"})
    assert list(plan.quantized) == ["linear"]
    assert plan.notes == ("the qconfig names op types that are not in the model: 'Gemm'",)
    assert planned(linear(), QConfigMapping(ENTRY, {"Gemm": None}))[1].notes == ()


def test_a_dict_names_op_types_nodes_and_globs() -> None:
    spec = {"MatMul": ENTRY, "/head": None, "/layer*": per_channel_dynamic_qconfig}
    mapping = mapping_of(spec)
    assert mapping.op_types == {"MatMul": ENTRY}
    assert mapping.nodes == {"/head": None, "/layer*": per_channel_dynamic_qconfig}


def test_a_mapping_is_taken_as_it_is() -> None:
    mapping = QConfigMapping(None, nodes={"n": ENTRY})
    assert mapping_of(mapping) is mapping


@pytest.mark.parametrize("name", ["qint8", "torch.qint8", "int8", np.int8, np.dtype(np.int8)])
def test_types_have_several_names(name: object) -> None:
    assert entry_for(name) == ENTRY
    assert entry_for(np.float16) == float16_dynamic_qconfig


@pytest.mark.parametrize("value", [None, 8, ENTRY])
def test_what_is_no_type_is_told_what_is_wanted(value: object) -> None:
    with pytest.raises(QConfigError, match="wanted 'qint8' or 'float16', or such a dtype"):
        entry_for(value)


# --- bad input


def test_an_unknown_op_type_is_told_the_nearest() -> None:
    with pytest.raises(QConfigError, match="Did you mean 'MatMul'"):
        mapping_of({"Matmul"})


def test_an_op_type_without_dynamic_form_is_refused_in_sets_and_dicts() -> None:
    with pytest.raises(QConfigError, match="'Relu' is no op type with a dynamic form; these are "):
        mapping_of({"Relu"})
    with pytest.raises(QConfigError, match="'Relu' is no op type"):
        mapping_of({"Relu": ENTRY})
    with pytest.raises(QConfigError, match="'Relu' is no op type"):
        mapping_of(QConfigMapping(ENTRY, {"Relu": ENTRY}))
    assert mapping_of(QConfigMapping(ENTRY, {"Relu": None})).op_types == {"Relu": None}


def test_an_op_type_that_is_taken_for_a_node_is_told_the_nearest() -> None:
    with pytest.raises(QConfigError, match=r"node 'Matmul' is not in.*Did you mean 'MatMul'"):
        planned(linear(), {"Matmul": ENTRY})


def test_a_node_that_is_not_there_is_told_the_nearest() -> None:
    with pytest.raises(QConfigError, match=r"node 'lineal' is not in the model.*'linear'"):
        planned(linear(), {"lineal": ENTRY})


def test_a_class_is_sent_to_the_torch_side() -> None:
    class Linear:
        pass

    with pytest.raises(QConfigError, match=r"got Linear.*onnxq\.pytorch\.quantize_dynamic"):
        mapping_of({Linear})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    "mapping",
    [
        default_qconfig_mapping(),
        QConfigMapping(ENTRY).set_op_type("Gemm", default_qconfig_mapping().global_qconfig),
        QConfigMapping(ENTRY).set_node("n", default_qconfig_mapping().global_qconfig),
    ],
)
def test_a_static_entry_is_refused(mapping: QConfigMapping) -> None:
    with pytest.raises(QConfigError, match="has a static QConfig, which needs samples"):
        mapping_of(mapping)


def test_other_kinds_are_told_what_is_wanted() -> None:
    with pytest.raises(QConfigError, match=r"qconfig_spec is a str.*wanted None, a set"):
        mapping_of("MatMul")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("name", ["int4", "quint8", "qint32"])
def test_other_types_are_sent_to_a_qconfig(name: str) -> None:
    with pytest.raises(QConfigError, match="wanted qint8 or float16"):
        entry_for(name)


def test_the_operators_with_a_dynamic_form_are_known() -> None:
    assert {"MatMul", "Gemm"} <= set(dynamic_op_types())
