"""float16 models through every way to quantize them: inputs and outputs stay what they were."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq.errors import CalibrationError
from tests.examples import images, network
from tests.operators.builder import session

SAMPLES = images(8).astype(np.float16)
WAYS = {
    "qdq": lambda model: onnxq.quantize(model, {"x": SAMPLES}),
    "qoperator": lambda model: onnxq.quantize(model, {"x": SAMPLES}, format="qoperator"),
    "dynamic": lambda model: onnxq.quantize_dynamic(model, objective="size"),
    "half weights": lambda model: onnxq.quantize_dynamic(model, dtype="float16"),
}


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
