"""Models that torch exports nowhere else: each arrives in ONNX Runtime's integer operators."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.ao import quantization as tq

from onnxq import targets
from onnxq.errors import CalibrationError, QConfigError, UnsupportedError
from onnxq.graph import io
from onnxq.pytorch.importers import ImportedModelWarning, import_quantized, int8_weights
from onnxq.qdq.tidy import output_scales
from onnxq.quantized.verdict import InputSource
from tests.exact_engine import exact
from tests.torch_ao_models import IMAGES, Plain, Stubbed, converted, eager, engine, fx, outputs, qat

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::onnxq.pytorch.importers.ImportedModelWarning"),
]
RESIDUAL = {"QLinearConv": 2, "QLinearAdd": 1, "QLinearGlobalAveragePool": 1, "QGemm": 1}

RANGE = {"quant_min": 0, "quant_max": 255}
PLAIN = tq.FakeQuantize.with_args(observer=tq.MovingAverageMinMaxObserver, **RANGE)
PER_TENSOR = tq.QConfig(activation=PLAIN, weight=tq.default_weight_fake_quant)
PER_CHANNEL = tq.QConfig(activation=PLAIN, weight=tq.default_per_channel_weight_fake_quant)


def executed(model: ir.Model, folder: Path) -> Counter[str]:
    """Operators that ONNX Runtime runs after all its optimizations."""
    import onnxruntime

    io.save(model, folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)


def steps(model: ir.Model, quantized: nn.Module) -> float:
    """Largest difference from torch, in steps of the output."""
    with exact(model) as session:
        got = session.run({"x": IMAGES.numpy()})[0]
    scale = output_scales(model)[0][1]
    assert scale is not None
    return float(np.abs(got - outputs(quantized, IMAGES)[0].numpy()).max() / scale)


STATIC: dict[str, tuple[Any, Any]] = {
    "eager fbgemm": (lambda: converted(eager("fbgemm")), RESIDUAL),
    "eager qnnpack": (lambda: converted(eager("qnnpack"), "qnnpack"), RESIDUAL),
    "FX fbgemm": (lambda: converted(fx("fbgemm")), RESIDUAL),
    "FX qnnpack": (lambda: converted(fx("qnnpack"), "qnnpack"), RESIDUAL),
    "prepared": (lambda: eager("fbgemm"), RESIDUAL),
    "FX prepared": (lambda: fx("fbgemm"), RESIDUAL),
    # each batch norm that nobody fused is a depthwise convolution
    "QAT unfused per tensor": (
        lambda: qat(fuse=False, qconfig=PER_TENSOR), {**RESIDUAL, "QLinearConv": 4}
    ),
    "QAT unfused per channel": (
        lambda: qat(fuse=False, qconfig=PER_CHANNEL), {**RESIDUAL, "QLinearConv": 4}
    ),
    "QAT per tensor": (lambda: qat(qconfig=PER_TENSOR), RESIDUAL),
    "QAT per channel": (lambda: qat(qconfig=PER_CHANNEL), RESIDUAL),
    "QAT default": (lambda: qat("fbgemm"), RESIDUAL),
    "QAT default FX": (lambda: fx("fbgemm", trained=True), RESIDUAL),
}  # fmt: skip


@pytest.mark.parametrize("name", STATIC)
def test_static_models_arrive_in_integers(name: str, tmp_path: Path) -> None:
    make, wanted = STATIC[name]
    quantized = make()
    model = import_quantized(quantized, IMAGES)
    counts = executed(model, tmp_path)
    assert {op: counts[op] for op in wanted} == wanted
    assert counts["Conv"] + counts["FusedConv"] + counts["Gemm"] == 0
    # QAT: bias in float32 in training, averages not quantized: benchmarks/results/importers.md
    assert steps(model, quantized) <= (1.01 if "AT" not in name and "prep" not in name else 6)


def test_the_model_is_left_as_it_was_and_a_file_is_written(tmp_path: Path) -> None:
    quantized = converted(eager("qnnpack"), "qnnpack")
    with engine("qnnpack"):
        before = outputs(quantized, IMAGES)[0]
        model = import_quantized(quantized, IMAGES, tmp_path / "m.onnx", format="qoperator")
        assert torch.equal(outputs(quantized, IMAGES)[0], before)
    assert [node.op_type for node in model.graph].count("QLinearConv") == 2
    assert (tmp_path / "m.onnx").is_file()
    assert model.verdict is not None
    assert (model.verdict.input_source, model.verdict.outputs) == (InputSource.EXAMPLES, ())


def test_weights_of_minus_128_are_kept_with_a_warning() -> None:
    quantized = converted(eager("fbgemm"))
    with pytest.warns(ImportedModelWarning, match=r"-128, which wraps on arm64.*x86-avx2"):
        model = import_quantized(quantized, IMAGES)
    assert lowest_weight(model) == -128


@pytest.mark.parametrize(("here", "named"), [("x86-avx2", True), ("x86-vnni", False)])
def test_this_machine_is_named_beside_the_target_where_weights_saturate_on_it(
    here: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8_weights, "target_here", lambda: targets.find(here))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import_quantized(converted(eager("fbgemm")), IMAGES, target="x86-vnni")
    assert any("saturate on x86-avx2" in str(one.message) for one in said) is named


@pytest.mark.nightly
@pytest.mark.filterwarnings("error::onnxq.pytorch.importers.ImportedModelWarning")
@pytest.mark.parametrize(("target", "lowest"), [("arm64", -127), ("x86-avx2", -64)])
def test_weights_are_narrowed_on_request(target: str, lowest: int) -> None:
    quantized = converted(eager("fbgemm"))
    model = import_quantized(quantized, IMAGES, weights="narrow", target=target)
    assert lowest_weight(model) >= lowest if target == "arm64" else lowest_dense(model) >= lowest
    assert steps(model, quantized) <= 3


def weights(model: ir.Model) -> list[np.ndarray]:
    values = [v.const_value for v in model.graph.initializers.values()]
    arrays = [v.numpy() for v in values if v is not None]
    return [a for a in arrays if a.dtype == np.int8 and a.ndim > 1]


def lowest_weight(model: ir.Model) -> int:
    return min(int(w.min()) for w in weights(model))


def lowest_dense(model: ir.Model) -> int:
    """Lowest weight of all but the depthwise convolution, whose products are added in int32."""
    return min(int(w.min()) for w in weights(model) if w.shape[1] > 1)


def test_a_float_model_is_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match=r"nothing in Plain is quantized.*onnxq\.quantize"):
        import_quantized(Plain().eval(), IMAGES)


def test_a_prepared_model_without_data_is_refused() -> None:
    with engine("fbgemm"):
        model = Stubbed().eval()
        model.qconfig = tq.default_qconfig  # type: ignore[assignment]
        prepared = tq.prepare(model)
    with pytest.raises(CalibrationError, match="has seen data"):
        import_quantized(prepared, IMAGES)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(QConfigError, match=r"weights 'narow': .* Did you mean 'narrow'"):
        import_quantized(Plain(), IMAGES, weights="narow")
    with pytest.raises(UnsupportedError, match=r"wanted a torch\.nn\.Module"):
        import_quantized("model.pt", IMAGES)  # type: ignore[arg-type]
