from __future__ import annotations

import math
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxq
from onnxq.checking.cross_check import cross_check
from onnxq.checking.integers import find_integers
from onnxq.errors import CalibrationError, ModelError, QConfigError, VerificationError
from onnxq.samples.excerpt import MOST_BATCHES
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from onnxq.survey.verified import verify
from tests.examples import as_ir, images, model, network, quantized_matmul, weights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.core.arrays import Array


@pytest.fixture(scope="module")
def pair() -> tuple[ir.Model, ir.Model]:
    source = as_ir(network())
    return source, onnxq.quantize(source, [{"x": images(16)}])


def test_every_quantized_tensor_and_output_is_compared(pair: tuple[ir.Model, ir.Model]) -> None:
    findings = verify(*pair, {"x": images(8)})
    assert [t.name for t in findings.tensors][:4] == ["x", "r1", "c2", "a"]
    assert [t.name for t in findings.tensors] == [c.tensor for c in find_integers(pair[1])]
    assert [o.name for o in findings.outputs] == ["y"]
    assert findings.unmatched == ()
    assert findings.batches == 8
    assert findings.outputs[0].elements == 80


def test_findings_name_both_models(pair: tuple[ir.Model, ir.Model]) -> None:
    findings = verify(*pair, {"x": images(1)})
    assert findings.float_hash == prepare(pair[0]).model_hash
    assert findings.float_hash != findings.quantized_hash


def test_a_pool_that_became_a_convolution_belongs_to_its_float_model() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("AveragePool", ["c"], ["p"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Conv", ["p", "w"], ["y"], "conv2"),
    ]
    w = np.random.default_rng(0).normal(size=(3, 3, 1, 1)).astype(np.float32)
    source = as_ir(model(nodes, {"w": w}, {"x": ["N", 3, 4, 4]}))
    x = np.random.default_rng(1).normal(size=(4, 3, 4, 4)).astype(np.float32)
    int8 = onnxq.quantize(source, [{"x": x}])
    assert not [node for node in int8.graph if node.op_type == "AveragePool"]
    assert "p" in [tensor.name for tensor in verify(source, int8, {"x": x}).tensors]


def test_the_input_is_off_by_half_a_step_where_it_does_not_saturate(
    pair: tuple[ir.Model, ir.Model],
) -> None:
    x = np.clip(images(4), -1, 1)
    (first, *_) = verify(*pair, {"x": x}).tensors
    # rounding in float32: x / scale is off by an ulp of 64 steps at most
    assert 0.4 < first.max_error_lsb <= 0.5 + 2**-17 * 2
    assert first.saturated_share == 0.0


def test_saturation_is_seen(pair: tuple[ir.Model, ir.Model]) -> None:
    (first, *_) = verify(*pair, {"x": images(4) * 100}).tensors
    assert first.saturated_share > 0.9


def test_result_does_not_depend_on_the_batch_size(pair: tuple[ir.Model, ir.Model]) -> None:
    one, all_at_once = (
        verify(*pair, onnxq.Samples({"x": images(6)}, batch_size=n)) for n in (1, 6)
    )
    assert (one.batches, all_at_once.batches) == (6, 1)
    for a, b in zip(one.tensors, all_at_once.tensors, strict=True):
        # float kernels may add in another order: an integer flips now and then
        assert a.sqnr_db == pytest.approx(b.sqnr_db, abs=0.1)


def test_which_nodes_run_in_integers_is_reported(pair: tuple[ir.Model, ir.Model]) -> None:
    execution = verify(*pair, {"x": images(1)}).execution
    assert execution.integer_nodes["QLinearConv"] == 2
    assert execution.integer_nodes["QGemm"] == 1
    assert execution.float_nodes["Softmax"] == 1
    assert execution.fallbacks == ()


def test_bounds_break_with_exit_code_8(pair: tuple[ir.Model, ir.Model]) -> None:
    findings = verify(*pair, {"x": images(4)})
    findings.check(min_sqnr_db=10, max_lsb=100)
    with pytest.raises(VerificationError, match="wanted at least 90"):
        findings.check(min_sqnr_db=90)


def test_only_narrows_what_is_compared(pair: tuple[ir.Model, ir.Model]) -> None:
    findings = verify(*pair, {"x": images(1)}, only=("c*", "y"))
    assert [t.name for t in findings.tensors] == ["c2"]
    assert [o.name for o in findings.outputs] == ["y"]
    assert verify(*pair, {"x": images(1)}, only=("c2",)).outputs == ()


def test_a_glob_that_matches_nothing_is_an_error(pair: tuple[ir.Model, ir.Model]) -> None:
    with pytest.raises(QConfigError, match=r"matches 'c3'.*Did you mean 'c2'"):
        verify(*pair, {"x": images(1)}, only=("c3",))


def test_the_inputs_stay_as_they_are(pair: tuple[ir.Model, ir.Model]) -> None:
    before = [len(m.graph.outputs) for m in pair]
    verify(*pair, {"x": images(1)})
    assert [len(m.graph.outputs) for m in pair] == before


def test_another_float_model_is_refused(pair: tuple[ir.Model, ir.Model]) -> None:
    other = network()
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights(9, 8, 3, 3, 3), "w1"))
    with pytest.raises(ModelError, match="was made from float model"):
        verify(other, pair[1], {"x": images(1)})


def test_models_with_other_outputs_are_refused() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["z"], "r")], {}, {"x": [1, 8]}, {"z": 1})
    with pytest.raises(
        ModelError, match="outputs of the float model are z; of the quantized one y"
    ):
        verify(proto, quantized_matmul(np.array(3, np.uint8)), {"x": np.ones((1, 8), np.float32)})


def test_a_quantized_model_as_the_float_one_is_refused(pair: tuple[ir.Model, ir.Model]) -> None:
    with pytest.raises(ModelError, match="quantized already"):
        verify(pair[1], pair[1], {"x": images(1)})


def test_samples_of_another_shape_are_refused(pair: tuple[ir.Model, ir.Model]) -> None:
    with pytest.raises(CalibrationError, match="shape"):
        verify(*pair, {"x": images(1)[:, :2]})


def test_no_batch_is_an_error(pair: tuple[ir.Model, ir.Model]) -> None:
    with pytest.raises(CalibrationError):
        verify(*pair, [])


def test_what_cannot_be_matched_is_listed() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")
    source = model([node], {"w": weights(0, 8, 8)}, {"x": ["N", 8]})
    findings = verify(source, quantized_matmul(np.array(3, np.uint8)), {"x": np.ones((1, 8), "f4")})
    assert [t.name for t in findings.tensors] == ["x"]
    assert [u.name for u in findings.unmatched] == ["product_quantized"]
    assert "no tensor 'product'" in findings.unmatched[0].reason


def test_an_output_of_another_shape_keeps_no_bound() -> None:
    # NonZero has as many columns as there are elements that are not zero
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x_quantized"], "q"),
        helper.make_node("DequantizeLinear", ["x_quantized", "s", "z"], ["xd"], "dq"),
        helper.make_node("NonZero", ["xd"], ["i"], "nonzero"),
        helper.make_node("Cast", ["i"], ["y"], "cast", to=onnx.TensorProto.FLOAT),
    ]
    constants: dict[str, Array] = {"s": np.array(1, np.float32), "z": np.array(0, np.uint8)}
    quantized = model(nodes, constants, {"x": ["N", 4]}, opset=21)
    nodes[2].input[0] = "x"
    source = model(nodes[2:], {}, {"x": ["N", 4]}, opset=21)
    findings = verify(source, quantized, {"x": np.array([[0.1, 1, 2, 3]], np.float32)})
    assert math.isnan(findings.outputs[0].sqnr_db)
    assert "shapes differed in 1 batch" in findings.unmatched[0].reason
    with pytest.raises(VerificationError):
        findings.check(min_sqnr_db=-1000)


def test_a_float16_file_is_fed_the_float_models_samples_in_its_own_type() -> None:
    text = """<ir_version: 9, opset_import: ["": 17]>
        g (TYPE[2,3] x) => (TYPE[2,3] y) { y = Tanh (x) }"""
    source, half = (onnx.parser.parse_model(text.replace("TYPE", t)) for t in ("float", "float16"))
    findings = verify(source, half, [{"x": weights(1, 2, 3)}])
    assert 60 < findings.outputs[0].sqnr_db < 90
    back = verify(half, source, [{"x": weights(1, 2, 3).astype(np.float16)}])
    assert 60 < back.outputs[0].sqnr_db < 90


def test_indices_of_another_number_are_no_loss_of_decibels() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x_quantized"], "q"),
        helper.make_node("DequantizeLinear", ["x_quantized", "s", "z"], ["xd"], "dq"),
        helper.make_node("NonZero", ["xd"], ["i"], "nonzero"),
        helper.make_node("Neg", ["xd"], ["y"], "neg"),
    ]
    constants: dict[str, Array] = {"s": np.array(1, np.float32), "z": np.array(0, np.uint8)}
    outputs = {"i": onnx.TensorProto.INT64, "y": onnx.TensorProto.FLOAT}
    quantized = model(nodes, constants, {"x": ["N", 4]}, outputs, opset=21)
    nodes[2].input[0] = nodes[3].input[0] = "x"
    source = model(nodes[2:], {}, {"x": ["N", 4]}, outputs, opset=21)
    # 2 * 3 indices of 2 * 4 are lost with the first row, 2 * 4 of 2 * 4 are equal in the second
    findings = verify(source, quantized, {"x": np.array([[0.1, 1, 2, 3], [4, 1, 2, 3]], "f4")})
    indices, numbers = findings.outputs
    assert (indices.agreement, numbers.agreement) == (0.5, None)
    assert "shapes differed in 1 batch" in findings.unmatched[0].reason
    findings.check(min_sqnr_db=20)
    with pytest.raises(VerificationError, match="output 'y': SQNR") as error:
        findings.check(min_sqnr_db=100)
    assert "output 'i'" not in str(error.value)
    with pytest.raises(VerificationError, match="nothing of floats was compared"):
        verify(source, quantized, {"x": np.ones((1, 4), "f4")}, only=["i"]).check(min_sqnr_db=0)


def branches() -> onnx.ModelProto:
    """If mean(x) > 0: Conv by w, else Conv by v."""
    make = helper.make_node
    branch = {
        name: helper.make_graph(
            [make("Conv", ["x", constant], [f"{name}_c"], f"conv_{name}")],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_c", 1, None)],
        )
        for name, constant in (("then", "w"), ("else", "v"))
    }
    nodes = [
        make("ReduceMean", ["x"], ["mean"], "mean", keepdims=0),
        make("Greater", ["mean", "zero"], ["positive"], "greater"),
        make(
            "If",
            ["positive"],
            ["y"],
            "if",
            then_branch=branch["then"],
            else_branch=branch["else"],
        ),
    ]
    constants = {
        "w": weights(0, 4, 3, 3, 3),
        "v": weights(1, 4, 3, 3, 3),
        "zero": np.array(0, np.float32),
    }
    return model(nodes, constants, {"x": [1, 3, 8, 8]}, {"y": 1})


def test_tensors_inside_branches_are_compared_when_their_branch_runs() -> None:
    x = images(4)
    x[:2] += 1
    x[2:] -= 1
    quantized = onnxq.quantize(branches(), [{"x": image[None]} for image in x])
    both = verify(branches(), quantized, {"x": x})
    assert {"then_c", "else_c"} <= {t.name for t in both.tensors}
    counts = {t.name: t.elements for t in both.tensors}
    assert counts["then_c"] == counts["else_c"] == 2 * 4 * 6 * 6
    half = verify(branches(), quantized, {"x": x[:2]})
    assert "else_c" not in {t.name for t in half.tensors}
    assert "no sample reached it" in {u.reason for u in half.unmatched}


def test_state_goes_round_in_each_model() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "matmul"),
        helper.make_node("Add", ["p", "h"], ["h_out"], "add"),
        helper.make_node("Identity", ["h_out"], ["y"], "copy"),
    ]
    outputs = {"y": 1, "h_out": 1}
    proto = model(nodes, {"w": weights(0, 4, 4)}, {"x": [1, 4], "h": [1, 4]}, outputs)
    prepared = prepare(proto, feedback={"h_out": "h"})
    x = {"x": np.ones((5, 4), np.float32)}
    statistics = calibrate(prepared, x)
    quantized = rewrite(prepared, plan(prepared, statistics))
    findings = verify(proto, quantized, onnxq.Samples(x, feedback={"h_out": "h"}))
    assert findings.batches == 5
    assert findings.outputs[0].sqnr_db > 20
    with pytest.raises(QConfigError, match=r"no output 'h_ou'.*'h_out'"):
        verify(proto, quantized, onnxq.Samples(x, feedback={"h_ou": "h"}))


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_batches(pair: tuple[ir.Model, ir.Model]) -> None:
    def stream(count: int) -> Iterator[dict[str, np.ndarray]]:
        return ({"x": images(200, seed)} for seed in range(count))

    peaks = []
    # the first run fills caches; an excerpt of MOST_BATCHES is kept for the report, and no more
    for count in (2, MOST_BATCHES, 3 * MOST_BATCHES):
        tracemalloc.start()
        verify(*pair, stream(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.1 * peaks[1]


def test_progress_counts_batches(pair: tuple[ir.Model, ir.Model]) -> None:
    seen: list[tuple[int, int | None]] = []
    verify(*pair, {"x": images(3)}, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_paths_are_taken(tmp_path: Path, pair: tuple[ir.Model, ir.Model]) -> None:
    from onnxq.graph.io import save

    for name, value in zip(("f.onnx", "q.onnx"), pair, strict=True):
        save(value, tmp_path / name)
    np.savez(tmp_path / "x.npz", x=images(2))
    findings = verify(tmp_path / "f.onnx", tmp_path / "q.onnx", tmp_path / "x.npz")
    assert findings.quantized_hash == verify(*pair, {"x": images(2)}).quantized_hash


TWO_BRANCHES = """
<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x, bool c) => (float[n,4] y) {{
  y = If (c) <
    then_branch = t () => (float[n,4] a) {{ {relu} a = Abs(r) }},
    else_branch = e () => (float[n,4] b) {{ {relu} b = Neg(r) }}
  >
}}
"""
RELU_ON_INTEGERS = """
  s = Constant<value = float {0.02}>()
  z = Constant<value = int8 {0}>()
  f = Relu(x) q = QuantizeLinear(f, s, z) r = DequantizeLinear(q, s, z)
"""


def test_branches_of_another_tools_file_are_compared_each_with_its_own() -> None:
    # no value has a type, and both branches name theirs alike
    source = onnx.parser.parse_model(TWO_BRANCHES.format(relu="f = Relu(x) r = Identity(f)"))
    quantized = onnx.parser.parse_model(TWO_BRANCHES.format(relu=RELU_ON_INTEGERS))
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    samples = [{"x": x, "c": np.array(True)}, {"x": x / 2, "c": np.array(False)}]
    findings = verify(source, quantized, samples)
    assert [tensor.name for tensor in findings.tensors] == ["f", "f_1"]
    assert [tensor.elements for tensor in findings.tensors] == [8, 8]
    assert max(tensor.max_error_lsb for tensor in findings.tensors) <= 0.5 + 1e-5  # float32
    assert findings.quantized_hash == cross_check(quantized, samples).model_hash
