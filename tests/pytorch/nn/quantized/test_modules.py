from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from onnxq.affine import quantize
from onnxq.dtypes import INT8, INT32
from onnxq.errors import (
    CalibrationError,
    ModelError,
    QConfigError,
    ShapeError,
    UnsupportedError,
)
from onnxq.ort import runtime
from onnxq.pytorch import export
from onnxq.pytorch.nn import intrinsic, qat
from onnxq.pytorch.nn import quantized as nnq
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.nn.intrinsic import quantized as nniq
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize
from onnxq.qconfig import get_default_qat_qconfig, get_default_qconfig
from onnxq.qtensor import quantize_per_channel, quantize_per_tensor

pytestmark = pytest.mark.oracle

QAT = get_default_qat_qconfig()


def observed(low: float, high: float, **kwargs: Any) -> FakeQuantize:
    fake = FakeQuantize(**kwargs)
    fake(torch.tensor([low, high]))
    return fake.disable_observer()


def trained(kind: type[Any], *args: Any, **kwargs: Any) -> Any:
    """A QAT module between two quantizers."""
    module = kind(*args, qconfig=QAT, **kwargs).eval()
    module.bind_input(observed(-2.0, 2.0))
    module.activation_post_process = observed(-1.0, 3.0)
    return module


# --- Requantize


def test_requantize_is_quantize_and_dequantize_of_the_core() -> None:
    requantize = nnq.Requantize(0.1, 7, "uint8")
    x = torch.linspace(-4, 40, 999)
    integers = quantize(x.numpy(), requantize.qparams)
    np.testing.assert_array_equal(requantize.integers(x).numpy(), integers)
    assert torch.equal(requantize(requantize(x)), requantize(x))


def test_narrow_ranges_clip_integers() -> None:
    requantize = nnq.Requantize(0.5, 3, "uint8", 0, 15)
    assert requantize.integers(torch.tensor([-9.0, 99.0])).tolist() == [0, 15]
    assert "integers=0..15" in repr(requantize)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((0.0, 0, "uint8"), ShapeError),
        ((0.1, 300, "uint8"), ShapeError),
        ((torch.ones(2), 0, "uint8"), ShapeError),
        ((0.1, 0, "uint9"), QConfigError),
        ((0.1, 0, "uint8", 0, 256), ShapeError),
    ],
)
def test_requantize_refuses_invalid_qparams(args: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        nnq.Requantize(*args)


def test_requantize_of_a_trained_fake_quantize_keeps_the_integers_it_was_trained_with() -> None:
    fake = observed(0.0, 3.0, quant_min=0, quant_max=15)
    x = torch.linspace(-1, 5, 77)
    assert torch.equal(nnq.Requantize.from_float(fake)(x), fake(x))


def test_what_was_only_observed_uses_every_integer() -> None:
    fake = observed(0.0, 3.0, reduce_range=True).disable_fake_quant()
    assert nnq.Requantize.from_float(fake).every_integer


def test_one_scale_per_channel_is_refused_for_activations() -> None:
    fake = FakeQuantize(QAT.weight.observer)  # type: ignore[union-attr]
    fake(torch.ones(3, 2))
    with pytest.raises(UnsupportedError, match="one scale per activation"):
        nnq.Requantize.from_float(fake)


# --- constructors, repr, documented methods


def test_modules_are_made_as_torch_makes_them() -> None:
    conv = nnq.Conv2d(4, 6, 3, stride=2, padding=1, groups=2, bias=False)
    assert conv.weight().shape == (6, 2, 3, 3)
    assert conv.bias() is None
    assert repr(conv) == (
        "QuantizedConv2d(4, 6, kernel_size=(3, 3), stride=(2, 2), scale=1, zero_point=0, "
        "padding=(1, 1), groups=2, bias=False)"
    )
    assert repr(nnq.Linear(3, 4)) == (
        "QuantizedLinear(in_features=3, out_features=4, scale=1, zero_point=0)"
    )
    assert repr(nniq.ConvReLU1d(1, 1, 1)).startswith("QuantizedConvReLU1d(")
    assert repr(nnq.Quantize(0.5, 3, torch.quint8)) == (
        "Quantize(scale=0.5, zero_point=3, dtype=uint8)"
    )
    assert nnq.Embedding(5, 3).weight().shape == (5, 3)
    assert nnq.BatchNorm2d(3).scale == 1.0


def test_set_weight_bias_stores_integers_and_weight_gives_them_back() -> None:
    layer = nnq.Linear(3, 2)
    stored = quantize_per_channel(
        np.array([[1, -2, 3], [4, 5, -6]], np.float32), [0.1, 0.2], [0, 0], 0, "qint8"
    )
    layer.set_weight_bias(stored, torch.tensor([0.5, -0.25]), 0.05)
    assert layer.weight().equal(stored)
    assert layer.weight().dtype == INT8
    assert layer.bias_integers is not None
    assert layer.bias_integers.dtype == torch.int32
    assert layer.bias_integers.tolist() == [100, -25]
    torch.testing.assert_close(layer.bias(), torch.tensor([0.5, -0.25]))


def test_a_bias_beyond_int32_raises_the_weight_scale_and_says_so() -> None:
    layer = nnq.Linear(2, 1)
    stored = quantize_per_channel(np.zeros((1, 2), np.float32), [1e-9], [0], 0, "qint8")
    with pytest.warns(UserWarning, match="weight scale of 1 channel"):
        layer.set_weight_bias(stored, torch.tensor([50.0]), 1e-3)
    assert layer.bias() is not None
    torch.testing.assert_close(layer.bias(), torch.tensor([50.0]))


def test_wrong_weights_are_refused() -> None:
    layer = nnq.Linear(2, 3)
    stored = quantize_per_tensor(np.ones((2, 3), np.float32), 0.1, 0, "qint8")
    with pytest.raises(ShapeError, match=r"wanted \(3, 2\)"):
        layer.set_weight_bias(stored, None)
    with pytest.raises(ShapeError, match="wanted a QTensor"):
        layer.set_weight_bias(torch.ones(3, 2), None)
    good = quantize_per_tensor(np.ones((3, 2), np.float32), 0.1, 0, "qint8")
    with pytest.raises(ShapeError, match="wanted 3"):
        layer.set_weight_bias(good, torch.ones(2), 1.0)
    with pytest.raises(ModelError, match="NaN"):
        layer.set_weight_bias(good, torch.tensor([1.0, float("nan"), 0]), 1.0)


def test_an_unknown_padding_mode_names_the_known_ones() -> None:
    with pytest.raises(QConfigError, match=r"Conv2d: padding_mode must be one of .*reflect"):
        nnq.Conv2d(1, 1, 1, padding_mode="zero")


@pytest.mark.parametrize("padding", ["same", "valid", 1])
def test_padded_convolutions_equal_the_float_ones_on_the_same_numbers(padding: Any) -> None:
    for mode in ("zeros", "reflect", "circular"):
        conv = trained(qat.Conv2d, 2, 3, 3, padding=padding, padding_mode=mode)
        conv.activation_post_process = None
        x = conv.input_fake_quant(torch.randn(2, 2, 7, 6))
        torch.testing.assert_close(nnq.Conv2d.from_float(conv)(x), conv(x), atol=0, rtol=0)


# --- from_float


@pytest.mark.parametrize(
    ("kind", "quantized", "args", "shape"),
    [
        (qat.Conv1d, nnq.Conv1d, (2, 3, 3), (2, 2, 9)),
        (qat.Conv2d, nnq.Conv2d, (2, 3, 3), (2, 2, 9, 8)),
        (qat.Conv3d, nnq.Conv3d, (2, 3, 2), (2, 2, 4, 5, 3)),
        (qat.Linear, nnq.Linear, (4, 3), (5, 4)),
        (fused.ConvBn2d, nnq.Conv2d, (2, 3, 3), (2, 2, 9, 8)),
        (fused.ConvReLU2d, nniq.ConvReLU2d, (2, 3, 3), (2, 2, 9, 8)),
        (fused.ConvBnReLU2d, nniq.ConvReLU2d, (2, 3, 3), (2, 2, 9, 8)),
        (fused.LinearReLU, nniq.LinearReLU, (4, 3), (5, 4)),
    ],
)
def test_from_float_of_a_trained_module_computes_what_it_computed(
    kind: Any, quantized: Any, args: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    module = trained(kind, *args)
    x = module.input_fake_quant(torch.randn(shape))
    wanted = module.activation_post_process(module(x))
    made = quantized.from_float(module)
    assert torch.equal(made(x), wanted)
    assert made.weight_integers.dtype == torch.int8


def test_from_float_of_an_observed_float_module() -> None:
    conv = nn.Conv2d(2, 3, 3)
    conv.qconfig = get_default_qconfig()  # type: ignore[assignment]
    conv.input_fake_quant = observed(-2.0, 2.0)
    conv.activation_post_process = observed(-1.0, 1.0)
    made = nnq.Conv2d.from_float(conv)
    difference = made.weight().dequantize() - conv.weight.detach().numpy()
    assert np.abs(difference / made.weight().qparams.scale.reshape(-1, 1, 1, 1)).max() <= 0.501


@pytest.mark.parametrize(
    ("quantized", "given"),
    [
        (nnq.Conv2d, nn.Linear(2, 2)),
        (nnq.Conv2d, fused.ConvReLU2d(2, 2, 1, qconfig=QAT)),  # its ReLU would be lost
        (nniq.ConvReLU2d, nn.Conv2d(2, 2, 1)),
        (nnq.Linear, nn.Conv2d(2, 2, 1)),
        (nnq.BatchNorm2d, nn.BatchNorm1d(2)),
        (nnq.LayerNorm, nn.GroupNorm(1, 2)),
        (nnq.Embedding, nn.Linear(2, 2)),
        (nnq.ReLU, nn.ELU()),
        (nnq.QFunctional, nn.ReLU()),
    ],
)
def test_from_float_refuses_another_type(quantized: Any, given: nn.Module) -> None:
    with pytest.raises(UnsupportedError, match="got a"):
        quantized.from_float(given)


def test_from_float_without_data_or_qconfig_says_what_to_do() -> None:
    module = qat.Linear(2, 2, qconfig=QAT)
    with pytest.raises(CalibrationError, match="no data was seen"):
        nnq.Linear.from_float(module)
    module.bind_input(FakeQuantize())
    with pytest.raises(CalibrationError, match="no data was seen"):
        nnq.Linear.from_float(module)
    with pytest.raises(QConfigError, match="no qconfig"):
        nnq.Linear.from_float(nn.Linear(2, 2))
    with pytest.raises(UnsupportedError, match="no FakeQuantize for its output"):
        nnq.Hardswish.from_float(nn.Hardswish())


@pytest.mark.parametrize(
    ("kind", "quantized", "shape"),
    [
        (nn.ELU(0.5), nnq.ELU, (3, 4)),
        (nn.Hardswish(), nnq.Hardswish, (3, 4)),
        (nn.LeakyReLU(0.2), nnq.LeakyReLU, (3, 4)),
        (nn.ReLU6(), nnq.ReLU6, (3, 4)),
        (nn.Sigmoid(), nnq.Sigmoid, (3, 4)),
        (nn.Softmax(1), nnq.Softmax, (3, 4)),
        (nn.LayerNorm(4), nnq.LayerNorm, (3, 4)),
        (nn.LayerNorm(4, bias=False), nnq.LayerNorm, (3, 4)),
        (nn.GroupNorm(2, 4), nnq.GroupNorm, (3, 4, 5)),
        (nn.BatchNorm2d(4), nnq.BatchNorm2d, (3, 4, 5, 5)),
        (nn.BatchNorm3d(4), nnq.BatchNorm3d, (3, 4, 5, 5, 2)),
        (nn.InstanceNorm1d(4), nnq.InstanceNorm1d, (3, 4, 5)),
        (nn.InstanceNorm2d(4, affine=True), nnq.InstanceNorm2d, (3, 4, 5, 5)),
        (
            nn.InstanceNorm3d(4, affine=True, track_running_stats=True),
            nnq.InstanceNorm3d,
            (3, 4, 5, 5, 2),
        ),
        (
            intrinsic.BNReLU2d(nn.BatchNorm2d(4), nn.ReLU()),
            nniq.BNReLU2d,
            (3, 4, 5, 5),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_layers_without_kernel_compute_in_float_and_round_once(
    kind: nn.Module, quantized: Any, shape: tuple[int, ...]
) -> None:
    for name, parameter in kind.named_parameters():
        nn.init.uniform_(parameter, 0.5, 1.5 if name.endswith("weight") else 1.0)
    kind.eval()
    kind.activation_post_process = observed(-1.0, 4.0)
    x = torch.randn(shape)
    made = quantized.from_float(kind)
    assert torch.equal(made(x), kind.activation_post_process(kind(x)))
    assert not any(p.requires_grad for p in made.parameters())


# --- embeddings


@pytest.mark.parametrize("per_row", [False, True])
def test_embeddings_look_up_integers(per_row: bool) -> None:
    table = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    scales = np.abs(table).max(1) / 127
    stored = (
        quantize_per_channel(table, scales, np.zeros(7), 0, "qint8")
        if per_row
        else quantize_per_tensor(table, 0.03, 3, "quint8")
    )
    layer = nnq.Embedding(7, 5, _weight=stored, dtype=stored.dtype)
    ids = torch.tensor([[0, 6], [3, 3]])
    np.testing.assert_array_equal(layer(ids).numpy(), stored.dequantize()[ids.numpy()])
    bag = nnq.EmbeddingBag(7, 5, mode="sum", _weight=stored, dtype=stored.dtype)
    torch.testing.assert_close(bag(ids), layer(ids).sum(1))
    torch.testing.assert_close(bag(ids.flatten(), torch.tensor([0, 2])), layer(ids).sum(1))


def test_embeddings_are_looked_up_as_integers_where_they_are_deployed() -> None:
    table = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    per_row = quantize_per_channel(table, np.abs(table).max(1) / 127, np.zeros(50), 0, "qint8")
    single = quantize_per_tensor(table, 0.03, 0, "qint8")

    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nnq.Embedding(50, 16, _weight=per_row, dtype="qint8")
            self.one = nnq.Embedding(50, 16, _weight=single, dtype="qint8")
            self.bag = nnq.EmbeddingBag(50, 16, mode="mean", _weight=per_row, dtype="qint8")

        def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.rows(ids), self.one(ids), self.bag(ids)

    net, ids = Tables().eval(), torch.randint(0, 50, (3, 7))
    model = export(net, ids)
    kinds = [node.op_type for node in model.graph]
    assert kinds.count("Gather") >= 3
    assert "GatherND" not in kinds
    with runtime.open_session(model) as session:
        for found, wanted in zip(session.run({"ids": ids.numpy()}), net(ids), strict=True):
            torch.testing.assert_close(torch.from_numpy(np.asarray(found)), wanted)


def test_embeddings_of_trained_modules_and_refusals() -> None:
    table = qat.Embedding(6, 4, qconfig=QAT)
    table.activation_post_process = observed(-3.0, 3.0)
    ids = torch.arange(6)
    wanted = table.activation_post_process(table(ids))
    assert torch.equal(nnq.Embedding.from_float(table)(ids), wanted)
    with pytest.raises(QConfigError, match="max_norm"):
        nnq.Embedding(3, 2, max_norm=1.0)
    with pytest.raises(QConfigError, match="mode"):
        nnq.EmbeddingBag(3, 2, mode="median")


# --- state_dict


def test_a_state_dict_carries_types_and_shapes_that_the_constructor_does_not_know() -> None:
    source = nnq.Linear.from_float(trained(qat.Linear, 3, 2))
    source.output = nnq.Requantize(0.1, -3, "int8", -7, 7)
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    target = nnq.Linear(3, 2)
    target.load_state_dict(torch.load(file, weights_only=True))
    assert target.weight().equal(source.weight())
    assert target.output is not None
    assert target.output.integers_in_use == "-7..7"
    assert target.zero_point == -3
    x = torch.randn(4, 3)
    assert torch.equal(target(x), source(x))


def test_a_state_dict_without_bias_or_output_qparams_loads_into_a_default_module() -> None:
    source = nnq.Linear(3, 2, bias_=False)
    source.output = None
    target = nnq.Linear(3, 2, bias_=True)
    target.load_state_dict(source.state_dict())
    assert target.bias() is None
    assert target.output is None
    with pytest.raises(QConfigError, match="stays in float32"):
        _ = target.scale


def test_qfunctional_has_one_scale_and_no_forward() -> None:
    f = nnq.QFunctional()
    f.scale, f.zero_point = 0.5, 4
    x, y = torch.tensor([1.0, -9.0]), torch.tensor([0.6, 1.0])
    assert f.add(x, y).tolist() == [1.5, -2.0]
    assert f.add_relu(x, y).tolist() == [1.5, 0.0]
    assert f.mul(x, y).tolist() == [0.5, -2.0]
    assert f.cat([x, y]).tolist() == [1.0, -2.0, 0.5, 1.0]
    assert f.add_scalar(x, 1.0).tolist() == [2.0, -2.0]
    assert f.mul_scalar(x, 2.0).tolist() == [2.0, -2.0]
    assert f.matmul(x[None], y[:, None]).tolist() == [[-2.0]]
    with pytest.raises(UnsupportedError):
        f(x)


def test_int32_is_no_type_for_activations() -> None:
    with pytest.raises(UnsupportedError, match="biases"):
        nnq.Requantize(0.1, 0, INT32)


def test_activations_take_the_device_and_then_the_dtype_as_torch() -> None:
    made = nnq.Hardswish(0.1, 3, torch.device("meta"), torch.qint8)
    assert made.output.zero_point.device.type == "meta"
    assert nnq.Hardswish(0.1, 3, None, torch.qint8).output.zero_point.dtype == torch.int8
    elu = nnq.ELU(0.1, 3, 2.0)
    assert elu.extra_repr() == "alpha=2.0"
    assert elu.output.zero_point.dtype == torch.uint8


def test_a_linear_layer_with_relu_takes_bias_and_dtype_in_torchs_places() -> None:
    assert nniq.LinearReLU(2, 3, False, torch.qint8).bias() is None
    assert nniq.LinearReLU(2, 3, bias=False).bias() is None
    assert nniq.LinearReLU(2, 3).bias() is not None
