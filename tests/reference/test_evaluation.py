from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import reference
from onnxq.errors import CalibrationError, UnsupportedError
from onnxq.ort import runtime
from tests.examples import model, weights
from tests.reference.on_integers import (
    CONVOLUTION,
    convolution,
    images,
    integers,
    make,
    on_integers,
    scales,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array


def test_an_error_of_onnx_names_the_node() -> None:
    proto = model([make("MatMul", ["x", "w"], ["y"], "mm")], {"w": weights(0, 3, 3)}, {"x": [1, 4]})
    with pytest.raises(UnsupportedError, match=r"MatMul 'mm'.*float32 \(1, 4\), float32 \(3, 3\)"):
        reference.evaluator(proto).run(None, {"x": weights(0, 1, 4)})


def test_inputs_are_checked_by_name(qdq: ir.Model) -> None:
    session = reference.evaluator(qdq)
    with pytest.raises(CalibrationError, match="input 'x' is missing"):
        session.run(None, {})
    with pytest.raises(CalibrationError, match="no input 'xx'"):
        session.run(None, {"xx": images(1)})
    with pytest.raises(CalibrationError, match="no output 'z'"):
        session.run(["z"], {"x": images(1)})


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (images(1)[0], r"'x' has shape \(3, 8, 8\); wanted \(N, 3, 8, 8\)"),
        (images(1)[:, :2], r"'x' has shape \(1, 2, 8, 8\)"),
        (images(1).astype(np.float64), r"'x' is float64; wanted float32"),
        (images(1).astype(np.uint8), r"'x' is uint8; wanted float32"),
    ],
    ids=["rank", "channels", "float64", "uint8"],
)
def test_inputs_are_checked_by_type_and_shape_as_onnx_runtime_does(
    qdq: ir.Model, x: Array, message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        reference.evaluator(qdq).run(None, {"x": x})
    with runtime.open_session(qdq) as session, pytest.raises(CalibrationError):
        session.run({"x": x})


def test_an_input_that_is_no_array_is_refused(qdq: ir.Model) -> None:
    with pytest.raises(CalibrationError, match=r"'x' is a list; wanted an array of float32"):
        reference.evaluator(qdq).run(None, {"x": images(1).tolist()})


def test_an_output_without_a_name_is_no_input_of_a_later_node() -> None:
    nodes = [
        make("TopK", ["x", "k"], ["", "places"], "top"),
        make("Clip", ["x", "", "most"], ["y"], "clip"),
    ]
    proto = model(nodes, {"k": np.array([1]), "most": scales(0.5)}, {"x": [2, 3]})
    x = weights(0, 2, 3)
    (y,) = reference.evaluator(proto).run(None, {"x": x})
    np.testing.assert_array_equal(y, np.minimum(x, np.float32(0.5)))


def test_all_results_can_be_had_by_name(qdq: ir.Model) -> None:
    session = reference.evaluator(qdq)
    results = session.run(None, {"x": images(2)}, intermediate=True)
    assert isinstance(results, dict)
    np.testing.assert_array_equal(results["y"], session.run(None, {"x": images(2)})[0])
    assert results["x_quantized"].dtype == np.uint8


def test_outputs_can_be_chosen() -> None:
    nodes = [convolution("a", y="y"), convolution("b", y="u", pads=[1] * 4)]
    session = reference.evaluator(on_integers(nodes, CONVOLUTION, outputs={"y": 2, "u": 2}))
    both = session.run(None, {"x": integers()})
    np.testing.assert_array_equal(session.run(["u"], {"x": integers()})[0], both[1])


def test_arrays_are_given_back_when_no_node_needs_them() -> None:
    def peak(length: int) -> int:
        names = ["x", *(f"t{i}" for i in range(length - 1)), "y"]
        nodes = [
            make("Transpose", [a], [b], f"n{i}", perm=[0, 1, 3, 2])
            for i, (a, b) in enumerate(itertools.pairwise(names))
        ]
        session = reference.evaluator(on_integers(nodes, {}, shape=(1, 4, 512, 512)))
        x = integers(shape=(1, 4, 512, 512))
        session.run(None, {"x": x})
        tracemalloc.start()
        session.run(None, {"x": x})
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    assert peak(20) < 1.5 * peak(4)
