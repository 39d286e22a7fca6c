from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operators.dynamic_quantize_lstm import DynamicQuantizeLSTM, example
from tests.operators import builder

if TYPE_CHECKING:
    from onnxq.operator import Array, AttributeValue, Case

OPERATOR = DynamicQuantizeLSTM()
CASES = {case.name: case for case in OPERATOR.cases()}
ATTRIBUTES: dict[str, AttributeValue] = {"direction": "forward", "hidden_size": 6}


def changed(slot: int, x: Array | None) -> list[Array | None]:
    inputs = example()
    inputs[slot] = x
    return inputs


def ort(case: Case) -> list[Array]:
    model = builder.integer_model(OPERATOR, "com.microsoft", case)
    return builder.run(model, case, case.inputs)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("name", ["all inputs", "all inputs, reverse", "all inputs, bidirectional"])
def test_inputs_of_any_magnitude_give_onnx_runtimes_bits(name: str, scale: float) -> None:
    case = CASES[name]
    inputs = (np.asarray(case.inputs[0], np.float32) * np.float32(scale), *case.inputs[1:])
    case = dataclasses.replace(case, inputs=inputs)
    for y, wanted in zip(
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=case.attributes or {})),
        ort(case),
        strict=True,
    ):
        assert np.array_equal(y, wanted)


def test_rows_of_a_batch_share_the_scale_of_x() -> None:
    inputs = example(batch=2)
    x = np.asarray(inputs[0], np.float32).copy()
    both, _, _ = OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=ATTRIBUTES))
    x[:, 1] *= 100
    inputs[0] = x
    other, _, _ = OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=ATTRIBUTES))
    assert not np.array_equal(both[:, :, 0], other[:, :, 0])


def test_directions_are_computed_apart() -> None:
    inputs = example(2)
    both = OPERATOR.kernel(
        IntegerCall(
            OPERATOR.op_type, inputs, attributes={"direction": "bidirectional", "hidden_size": 6}
        )
    )
    for i, direction in enumerate(["forward", "reverse"]):
        part = [
            x if x is None or k == 0 else np.asarray(x)[i : i + 1] for k, x in enumerate(inputs)
        ]
        one = OPERATOR.kernel(
            IntegerCall(
                OPERATOR.op_type, part, attributes={"direction": direction, "hidden_size": 6}
            )
        )
        assert np.array_equal(one[0][:, 0], both[0][:, i])
        assert np.array_equal(one[1][0], both[1][i])
        assert np.array_equal(one[2][0], both[2][i])


@pytest.mark.parametrize(
    ("slot", "x", "words"),
    [
        (0, np.zeros((4, 3), np.float32), "X is float32 of shape"),
        (1, np.zeros((1, 5, 23), np.int8), r"W has shape \(1, 5, 23\); wanted \(1, 5, 24\)"),
        (3, np.zeros((1, 47), np.float32), "B is float32 of shape"),
        (4, np.array([1, 2, 5], np.int32), "sequence_lens"),
        (4, np.array([1, 2], np.int32), "sequence_lens"),
        (5, np.zeros((1, 2, 6), np.float32), "initial_h"),
        (7, np.zeros((1, 17), np.float32), "P is float32"),
        (9, np.zeros((1, 24), np.int8), "W_zero_point"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(slot: int, x: Array, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, changed(slot, x), attributes=ATTRIBUTES))


def test_zero_points_that_differ_between_columns_are_refused() -> None:
    inputs = example(columns=True)
    inputs[9] = np.arange(24, dtype=np.int8)[None]
    with pytest.raises(ShapeError, match="W_zero_point differs between columns"):
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=ATTRIBUTES))


def test_weights_of_two_types_are_refused() -> None:
    inputs = changed(2, np.zeros((1, 6, 24), np.uint8))
    with pytest.raises(UnsupportedError, match="W is int8 and R uint8"):
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes=ATTRIBUTES))


@pytest.mark.parametrize("shape", [(4, 0, 5), (0, 3, 5)])
def test_no_step_at_all_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedError, match="has no step"):
        OPERATOR.kernel(
            IntegerCall(
                OPERATOR.op_type, changed(0, np.zeros(shape, np.float32)), attributes=ATTRIBUTES
            )
        )


def test_another_direction_is_refused() -> None:
    with pytest.raises(ShapeError, match="direction 'sideways'"):
        OPERATOR.kernel(
            IntegerCall(OPERATOR.op_type, example(), attributes={"direction": "sideways"})
        )
