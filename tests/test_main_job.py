"""The main job on the embedded models and images: what the README promises, checked."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import onnxq
from models.cifar10 import load_sample
from onnxq.observers import HistogramObserver, MinMaxObserver, NarrowRangeObserver
from onnxq.ort import runtime
from onnxq.pytorch import load_module
from onnxq.qconfig import Choice, Pixels, QConfig, QConfigMapping
from onnxq.qdq.qoperator import Remains, remains
from onnxq.survey.verified import verify
from tests.examples import ALL_INTEGERS
from tests.qdq.test_qoperator import assert_same_integers
from tests.static.rewrite.test_qdq import kernels
from tests.this_machine import skip_where_it_saturates

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx_ir as ir

pytestmark = pytest.mark.oracle  # needs torch for the export

BATCH = 100
KERNELS = {
    "resnet20": {
        "QLinearConv": 21,
        "QLinearAdd": 9,
        "QLinearGlobalAveragePool": 1,
        "QGemm": 1,
    },
    "mobilenetv2": {
        "QLinearConv": 31,
        "QLinearAdd": 5,
        "QLinearGlobalAveragePool": 1,
        "QGemm": 1,
    },
}
FACTORIES = {"resnet20": "models.resnet:resnet20", "mobilenetv2": "models.mobilenet:mobilenetv2"}


@pytest.fixture(
    scope="module", params=[pytest.param("mobilenetv2", marks=pytest.mark.nightly), "resnet20"]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def calibration() -> npt.NDArray[np.float32]:
    return load_sample("calibration")[0]


@pytest.fixture(scope="module")
def source(name: str, calibration: npt.NDArray[np.float32]) -> ir.Model:
    module = load_module(FACTORIES[name], f"models/{name}.safetensors")
    return onnxq.export(module, (torch.from_numpy(calibration[:2]),))


# by day one file; the night has the other three
@pytest.fixture(
    scope="module", params=["x86-vnni", pytest.param("portable", marks=pytest.mark.nightly)]
)
def quantized(
    request: pytest.FixtureRequest, source: ir.Model, calibration: npt.NDArray[np.float32]
) -> ir.Model:
    # by default, the table of costs leaves the first nodes of MobileNetV2 in float
    samples = [{"image": calibration}]
    return onnxq.quantize(source, samples, qconfig=ALL_INTEGERS, target=request.param)


def correct(model: ir.Model) -> int:
    """How many of the embedded test images have their label as the largest logit."""
    images, labels = load_sample("test")
    with runtime.open_session(model) as session:
        return sum(
            int((session.run({"image": x})[0].argmax(1) == y).sum())
            for x, y in zip(
                np.split(images, len(images) // BATCH),
                np.split(labels, len(labels) // BATCH),
                strict=True,
            )
        )


@pytest.fixture(scope="module")
def float_correct(source: ir.Model) -> int:
    """Number of the 1,000 images that the float model gets right."""
    return correct(source)


def test_every_node_runs_in_integers(name: str, quantized: ir.Model) -> None:
    uses = runtime.integer_nodes(runtime.optimized_graph(quantized))
    integer = runtime.count(uses, runtime.NodeKind.INTEGER)
    assert not runtime.count(uses, runtime.NodeKind.FLOAT)
    moves = Counter({op: n for op, n in integer.items() if op not in ("Transpose", "Reshape")})
    assert moves == KERNELS[name]


PAIRWISE = {  # each observer, scheme and target in one; the others are run at night
    (HistogramObserver, "per_tensor_affine", "portable"),
    (MinMaxObserver, "per_tensor_symmetric", "x86-vnni"),
}
INT8 = [
    pytest.param(*case, marks=() if case in PAIRWISE else pytest.mark.nightly)
    for case in itertools.product(
        (HistogramObserver, MinMaxObserver),
        ("per_tensor_symmetric", "per_tensor_affine"),
        ("x86-vnni", "portable"),
    )
]


@pytest.mark.nightly
@pytest.mark.parametrize(("observer", "scheme", "target"), INT8)
def test_int8_activations_run_in_integers_too(
    observer: type[HistogramObserver | MinMaxObserver],
    scheme: str,
    target: str,
    name: str,
    source: ir.Model,
    float_correct: int,
    calibration: npt.NDArray[np.float32],
) -> None:
    spec = observer.with_args(dtype="qint8", qscheme=scheme)
    qconfig = QConfigMapping(QConfig(spec, NarrowRangeObserver.with_args()))
    qconfig = qconfig.set_choice(Choice.ALL_INTEGERS)
    prepared = onnxq.prepare(source, qconfig, target)
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, [{"image": calibration[:64]}]))
    for form in ("qdq", "qoperator"):
        model = onnxq.rewrite(prepared, made, form)
        uses = runtime.integer_nodes(runtime.optimized_graph(model))
        assert not runtime.count(uses, runtime.NodeKind.FLOAT)
        integer = runtime.count(uses, runtime.NodeKind.INTEGER)
        assert {op: integer[op] for op in KERNELS[name]} == KERNELS[name]
    skip_where_it_saturates(model)
    assert correct(model) >= float_correct - 20  # of 1,000; symmetric integers lose a bit


def test_top1_is_within_a_point_of_float(float_correct: int, quantized: ir.Model) -> None:
    skip_where_it_saturates(quantized)
    assert correct(quantized) >= float_correct - 10  # of 1,000


@pytest.mark.nightly
def test_logits_are_near(
    source: ir.Model, quantized: ir.Model, calibration: npt.NDArray[np.float32]
) -> None:
    skip_where_it_saturates(quantized)
    findings = verify(source, quantized, [{"image": calibration[:64]}])
    (logits,) = findings.outputs
    # quantize_static leaves 32 dB (ResNet-20) and 35 dB (MobileNetV2); 7-bit weights cost 3 dB
    assert logits.sqnr_db > 29
    assert not findings.unmatched


@pytest.fixture(scope="module")
def forms(source: ir.Model, calibration: npt.NDArray[np.float32]) -> dict[str, ir.Model]:
    """Both formats of one plan."""
    prepared = onnxq.prepare(source, ALL_INTEGERS)
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, [{"image": calibration[:32]}]))
    return {form: onnxq.rewrite(prepared, made, form) for form in ("qdq", "qoperator")}


def test_both_formats_give_the_same_integers(
    name: str, forms: dict[str, ir.Model], calibration: npt.NDArray[np.float32]
) -> None:
    qdq, qoperator = forms["qdq"], forms["qoperator"]
    assert remains(qoperator) == Remains()
    assert kernels(qdq) == kernels(qoperator)
    assert kernels(qoperator).count("QLinearConv") == KERNELS[name]["QLinearConv"]
    assert assert_same_integers(qdq, qoperator, {"image": calibration[-16:]}) > 4_000_000


def test_pixels_give_the_logits_of_the_floats_made_of_them(
    source: ir.Model, forms: dict[str, ir.Model], calibration: npt.NDArray[np.float32]
) -> None:
    wish = {"image": Pixels((128,), (64,), 1)}  # as models/cifar10.py says
    prepared = onnxq.prepare(source, ALL_INTEGERS, quantized_input=wish)
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, [{"image": calibration[:32]}]))
    on_pixels = onnxq.rewrite(prepared, made)
    images = load_sample("test")[0][:200]
    pixels = np.rint(images * 64 + 128).astype(np.uint8)
    with runtime.open_session(on_pixels) as ours, runtime.open_session(forms["qdq"]) as floats:
        (logits,), (wanted,) = ours.run({"image": pixels}), floats.run({"image": images})
    assert (logits == wanted).all()
    findings = verify(source, on_pixels, [{"image": images[:16]}])
    assert findings.outputs[0].sqnr_db > 29
    assert not findings.unmatched


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_every_integer_is_the_reference_s(
    form: str, forms: dict[str, ir.Model], calibration: npt.NDArray[np.float32]
) -> None:
    """benchmarks/cross_check.py does it over all 256 images, for two targets."""
    findings = onnxq.cross_check(
        forms[form], onnxq.Samples({"image": calibration[:16]}, batch_size=16)
    )
    findings.check()
    assert findings.differing == 0
    assert not findings.floats
    assert not findings.outputs[0].differing
