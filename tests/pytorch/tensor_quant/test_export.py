"""A net with TensorQuantizers as an ONNX model that ONNX Runtime runs in integers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.errors import UnsupportedError
from onnxq.ort import runtime
from onnxq.pytorch import export
from onnxq.pytorch.tensor_quant import QuantDescriptor, TensorQuantizer
from tests.exact_engine import exact
from tests.pytorch.tensor_quant.nets import (
    Chain,
    QuantConv2d,
    Residual,
    calibrated,
    quantizers,
)

if TYPE_CHECKING:
    import numpy.typing as npt

IMAGES = torch.randn(64, 3, 16, 16, generator=torch.Generator().manual_seed(9))


def stored(model: ir.Model) -> dict[str, npt.NDArray[Any]]:
    return {
        str(name): value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }


def weight_integers(node: ir.Node) -> npt.NDArray[Any]:
    weight = node.inputs[1]
    dequantize = None if weight is None else weight.producer()
    assert dequantize is not None
    integers = dequantize.inputs[0]
    assert integers is not None
    assert integers.const_value is not None
    return integers.const_value.numpy()


def ops(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in runtime.optimized_graph(model).graph)


def run(model: ir.Model, x: Tensor) -> npt.NDArray[Any]:
    with exact(model) as session:
        return session.run({str(model.graph.inputs[0].name): x.numpy()})[0]


@pytest.fixture(scope="module")
def chain() -> tuple[Chain, ir.Model]:
    torch.manual_seed(0)
    net = Chain()
    with torch.no_grad():
        net.norm.weight[:4] = torch.tensor([-1.0, -0.5, 0.0, 2.0])
        net.norm.bias[:4] = 0.1
    calibrated(net)
    return net, export(net, IMAGES[:2])


class TestChain:
    def test_runs_in_integers(self, chain: tuple[Chain, ir.Model]) -> None:
        found = ops(chain[1])
        assert found["QLinearConv"] == 3
        assert found["QGemm"] == 1
        assert found["QLinearGlobalAveragePool"] == 1
        assert not found.keys() & {"Conv", "FusedConv", "Gemm", "BatchNormalization", "Relu"}

    def test_weights_are_int8_and_biases_int32(self, chain: tuple[Chain, ir.Model]) -> None:
        net, model = chain
        arrays = stored(model)
        for name in ("second", "third", "head"):
            layer = getattr(net, name)
            integers = arrays[f"{name}.weight_quantized"]
            step = layer._weight_quantizer.step_size
            wanted = (layer.weight / step).round().to(torch.int8)
            assert integers.dtype == np.int8
            np.testing.assert_array_equal(integers, wanted.detach().numpy().reshape(integers.shape))
            assert arrays[f"{name}.bias_quantized"].dtype == np.int32
        assert not any(a.dtype == np.float32 and a.ndim > 1 for a in arrays.values())

    def test_norm_leaves_the_integers_but_for_their_sign(
        self, chain: tuple[Chain, ir.Model]
    ) -> None:
        net, model = chain
        conv = next(node for node in model.graph if node.op_type == "Conv")
        integers = weight_integers(conv)
        step = net.first._weight_quantizer.step_size
        assert step is not None
        trained = (net.first.weight / step).round().detach()
        sign = torch.ones(8)
        sign[:2] = -1
        sign[2] = 0
        np.testing.assert_array_equal(integers, (trained * sign.reshape(8, 1, 1, 1)).numpy())

    def test_equals_the_module_within_an_lsb_of_its_output(
        self, chain: tuple[Chain, ir.Model]
    ) -> None:
        net, model = chain
        with torch.no_grad():
            wanted = net(IMAGES).numpy()
        got = run(model, IMAGES)
        # measured: 0.6% of the largest value, from sums at ties and the int32 biases
        assert np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()
        assert (got.argmax(1) == wanted.argmax(1)).mean() > 0.98

    def test_every_scale_has_rank_0_but_those_of_weights(
        self, chain: tuple[Chain, ir.Model]
    ) -> None:
        for node in chain[1].graph:
            if node.op_type == "QuantizeLinear":
                scale, middle = node.inputs[1:3]
                assert scale is not None
                assert middle is not None
                assert scale.shape == ir.Shape([])
                assert middle.dtype == ir.DataType.UINT8


@pytest.fixture(scope="module")
def residual() -> tuple[nn.Module, ir.Model]:
    torch.manual_seed(1)
    net = calibrated(Residual())
    return net, export(net, IMAGES[:2])


def test_a_residual_block_runs_in_integers(residual: tuple[nn.Module, ir.Model]) -> None:
    """The block's input has two readers: one Q is left of their two, and integers are uint8."""
    found = ops(residual[1])
    assert found["QLinearConv"] == 5
    assert found["QLinearAdd"] == 1
    assert not found.keys() & {"Conv", "FusedConv", "Add"}


def test_a_residual_block_equals_the_module(residual: tuple[nn.Module, ir.Model]) -> None:
    net, model = residual
    with torch.no_grad():
        wanted = net(IMAGES).numpy()
    step = float(quantizers(net)[-1].step_size or 0)
    steps = np.abs(run(model, IMAGES) - wanted) / step
    assert steps.max() < 2.5
    assert (steps > 0.5).mean() < 0.05  # measured: 1.2%; five layers with int32 biases


class OneLayer(nn.Module):
    def __init__(self, x: QuantDescriptor, w: QuantDescriptor) -> None:
        super().__init__()
        self.conv = QuantConv2d(3, 6, 3, x=x, w=w)
        self.out = TensorQuantizer(x)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(functional.relu(self.conv(x.abs())))
        return y


@pytest.mark.parametrize(
    ("x", "w"),
    [
        (QuantDescriptor(unsigned=True), QuantDescriptor(axis=0, narrow_range=True)),
        (QuantDescriptor(narrow_range=True), QuantDescriptor()),
        (QuantDescriptor(4, unsigned=True), QuantDescriptor(4, axis=0)),
        (QuantDescriptor(5), QuantDescriptor(2, axis=0, narrow_range=True)),
        (QuantDescriptor(learn_amax=True, amax=2.0), QuantDescriptor(axis=0, scale_amax=0.7)),
    ],
)
def test_every_kind_of_range_is_exact_in_one_layer(x: QuantDescriptor, w: QuantDescriptor) -> None:
    torch.manual_seed(2)
    net = OneLayer(x, w)
    if not x.learn_amax:
        calibrated(net, 8)
    else:
        net.conv._weight_quantizer.amax = net.conv.weight.detach().abs().amax((1, 2, 3), True)
    net.eval()
    for part in quantizers(net)[::2]:  # values beyond amax are cut, in the graph as in the module
        if part.amax is not None and part.amax.dim() == 0:
            part.amax = part.amax * 0.6
    images = IMAGES[:, :, :8, :8].contiguous()
    model = export(net, images[:2])
    assert ops(model)["QLinearConv"] == 1
    with torch.no_grad():
        wanted = net(images).numpy()
    step = float(net.out.learned_amax() / 127 if x.learn_amax else net.out.step_size or 0)
    steps = np.abs(run(model, images) - wanted) / step
    assert steps.max() < 1.01
    assert (steps > 0.5).mean() < 5e-3  # the int32 bias


def test_weights_alone_are_stored_as_int8_too() -> None:
    net = calibrated(OneLayer(QuantDescriptor(), QuantDescriptor(axis=0)), 8)
    for part in (net.conv._input_quantizer, net.out):  # type: ignore[union-attr]
        part.disable()  # type: ignore[union-attr, operator]
    model = export(net, IMAGES[:2, :, :8, :8].contiguous())
    assert Counter(node.op_type for node in model.graph)["QuantizeLinear"] == 0
    assert stored(model)["conv.weight_quantized"].dtype == np.int8


def test_dead_channels_stay_finite_and_keep_their_bias() -> None:
    torch.manual_seed(3)
    net = OneLayer(QuantDescriptor(unsigned=True), QuantDescriptor(axis=0))
    with torch.no_grad():
        net.conv.weight[1] = 0
        assert net.conv.bias is not None
        net.conv.bias[1] = 0.7
    calibrated(net, 8)
    images = IMAGES[:, :, :8, :8].contiguous()
    model = export(net, images[:2])
    got = run(model, images)
    step = float(net.out.step_size or 0)
    assert np.isfinite(got).all()
    assert np.abs(got[:, 1] - 0.7).max() <= 0.51 * step


def test_what_cannot_be_exported_is_said() -> None:
    net = OneLayer(QuantDescriptor(), QuantDescriptor(axis=0))
    with pytest.raises(UnsupportedError, match="no amax"):
        export(net, IMAGES[:2])
    calibrated(net)
    net.out.amax = torch.tensor(0.0)
    with pytest.raises(UnsupportedError, match=r"amax <= 2\^-24"):
        export(net, IMAGES[:2])
    net.out = TensorQuantizer(QuantDescriptor(axis=(1, 2), amax=np.ones((1, 6, 14, 1)) + 1.0))
    with pytest.raises(UnsupportedError, match="one axis"):
        export(net, IMAGES[:2])
