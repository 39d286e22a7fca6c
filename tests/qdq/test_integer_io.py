from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.errors import CalibrationError, QConfigError
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.qconfig import Pixels, QConfigMapping
from onnxq.qdq.integer_io import cancel_round_trips
from onnxq.survey.verified import verify
from tests.examples import model, network, weights

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxq.core.arrays import Array
    from onnxq.quantized.quantized_model import QuantizedModel

RNG = np.random.default_rng(0)
P = RNG.integers(0, 256, (16, 3, 8, 8), dtype=np.uint8)
P.reshape(16, -1)[:, :2] = 0, 255  # so that calibration sees both ends
HALF = Pixels((128.0,), (64.0,), 1)
IMAGENET = Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def normalized(p: npt.NDArray[np.uint8], pixels: Pixels) -> npt.NDArray[np.float32]:
    mean, std = (np.array(n, np.float64).reshape(-1, 1, 1) for n in (pixels.mean, pixels.std))
    return np.asarray((p * pixels.scale - mean) / std, np.float32)


def quantize(pixels: Pixels, *, form: str = "qdq", **ends: object) -> QuantizedModel:
    x = normalized(P, pixels)
    return onnxq.quantize(network(), {"x": x}, format=form, check=onnxq.Check.NONE, **ends)  # type: ignore[arg-type]


def integers_of(quantized: ir.Model, feeds: dict[str, Array]) -> dict[str, Array]:
    """Every tensor of integers behind the input."""
    names = [v.name for n in quantized.graph for v in n.outputs if v.dtype == ir.DataType.UINT8]
    exposed = expose(quantized, [str(name) for name in names if not str(name).startswith("x")])
    with runtime.open_session(exposed.model, threads=1) as session:
        got = dict(zip(session.outputs, session.run(feeds), strict=True))
    return {tensor: got[output] for tensor, output in exposed.outputs.items()}


@pytest.mark.parametrize("kind", ["pixels", "integers"])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_integers_behind_the_input_are_those_of_the_model_on_numbers(form: str, kind: str) -> None:
    """mean / scale is a whole number, and calibration sees 0 and 255: the two have one grid."""
    wish = HALF if kind == "pixels" else "integers"
    on_numbers = quantize(HALF, form=form)
    on_integers = quantize(HALF, form=form, quantized_input={"x": wish})
    before = integers_of(on_numbers, {"x": normalized(P, HALF)})
    after = integers_of(on_integers, {"x": P})
    assert before.keys() == after.keys()
    assert len(before) > 3
    for name, integers in before.items():
        assert (integers == after[name]).all(), name
    (image,) = on_integers.graph.inputs
    assert (image.name, image.dtype) == ("x", ir.DataType.UINT8)


@pytest.mark.parametrize("pixels", [HALF, IMAGENET], ids=["one zero", "three zeros"])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_model_on_pixels_is_as_near_float_as_the_one_on_numbers(pixels: Pixels, form: str) -> None:
    on_pixels = quantize(pixels, form=form, quantized_input={"x": pixels})
    of_numbers, of_pixels = (
        verify(network(), made, {"x": normalized(P, pixels)}).outputs[0].sqnr_db
        for made in (quantize(pixels, form=form), on_pixels)
    )
    assert of_pixels > of_numbers - 1.5  # one rounding less, another grid
    assert verify(network(), on_pixels, {"x": P}).outputs[0].sqnr_db == of_pixels
    found = onnxq.cross_check(on_pixels, {"x": P[:2]})
    found.check()
    assert found.end_to_end == ""


def test_float_first_layer_reads_the_pixels_by_a_dequantize_linear() -> None:
    mapping = onnxq.qconfig.default_qconfig_mapping().set_node("conv1", None)
    made = quantize(IMAGENET, quantized_input={"x": IMAGENET}, qconfig=mapping)
    assert made.graph.inputs[0].dtype == ir.DataType.UINT8
    assert verify(network(), made, {"x": P}).outputs[0].sqnr_db > 20


def test_pool_ahead_of_the_first_conv_runs_on_the_pixels() -> None:
    node = helper.make_node
    pooled = model(
        [
            node("MaxPool", ["x"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", ["p", "w"], ["y"], "conv"),
        ],
        {"w": weights(0, 4, 3, 1, 1)},
        {"x": ["N", 3, 8, 8]},
    )
    samples = {"x": normalized(P, HALF)}
    made = onnxq.quantize(pooled, samples, format="qoperator", quantized_input={"x": HALF})
    assert made.graph[0].op_type == "MaxPool"
    assert verify(pooled, made, samples).outputs[0].sqnr_db > 20


def test_verdict_compares_pixels_and_integers_with_the_float_model() -> None:
    made = onnxq.quantize(
        network(), {"x": P}, quantized_input={"x": IMAGENET}, quantized_output=["y"]
    )
    assert made.verdict is not None
    assert (made.verdict.outputs[0].sqnr_db or 0) > 20
    assert made.graph.outputs[0].dtype == ir.DataType.UINT8
    findings = verify(network(), made, {"x": normalized(P, IMAGENET)})
    assert findings.outputs[0].sqnr_db > 20
    assert not findings.unmatched


def test_samples_that_are_no_pixels_are_refused() -> None:
    with pytest.raises(CalibrationError, match=r"stand for pixels from .*wanted 0 to 255"):
        onnxq.quantize(network(), {"x": normalized(P, IMAGENET)}, quantized_input={"x": HALF})


def test_ends_without_integers_are_refused() -> None:
    floats = QConfigMapping(None)
    for ends, message in (
        ({"quantized_input": {"x": "integers"}}, "no quantizer .* reads input 'x'.*Conv 'conv1'"),
        ({"quantized_output": ["y"]}, "output 'y' has no integers: Gemm 'gemm'"),
        ({"quantized_output": ["z"]}, "no output 'z'; it has y"),
    ):
        with pytest.raises(QConfigError, match=message):
            quantize(HALF, qconfig=floats, **ends)


def test_float_reader_of_a_quantized_input_gets_its_numbers() -> None:
    node = helper.make_node
    two = model(
        [node("Conv", ["x", "w"], ["c"], "conv"), node("Erf", ["x"], ["e"], "erf")],
        {"w": weights(0, 4, 3, 1, 1)},
        {"x": ["N", 3, 8, 8]},
        {"c": onnx.TensorProto.FLOAT, "e": onnx.TensorProto.FLOAT},
    )
    x = normalized(P, HALF)
    made = onnxq.quantize(two, {"x": x}, quantized_input={"x": "integers"})
    assert [o.sqnr_db > 20 for o in verify(two, made, {"x": x}).outputs] == [True, True]


def test_quantizer_of_what_was_just_dequantized_goes() -> None:
    node = helper.make_node
    both = model(
        [
            node("DequantizeLinear", ["x", "s", "z"], ["a"]),
            node("QuantizeLinear", ["a", "s", "z"], ["b"]),
            node("QuantizeLinear", ["a", "t", "z"], ["c"]),
            node("MaxPool", ["b"], ["y"], kernel_shape=[2, 2]),
            node("MaxPool", ["c"], ["y2"], kernel_shape=[2, 2]),
        ],
        {
            "s": np.array(0.1, np.float32),
            "t": np.array(0.2, np.float32),
            "z": np.array(7, np.uint8),
        },
        {"x": ["N", 3, 8, 8]},
        {"y": onnx.TensorProto.UINT8, "y2": onnx.TensorProto.UINT8},
        dtype=onnx.TensorProto.UINT8,
    )
    loaded = ir.from_proto(both)
    cancel_round_trips(loaded)
    kinds = [n.op_type for n in loaded.graph]
    assert kinds == ["DequantizeLinear", "QuantizeLinear", "MaxPool", "MaxPool"]
