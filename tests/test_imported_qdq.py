"""Files with Q and DQ from other tools, brought to integers."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq import targets
from onnxq.checking.execution import execution_in
from onnxq.checking.inventory import inventory
from onnxq.errors import ModelError, VerificationError
from onnxq.graph.saving import saved_bytes
from onnxq.operator.nodes import input_at, tensor_of
from onnxq.ort import runtime
from onnxq.qdq.imported import read_imported
from onnxq.qdq.read import one_scale
from tests.examples import images, network
from tests.qdq_files import FILES, SIGNED, File, brevitas, inputs, modelopt, tensorrt

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from onnxq.quantized.quantized_model import QuantizedModel
    from tests.qdq_files import Numbers


def as_said(model: onnx.ModelProto, x: dict[str, Numbers]) -> Numbers:
    """The output as the file says it: in float32, without ONNX Runtime's optimizations."""
    plain = runtime.Optimization.NONE
    with runtime.open_session(ir.from_proto(model), optimization=plain, threads=1) as session:
        return np.asarray(session.run(x)[0])


def here(model: ir.Model, x: dict[str, Numbers]) -> Numbers:
    with runtime.open_session(model, threads=1) as session:
        return np.asarray(session.run(x)[0])


def sqnr_db(x: Numbers, y: Numbers) -> float:
    return float(10 * np.log10(np.square(x).sum() / (np.square(x - y).sum() + 1e-30)))


def notes_of(model: QuantizedModel) -> tuple[str, ...]:
    assert model.verdict is not None
    return model.verdict.notes


def stored(model: ir.Model) -> list[ir.TensorProtocol]:
    """Constants of the main graph."""
    tensors = [value.const_value for value in model.graph.initializers.values()]
    return [tensor for tensor in tensors if tensor is not None]


def scales(model: ir.Model) -> set[float]:
    """Scales of tensors that run time rounds."""
    found = [one_scale(node) for node in model.graph if node.op_type == "QuantizeLinear"]
    return {float(qparams.scale) for qparams in found if qparams is not None}


@pytest.mark.parametrize("name", FILES)
def test_the_result_computes_what_the_file_computes(name: str) -> None:
    model = FILES[name]()
    x = inputs(model)
    made = onnxq.import_qdq(model, x)
    # measured: 48 dB and more on any machine; what the rounding itself moves is 33 to 49 dB
    assert sqnr_db(as_said(model, x), here(made, x)) > 40


@pytest.mark.parametrize("name", FILES)
def test_every_scale_stays(name: str) -> None:
    model = FILES[name]()
    assert scales(ir.from_proto(model)) <= scales(onnxq.import_qdq(model)) | {1.0}


@pytest.mark.parametrize("name", ["tensorrt", "brevitas", "keras", "modelopt", "nncf"])
def test_float_weights_become_integers(name: str) -> None:
    model = FILES[name]()
    made = onnxq.import_qdq(model)
    kinds = {tensor.dtype for tensor in stored(made) if tensor.size > 256}
    assert kinds <= {ir.DataType.INT8, ir.DataType.UINT8}
    assert saved_bytes(made) < 0.6 * model.ByteSize()


@pytest.mark.parametrize(("name", "floats"), [("tensorrt", 1), ("brevitas", 0), ("modelopt", 0)])
def test_what_has_scales_runs_in_integers(name: str, floats: int) -> None:
    made = onnxq.import_qdq(FILES[name]())
    session, optimized = runtime.open_with_graph(made)
    session.close()
    in_float = execution_in(made, optimized).float_nodes
    assert sum(in_float.get(op, 0) for op in ("Conv", "FusedConv", "Gemm", "MatMul")) == floats


def test_a_conv_without_a_scale_behind_it_is_named() -> None:
    (note,) = [n for n in notes_of(onnxq.import_qdq(tensorrt())) if "in float" in n]
    assert note.startswith("1 nodes compute in float, since the file has no scale")


@pytest.mark.parametrize(
    ("integers", "zero", "why"),
    [
        (ml_dtypes.int4, np.uint8(128), "multiplies weights of 8 bits"),
        (np.int8, np.uint16(32768), "multiplies inputs of 8 bits"),
    ],
)
def test_types_without_integer_kernels_are_named(
    integers: npt.DTypeLike, zero: Numbers, why: str
) -> None:
    f = File(opset=21)
    weight = f.rng.integers(-7, 8, (32, 16)).astype(integers)
    w = f.op("DequantizeLinear", weight, np.float32(0.01), np.zeros((), integers))
    y = f.op("MatMul", f.qdq("x", 0.03, zero), w)
    f.op("Identity", f.qdq(y, 0.02, zero), out="y")
    model = f.model("onnx.quantize", ("N", 32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nothing is in integers
        made = onnxq.import_qdq(model)
    (note,) = [note for note in notes_of(made) if "in float" in note]
    assert why in note


def test_a_transposed_convolution_of_16_bits_stays_in_float() -> None:
    f = File(opset=21)
    zero = np.uint16(32768)
    weight = f.rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)
    w = f.op("DequantizeLinear", weight, np.float32(0.01), np.int8(0))
    y = f.op("ConvTranspose", f.qdq("x", 0.03, zero), w)
    f.op("Identity", f.qdq(y, 0.02, zero), out="y")
    model = f.model("onnx.quantize", ("N", 4, 6, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nothing is in integers
        made = onnxq.import_qdq(model)
    assert "ConvTranspose" in [node.op_type for node in made.graph]
    assert made.verdict is not None
    assert made.verdict.worst_db > 60


def test_what_the_file_has_in_integers_stays_so_beside_the_rest() -> None:
    f = File(opset=21)
    x = f.qdq("x", 0.03, np.uint8(128))
    y = f.op("Softmax", x)  # 0.57 of float's speed in integers, so that the flow leaves it in float
    z = f.qdq(y, 1 / 256, np.uint8(0))
    w = f.op(
        "DequantizeLinear", f.rng.integers(-99, 99, (32, 16)).astype(np.int8), np.float32(0.01)
    )
    f.op("Identity", f.op("MatMul", z, w), out="y")
    model = f.model("onnx.quantize", ("N", 32))
    made = onnxq.import_qdq(model, quantize_rest=inputs(model, 64))
    (softmax,) = [n for n in made.graph if n.op_type in ("Softmax", "QLinearSoftmax")]
    assert all(p.op_type in ("DequantizeLinear", "QuantizeLinear") for p in softmax.predecessors())
    assert [s.op_type for s in softmax.successors()] == ["QuantizeLinear"]


def test_int8_activations_become_uint8() -> None:
    made = onnxq.import_qdq(tensorrt())
    kinds = {n.outputs[0].dtype for n in made.graph if n.op_type == "QuantizeLinear"}
    assert kinds == {ir.DataType.UINT8}


def test_a_clip_to_all_of_the_type_goes_and_others_stay_on_integers() -> None:
    made = onnxq.import_qdq(brevitas())
    ends = [
        tuple(int(tensor_of(input_at(node, slot)).numpy()) for slot in (1, 2))
        for node in made.graph
        if node.op_type == "Clip"
    ]
    assert ends == [(1, 255), (0, 15)]  # of the input, as uint8 around 128; of 4 bits


@pytest.mark.parametrize("file", [tensorrt, brevitas])  # the latter has a Clip at each weight
def test_weights_are_uint8_where_pairs_of_products_saturate(
    file: Callable[[], onnx.ModelProto],
) -> None:
    kinds = {}
    for target in ("portable", "x86-vnni", "arm64"):
        made = onnxq.import_qdq(file(), target=target, check=None)
        kinds[target] = {t.dtype for t in stored(made) if t.size > 256}
    assert kinds["portable"] == {ir.DataType.UINT8}
    assert kinds["x86-vnni"] == kinds["arm64"] == {ir.DataType.INT8}


@pytest.mark.parametrize("name", FILES)
def test_what_the_tool_left_in_float_is_quantized_from_samples(name: str) -> None:
    model = FILES[name]()
    x = inputs(model, 64)
    made = onnxq.import_qdq(model, quantize_rest=x)
    assert sqnr_db(as_said(model, x), here(made, x)) > 25
    (note,) = [n for n in notes_of(made) if "scales of activations" in n]
    kept, known = map(int, re.findall(r"\d+", note))
    assert kept >= known - 1  # a copy of a tensor has the scale of what it copies


def test_a_concat_whose_inputs_have_scales_of_their_own_is_taken() -> None:
    f = File(opset=21)
    x = f.qdq("x", 0.03, np.uint8(128))
    boxes = f.qdq(f.op("Relu", f.op("MatMul", x, f.weight(32, 16, axis=1))), 0.04, np.uint8(0))
    scores = f.qdq(
        f.op("Sigmoid", f.op("MatMul", x, f.weight(32, 16, axis=1))), 1 / 256, np.uint8(0)
    )
    f.op("Identity", f.qdq(f.op("Concat", boxes, scores, axis=1), 0.04, np.uint8(0)), out="y")
    model = f.model("onnx.quantize", ("N", 32))
    samples = inputs(model, 64)
    made = onnxq.import_qdq(model, quantize_rest=samples)
    assert sqnr_db(as_said(model, samples), here(made, samples)) > 25


def test_the_rest_of_a_residual_block_runs_in_integers() -> None:
    model = tensorrt()
    verdict = onnxq.import_qdq(model, quantize_rest=inputs(model, 64)).verdict
    assert verdict is not None
    assert verdict.float_nodes == 0


def test_the_qoperator_format_computes_the_same() -> None:
    model = modelopt()
    x = inputs(model)
    one, other = (onnxq.import_qdq(model, x, format=f) for f in ("qdq", "qoperator"))
    np.testing.assert_array_equal(here(one, x), here(other, x))


def test_the_verdict_speaks_of_the_given_file() -> None:
    model = modelopt()
    said = str(onnxq.import_qdq(model, inputs(model)).verdict)
    assert "of the given file's size" in said
    assert "beside the given file, on 16 of 16 samples to check on" in said


def test_a_wrong_result_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxq import imported_qdq

    other = read_imported(ir.from_proto(brevitas()))
    monkeypatch.setattr(imported_qdq, "in_integers", lambda *_: (other, 0))
    with pytest.raises(VerificationError, match="times as far from the given file's"):
        onnxq.import_qdq(tensorrt())


def test_a_float_model_is_refused_with_the_commands_for_it() -> None:
    with pytest.raises(ModelError, match=r"no QuantizeLinear.*onnxq quantize"):
        onnxq.import_qdq(network())


def test_weights_alone_are_refused_with_the_commands_for_them() -> None:
    # ONNX Runtime makes MatMulNBits of such MatMuls, and rounds activations, as no import should
    f = File(opset=21)
    q = f.rng.integers(-8, 8, (64, 16)).astype(ml_dtypes.int4)
    w = f.op("DequantizeLinear", q, f.normal(2, 16) ** 2 + np.float32(0.1), axis=0, block_size=32)
    f.op("MatMul", "x", w, out="y")
    with pytest.raises(ModelError, match=r"weights alone are integers.*quantize-weights"):
        onnxq.import_qdq(f.model("onnxsim", ("N", 64)))


def test_a_bias_at_a_scale_of_its_own_becomes_int32() -> None:
    # as Quark's XINT8 stores it: int8, every scale a power of 2
    f = File()
    b = f.op("DequantizeLinear", np.arange(-8, 8, dtype=np.int8), np.float32(2**-6), np.int8(0))
    y = f.op("Conv", f.qdq("x", 2**-5, SIGNED), f.weight(16, 3, 3, 3), b, pads=[1] * 4)
    f.op("Identity", f.qdq(y, 2**-5, SIGNED), out="y")
    model = f.model("onnx.quantize")
    x = inputs(model)
    made = onnxq.import_qdq(model, x)
    assert [t.dtype for t in stored(made) if t.size == 16].count(ir.DataType.INT32) == 1
    assert sqnr_db(as_said(model, x), here(made, x)) > 30


def test_biases_with_a_scale_per_channel_stand_beside_weights_with_one() -> None:
    f = File()
    scales = np.linspace(0.01, 0.02, 16, dtype=np.float32)
    b = f.op("DequantizeLinear", np.arange(-8, 8, dtype=np.int8), scales, axis=0)
    integers = f.rng.integers(-127, 128, (16, 3, 3, 3)).astype(np.int8)
    w = f.op("DequantizeLinear", integers, np.float32(2**-8))
    y = f.op("Conv", f.qdq("x", 2**-5, SIGNED), w, b, pads=[1] * 4)
    f.op("Identity", f.qdq(y, 2**-3, SIGNED), out="y")
    model = f.model("another tool")
    x = inputs(model)
    assert sqnr_db(as_said(model, x), here(onnxq.import_qdq(model, x), x)) > 30


def test_pairs_of_a_transposed_convolution_do_not_saturate() -> None:
    f = File()
    integers = f.rng.choice(np.array([-127, 127], np.int8), (16, 4, 3, 3))
    w = f.op("DequantizeLinear", integers, np.float32(2**-8))
    y = f.op("ConvTranspose", f.qdq("x", 2**-7, SIGNED), w, pads=[1] * 4)
    f.op("Identity", f.qdq(y, 2**-3, SIGNED), out="y")
    model = f.model("another tool", ("N", 16, 8, 8))
    x = {"x": np.abs(inputs(model)["x"])}
    made = onnxq.import_qdq(model, x, target="portable")
    assert not any(t.dtype == ir.DataType.INT8 and t.size > 16 for t in stored(made))
    assert np.abs(as_said(model, x) - here(made, x)).max() <= 2**-3


def test_without_a_target_it_is_made_for_this_machine() -> None:
    f = File()
    integers = f.rng.choice(np.array([-127, 127], np.int8), (16, 3, 3, 3))
    w = f.op("DequantizeLinear", integers, np.float32(2**-8))
    y = f.op("Conv", f.qdq("x", 2**-7, SIGNED), w, pads=[1] * 4)
    f.op("Identity", f.qdq(y, 2**-3, SIGNED), out="y")
    model = f.model("another tool")
    made = onnxq.import_qdq(model, inputs(model))
    is_exact = targets.resolve("auto").reduces_range
    assert made.verdict is not None
    assert any("--target portable" in note for note in made.verdict.notes) is not is_exact
    kept = any(t.dtype == ir.DataType.INT8 and t.size > 16 for t in stored(made))
    assert kept is not is_exact


def test_a_file_of_16_bits_is_said_to_be_equal_and_why_it_computes_in_float() -> None:
    f = File(opset=21)
    zero = np.uint16(32768)
    y = f.op("MatMul", f.qdq("x", 2**-12, zero), f.weight(32, 16, axis=1))
    f.op("Identity", f.qdq(y, 2**-12, zero), out="y")
    model = f.model("onnx.quantize", ("N", 32))
    verdict = onnxq.import_qdq(model, inputs(model)).verdict
    assert verdict is not None
    assert not verdict.warning
    assert "nothing is quantized" not in str(verdict)
    assert verdict.worst_db > 80
    assert any("compute in float, since" in note for note in verdict.notes)


def test_integers_as_inputs_are_activations() -> None:
    f = File()
    q = f.op("DequantizeLinear", "x", np.float32(0.02), np.uint8(128))
    f.op("MatMul", q, f.integers(-60, 61, 0.003, 64, 16), out="y")
    model = f.model("another tool", ("N", 64))
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    (name,) = inputs(model)
    x = {name: f.rng.integers(0, 256, (2, 64)).astype(np.uint8)}
    made = onnxq.import_qdq(model, x)
    assert sqnr_db(as_said(model, x), here(made, x)) > 60


def test_what_onnxq_wrote_is_refused() -> None:
    made = onnxq.quantize(network(), {"x": images(8)})
    with pytest.raises(ModelError, match="onnxq wrote this file"):
        onnxq.import_qdq(made)


def test_quantize_names_import_qdq() -> None:
    with pytest.raises(ModelError, match="onnxq import-qdq"):
        onnxq.quantize(tensorrt(), inputs(tensorrt()))


def test_weights_that_are_rounded_at_load_are_weights() -> None:
    found = inventory(ir.from_proto(modelopt()))
    assert [weight.op_type for weight in found.weights] == ["MatMul"] * 3
    assert {weight.dtype for weight in found.weights} == {"int8, stored as float"}
    assert dict(found.activations) == {"int8, per tensor": 3}


def test_a_file_without_matmuls_is_left_as_it_is() -> None:
    f = File()
    f.op("Relu", f.qdq("x", 0.1, np.uint8(128)), out="y")
    model = f.model("by hand")
    x = inputs(model)
    np.testing.assert_array_equal(as_said(model, x), here(onnxq.import_qdq(model, x), x))


def test_an_output_between_q_and_dq_keeps_its_name() -> None:
    f = File()
    y = f.op("MatMul", f.qdq("x", 0.03, np.uint8(128)), f.weight(32, 16, axis=1))
    f.qdq(y, 0.02, np.uint8(128))
    f.nodes[-1].output[0] = "y"
    model = f.model("onnx.quantize", ("N", 32))
    x = inputs(model)
    for rest in (None, x):
        made = onnxq.import_qdq(model, x, quantize_rest=rest)
        assert [value.name for value in made.graph.outputs] == ["y"]
        assert sqnr_db(as_said(model, x), here(made, x)) > 30


def test_a_scale_of_shape_1_is_one_number() -> None:
    # PyTorch's exporter writes them so; ONNX Runtime refuses the QLinearAdd that it makes of them
    f = File()
    x = f.qdq("x", [0.03], np.zeros(1, np.int8))
    y = f.qdq(f.op("Relu", f.op("MatMul", x, f.weight(32, 32, axis=1))), [0.02], [np.int8(0)])
    f.op("Identity", f.qdq(f.op("Add", y, x), [0.04], [np.int8(0)]), out="y")
    model = f.model("pytorch", ("N", 32))
    x_in = inputs(model)
    assert sqnr_db(as_said(model, x_in), here(onnxq.import_qdq(model, x_in), x_in)) > 30


def test_a_clip_with_one_end_is_followed() -> None:
    # PyTorch's exporter writes 7-bit integers so: Clip(q, none, 127)
    f = File()
    x = f.op("QuantizeLinear", "x", np.float32(0.03), np.uint8(64))
    f.nodes.append(onnx.helper.make_node("Clip", [x, "", f.constant(np.uint8(127))], ["c"], "clip"))
    x = f.op("DequantizeLinear", "c", np.float32(0.03), np.uint8(64))
    f.op("Relu", f.op("MatMul", x, f.weight(32, 32, axis=1)), out="y")
    model = f.model("pytorch", ("N", 32))
    x_in = inputs(model)
    for rest in (None, x_in):
        made = onnxq.import_qdq(model, x_in, quantize_rest=rest)
        assert sqnr_db(as_said(model, x_in), here(made, x_in)) > 30


def test_a_batch_norm_behind_a_division_goes_into_the_scales() -> None:
    # torch.ao trains Conv with weights scaled by the batch norm's factor, and divides behind it
    f = File()
    y = f.op("Conv", f.qdq("x", 0.03, np.uint8(128)), f.weight(16, 3, 3, 3), pads=[1] * 4)
    factor = f.rng.uniform(0.5, 2, 16).astype(np.float32)
    y = f.op("Div", y, factor.reshape(1, 16, 1, 1))
    numbers = [factor, f.normal(16), f.normal(16), factor]  # gamma, beta, mean, var
    y = f.op("Relu", f.op("BatchNormalization", y, *numbers))
    f.op("Flatten", f.qdq(y, 0.02, np.uint8(0)), out="y")
    model = f.model("pytorch")
    x = inputs(model)
    made = onnxq.import_qdq(model, x)
    assert {"Div", "BatchNormalization"}.isdisjoint(node.op_type for node in made.graph)
    assert made.verdict is not None
    assert made.verdict.float_nodes == 0
    assert sqnr_db(as_said(model, x), here(made, x)) > 40
