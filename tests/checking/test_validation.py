from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.checking.validation import on_made_up_inputs
from onnxq.quantized.verdict import InputSource
from onnxq.samples import made_up
from tests.examples import network

BYTES = 4 * 3 * 8 * 8  # of one image of the network


def test_made_up_inputs_have_the_model_s_shapes_and_size_1_where_they_are_dynamic() -> None:
    made = on_made_up_inputs(onnxq.prepare(network()).model)
    (batch,) = made.batches
    assert batch["x"].shape == (1, 3, 8, 8)
    assert batch["x"].dtype == np.float32
    assert made.input_source is InputSource.MADE_UP
    assert not made.has_samples


@pytest.mark.parametrize(("tenths", "wanted"), [(11, InputSource.MADE_UP), (9, InputSource.NONE)])
def test_inputs_beyond_a_tenth_of_the_memory_are_not_made_up(
    tenths: int, wanted: InputSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(made_up, "available_bytes", lambda: tenths * BYTES)
    assert on_made_up_inputs(onnxq.prepare(network()).model).input_source is wanted


def test_sequences_are_not_made_up() -> None:
    model = network()
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    kind = helper.make_sequence_type_proto(floats)
    model.graph.input.append(helper.make_value_info("sequence", kind))
    made = on_made_up_inputs(ir.from_proto(model))
    assert made.input_source is InputSource.NONE
