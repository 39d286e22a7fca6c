from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxq.errors import CalibrationError
from onnxq.samples import InputSpec, input_specs
from onnxq.samples.inputs import batch_of, by_input, check_finite, check_shape, have_batch_axis

MODEL = """
<ir_version: 3, opset_import: ["" : 21]>
g (float[n,3,4] image, int64[2] ids, float[3] w, float[b,?] state) => (float[n,3,4] y)
<float[3] w = {1, 2, 3}> { y = Relu(image) }
"""


def test_specs_are_the_inputs_without_the_initializers() -> None:
    model = ir.serde.deserialize_model(onnx.parser.parse_model(MODEL))
    image, ids, state = input_specs(model, optional=["state"])
    assert image == InputSpec("image", np.dtype(np.float32), ("n", 3, 4))
    assert ids == InputSpec("ids", np.dtype(np.int64), (2,))
    assert (state.shape, state.optional) == (("b", None), True)
    assert (image.static_batch, ids.static_batch) == (None, 2)


def test_an_input_of_unknown_rank_takes_any_shape() -> None:
    spec = InputSpec("x", np.dtype(np.float32), None)
    check_shape((1, 2, 3), spec, "x", "(1, 2, 3)")
    assert str(spec) == "'x': float32 of any shape"


def test_a_dynamic_dimension_takes_any_size() -> None:
    check_shape((9, 3), InputSpec("x", np.dtype(np.float32), ("n", 3)), "x", "(9, 3)")


def test_the_first_number_that_is_not_finite_is_named() -> None:
    x = np.zeros((2, 3), np.float32)
    x[1, 2] = np.inf
    with pytest.raises(CalibrationError, match=r"x, sample 11: holds inf at \(2,\)"):
        check_finite(x, "x", 10)


def test_integers_are_always_finite() -> None:
    check_finite(np.zeros(3, np.int64), "x", 0)


@pytest.mark.parametrize(
    ("shape", "order"),
    [((2, 32, 30, 3), "(0, 3, 1, 2)"), ((2, 40, 3), "(0, 2, 1)")],
)
def test_channels_that_stand_last_are_told_how_to_move(shape: tuple[int, ...], order: str) -> None:
    sizes = ("n", 3, 32, 30) if len(shape) == 4 else ("n", 3, None)
    spec = InputSpec("x", np.dtype(np.float32), sizes)
    wanted = f"The channels stand elsewhere: array.transpose{order} has that shape."
    with pytest.raises(CalibrationError, match=re.escape(wanted)):
        check_shape(shape, spec, "x", str(shape))


def test_channels_that_stand_first_are_told_how_to_move() -> None:
    spec = InputSpec("x", np.dtype(np.float32), ("n", 32, 30, 3))
    with pytest.raises(CalibrationError, match=re.escape("array.transpose(0, 2, 3, 1)")):
        check_shape((2, 3, 32, 30), spec, "x", "(2, 3, 32, 30)")


def test_one_sample_is_told_how_to_get_its_axis() -> None:
    spec = InputSpec("x", np.dtype(np.float32), ("n", 3, 32, 30))
    with pytest.raises(CalibrationError, match=r"one sample: array\[None\] has that shape"):
        check_shape((3, 32, 30), spec, "x", "(3, 32, 30)")


def test_no_advice_is_given_where_no_order_fits() -> None:
    spec = InputSpec("x", np.dtype(np.float32), ("n", 3, 32, 30))
    with pytest.raises(CalibrationError, match=r"shape \(n, 3, 32, 30\)\.$"):
        check_shape((2, 5, 6, 7), spec, "x", "(2, 5, 6, 7)")


def test_a_model_whose_batch_is_0_takes_no_sample() -> None:
    spec = InputSpec("x", np.dtype(np.float32), (0, 4))
    with pytest.raises(CalibrationError, match="'x' is 0, so that it takes no sample"):
        batch_of([spec], None, "samples")


@pytest.mark.parametrize(
    ("shapes", "has"),
    [
        ((("n", 3), ("n", 4)), True),
        (((2, 3), (2, 4)), True),
        (((2, 3), (4, 3)), False),
        (((1, 3), ("n", 3)), True),
        ((("n", 576), (2, "n", 128), ()), False),
        (((None, None), (2, None, 128)), False),
    ],
)
def test_a_state_of_layers_has_no_batch_axis_in_common(
    shapes: tuple[tuple[int | str | None, ...], ...], has: bool
) -> None:
    specs = [InputSpec(f"x{i}", np.dtype(np.float32), shape) for i, shape in enumerate(shapes)]
    assert have_batch_axis(specs) is has


def test_of_several_unknown_arrays_one_is_to_be_renamed() -> None:
    spec = InputSpec("x", np.dtype(np.float32), ("N", 2))
    with pytest.raises(CalibrationError, match="Rename the one of 'a', 'labels' that is an input"):
        by_input({"a": 1, "labels": 2}, [spec], "samples")
    with pytest.raises(CalibrationError, match=r"leave it out with ignore \(--ignore labels\)"):
        by_input({"x": 1, "labels": 2}, [spec], "samples")
