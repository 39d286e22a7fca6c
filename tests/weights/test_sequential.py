"""Hessians of a walk are those of the whole models, whatever lies in files meanwhile."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from onnxq.errors import CalibrationError
from onnxq.graph.canonical import canonicalize
from onnxq.graph.io import load
from onnxq.graph.walk import node_name
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.qparams.group_spec import GroupSpec, Method
from onnxq.qparams.groups import SCALES
from onnxq.weights import subgraphs
from onnxq.weights.find_integers import find_integers
from onnxq.weights.plan_weights import plan_weights
from onnxq.weights.quantized_weights_file import QuantizedWeightsFile
from onnxq.weights.sequential import (
    Inputs,
    LayersOfInput,
    SequentialPipeline,
    last_reads,
    stages_of,
)
from onnxq.weights.weight_plan import WeightPlan, WeightRequest
from onnxq.weights.write_weights import FLOAT_ACCURACY, GroupwiseWriter
from scripts._decoder import Sizes, decoder, tokens
from tests.examples import model, weights
from tests.weights.block_models import canonical, hessian_of

if TYPE_CHECKING:
    from onnxq.core.arrays import Array, Singles


def test_layers_of_one_tensor_are_a_group_and_each_node_runs_once() -> None:
    source = canonicalize(decoder(Sizes())).model
    stages = stages_of(source, plan_weights(source, WeightRequest()))
    groups = [stage.group.nodes for stage in stages if stage.group]
    assert groups[:4] == [
        ("MatMul_pq0", "MatMul_pk0", "MatMul_pv0"),
        ("MatMul_o0",),
        ("MatMul_g0", "MatMul_u0"),
        ("MatMul_d0",),
    ]
    run = [name for stage in stages if stage.subgraph for name in stage.subgraph.nodes]
    assert run == [node_name(node) for node in source.graph]


def test_tensors_are_kept_until_the_last_stage_that_reads_them() -> None:
    source = canonicalize(decoder(Sizes(depth=1))).model
    stages = stages_of(source, plan_weights(source, WeightRequest()))
    last = last_reads(stages)
    assert last["x0"] == 1  # seen behind stage 0, run in stage 1
    assert last["h0"] == 2  # added behind the attention
    assert last["tokens"] == 0


def test_a_matrix_on_the_left_multiplies_columns() -> None:
    node = helper.make_node
    source = model(
        [node("MatMul", ["w", "x"], ["a"], "left"), node("MatMul", ["x", "v"], ["b"], "right")],
        {"w": weights(0, 6, 32), "v": weights(1, 16, 4)},
        {"x": [32, 16]},
        {"a": 1, "b": 1},
    )
    made = canonicalize(load(source)).model
    stages = stages_of(made, plan_weights(made, WeightRequest(GroupSpec(group_size=16))))
    assert [stage.group for stage in stages[:2]] == [
        LayersOfInput(Inputs("x", transposed=True), ("left",)),
        LayersOfInput(Inputs("x", transposed=False), ("right",)),
    ]
    x = np.arange(12).reshape(3, 4)
    assert np.array_equal(Inputs("x", transposed=True).rows(x), x.T.astype(np.float32))


SIZES = Sizes(depth=1)
BATCHES = list(tokens(SIZES, 3, 6))


@cache
def planned() -> tuple[ir.Model, WeightPlan]:
    source = canonicalize(decoder(SIZES)).model
    return source, plan_weights(source, WeightRequest(method=Method.RTN))


def rows(source: ir.Model, names: list[str]) -> dict[str, Singles]:
    with runtime.open_session(expose(source, names).model, threads=1) as session:
        made = [dict(zip(session.outputs, session.run(batch), strict=True)) for batch in BATCHES]
    return {n: np.concatenate([m[n].reshape(-1, m[n].shape[-1]) for m in made]) for n in names}


def test_hessians_are_those_of_both_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subgraphs, "MOST_IN_MEMORY", 4096)  # the rest goes through files
    source, plan = planned()
    integers = find_integers(source, plan, (), QuantizedWeightsFile())
    quantized = source.clone()
    writer = GroupwiseWriter(quantized, FLOAT_ACCURACY)
    for node in list(quantized.graph):
        if (name := node_name(node)) in integers:
            writer.write(node, integers[name], plan.quantized[name])
    walk = SequentialPipeline(source, plan, BATCHES, integers)
    found = {
        group.inputs.tensor: inputs.of_part(inputs.parts[0])
        for group, inputs in walk.groups([*plan.quantized])
        if group.inputs and inputs
    }
    assert len(found) == 5
    wanted, seen = rows(source, [*found]), rows(quantized, [*found])
    for name, hessian in found.items():
        whole = hessian_of(seen[name], wanted[name])
        assert hessian.cross is not None
        assert whole.cross is not None
        # the same numbers in subgraphs, which ONNX Runtime fuses otherwise: float32 rounding
        bound = 1e-4 * float(np.abs(whole.matrix).max())
        np.testing.assert_allclose(hessian.matrix, whole.matrix, atol=bound)
        np.testing.assert_allclose(hessian.cross, whole.cross, atol=bound)


def test_nothing_runs_behind_the_last_layer_that_is_seen() -> None:
    source, plan = planned()
    walk = SequentialPipeline(source, plan, BATCHES)
    inputs = [found for _, found in walk.groups(["MatMul_o0"])]
    assert [found is not None for found in inputs] == [False, True, False, False, False]
    assert inputs[1] is not None
    assert inputs[1].all()[0][1].cross is None


def test_parts_of_wide_inputs_have_the_hessians_that_the_whole_has_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, plan = planned()
    integers = find_integers(source, plan, (), QuantizedWeightsFile())
    walk = SequentialPipeline(source, plan, BATCHES, integers)
    wanted = [inputs and inputs.all() for _, inputs in walk.groups(["MatMul_d0"])]
    halves = (slice(0, 32), slice(32, 64))
    monkeypatch.setattr("onnxq.weights.sequential.parts_of_inputs", lambda _: halves)
    found = [inputs and inputs.all() for _, inputs in walk.groups(["MatMul_d0"])]
    [whole], [parts] = ([each for each in some if each] for some in (wanted, found))
    assert [part for part, _ in parts] == [*halves]
    cross = whole[0][1].cross
    assert cross is not None
    for part, hessian in parts:
        assert hessian.cross is not None
        np.testing.assert_allclose(hessian.matrix, whole[0][1].matrix[part, part], rtol=1e-6)
        np.testing.assert_allclose(hessian.cross, cross[part, part], rtol=1e-5, atol=1e-7)


def test_samples_are_not_read_where_nothing_is_to_be_seen() -> None:
    source, plan = planned()
    batches: list[dict[str, Array]] = [{"no": np.zeros(1)}]
    walk = SequentialPipeline(source, plan, iter(batches))
    assert all(found is None for _, found in walk.groups([]))


def test_what_integers_make_of_a_finite_tensor_names_their_layer() -> None:
    generator = np.random.default_rng(0)
    bank = np.abs(generator.standard_normal((32, 32))).astype(np.float32)
    proto = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 20]>
        g (float[n, 32] x) => (float[n, 8] y) {
            [mel] power = MatMul(x, bank)
            [log] level = Log(power)
            [head] y = MatMul(level, w)
        }""")
    w = generator.standard_normal((32, 8)).astype(np.float32)
    for name, array in (("bank", bank), ("w", w)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    source = canonical(proto)
    plan = plan_weights(source, WeightRequest(method=Method.RTN))
    integers = find_integers(source, plan, (), QuantizedWeightsFile())
    batch: dict[str, Array] = {"x": np.abs(generator.standard_normal((4, 32))).astype(np.float32)}
    spoilt = {
        **integers,
        "mel": {**integers["mel"], SCALES: ir.tensor(-np.asarray(integers["mel"][SCALES]))},
    }
    with pytest.raises(CalibrationError, match=r"'level'.*finite in the float.*--exclude mel"):
        list(SequentialPipeline(source, plan, [batch], spoilt).groups(["head"]))
