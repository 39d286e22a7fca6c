from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq import reference, targets
from onnxq.affine import dequantize
from onnxq.checking.cross_check import cross_check
from onnxq.dtypes import INT8, UINT8
from onnxq.observers import HistogramObserver, MinMaxObserver, NarrowRangeObserver, ObserverSpec
from onnxq.ort import runtime
from onnxq.qconfig import QConfig, QConfigMapping
from onnxq.qparams import per_tensor, stored_as
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from onnxq.survey.verified import verify
from onnxq.targets.accumulation import SaturationMode
from tests.golden_models import conv_model, data
from tests.this_machine import TARGET, run_exactly

if TYPE_CHECKING:
    import onnx_ir as ir

SYMMETRIC = MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric")
AFFINE = MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_affine")
OBSERVERS = {
    "symmetric": SYMMETRIC,
    "affine": AFFINE,
    "narrow": SYMMETRIC.with_args(quant_min=-127, quant_max=127),
    "reduced": SYMMETRIC.with_args(reduce_range=True),
    "histogram": HistogramObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric"),
    "affine histogram": HistogramObserver.with_args(dtype="qint8"),
    "unsigned": MinMaxObserver.with_args(dtype="quint8", qscheme="per_tensor_symmetric"),
}
RESIDUAL = (
    "c = Conv(x, w, b) r = Relu(c) d = Conv(r, v) s = Add(d, r) t = Relu(s)"
    " p = MaxPool<kernel_shape=[2, 2]>(t) e = Conv(p, w) f = Clip(e, zero, six)"
    " k = Concat<axis=1>(f, p) g = GlobalAveragePool(k) m = Mul(k, g) y = Sigmoid(m)"
)
CHAIN = "c = Conv(x, w, b) r = Relu(c) d = Conv(r, v) y = Conv(d, w)"
NAMED = {
    "Softmax": "Softmax<axis=1>(d)",
    "Sub": "Sub(d, r)",
    "Resize": 'Resize<mode="nearest">(r, , scales)',
    "AveragePool": "AveragePool<kernel_shape=[2, 2]>(r)",
    "Where": "Where(yes, d, r)",
    "HardSigmoid": "HardSigmoid(d)",
    "Pad": "Pad(r, pads)",
    "Max": "Max(d, r)",
}
CONSTANTS: dict[str, np.ndarray] = {
    "scales": np.array([1, 1, 2, 2], np.float32),
    "yes": np.array([[[[True]], [[False]]]]).repeat(4, 1),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
}


def mapping(observer: ObserverSpec) -> QConfigMapping:
    return QConfigMapping(QConfig(observer, NarrowRangeObserver.with_args()))


def made(
    source: ir.Model, qconfig: QConfigMapping, target: str = "x86-vnni", form: str = "qdq"
) -> tuple[ir.Model, Plan]:
    prepared = prepare(source, qconfig, target)
    planned = plan(prepared, calibrate(prepared, data(4)))
    return rewrite(prepared, planned, form), planned


def types(planned: Plan) -> set[str]:
    return {qparams.dtype.name for qparams in planned.tensors.values()}


def kernels(model: ir.Model) -> tuple[Counter[str], Counter[str]]:
    """(in integers, in float), of what ONNX Runtime runs here."""
    uses = runtime.integer_nodes(runtime.optimized_graph(model))
    saturation_mode = runtime.NodeKind
    found = (runtime.count(uses, kind) for kind in (saturation_mode.INTEGER, saturation_mode.FLOAT))
    integer, floating = (Counter(dict(counts)) for counts in found)
    return integer, floating


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("target", ["x86-vnni", "portable"])
@pytest.mark.parametrize("name", OBSERVERS)
def test_all_of_a_residual_network_runs_in_integers(name: str, target: str, form: str) -> None:
    model, planned = made(conv_model(RESIDUAL), mapping(OBSERVERS[name]), target, form)
    assert types(planned) == {"uint8"}
    integer, floating = kernels(model)
    assert not floating
    assert integer["QLinearConv"] == 3
    assert integer["QLinearAdd"] == integer["QLinearMul"] == 1
    assert integer["QLinearConcat"] + integer["Concat"] == 1  # a copy of integers, on one grid
    cross_check(model, data(1)).check()


@pytest.mark.parametrize("op_type", NAMED)
def test_what_is_named_is_stored_so_too(op_type: str) -> None:
    body = f"c = Conv(x, w) r = Relu(c) d = Conv(r, v) n = {NAMED[op_type]} y = Conv(n, w)"
    source = conv_model(body, constants=CONSTANTS)
    qconfig = mapping(SYMMETRIC)
    qconfig = qconfig.set_op_type(op_type, qconfig.global_qconfig)
    model, planned = made(source, qconfig)
    assert types(planned) == {"uint8"}
    integer, floating = kernels(model)
    assert integer["QLinearConv"] >= 2
    assert "Conv" not in floating
    cross_check(model, data(1)).check()
    default = mapping(MinMaxObserver.with_args(qscheme="per_tensor_symmetric"))
    unsigned, _ = made(source, default.set_op_type(op_type, default.global_qconfig))
    assert kernels(model) == kernels(unsigned)


@pytest.mark.parametrize("observer", [SYMMETRIC, AFFINE], ids=["symmetric", "affine"])
def test_the_numbers_are_those_of_int8_integers(observer: ObserverSpec) -> None:
    source = conv_model(CHAIN)
    unsigned, shifted = made(source, mapping(observer))
    signed, kept = made(source, mapping(observer), "arm64-dot", "qoperator")
    assert types(kept) == {"int8"}
    for tensor, qparams in kept.tensors.items():
        assert shifted.tensors[tensor] == stored_as(qparams, UINT8)
        bounds = kept.integer_bounds.get(tensor)
        moved = None if bounds is None else (bounds[0] + 128, bounds[1] + 128)
        assert shifted.integer_bounds.get(tensor) == moved
    x = data(1)[0]
    with runtime.open_session(signed) as other:
        np.testing.assert_array_equal(run_exactly(unsigned, x)[0], other.run(x)[0])


def test_the_report_says_how_they_are_stored() -> None:
    _, planned = made(conv_model(CHAIN), mapping(SYMMETRIC))
    (note,) = planned.notes
    assert "int8 activations ('x', 'r'" in note
    assert "are stored as uint8 with zero_point + 128" in note


@pytest.mark.parametrize("target", ["arm64", "arm64-dot", "arm64-i8mm"])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_arm_keeps_int8(target: str, form: str) -> None:
    assert targets.find(target).int8_activations
    model, planned = made(conv_model(RESIDUAL), mapping(SYMMETRIC), target, form)
    assert types(planned) == {"int8"}
    stored, times = planned.notes
    assert f"stay int8, which {target} runs in integers" in stored
    assert times.startswith(f"no times were measured for {target}")
    there = {node.op_type for node in reference.integer_form(model, SaturationMode.WRAPS).graph}
    assert not there & {"Conv", "Add", "Mul", "GlobalAveragePool", "Sigmoid"}
    if form == "qoperator":
        assert not kernels(model)[1]


@pytest.mark.parametrize(
    "qconfig",
    [
        mapping(SYMMETRIC).set_tensor("r", MinMaxObserver.with_args()),
        mapping(SYMMETRIC).set_op_type(
            "Conv", QConfig(SYMMETRIC, MinMaxObserver.with_args(dtype="quint8"))
        ),
    ],
    ids=["activations", "weights"],
)
def test_beside_uint8_arm_gets_uint8(qconfig: QConfigMapping) -> None:
    model, planned = made(conv_model(CHAIN), qconfig, "arm64-dot")
    assert types(planned) == {"uint8"}
    assert any("other activations or weights are uint8" in note for note in planned.notes)
    assert kernels(model)[0]["QLinearConv"] == 3


def test_int8_activations_by_uint8_weights_run_in_the_form_that_onnxq_writes() -> None:
    body = "c = ConvTranspose(x, w) y = Conv(c, v)"
    entry = QConfig(AFFINE, MinMaxObserver.with_args(dtype="quint8"))
    model, planned = made(conv_model(body), QConfigMapping(entry))
    assert types(planned) == {"uint8"}
    assert not kernels(model)[1]


def test_uint8_and_uint16_are_left_alone() -> None:
    for dtype in ("uint8", "uint16", "int16"):
        prepared = prepare(conv_model(CHAIN), mapping(MinMaxObserver.with_args(dtype=dtype)))
        assert {group.dtype.name for group in prepared.groups} == {dtype}
        assert not any("stored as" in note for note in prepared.notes)


def test_shifted_qparams_stand_for_the_same_numbers() -> None:
    signed = per_tensor(0.1, -7, INT8)
    unsigned = stored_as(signed, UINT8)
    assert unsigned == per_tensor(0.1, 121, UINT8)
    integers = np.arange(-128, 128)
    np.testing.assert_array_equal(
        dequantize(integers.astype(np.int8), signed),
        dequantize((integers + 128).astype(np.uint8), unsigned),
    )
    assert stored_as(signed, INT8) is signed


def test_a_symmetric_histogram_keeps_the_relu_of_a_range_per_channel() -> None:
    body = "c = Conv(x, w, b) r = Relu(c) y = Conv<group=8>(r, k)"
    k = np.random.default_rng(3).standard_normal((8, 1, 1, 1)).astype(np.float32)
    source = conv_model(body, constants={"k": k})
    for dtype in ("qint8", "quint8"):
        observer = HistogramObserver.with_args(dtype=dtype, qscheme="per_tensor_symmetric")
        model, planned = made(source, mapping(observer), TARGET)
        assert planned.channel_scales
        assert planned.integer_bounds["r"] == (128, 255)
        findings = verify(source, model, data(2))
        assert min(tensor.sqnr_db for tensor in findings.tensors) > 25  # 9 dB without the Relu
        assert {tensor.name for tensor in findings.tensors} >= {"r"}
