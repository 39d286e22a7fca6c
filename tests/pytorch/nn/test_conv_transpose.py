"""Transposed convolutions: trained as they run, with stubs and without."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import onnxq
from onnxq.errors import QConfigError, ShapeError
from onnxq.pytorch import (
    DeQuantStub,
    FakeQuantize,
    QuantStub,
    convert,
    disable_observer,
    export,
    fuse_modules,
    prepare,
    prepare_qat,
)
from onnxq.pytorch.deployed import Feeding, compare
from onnxq.pytorch.nn import intrinsic, qat
from onnxq.pytorch.nn import quantized as nnq
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.nn.intrinsic.qat import freeze_bn_stats
from onnxq.pytorch.train.annotations import ANNOTATIONS
from onnxq.qconfig import (
    QConfigMapping,
    get_default_qat_qconfig,
    get_default_qconfig,
    onnxq_default_qat_qconfig,
)

if TYPE_CHECKING:
    from pathlib import Path

MAPPING = QConfigMapping(get_default_qat_qconfig())
KINDS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class UNet(nn.Module):
    """Down once, up: with batch norm and ReLU behind, with a sum, depthwise, as a function."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.same, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1)
        self.depthwise = nn.ConvTranspose2d(8, 8, 3, padding=1, groups=8)
        self.weight, self.bias = (
            nn.Parameter(torch.randn(8, 4, 2, 2) / 4),
            nn.Parameter(torch.randn(4)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, 4, 4 H, 4 W)."""
        across = self.same(x).relu()
        y = self.norm(self.up(self.down(across).relu())).relu()
        y = self.depthwise(self.second(across + y)).relu()
        return functional.conv_transpose2d(y, self.weight, self.bias, 2)


def with_statistics(model: nn.Module, x: Tensor) -> nn.Module:
    for module in model.modules():
        if isinstance(module, NORMS):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
    model.train()(x)
    return model.eval()


def train(model: nn.Module, x: Tensor, steps: int = 3) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("groups", [1, 4])
def test_what_is_trained_is_what_onnx_runtime_computes(groups: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 3, 16, 16)
    model = with_statistics(UNet(groups), x)
    trained: Any = prepare_qat(model, inputs=x)
    assert type(trained.up) is fused.ConvTransposeBnReLU2d
    assert type(trained.depthwise) is fused.ConvTransposeReLU2d
    assert trained.up.weight_fake_quant.ch_axis == 1
    assert trained.depthwise.weight_fake_quant.ch_axis == 0
    train(trained, x)
    trained.apply(freeze_bn_stats).apply(disable_observer).eval()
    exported = export(convert(trained), x, tmp_path / "net.onnx")
    found = compare(trained, exported, [torch.randn(8, 3, 16, 16)], Feeding.LAYER_BY_LAYER)
    assert len(found.tensors) == len(trained.meta[ANNOTATIONS].groups)
    assert all(one.share >= 0.998 and one.largest <= 1 for one in found.tensors.values())
    checked = onnxq.cross_check(
        tmp_path / "net.onnx", onnxq.Samples({"x": x.numpy()}, batch_size=8)
    )
    assert checked.exact
    ptq = onnxq.quantize(export(model, x), [{"x": x.numpy()}], qconfig=MAPPING)
    stored = {"DequantizeLinear"}  # biases are floats where these give the same integers
    assert operators(exported).keys() == operators(ptq).keys()
    assert not {op for op, _ in (operators(exported) - operators(ptq)).items()} - stored
    assert "ConvTranspose" not in operators(exported)


def operators(model: Any) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


class Decoder(nn.Module):
    """With stubs."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.up = nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1, groups=2)
        self.norm, self.relu = nn.BatchNorm2d(6), nn.ReLU()
        self.last = nn.ConvTranspose2d(6, 3, 3, stride=2, output_padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, 4 H + 2, 4 W + 2)."""
        y: Tensor = self.dequant(self.last(self.relu(self.norm(self.up(self.quant(x))))))
        return y


def test_with_stubs_it_trains_and_runs_in_integers() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 4, 5, 6)
    model: Any = with_statistics(Decoder(), x).train()
    fuse_modules(model, [["up", "norm", "relu"]], inplace=True)
    assert type(model.up) is intrinsic.ConvTransposeBnReLU2d
    model.qconfig = get_default_qat_qconfig()
    trained: Any = prepare_qat(model)
    assert type(trained.last) is qat.ConvTranspose2d
    train(trained, x)
    quantized = convert(trained.apply(freeze_bn_stats).apply(disable_observer).eval())
    last: Any = quantized.last
    assert type(last) is nnq.ConvTranspose2d
    with torch.no_grad():
        step = float(last.scale)
        assert float((trained(x) - quantized(x)).abs().max()) <= 1.01 * step
    exported = export(quantized, x)
    assert operators(exported)["QLinearConv"] == 2
    assert not operators(exported)["ConvTranspose"]


def test_post_training_with_stubs_has_scales_per_output_channel() -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 4, 5, 6)
    model: Any = with_statistics(Decoder(), x)
    wanted = model(x)
    fuse_modules(model, [["up", "norm", "relu"]], inplace=True)
    assert torch.allclose(model(x), wanted, atol=1e-5)
    model.qconfig = get_default_qconfig()
    prepared = prepare(model)
    prepared(x)
    quantized: Any = convert(prepared)
    assert quantized.up.weight_scale.shape == (3,)
    assert quantized.up.bias_scale.shape == (6,)
    with torch.no_grad():
        assert float((quantized(x) - wanted).abs().mean()) <= float(quantized.last.scale)
    assert operators(export(quantized, x))["QLinearConv"] == 2


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_folds_into_every_kind(dims: int, groups: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 4, *[5] * dims)
    conv = KINDS[dims - 1](4, 6, 3, stride=2, groups=groups)
    net = nn.Sequential(conv, NORMS[dims - 1](6), nn.ReLU())
    model: Any = with_statistics(net, x).train()
    made: Any = fuse_modules(model, ["0", "1", "2"])
    made[0].qconfig = onnxq_default_qat_qconfig
    kind: Any = getattr(fused, f"ConvTransposeBnReLU{dims}d")
    trained = kind.from_float(made[0])
    trained.weight_fake_quant.disable_fake_quant()
    wanted = model.eval()(x)
    assert torch.allclose(trained.eval()(x), wanted, atol=1e-5)
    assert torch.allclose(trained.to_float()(x), wanted, atol=1e-5)
    # live statistics: the batch's own
    trained.train().update_bn_stats()
    assert torch.allclose(trained(x), model.train()(x), atol=1e-4)
    wanted = model.eval()(x)
    assert torch.allclose(fuse_modules(model, ["0", "1", "2"])(x), wanted, atol=1e-5)


def test_a_bias_beyond_int32_raises_the_scale_that_groups_share() -> None:
    torch.manual_seed(0)
    conv: Any = nn.ConvTranspose2d(4, 6, 3, groups=2)
    conv.qconfig = onnxq_default_qat_qconfig
    module: Any = qat.ConvTranspose2d.from_float(conv)
    with torch.no_grad():
        module.weight *= 1e-9
        module.bias.zero_()[4] = 1e4
    fake = FakeQuantize()
    fake(torch.randn(100))
    module.bind_input(fake)
    weight, bias = module.deployed()
    assert bias is not None
    assert torch.allclose(bias, module.bias)
    with pytest.warns(UserWarning, match="increased so that the bias"):
        made = nnq.ConvTranspose2d.from_float(module)
    raised = made.weight_scale > 10 * made.weight_scale.min()
    assert raised.tolist() == [False, True, False]
    real = made.bias()
    assert real is not None
    assert torch.allclose(real, bias)
    assert torch.equal(made.real_weight(), weight)


def test_an_output_size_is_kept() -> None:
    conv: Any = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    conv.qconfig = onnxq_default_qat_qconfig
    module = qat.ConvTranspose2d.from_float(conv)
    x = torch.randn(1, 2, 5, 5)
    for size in ([10, 9], [1, 3, 10, 9]):
        assert module(x, size).shape == conv(x, output_size=size).shape
    with pytest.raises(ShapeError, match=r"axis 1 may have 9 to 10"):
        module(x, [10, 11])


class Sized(nn.Module):
    """Up to the size that the input had, which no stride says."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 4, 3, 2, 1), nn.ConvTranspose2d(4, 3, 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Down and up again, shaped as x."""
        y: Tensor = self.up(self.down(x), output_size=x.shape[2:])
        return y


def test_an_output_size_in_forward_is_exported() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 7)
    quantized = convert(prepare_qat(Sized(), inputs=x).eval())
    exported = export(quantized, x)
    assert quantized(x).shape == x.shape
    assert not operators(exported)["ConvTranspose"]


def test_other_padding_is_refused() -> None:
    with pytest.raises(QConfigError, match=r"ConvTranspose2d: Only .zeros. padding mode"):
        nnq.ConvTranspose2d(2, 2, 3, padding_mode="reflect")
    with pytest.raises(QConfigError, match="divisible by groups"):
        nnq.ConvTranspose2d(3, 4, 3, groups=2)


@pytest.mark.parametrize("dims", [1, 3])
def test_other_ranks_run_in_integers(dims: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, *[6] * dims)
    layers = (KINDS[dims - 1](3, 4, 4, stride=2, padding=1), nn.ReLU())
    quantized: Any = convert(prepare_qat(nn.Sequential(*layers), inputs=x).eval())
    assert type(quantized.get_submodule("0")).__name__ == f"ConvTransposeReLU{dims}d"
    assert operators(export(quantized, x))["QLinearConv"] == 1
    again = type(quantized.get_submodule("0"))(3, 4, 4, stride=2, padding=1)
    again.load_state_dict(quantized.get_submodule("0").state_dict())
    layer = quantized.get_submodule("0")
    with torch.no_grad():
        assert np.array_equal(again(x), layer(x))
