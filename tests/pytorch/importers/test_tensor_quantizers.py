"""Stand-ins with pytorch_quantization's documented attributes, written for these tests."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxq.errors import ModelError, UnsupportedError
from onnxq.ort import runtime
from onnxq.pytorch.importers import ImportedModelWarning, import_quantized
from onnxq.pytorch.importers.tensor_quantizers import (
    has_tensor_quantizers,
    is_tensor_quantizer,
    with_own_quantizers,
)
from onnxq.pytorch.tensor_quant import TensorQuantizer
from tests.exact_engine import exact

IMAGES = torch.randn(32, 3, 12, 12, generator=torch.Generator().manual_seed(4))


class ForeignQuantizer(nn.Module):
    """Quantizes by the documented formula: clip(rint(x * bound / amax)) * amax / bound."""

    def __init__(
        self,
        num_bits: Any = 8,
        axis: Any = None,
        unsigned: bool = False,
        narrow_range: bool = False,
        fake_quant: bool = True,
    ) -> None:
        super().__init__()
        self._num_bits, self._axis, self._unsigned = num_bits, axis, unsigned
        self._narrow_range, self._fake_quant = narrow_range, fake_quant
        self._scale_amax: float | None = None
        self._learn_amax = self._disabled = self._if_calib = False
        self._if_quant = True

    num_bits = property(lambda self: self._num_bits)
    axis = property(lambda self: self._axis)
    unsigned = property(lambda self: self._unsigned)
    narrow_range = property(lambda self: self._narrow_range)
    fake_quant = property(lambda self: self._fake_quant)
    amax = property(lambda self: getattr(self, "_amax", None))
    clip: Bounds

    def forward(self, x: Tensor) -> Tensor:
        if self._disabled or not self._if_quant:
            return x
        amax = self.amax
        if self._learn_amax:
            x = torch.clamp(x, self.clip.clip_value_min, self.clip.clip_value_max)
            amax = torch.max(-self.clip.clip_value_min, self.clip.clip_value_max)
        amax = amax * (self._scale_amax or 1.0)
        bound = 2.0 ** (self._num_bits - (not self._unsigned)) - 1
        lowest = 0 if self._unsigned else -bound - (not self._narrow_range)
        scale = bound / amax
        y: Tensor = torch.clamp((x * scale).round(), lowest, bound) / scale
        return y


class Bounds(nn.Module):
    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.clip_value_min = nn.Parameter(torch.tensor(low))
        self.clip_value_max = nn.Parameter(torch.tensor(high))


class QuantConv2d(nn.Conv2d):
    def __init__(self, *sizes: int, **others: Any) -> None:
        super().__init__(*sizes, **others)  # type: ignore[arg-type]
        self._input_quantizer = ForeignQuantizer()
        self._weight_quantizer = ForeignQuantizer(axis=(0,))

    def forward(self, x: Tensor) -> Tensor:
        x, weight = self._input_quantizer(x), self._weight_quantizer(self.weight)
        return cast("Tensor", self._conv_forward(x, weight, self.bias))


class QuantLinear(nn.Linear):
    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)  # type: ignore[arg-type]
        self._input_quantizer = ForeignQuantizer()
        self._weight_quantizer = ForeignQuantizer(axis=0, narrow_range=True)

    def forward(self, x: Tensor) -> Tensor:
        weight = self._weight_quantizer(self.weight)
        return functional.linear(self._input_quantizer(x), weight, self.bias)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = QuantConv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.two = QuantConv2d(8, 12, 3, stride=2)
        self.pooled = ForeignQuantizer(unsigned=True)
        self.head = QuantLinear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.one(x)))
        x = self.pooled(functional.relu(self.two(x)))
        return cast("Tensor", self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1)))


@torch.no_grad()
def calibrated(net: nn.Module) -> nn.Module:
    """The net with amax and statistics of IMAGES."""
    found = [part for part in net.modules() if is_tensor_quantizer(part)]
    seen: dict[nn.Module, Tensor] = {}

    def watch(part: Any, inputs: tuple[Tensor, ...]) -> None:
        x, axis = inputs[0], part.axis[0] if isinstance(part.axis, tuple) else part.axis
        others = [i for i in range(x.dim()) if i != axis]
        amax = x.abs().amax() if axis is None else x.abs().amax(others, keepdim=True)
        seen[part] = torch.maximum(seen.get(part, amax), amax)

    hooks = [part.register_forward_pre_hook(watch) for part in found]
    for part in cast("list[Any]", found):
        part._disabled = True
    net(IMAGES)
    net.eval()
    seen.clear()
    net(IMAGES)
    for hook in hooks:
        hook.remove()
    for part in cast("list[Any]", found):
        part._disabled = False
        part.register_buffer("_amax", seen[part])
    return net


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    made = Net()
    with torch.no_grad():
        made.norm.weight[::2] *= -0.7
    return cast("Net", calibrated(made))


@pytest.mark.filterwarnings("ignore::onnxq.pytorch.importers.ImportedModelWarning")
def test_runs_in_integers_and_equals_the_original(net: Net) -> None:
    model = import_quantized(net, IMAGES[:4])
    ops = Counter(node.op_type for node in runtime.optimized_graph(model).graph)
    assert (ops["QLinearConv"], ops["QGemm"]) == (2, 1)
    assert not ops.keys() & {"Conv", "FusedConv", "Gemm", "BatchNormalization"}
    with torch.no_grad():
        wanted = net(IMAGES).numpy()
    with exact(model) as session:
        got = session.run({str(model.graph.inputs[0].name): IMAGES.numpy()})[0]
    assert np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()  # measured: 0.5%
    assert (got.argmax(1) == wanted.argmax(1)).mean() > 0.95


def test_the_weights_are_the_originals_integers(net: Net) -> None:
    with pytest.warns(ImportedModelWarning, match="int8 weights were imported as they are"):
        model = import_quantized(net, IMAGES[:4])
    quantizer = net.two._weight_quantizer
    integers = (net.two.weight * (127 / quantizer.amax)).round().detach().numpy()
    stored = model.graph.initializers["two.weight_quantized"].const_value
    assert stored is not None
    np.testing.assert_array_equal(stored.numpy(), integers.astype(np.int8))


def test_the_copy_computes_as_the_original_but_at_ties(net: Net) -> None:
    copy = with_own_quantizers(net)
    assert not any(is_tensor_quantizer(part) for part in copy.modules())
    assert has_tensor_quantizers(copy)
    assert has_tensor_quantizers(net)
    assert not has_tensor_quantizers(nn.Linear(2, 2))
    with torch.no_grad():
        torch.testing.assert_close(copy(IMAGES), net(IMAGES), rtol=0, atol=2e-2)
        for path, quantizer in net.named_modules():
            if is_tensor_quantizer(quantizer):
                x = torch.rand(12, 8, 3, 3) if quantizer.axis is None else None
                x = (
                    net.get_parameter(path.replace("_weight_quantizer", "weight"))
                    if x is None
                    else x
                )
                own = copy.get_submodule(path)
                steps = (own(x) - quantizer(x)).abs() * 127 / x.abs().max()
                assert (steps > 1e-3).float().mean() < 1e-3


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("axis", [None, 0, (1,), [0]])
@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
def test_every_attribute_is_read(bits: int, axis: Any, unsigned: bool, narrow: bool) -> None:
    foreign = ForeignQuantizer(bits, axis, unsigned, narrow)
    shape = [1, 1] if axis is None else [4, 1] if axis in (0, [0]) else [1, 5]
    foreign.register_buffer("_amax", torch.rand(shape) + 0.5)
    foreign._scale_amax = 0.8
    own = with_own_quantizers(foreign)
    assert isinstance(own, TensorQuantizer)
    x = torch.randn(200, 4, 5)
    x = x.abs() if unsigned else x
    step = foreign.amax * 0.8 / (2 ** (bits - (not unsigned)) - 1)
    difference = ((own(x) - foreign(x)) / step).abs()
    assert difference.max() < 1.01
    # near a tie of 65,535 steps there are 0.8% of the floats
    assert (difference > 0.1).float().mean() < (0.02 if bits == 16 else 1e-3)


def test_learned_bounds_are_kept() -> None:
    foreign = ForeignQuantizer()
    foreign._learn_amax = True
    foreign.clip = Bounds(-0.5, 2.0)
    own = with_own_quantizers(foreign)
    x = torch.linspace(-3, 3, 1000)
    # at a tie, one step; -0.5 itself is no integer
    assert (own(x) - foreign(x)).abs().max() <= 1.01 * 2 / 127
    assert float(own(x).detach().min()) == pytest.approx(-0.5, abs=2 / 127)


def test_disabled_quantizers_let_everything_through() -> None:
    foreign = ForeignQuantizer()
    foreign._disabled = True
    x = torch.randn(3)
    assert with_own_quantizers(foreign)(x) is x
    foreign._disabled, foreign._if_quant = False, False
    assert with_own_quantizers(foreign)(x) is x


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = ForeignQuantizer()
        self.one.register_buffer("_amax", torch.tensor(1.0))
        self.two = self.one


def test_a_shared_quantizer_stays_shared() -> None:
    copy = with_own_quantizers(Shared())
    assert isinstance(copy.two, TensorQuantizer)
    assert copy.one is copy.two


def _set(**attributes: Any) -> ForeignQuantizer:
    made = ForeignQuantizer()
    made.register_buffer("_amax", torch.tensor(1.0))
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("quantizer", "said"),
    [
        (ForeignQuantizer(), r"quantizer '0' has no amax.*load_calib_amax"),
        (_set(_num_bits=(4, 3)), r"quantizer '0': num_bits=\(4, 3\) is float8"),
        (_set(_num_bits=1), "2 to 16"),
        (_set(block_sizes={-1: 16}), "block_sizes is set"),
        (_set(pre_quant_scale=torch.ones(3)), "pre_quant_scale is set"),
    ],
)
def test_what_has_no_form_is_named(quantizer: nn.Module, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        with_own_quantizers(nn.Sequential(quantizer))


def test_a_model_without_quantizers_is_refused() -> None:
    with pytest.raises(ModelError, match="no module with the attributes of a TensorQuantizer"):
        with_own_quantizers(nn.Linear(2, 2))


def test_a_quantizer_that_still_calibrates_is_noted() -> None:
    quantizer = _set(_if_calib=True)
    with pytest.warns(ImportedModelWarning, match="still calibrating"):
        with_own_quantizers(nn.Sequential(quantizer))
