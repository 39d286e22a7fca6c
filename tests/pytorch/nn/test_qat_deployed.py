"""A QAT module in eval mode rounds to the integers that ONNX Runtime's integer kernels give."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from onnxq.affine import quantize
from onnxq.pytorch import FakeQuantize
from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.intrinsic import qat as fused
from onnxq.pytorch.nn.intrinsic import quantized as deployed
from onnxq.qconfig import QConfig, onnxq_default_qat_qconfig
from tests.exact_engine import exact

MANY = 512  # channels: 4608 products per sum


def run(inputs: list[npt.NDArray[Any]], conv: nn.Conv2d) -> npt.NDArray[np.int64]:
    names = [f"in{i}" for i in range(len(inputs))]
    pads = [*conv.padding, *conv.padding]
    node = helper.make_node(
        "QLinearConv", names, ["y"], group=conv.groups, strides=list(conv.stride), pads=pads
    )
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    result = helper.make_tensor_value_info("y", TensorProto.UINT8, None)
    graph = helper.make_graph([node], "g", values, [result])
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    with exact(ir.from_proto(model)) as session:
        return np.asarray(session.run(dict(zip(names, inputs, strict=True)))[0], np.int64)


def trained(conv: nn.Conv2d, qconfig: QConfig = onnxq_default_qat_qconfig) -> Any:
    """ConvBnReLU2d with random statistics."""
    bn: Any = nn.BatchNorm2d(conv.out_channels)
    nn.init.uniform_(bn.weight, 0.5, 2)
    nn.init.normal_(bn.bias)
    nn.init.normal_(bn.running_mean)
    nn.init.uniform_(bn.running_var, 0.5, 3)
    module = intrinsic.ConvBnReLU2d(conv, bn, nn.ReLU()).train()
    module.qconfig = qconfig
    return fused.ConvBnReLU2d.from_float(module)


def integers_of_both(module: Any, x: torch.Tensor) -> tuple[npt.NDArray[np.int64], ...]:
    """(integers in torch, integers in ONNX Runtime)."""
    incoming, outgoing = FakeQuantize(), FakeQuantize()
    module.bind_input(incoming)
    module.eval()
    with torch.no_grad():
        y = module(incoming(x))
        outgoing(y)
        torch_integers = outgoing.integers(y).numpy().astype(np.int64)
        weight = module.folded()[0]
    stored = deployed.ConvReLU2d.from_float(module)
    assert stored.bias_integers is not None
    scale, zero_point = incoming.calculate_qparams()
    w = stored.weight()
    inputs = [
        incoming.integers(x).numpy(),
        scale.numpy(),
        zero_point.numpy().astype(np.uint8),
        quantize(weight.numpy(), w.qparams),
        w.qparams.scale,
        w.qparams.zero_point,
        outgoing.scale.numpy(),
        outgoing.zero_point.numpy().astype(np.uint8),
        stored.bias_integers.numpy(),
    ]
    assert np.array_equal(inputs[3], w.int_repr()), "what is converted is not what was trained"
    return torch_integers, run(inputs, module)


@pytest.mark.parametrize(
    "conv",
    [
        lambda: nn.Conv2d(1, 16, 3, padding=1, bias=False),
        lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False),
        lambda: nn.Conv2d(16, 32, 3, stride=2, groups=4),
        lambda: nn.Conv2d(64, 32, 1, bias=False),
        lambda: nn.Conv2d(MANY, 16, 3, padding=1, bias=False),
    ],
    ids=["9", "depthwise", "groups", "1x1", "4608"],
)
def test_integers_are_those_of_onnx_runtime(conv: Any) -> None:
    torch.manual_seed(0)
    module = trained(conv())
    ours, theirs = integers_of_both(module, torch.randn(4, module.in_channels, 14, 14))
    steps = np.abs(ours - theirs)
    assert steps.max() <= 1
    assert np.count_nonzero(steps) <= 0.0002 * steps.size  # ten times fewer than may differ


def test_a_bias_beyond_int32_raises_the_weights_scale_in_both() -> None:
    torch.manual_seed(0)
    module = trained(nn.Conv2d(4, 8, 3, bias=False))
    with torch.no_grad():
        module.weight[2] *= 1e-9
        module.weight[3] = 0
        module.bn.bias[2:5] = torch.tensor([3e4, -3e4, 1e5])
    with pytest.warns(UserWarning, match="increased so that the bias"):
        ours, theirs = integers_of_both(module, torch.randn(4, 4, 9, 9))
    assert np.abs(ours - theirs).max() <= 1
    assert np.count_nonzero(ours != theirs) <= 0.0002 * ours.size


def test_without_a_source_the_bias_is_left_as_it_is() -> None:
    module = trained(nn.Conv2d(4, 8, 3, bias=False)).eval()
    weight, bias = module.deployed()
    assert torch.equal(bias, module.folded()[1])
    assert not torch.equal(weight, module.folded()[0])


def test_a_bias_is_rounded_to_x_scale_times_w_scale() -> None:
    module = trained(nn.Conv2d(4, 8, 3, bias=False)).eval()
    incoming = FakeQuantize()
    incoming(torch.randn(3, 3))
    module.bind_input(incoming)
    _, bias = module.deployed()
    integers = bias / (incoming.scale * module.weight_fake_quant.scale)
    assert torch.allclose(integers, integers.round(), rtol=1e-6)
    assert not torch.equal(bias, module.folded()[1])


def test_nothing_is_rounded_while_fake_quantization_is_off() -> None:
    module = trained(nn.Conv2d(4, 8, 3, bias=False)).eval()
    incoming = FakeQuantize()
    incoming(torch.randn(3, 3))
    module.bind_input(incoming)
    module.weight_fake_quant.disable_fake_quant()
    for ours, folded in zip(module.deployed(), module.folded(), strict=True):
        assert torch.equal(ours, folded)


def test_the_gradient_passes_the_rounding_of_the_bias() -> None:
    module = trained(nn.Conv2d(4, 8, 3)).train().freeze_bn_stats()
    incoming = FakeQuantize()
    incoming(torch.randn(3, 3))
    module.bind_input(incoming)
    module.deployed()[1].sum().backward()
    assert torch.equal(module.bn.bias.grad, torch.ones(8))


def test_a_source_is_no_part_of_the_module() -> None:
    module = trained(nn.Conv2d(4, 8, 3))
    before = set(module.state_dict())
    module.bind_input(FakeQuantize())
    assert set(module.state_dict()) == before
    assert len([m for m in module.modules() if isinstance(m, FakeQuantize)]) == 1
