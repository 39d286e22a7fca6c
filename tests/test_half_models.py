"""float16 models through every way to quantize them: inputs and outputs stay what they were."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq.errors import CalibrationError
from onnxq.graph.saving import saved_bytes
from onnxq.operator.nodes import tensor_of
from tests.examples import images, model, network, weights
from tests.operators.builder import session

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLES = images(8).astype(np.float16)
WAYS = {
    "qdq": lambda model: onnxq.quantize(model, {"x": SAMPLES}),
    "qoperator": lambda model: onnxq.quantize(model, {"x": SAMPLES}, format="qoperator"),
    "dynamic": lambda model: onnxq.quantize_dynamic(model, objective="size"),
    "half weights": lambda model: onnxq.quantize_dynamic(model, dtype="float16"),
}
WIDE = np.random.default_rng(5).normal(0, 1, (16, 128)).astype(np.float16)
WIDE_WAYS: dict[str, Callable[[onnx.ModelProto], ir.Model]] = {
    "static": lambda model: onnxq.quantize(model, {"x": WIDE}),
    "dynamic": lambda model: onnxq.quantize_dynamic(model, objective="size"),
    "weights": onnxq.quantize_weights,
    "nothing": lambda model: onnxq.quantize(
        model, {"x": WIDE}, exclude=["*"], check=onnxq.Check.NONE
    ),
}
OWN_BYTES = 2000  # names, metadata, Q and DQ


def wide(kind: int) -> onnx.ModelProto:
    """Two MatMuls of 128 x 128."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    return model(
        [
            onnx.helper.make_node("MatMul", ["x", "w"], ["h"], "p"),
            onnx.helper.make_node("MatMul", ["h", "v"], ["y"], "q"),
        ],
        {"w": weights(1, 128, 128).astype(dtype), "v": weights(2, 128, 128).astype(dtype)},
        {"x": ["N", 128]},
        dtype=kind,
    )


@functools.cache
def half() -> onnx.ModelProto:
    return network(dtype=onnx.TensorProto.FLOAT16)


@pytest.mark.parametrize("way", WAYS)
def test_the_result_takes_the_place_of_the_float16_model(way: str) -> None:
    made = WAYS[way](half())
    ours, theirs = session(made), session(half())
    for mine, other in (
        (ours.get_inputs(), theirs.get_inputs()),
        (ours.get_outputs(), theirs.get_outputs()),
    ):
        assert [(v.name, v.type, v.shape) for v in mine] == [
            (v.name, v.type, v.shape) for v in other
        ]
    (y,), (wanted,) = (each.run(None, {"x": SAMPLES}) for each in (ours, theirs))
    noise = np.square(np.subtract(y, wanted, dtype=np.float64)).sum()
    assert noise < np.square(wanted.astype(np.float64)).sum() / 1000  # 30 dB
    assert onnxq.verify(half(), made, {"x": SAMPLES}).outputs[0].sqnr_db > 30
    found = onnxq.cross_check(made, {"x": SAMPLES})
    assert found.differing == 0
    assert not found.end_to_end


def test_between_the_doors_nothing_is_float16() -> None:
    made = onnxq.quantize(half(), {"x": SAMPLES})
    inner = {v.dtype for node in made.graph for v in node.outputs} - {None}
    casts = [node for node in made.graph if node.op_type == "Cast"]
    assert len(casts) == 2  # measured: Cast and Q take 0.16 of the time of a Q of float16
    assert ir.DataType.FLOAT16 in inner
    assert [n.op_type for n in made.graph if n.outputs[0].dtype == ir.DataType.FLOAT16] == ["Cast"]


def test_samples_of_another_type_are_refused_with_the_remedy() -> None:
    with pytest.raises(CalibrationError, match="float16"):
        onnxq.quantize(half(), {"x": SAMPLES.astype(np.float32)})


@pytest.mark.parametrize("way", WIDE_WAYS)
def test_no_file_is_larger_than_the_float16_model(way: str) -> None:
    made = WIDE_WAYS[way](wide(onnx.TensorProto.FLOAT16))
    assert saved_bytes(made) <= wide(onnx.TensorProto.FLOAT16).ByteSize() + OWN_BYTES


def test_what_stays_float_is_stored_as_float16() -> None:
    made = onnxq.quantize(half_wide := wide(onnx.TensorProto.FLOAT16), {"x": WIDE}, exclude=["p"])
    kinds = {v.dtype for v in made.graph.initializers.values() if tensor_of(v).size > 1000}
    assert kinds == {ir.DataType.FLOAT16, ir.DataType.INT8}
    (y,), (wanted,) = (session(each).run(None, {"x": WIDE}) for each in (made, half_wide))
    np.testing.assert_allclose(y, wanted, rtol=0, atol=0.05 * float(np.abs(wanted).max()))


def test_a_bfloat16_model_is_taken_and_takes_float32() -> None:
    given = wide(onnx.TensorProto.BFLOAT16)
    x = WIDE.astype(np.float32)
    made = onnxq.quantize(given, {"x": x}, exclude=["p"])
    assert saved_bytes(made) <= given.ByteSize() + OWN_BYTES
    assert [v.dtype for v in (*made.graph.inputs, *made.graph.outputs)] == [ir.DataType.FLOAT] * 2
    (y,) = session(made).run(None, {"x": x})
    (wanted,) = session(wide(onnx.TensorProto.FLOAT)).run(None, {"x": x})
    np.testing.assert_allclose(y, wanted, rtol=0, atol=0.05 * float(np.abs(wanted).max()))
