"""Models that torchao quantized: the same integers and scales in the ONNX model."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import onnxq
from onnxq import qconfig
from onnxq.errors import CalibrationError, QConfigError, UnsupportedError
from onnxq.ort import runtime
from onnxq.pytorch import import_quantized, quantize_
from onnxq.pytorch.nn.quantized import Requantize, dynamic
from onnxq.pytorch.nn.quantized.dynamic import torchao as taken
from onnxq.pytorch.nn.quantized.dynamic.linear import GroupwiseLinear

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ao: Any = pytest.importorskip("torchao.quantization")
    qat: Any = pytest.importorskip("torchao.quantization.qat")

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.linspace(-2, 2, 4 * 64).reshape(4, 64)
INT4 = {"weight_dtype": vars(torch)["int4"]}
GROUPS = ao.IntxWeightOnlyConfig(**INT4, granularity=ao.PerGroup(32))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8, bias=False)).eval()


def run(model: ir.Model, x: torch.Tensor = X) -> Array:
    with runtime.open_session(model) as session:
        return session.run({str(model.graph.inputs[0].name): x.numpy()})[0]


def integers(layer: Any) -> tuple[Array, Array]:
    """Integers and scales of a layer of onnxq, as torchao has them."""
    if not isinstance(layer, GroupwiseLinear):
        return layer.weight_integers.numpy(), layer.weight_scale.numpy()
    shifts = np.arange(0, 8, layer.bits, dtype=np.uint8)
    parts = (layer.integers.numpy()[..., None] >> shifts) & ((1 << layer.bits) - 1)
    rows = parts.reshape(layer.out_features, -1)[:, : layer.in_features].astype(np.int16)
    return rows - (1 << (layer.bits - 1)), layer.scales.numpy()


CONFIGS = {
    "a scale per row": (ao.Int8WeightOnlyConfig(), taken.WeightOnlyLinear),
    "one scale": (ao.Int8WeightOnlyConfig(granularity=ao.PerTensor()), taken.WeightOnlyLinear),
    "int8 groups": (ao.Int8WeightOnlyConfig(granularity=ao.PerGroup(32)), GroupwiseLinear),
    "dynamic": (ao.Int8DynamicActivationInt8WeightConfig(), dynamic.Linear),
    "int4 groups": (GROUPS, GroupwiseLinear),
    "int4 rows": (ao.IntxWeightOnlyConfig(**INT4), GroupwiseLinear),
    "int3 rows": (ao.IntxWeightOnlyConfig(weight_dtype=vars(torch)["int3"]), GroupwiseLinear),
    "8da4w": (ao.Int8DynamicActivationIntxWeightConfig(**INT4), GroupwiseLinear),
}


@pytest.mark.parametrize(("config", "kind"), CONFIGS.values(), ids=CONFIGS)
def test_integers_and_scales_are_torchaos(config: Any, kind: type[nn.Module]) -> None:
    model = quantize_(net(), config)
    found = taken.taken_from_torchao(model)
    assert found is not None
    for layer in (0, 2):
        mine, theirs = found.model[layer], model[layer].weight  # type: ignore[index]
        assert isinstance(mine, kind)
        got, scale = integers(mine)
        np.testing.assert_array_equal(got, theirs.qdata.numpy())
        wanted = theirs.scale.reshape(theirs.shape[0] if theirs.scale.numel() > 1 else 1, -1)
        ratio = scale.size // wanted.numel()
        np.testing.assert_array_equal(scale.reshape(-1), wanted.repeat_interleave(ratio))


@pytest.mark.parametrize("name", ["a scale per row", "int4 groups", "8da4w"])
def test_the_onnx_model_computes_what_torchao_does(name: str) -> None:
    model = quantize_(net(), GROUPS if name == "int4 groups" else CONFIGS[name][0])
    imported = import_quantized(model, X)
    wanted = model(X).detach().numpy()
    bound = 0.03 if name == "8da4w" else 1e-5  # torchao rounds activations there
    assert np.abs(run(imported) - wanted).max() <= bound * np.abs(wanted).max()
    np.testing.assert_array_equal(run(onnxq.export(model, X)), run(imported))


@pytest.mark.parametrize("name", ["a scale per row", "one scale", "int8 groups", "int4 groups"])
def test_activations_stay_float_in_sequences_too(name: str) -> None:
    """ONNX Runtime would round activations of a DequantizeLinear and a MatMul to int8."""
    tokens = X.reshape(2, 2, 64)
    model = quantize_(net(), CONFIGS[name][0])
    got = run(import_quantized(model, tokens), tokens)  # refused where they differ
    wanted = model(tokens).detach().numpy()
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_zero_points_that_are_real_are_kept() -> None:
    """Int4WeightOnlyConfig wants a GPU's package to quantize; its tensor is made by hand."""
    torch.manual_seed(0)
    layer, groups = nn.Linear(64, 8, bias=False), 2
    q = torch.randint(-8, 8, (8, 64))
    scale, zero = torch.rand(groups, 8) + 0.5, torch.randn(groups, 8)
    packed = ((q[:, 1::2] << 4) | (q[:, ::2] & 15)).to(torch.int8)
    weight = ao.Int4Tensor(packed, scale, zero, [1, 32], layer.weight.shape)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    real = q * scale.t().repeat_interleave(32, 1) + zero.t().repeat_interleave(32, 1)
    exported = onnxq.export(layer, X)
    assert [node.op_type for node in exported.graph] == ["MatMulNBits"]
    np.testing.assert_allclose(
        np.asarray(run(exported), np.float32), (X @ real.t()).numpy(), rtol=1e-5, atol=1e-4
    )


def test_static_activations_get_their_scale_from_samples() -> None:
    config = ao.Int8StaticActivationInt8WeightConfig(granularity=ao.PerTensor(), reduce_range=True)
    with pytest.raises(CalibrationError, match=r"Int8StaticActivation.* give samples"):
        quantize_(net(), config)
    model = quantize_(net(), config, [X[:2], X[2:]])
    found: Any = taken.taken_from_torchao(model)
    assert isinstance(found.model[0][0], Requantize)
    assert float(found.model[0][0].scale) == pytest.approx(2 / 63)
    torch.testing.assert_close(found.model(X), model(X))
    import_quantized(model, X)


@pytest.mark.parametrize("base", [GROUPS, CONFIGS["8da4w"][0]])
def test_what_torchao_trains_is_what_it_converts_to(base: Any) -> None:
    prepared = quantize_(net(), qat.QATConfig(base, step="prepare"))
    trained: Any = taken.taken_from_torchao(prepared)
    theirs = quantize_(prepared, qat.QATConfig(base, step="convert"))
    assert not any(hasattr(layer, "weight_fake_quantizer") for layer in theirs.modules())
    converted: Any = taken.taken_from_torchao(theirs)
    for layer in (0, 2):
        for one, other in zip(
            *map(integers, (trained.model[layer], converted.model[layer])), strict=True
        ):
            np.testing.assert_array_equal(one, other)


def test_convolutions_and_embeddings_hold_a_scale_per_row() -> None:
    torch.manual_seed(0)
    image = nn.Sequential(nn.Conv2d(32, 8, 1)).eval()
    quantize_(image, ao.IntxWeightOnlyConfig(), filter_fn=lambda m, _: isinstance(m, nn.Conv2d))
    import_quantized(image, torch.randn(2, 32, 6, 6))  # holds the results against torchao's
    words = nn.Sequential(nn.Embedding(20, 32)).eval()
    quantize_(words, ao.IntxWeightOnlyConfig(), filter_fn=lambda m, _: isinstance(m, nn.Embedding))
    import_quantized(words, torch.tensor([[1, 3], [0, 19]]))


def test_float8_and_small_groups_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"'0' \(Linear\): torchao's Float8Tensor"):
        import_quantized(quantize_(net(), ao.Float8WeightOnlyConfig()), X)
    small = ao.IntxWeightOnlyConfig(**INT4, granularity=ao.PerGroup(8))
    with pytest.raises(UnsupportedError, match="groups of 8; MatMulNBits has 16"):
        onnxq.export(quantize_(net(), small), X)


def test_configs_of_onnxq_are_taken_too() -> None:
    in_place = net()
    assert quantize_(in_place, qconfig.default_dynamic_qconfig) is in_place
    assert isinstance(in_place[0], dynamic.Linear)
    static = quantize_(net(), qconfig.get_default_qconfig("fbgemm"), [X])
    assert onnxq.export(static, X).graph
    with pytest.raises(QConfigError, match="quantize_: got a str"):
        quantize_(net(), "int8")
