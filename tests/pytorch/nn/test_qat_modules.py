from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from onnxq.errors import ModelError
from onnxq.pytorch import FakeQuantize, LearnableFakeQuantize, disable_observer
from onnxq.pytorch.nn import intrinsic, qat
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.qconfig import QConfig, onnxq_default_qat_qconfig

X = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))
LEARNED = QConfig(
    LearnableFakeQuantize.with_args(onnxq_default_qat_qconfig.activation_observer),
    LearnableFakeQuantize.with_args(onnxq_default_qat_qconfig.weight_observer),
)


def conv_bn(qconfig: QConfig = onnxq_default_qat_qconfig) -> Any:
    torch.manual_seed(0)
    return fused.ConvBn2d(3, 5, 3, qconfig=qconfig)


def test_frozen_statistics_stay_and_train_as_deployed() -> None:
    module = conv_bn()
    module(X)
    module.apply(fused.freeze_bn_stats).apply(disable_observer)
    before = module.bn.running_mean.clone()
    assert module.train().bn.training is False
    y = module(X)
    assert torch.equal(module.bn.running_mean, before)
    assert torch.equal(y, module.eval()(X))
    module.train().apply(fused.update_bn_stats)
    module(X)
    assert not torch.equal(module.bn.running_mean, before)


def test_a_module_can_start_frozen() -> None:
    module = fused.ConvBn2d(3, 5, 3, freeze_bn=True, qconfig=onnxq_default_qat_qconfig)
    assert not module.bn.training
    assert not module.eval().update_bn_stats().bn.training
    assert module.train().bn.training


def test_a_gamma_of_0_trains() -> None:
    """torch's division by gamma / std gives NaN."""
    module = conv_bn()
    with torch.no_grad():
        module.bn.weight[2] = 0
        module.bn.bias[2] = 3
    y = module(X)
    assert torch.allclose(y[:, 2], torch.tensor(3.0))
    y.square().sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in module.parameters())
    live = nn.functional.conv2d(X, module.weight)[:, 2]
    assert torch.allclose(module.bn.running_mean[2], 0.1 * live.mean(), atol=1e-5)
    assert torch.allclose(module.eval()(X)[:, 2], torch.tensor(3.0))


def test_batch_norm_without_weight_and_bias_trains_as_one_of_1_and_0() -> None:
    made = []
    for affine in (True, False):
        torch.manual_seed(0)
        whole: Any = intrinsic.ConvBn2d(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5, affine=affine))
        whole.qconfig = onnxq_default_qat_qconfig
        made.append(fused.ConvBn2d.from_float(whole))
    for mode in (True, False):
        results = [module.train(mode)(X) for module in made]
        assert torch.equal(*results)
    assert torch.equal(*(module.to_float()(X) for module in made))


def test_learned_scales_are_trained() -> None:
    module = conv_bn(LEARNED)
    module(X).square().sum().backward()
    scale = module.weight_fake_quant.scale
    assert isinstance(scale, nn.Parameter)
    assert scale.grad is not None
    assert bool(scale.grad.abs().sum() > 0)


def test_folding_is_what_batch_norm_computes() -> None:
    module = conv_bn()
    module(X)
    module.eval()
    weight, bias = module.folded()
    expected = module.bn(nn.functional.conv2d(X, module.weight, module.bias))
    assert torch.allclose(nn.functional.conv2d(X, weight, bias), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "float_type"),
    [
        (qat.Conv1d(2, 3, 1, qconfig=LEARNED), nn.Conv1d),
        (qat.Linear(2, 3, qconfig=LEARNED), nn.Linear),
        (qat.Embedding(4, 3, qconfig=LEARNED), nn.Embedding),
        (fused.ConvBn2d(2, 3, 1, qconfig=LEARNED), nn.Conv2d),
        (fused.ConvBnReLU3d(2, 3, 1, qconfig=LEARNED), intrinsic.ConvReLU3d),
        (fused.ConvReLU2d(2, 3, 1, qconfig=LEARNED), intrinsic.ConvReLU2d),
        (fused.LinearReLU(2, 3, qconfig=LEARNED), intrinsic.LinearReLU),
        (fused.LinearBn1d(2, 3, qconfig=LEARNED), nn.Linear),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_float_module_comes_back_with_its_qconfig(module: Any, float_type: Any) -> None:
    made: Any = module.to_float()
    assert type(made) is float_type
    assert made.qconfig is LEARNED
    layer: Any = made[0] if isinstance(made, nn.Sequential) else made
    assert torch.equal(layer.weight, module.folded()[0])


def test_parameters_are_the_float_modules_own() -> None:
    layer: Any = nn.Conv2d(3, 4, 1)
    layer.qconfig = onnxq_default_qat_qconfig
    module = qat.Conv2d.from_float(layer)
    assert module.weight is layer.weight
    assert module.bias is layer.bias


def test_an_embedding_is_rounded_row_by_row() -> None:
    module = qat.Embedding(6, 4, qconfig=onnxq_default_qat_qconfig)
    y = module(torch.tensor([[0, 5]]))
    assert module.weight_fake_quant.scale.shape == (6,)
    assert torch.equal(y[0, 1], module.weight_fake_quant(module.weight)[5])


@pytest.mark.parametrize("frozen", [False, True])
def test_bfloat16_autocast_trains(frozen: bool) -> None:
    module = conv_bn()
    module.bind_input(source())
    module(X)
    if frozen:
        module.freeze_bn_stats()
    with torch.autocast("cpu", torch.bfloat16):
        y = module(X)
    y.float().square().sum().backward()
    assert all(
        bool(torch.isfinite(p.grad).all()) for p in module.parameters() if p.grad is not None
    )
    assert module.weight.grad.dtype == torch.float32


def source() -> FakeQuantize:
    fake = FakeQuantize()
    fake(X)
    return fake


# of torch's own, when it looks at what a broken graph hands on
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("frozen", [False, True])
def test_compiled_code_trains_the_same(frozen: bool) -> None:
    torch._dynamo.reset()
    results = []
    for compiled in (False, True):
        module = conv_bn()
        module.bind_input(source())
        module(X)
        if frozen:
            module.freeze_bn_stats().apply(disable_observer)
        run: Any = (
            torch.compile(module, backend="aot_eager", fullgraph=True) if compiled else module
        )
        for _ in range(2):
            run(X).square().mean().backward()
        results.append([*(p.grad for p in module.parameters()), module.bn.running_var])
    for eager, other in zip(*results, strict=True):
        assert torch.equal(eager, other)


def test_frozen_training_compiles_to_one_graph() -> None:
    torch._dynamo.reset()
    module = conv_bn()
    module.bind_input(source())
    module(X)
    module.freeze_bn_stats().apply(disable_observer)
    compiled: Any = torch.compile(module, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(X), module(X))


def test_fused_modules_take_their_parts_by_torchs_names() -> None:
    made = intrinsic.ConvBn2d(conv=nn.Conv2d(2, 3, 1), bn=nn.BatchNorm2d(3))
    assert isinstance(made[1], nn.BatchNorm2d)
    with pytest.raises(ModelError, match="'norm'; wanted parts by position, or by the names conv"):
        intrinsic.ConvBn2d(conv=nn.Conv2d(2, 3, 1), norm=nn.BatchNorm2d(3))


def test_a_convolution_with_batch_norm_has_no_bias_unless_it_is_asked_for() -> None:
    weight = onnxq_default_qat_qconfig
    assert fused.ConvBn2d(2, 3, 1, qconfig=weight).bias is None
    assert fused.ConvBn2d(2, 3, 1, bias=None, qconfig=weight).bias is None
    assert fused.ConvBn2d(2, 3, 1, bias=True, qconfig=weight).bias is not None
