from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.ort.runtime import Optimization, open_session
from onnxq.survey.stored_ranges import stored_ranges
from tests.examples import as_ir, model

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxq.core.arrays import Array
    from onnxq.quantized.quantized_model import QuantizedModel

INNER, COLUMNS = 70, 5  # a last block of 6
W = np.random.default_rng(0).normal(size=(INNER, COLUMNS)).astype(np.float32)
SOURCE = as_ir(
    model([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], {"w": W}, {"x": ["N", INNER]})
)


RTOL = 6e-4  # four digits are kept


def _weight_that_runs(target: QuantizedModel, rows: int) -> npt.NDArray[np.float32]:
    """W of x W, as ONNX Runtime multiplies by it."""
    with open_session(target, optimization=Optimization.NONE) as session:  # DQ: no int8 x
        return np.asarray(session.run({"x": np.eye(rows, dtype=np.float32)})[0], np.float32)


@pytest.mark.parametrize("written_as", ["matmulnbits", "qdq"])
@pytest.mark.parametrize("scheme", ["affine", "symmetric"])
def test_ranges_of_rows_are_those_of_the_numbers_that_are_multiplied(
    written_as: str, scheme: str
) -> None:
    target = onnxq.quantize_weights(
        SOURCE, method="rtn", format=written_as, scheme=scheme, accuracy_level=0
    )
    (part,) = stored_ranges(target, {"m": 0})
    assert (part.name, part.node) == ("w", 0)
    assert part.granularity.startswith("groups of 32: 15 scales, 0.")
    w = _weight_that_runs(target, INNER)
    np.testing.assert_allclose(part.lows, w.min(0), RTOL)
    np.testing.assert_allclose(part.highs, w.max(0), RTOL)
    ends = np.maximum(np.abs(part.lows), np.abs(part.highs))
    assert (np.array(part.abs_max) >= (1 - RTOL) * ends).all()


@pytest.mark.parametrize("bits", [2, 8])
def test_integers_of_other_widths_are_unpacked(bits: int) -> None:
    target = onnxq.quantize_weights(SOURCE, bits=bits, method="rtn", accuracy_level=0)
    (part,) = stored_ranges(target, {"m": 0})
    assert part.dtype == f"{bits} bits"
    w = _weight_that_runs(target, INNER)
    np.testing.assert_allclose(part.lows, w.min(0), RTOL)
    np.testing.assert_allclose(part.highs, w.max(0), RTOL)


def test_rows_of_a_table_have_ranges() -> None:
    table = np.random.default_rng(1).normal(size=(40, 64)).astype(np.float32)
    points = helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"])
    source = model([helper.make_node("Gather", ["t", "ids"], ["y"], "g")], {"t": table}, {})
    source.graph.input.append(points)
    target = onnxq.quantize_weights(as_ir(source), method="rtn", embedding_bits=4)
    (part,) = stored_ranges(target, {"g": 0})
    with open_session(target) as session:
        rows = np.asarray(session.run({"ids": np.arange(40)})[0])
    np.testing.assert_allclose(part.lows, rows.min(1), RTOL)
    np.testing.assert_allclose(part.highs, rows.max(1), RTOL)


def test_weights_in_an_order_of_their_own_have_no_ranges() -> None:
    constants: dict[str, Array] = {
        "w": np.zeros((4, 2, 16), np.uint8),
        "s": np.ones(8, np.float32),
        "g": np.zeros(64, np.int32),
    }
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "s", "", "g"],
        ["y"],
        "m",
        domain="com.microsoft",
        K=64,
        N=4,
        bits=4,
        block_size=32,
    )
    (part,) = stored_ranges(as_ir(model([node], constants, {"x": ["N", 64]})), {"m": 0})
    assert (part.lows, part.granularity) == ((), "computed, or in an order of its own")
