from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq import targets
from onnxq.errors import ModelError, QConfigError
from onnxq.graph.io import model_hash
from onnxq.observers import PercentileObserver
from onnxq.operator import Float
from onnxq.qconfig import default_qconfig_mapping, get_default_qconfig
from onnxq.static.insertion.decision import Quantize
from onnxq.static.prepare import prepare
from tests.examples import ALL_INTEGERS, images, model, network, save, weights

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.static.insertion.groups import TensorGroup
    from onnxq.static.prepared import Prepared


def group_of(prepared: Prepared, tensor: str) -> TensorGroup:
    (group,) = (group for group in prepared.groups if tensor in group.members)
    return group


def recurrent() -> onnx.ModelProto:
    """y, h_out = MatMul(x + h, w)."""
    nodes = [
        helper.make_node("Add", ["x", "h"], ["sum"], "add"),
        helper.make_node("MatMul", ["sum", "w"], ["h_out"], "matmul"),
    ]
    shapes: dict[str, list[int | str]] = {"x": ["N", 4], "h": ["N", 4]}
    return model(nodes, {"w": weights(1, 4, 4)}, shapes, {"h_out": onnx.TensorProto.FLOAT})


def test_every_node_has_a_decision_in_graph_order() -> None:
    prepared = prepare(network())
    assert list(prepared.decisions) == [node.name for node in prepared.model.graph]
    floats = {n: d.reason.words for n, d in prepared.decisions.items() if isinstance(d, Float)}
    assert list(floats) == ["softmax", "pool"]
    assert "of its float speed" in floats["softmax"]
    relu = prepared.decisions["relu1"]
    assert isinstance(relu, Quantize)
    assert relu.folded_into == "conv1"


def test_tensors_that_a_node_copies_are_one_group_and_observed_once() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "first"),
        helper.make_node("MaxPool", ["c"], ["p"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Conv", ["p", "w"], ["y"], "last"),
    ]
    prepared = prepare(model(nodes, {"w": weights(1, 4, 4, 1, 1)}, {"x": ["N", 4, 8, 8]}))
    group = group_of(prepared, "p")
    assert set(group.members) == {"c", "p"}
    assert group.sources == ("c",)
    assert set(prepared.observed) == {"x", "p", "y"}  # of c, the maxima alone are read


def test_a_constant_of_a_group_is_no_source() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("Concat", ["m", "c"], ["k"], "concat", axis=0),
        helper.make_node("MatMul", ["k", "w"], ["y"], "last"),
    ]
    constants = {"w": weights(1, 4, 4), "c": weights(2, 1, 4)}
    group = group_of(prepare(model(nodes, constants, {"x": ["N", 4]})), "k")
    assert set(group.members) == {"m", "c", "k"}
    assert (group.sources, group.constants) == (("m",), ("c",))


def test_a_range_that_an_operator_guarantees_replaces_observation() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("Sigmoid", ["m"], ["s"], "sigmoid"),
        helper.make_node("MatMul", ["s", "w"], ["y"], "last"),
    ]
    prepared = prepare(model(nodes, {"w": weights(1, 4, 4)}, {"x": ["N", 4]}), ALL_INTEGERS)
    group = group_of(prepared, "s")
    assert group.range is not None
    assert group.range[0] == 0
    assert "s" not in prepared.observed
    assert "m" in prepared.observed


def test_an_entry_for_a_tensor_names_its_observer() -> None:
    spec = PercentileObserver.with_args()
    mapping = default_qconfig_mapping().set_tensor("a", spec)
    observed = prepare(network(), mapping).observed
    assert observed["a"] == spec
    assert set(observed.values()) == {spec, get_default_qconfig().activation_observer}


def test_an_entry_for_a_node_names_the_observer_of_its_result() -> None:
    mine = get_default_qconfig("qnnpack")
    mapping = default_qconfig_mapping().set_node("conv1", mine)
    observed = prepare(network(), mapping).observed
    assert observed["r1"] == mine.activation_observer
    assert observed["a"] == get_default_qconfig().activation_observer


@pytest.mark.parametrize("backend", ["fbgemm", "qnnpack"])
def test_a_backend_as_target_gives_its_documented_qconfig(backend: str) -> None:
    prepared = prepare(network(), target=backend)
    assert prepared.target == targets.find(backend)
    assert prepared.qconfig == default_qconfig_mapping(backend)
    documented = get_default_qconfig(backend)
    assert set(prepared.observed.values()) == {documented.activation_observer}
    own = default_qconfig_mapping()
    assert prepare(network(), own, backend).qconfig == own


def test_without_target_or_qconfig_the_defaults_hold() -> None:
    prepared = prepare(network())
    assert prepared.target == targets.get_default()
    assert prepared.qconfig == default_qconfig_mapping()


def test_the_target_may_be_a_value() -> None:
    target = targets.find("x86-vnni")
    assert prepare(network(), target=target).target is target


def test_what_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(QConfigError, match="Did you mean 'x86-vnni'"):
        prepare(network(), target="x86-vni")
    with pytest.raises(QConfigError, match=r"conv9.*Did you mean 'conv"):
        prepare(network(), default_qconfig_mapping().set_node("conv9", None))


@pytest.mark.parametrize(
    ("feedback", "words"),
    [
        ({"h_ou": "h"}, "the model has no output 'h_ou'; it has h_out. Did you mean 'h_out'"),
        ({"h_out": "hh"}, "the model has no input 'hh'; it has x, h."),
        ({"h": "x"}, "the model has no output 'h'"),
    ],
)
def test_feedback_that_the_model_does_not_have_is_refused(
    feedback: dict[str, str], words: str
) -> None:
    with pytest.raises(QConfigError, match=words):
        prepare(recurrent(), feedback=feedback)


def test_the_users_model_is_left_untouched() -> None:
    proto = network()
    before = proto.SerializeToString()
    prepare(proto)
    assert proto.SerializeToString() == before
    source = ir.from_proto(proto)
    digest, names = model_hash(source), [node.name for node in source.graph]
    prepared = prepare(source)
    prepared.run({"x": images(2)})
    assert model_hash(source) == digest
    assert [node.name for node in source.graph] == names
    assert prepared.model is not source


def test_path_proto_and_ir_are_the_same_model(tmp_path: Path) -> None:
    path = save(network(), tmp_path / "m.onnx")
    hashes = {prepare(m).model_hash for m in (path, str(path), network(), ir.load(path))}
    assert len(hashes) == 1


def test_a_model_that_cannot_be_quantized_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="double"):
        prepare(network(dtype=onnx.TensorProto.DOUBLE))
    with pytest.raises(ModelError, match="no such file"):
        prepare(tmp_path / "none.onnx")


def test_what_canonicalization_did_is_noted() -> None:
    notes = prepare(network(dtype=onnx.TensorProto.FLOAT16)).notes
    assert any("float16" in note for note in notes)


def test_a_node_without_qconfig_leaves_its_tensors_alone() -> None:
    mapping = default_qconfig_mapping().set_global(None)
    prepared = prepare(network(), mapping)
    assert prepared.groups == ()
    assert prepared.observed == {}


@pytest.mark.parametrize("name", [*(t.name for t in targets.all_targets()), *targets.aliases()])
def test_every_target_prepares_without_a_qconfig(name: str) -> None:
    prepared = prepare(network(), target=name)
    assert prepared.target == targets.find(name)
