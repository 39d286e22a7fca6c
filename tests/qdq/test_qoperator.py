from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq import catalog
from onnxq.checking.execution import execution, meant_in_integers
from onnxq.checking.integers import find_integers
from onnxq.errors import ModelError, QConfigError
from onnxq.graph.io import load, save
from onnxq.operator import Float
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.qconfig import default_qconfig_mapping
from onnxq.qdq.qoperator import KEPT_KEY, TABLES_KEY, Remains, remains
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.examples import weights
from tests.golden_models import BODIES, CONSTANTS, GRAPHS, conv_model, data
from tests.operators import builder
from tests.static.rewrite.test_guards import without
from tests.static.rewrite.test_qdq import GOLDEN, kernels, text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from onnxq.operator import Operator
    from onnxq.qconfig import QConfigMapping
    from onnxq.static.prepared import Prepared


def both(
    body: str, qconfig: QConfigMapping | None = None, model: ir.Model | None = None
) -> tuple[ir.Model, ir.Model, Plan, Prepared]:
    """(QDQ, QOperator) of one plan."""
    prepared = prepare(model or conv_model(body, constants=CONSTANTS), qconfig, "x86-vnni")
    made = plan(prepared, calibrate(prepared, data()))
    return rewrite(prepared, made), rewrite(prepared, made, "qoperator"), made, prepared


def integers_names(model: ir.Model) -> list[str]:
    return [found.name for found in find_integers(model) if found.qparams is not None]


def assert_same_integers(
    qdq: ir.Model, qoperator: ir.Model, batch: Mapping[str, npt.NDArray[np.generic]]
) -> int:
    """Elements compared: outputs of the models as they are, and all integers of both."""
    names = integers_names(qdq)
    assert set(names) <= set(integers_names(qoperator))
    compared = 0
    for wanted, got in (
        (qdq, qoperator),
        (expose(qdq, names).model, expose(qoperator, names).model),
    ):
        with runtime.open_session(wanted) as a, runtime.open_session(got) as b:
            for x, y in zip(a.run(dict(batch)), b.run(dict(batch)), strict=True):
                assert x.dtype == y.dtype
                assert np.array_equal(x, y)
                compared += x.size
    return compared


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_graph_is_as_reviewed(name: str) -> None:
    _, integer, _, _ = both(GRAPHS[name])
    golden = GOLDEN / f"qoperator_{name}.txt"
    assert text(integer) == golden.read_text(), f"changed; review it, then write it to {golden}"


@pytest.mark.parametrize("name", sorted(BODIES))
def test_both_formats_give_the_same_integers(name: str) -> None:
    qdq, qoperator, _, _ = both(BODIES[name])
    assert assert_same_integers(qdq, qoperator, data(9)[-1]) > 0


@pytest.mark.parametrize("name", sorted(BODIES))
def test_onnx_runtime_runs_the_same_kernels_of_both(name: str) -> None:
    qdq, qoperator, _, _ = both(BODIES[name])
    assert kernels(qdq) == kernels(qoperator)


@pytest.mark.parametrize("name", sorted(BODIES))
def test_what_is_left_float_is_left_float_in_both(name: str) -> None:
    model = conv_model(BODIES[name], constants=CONSTANTS)
    middle = [n.op_type for n in model.graph][1]
    if middle == "Conv":
        return
    qdq, qoperator, _, _ = both("", without(model, middle), model)
    if (
        middle != "Pad"
    ):  # on integers it gives the same, and ONNX Runtime does not do that by itself
        assert kernels(qdq) == kernels(qoperator)
    assert_same_integers(qdq, qoperator, data(9)[-1])


def test_what_has_no_integer_kernel_stays_in_qdq_form_and_is_said() -> None:
    asked = default_qconfig_mapping().with_overrides(("op:Erf=default",))
    qdq, qoperator, _, prepared = both(BODIES["erf"], asked)
    (name,) = (n.name for n in prepared.model.graph if n.op_type == "Erf")
    left = remains(qoperator)
    assert left.kept.keys() == {name}
    assert "float32" in left.kept[str(name)]
    assert json.loads(qoperator.metadata_props[KEPT_KEY]) == left.kept
    assert json.loads(qoperator.metadata_props[TABLES_KEY]) == []
    assert_same_integers(qdq, qoperator, data(9)[-1])
    assert name not in [node.name for node in meant_in_integers(qoperator)]  # it never could


def test_a_sentence_names_a_few_nodes_for_each_reason() -> None:
    many = {f"n{i}": "why" for i in range(6)} | {"m": "other"}
    first, second, third = Remains(many, ("t",)).sentences()
    assert "'n0', 'n1', 'n2', 'n3' and 2 more: why" in first
    assert "'m': other" in second
    assert "table" in third
    assert not Remains().sentences()
    assert remains(conv_model("y = Relu(x)")) == Remains()


def test_metadata_name_the_format_and_the_float_model() -> None:
    qdq, qoperator, made, _ = both(GRAPHS["conv_relu"])
    assert qoperator.metadata_props["onnxq.format"] == "qoperator"
    assert qdq.metadata_props["onnxq.format"] == "qdq"
    assert qoperator.metadata_props["onnxq.float_model_hash"] == made.model_hash
    assert KEPT_KEY not in qdq.metadata_props


def test_opset_of_microsoft_is_named_only_where_it_is_used() -> None:
    _, conv, _, _ = both(GRAPHS["conv_relu"])
    _, add, _, _ = both(GRAPHS["residual"])
    assert "com.microsoft" not in conv.opset_imports
    assert add.opset_imports["com.microsoft"] == 1


def test_prepared_model_is_untouched() -> None:
    prepared = prepare(conv_model(GRAPHS["residual"]))
    before = text(prepared.model)
    rewrite(prepared, plan(prepared, calibrate(prepared, data())), "qoperator")
    assert text(prepared.model) == before


def test_unknown_format_is_refused_with_the_nearest_name() -> None:
    prepared = prepare(conv_model(GRAPHS["conv_relu"]))
    made = plan(prepared, calibrate(prepared, data(1)))
    with pytest.raises(QConfigError, match=r"qoperater.*qdq, qoperator.*qoperator"):
        rewrite(prepared, made, "qoperater")


def test_saved_model_is_verified_and_says_the_same(tmp_path: Path) -> None:
    model = conv_model(BODIES["movement"], constants=CONSTANTS)
    integer = onnxq.quantize(model, iter(data()), format="qoperator")
    path = tmp_path / "q.onnx"
    save(integer, path)
    findings = onnxq.verify(model, path, iter(data(2)))
    assert {t.name for t in findings.tensors} >= {"x", "c", "p", "t", "u", "y"}
    assert not findings.unmatched
    assert integers_names(load(path)) == integers_names(integer)
    assert not execution(path).fallbacks
    assert execution(path).integer_nodes["QLinearConv"] == 2


def test_convert_takes_the_format() -> None:
    prepared = prepare(conv_model(GRAPHS["conv_relu"]))
    for batch in data(2):
        prepared.run(batch)
    integer = onnxq.convert(prepared, "qoperator")
    assert "QLinearConv" in [n.op_type for n in integer.graph]


def test_a_quantized_model_is_not_quantized_again() -> None:
    _, qoperator, _, _ = both(GRAPHS["residual"])
    with pytest.raises(ModelError, match="quantized"):
        prepare(qoperator)


@pytest.mark.parametrize("operator", catalog.all_operators(), ids=lambda op: op.op_type)
def test_every_operator_gives_the_same_integers_in_both_formats(operator: Operator) -> None:
    asked = default_qconfig_mapping().with_overrides((f"op:{operator.op_type}=default",))
    for case in operator.cases():
        feeds = {
            f"in{i}": np.asarray(x)
            for i, x in enumerate(case.inputs)
            if x is not None and i not in case.constants
        }
        if (
            not all(x.size for x in feeds.values())
            or len({x.shape[:1] for x in feeds.values()}) > 1
        ):
            continue  # nothing to calibrate on; inputs without a common batch axis
        prepared = prepare(ir.from_proto(builder.float_model(operator, case)), asked)
        if all(isinstance(decision, Float) for decision in prepared.decisions.values()):
            continue  # both are the float model, which ONNX Runtime need not run (LSTM, layout 1)
        made = plan(prepared, calibrate(prepared, [feeds]))
        qdq, qoperator = rewrite(prepared, made), rewrite(prepared, made, "qoperator")
        with runtime.open_session(qdq) as a, runtime.open_session(qoperator) as b:
            for x, y in zip(a.run(feeds), b.run(feeds), strict=True):
                assert np.array_equal(x, y), case.name


def test_what_stands_between_new_nodes_has_a_name_that_no_branch_has() -> None:
    body = """<ir_version: 9, opset_import: ["": 17]>
        g (bool c, float[2,3,8] x) => (float[2,3,8] y) {
        p = MatMul(x, w) s = Add(p, b) r = Relu(s) z = MatMul(r, w)
        y = If(c) <then_branch = t () => (float[2,3,8] u) { m = MatMul(z, w) n = Add(m, b)
                       o = Relu(n) u = MatMul(o, w) },
                   else_branch = e () => (float[2,3,8] v) { v = Tanh(z) }> }"""
    source = onnx.parser.parse_model(body)
    for name, array in {"w": weights(1, 8, 8), "b": weights(2, 8)}.items():
        source.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    samples = [{"c": np.array(flag), "x": weights(3, 2, 3, 8)} for flag in (True, False)]
    model = onnxq.quantize(source, samples, target="x86-vnni", format="qoperator")
    assert "QGemm" in [node.op_type for node in model.graph.all_nodes()]
    onnxq.cross_check(model, samples).check()
