"""Weights of 4 and 2 bits in static and dynamic models: packed, and read by int8 kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq import SizeAim
from onnxq.checking.inventory import inventory
from onnxq.errors import CalibrationError, QConfigError
from onnxq.graph.saving import saved_bytes
from onnxq.ort import runtime
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.static.plan import Plan

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    import onnx_ir as ir

    from onnxq.core.arrays import Array

CHANNELS = 16


def convolutional() -> onnx.ModelProto:
    """Conv (small), Conv, ConvTranspose, Flatten, Gemm: channels of 16."""
    generator = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "a": (CHANNELS, 3, 3, 3),
        "b": (CHANNELS, CHANNELS, 3, 3),
        "c": (16, 16, 2, 2),
    }
    shapes |= {"d": (CHANNELS * 64, 10)}
    constants = [
        numpy_helper.from_array((generator.normal(size=s) / 8).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["p"], "first", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["p"], ["pr"], "relu"),
        helper.make_node("Conv", ["pr", "b"], ["q"], "second", pads=[1] * 4),
        helper.make_node("ConvTranspose", ["q", "c"], ["r"], "third", strides=[2, 2]),
        helper.make_node("MaxPool", ["r"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["m"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "d"], ["y"], "head"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def batches() -> dict[str, Array]:
    x: Array = np.random.default_rng(1).normal(size=(16, 3, 16, 16)).astype(np.float32)
    return {"x": x}


def kernels(model: ir.Model) -> list[str]:
    return sorted(node.op_type for node in runtime.optimized_graph(model).graph)


def stored(model: ir.Model) -> dict[str, str]:
    """Stem of a weight's name -> type of its integers in the file."""
    return {w.name.partition("_")[0]: w.dtype for w in inventory(model).weights}


@pytest.mark.parametrize("file_format", ["qdq", "qoperator"])
@pytest.mark.parametrize("bits", [4, 2])
def test_packed_weights_run_with_the_kernels_of_int8(bits: int, file_format: str) -> None:
    whole = onnxq.quantize(convolutional(), batches(), format=file_format, check=onnxq.Check.NONE)
    qconfig = default_qconfig_mapping().set_improve(["bias"])
    made = onnxq.quantize(
        convolutional(),
        batches(),
        qconfig=qconfig,
        weight_bits=bits,
        format=file_format,
        check=onnxq.Check.NONE,
    )
    assert kernels(made) == kernels(whole)
    assert stored(made)["b"] == stored(made)["d"] == f"int{bits}"
    assert stored(made)["a"] == "int8"  # 432 weights are not worth a Cast
    large = CHANNELS * CHANNELS * 9 + CHANNELS * 640
    assert saved_bytes(whole) - saved_bytes(made) > large * (8 - bits) / 8 * 0.85
    onnxq.cross_check(made, batches()).check()


@pytest.mark.filterwarnings("ignore:output 'y' keeps")
def test_few_bits_bring_rounding_by_samples_unless_algorithms_are_named(tmp_path: Path) -> None:
    model, samples, check = convolutional(), batches(), onnxq.Check(repair=None)
    named = default_qconfig_mapping().set_improve(["bias"])
    plain = onnxq.quantize(model, samples, weight_bits=4, qconfig=named, check=check)
    made = onnxq.quantize(model, samples, weight_bits=4, check=check)
    assert plain.verdict is not None
    assert made.verdict is not None
    assert any("'round'" in note for note in made.verdict.notes)
    assert not any("'round'" in note for note in plain.verdict.notes)
    assert any("session unpacks them" in note for note in made.verdict.notes)
    made.save(tmp_path / "q.onnx")
    found = onnxq.verify(convolutional(), tmp_path / "q.onnx", samples)
    assert {o.name for o in found.outputs} == {"y"}


def test_a_size_gives_each_weight_its_bits_and_is_kept() -> None:
    model, samples = convolutional(), batches()
    qconfig = default_qconfig_mapping().set_improve(["bias"])
    whole = onnxq.quantize(model, samples, check=onnxq.Check.NONE)
    floats = 4 * (432 + CHANNELS * CHANNELS * 13 + CHANNELS * 640)
    ratio = (saved_bytes(whole) - 4000) / floats  # b or c at 8 bits, not d
    made = onnxq.quantize(
        model, samples, qconfig=qconfig, weight_bits=SizeAim(size=ratio), check=onnxq.Check.NONE
    )
    assert saved_bytes(made) <= ratio * (floats + 1000)
    assert len(set(stored(made).values())) > 1
    with pytest.raises(QConfigError, match=r"size 0.01: .* at 2 bits, .* Ask for 0\.\d+ or more"):
        onnxq.quantize(model, samples, weight_bits=SizeAim(size=0.01), check=onnxq.Check.NONE)


def test_a_size_wants_samples_and_no_bits_beside_it() -> None:
    prepared = onnxq.prepare(convolutional())
    statistics = onnxq.calibrate(prepared, batches())
    with pytest.raises(CalibrationError, match="size: the bits of weights are chosen by samples"):
        onnxq.quantize(convolutional(), statistics, weight_bits=SizeAim(size=0.2))
    with pytest.raises(QConfigError, match="bits_average is for groups"):
        onnxq.quantize(convolutional(), batches(), weight_bits=SizeAim(bits_average=4.5))


def test_statistics_without_samples_are_rounded_to_the_nearest() -> None:
    prepared = onnxq.prepare(convolutional())
    statistics = onnxq.calibrate(prepared, batches())
    made = onnxq.quantize(convolutional(), statistics, weight_bits=4, check=onnxq.Check.NONE)
    assert stored(made)["b"] == "int4"


def test_a_plan_with_few_bits_is_saved_and_gives_the_same_file(tmp_path: Path) -> None:
    prepared = onnxq.prepare(convolutional(), default_qconfig_mapping().set_weight_bits(4))
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, batches()))
    plan.save(tmp_path / "plan.json")
    first = onnxq.rewrite(prepared, plan)
    again = onnxq.rewrite(prepared, Plan.load(tmp_path / "plan.json"))
    assert first.to_bytes() == again.to_bytes()
    assert QConfigMapping.from_yaml(plan.qconfig.to_yaml()).weight_bits == 4


def test_a_qconfig_that_is_no_number_of_bits_is_refused() -> None:
    for bits in (3, 16, True, "4"):
        with pytest.raises(QConfigError, match=r"weight bits: got .*; wanted 2, 4 or 8"):
            QConfigMapping(weight_bits=bits)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("bits", [4, 2])
def test_dynamic_models_pack_matmuls_recurrent_weights_and_embeddings(bits: int) -> None:
    generator = np.random.default_rng(2)
    shapes = {"t": (64, 48), "w": (1, 128, 48), "r": (1, 128, 32), "d": (32, 64)}
    constants = [
        numpy_helper.from_array((generator.normal(size=s) / 8).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Gather", ["t", "ids"], ["e"], "table"),
        helper.make_node("LSTM", ["e", "w", "r"], ["h"], "lstm", hidden_size=32),
        helper.make_node("Squeeze", ["h", "axes"], ["s"], "squeeze"),
        helper.make_node("MatMul", ["s", "d"], ["y"], "head"),
    ]
    constants.append(numpy_helper.from_array(np.array([1]), "axes"))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [20, 1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [ids], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = onnxq.quantize_dynamic(model, objective="size", weight_bits=bits)
    assert {"Gather", "DynamicQuantizeLSTM"} <= set(kernels(made))
    assert inventory(made).stored[f"int{bits}"][0] == 4
    onnxq.cross_check(made, {"ids": np.arange(20)[:, np.newaxis]}).check()
