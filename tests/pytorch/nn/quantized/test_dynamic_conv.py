from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import onnxq.pytorch.quantization as tq
from onnxq.checking.cross_check import cross_check
from onnxq.errors import UnsupportedError
from onnxq.ort import runtime
from onnxq.pytorch import export
from onnxq.pytorch.exporting.check import relative_tolerance
from onnxq.pytorch.nn.quantized import dynamic as nnqd
from onnxq.qconfig import per_channel_dynamic_qconfig

pytestmark = pytest.mark.oracle

LAYERS: list[nn.Module] = [
    nn.Conv1d(4, 6, 3, padding=1),
    nn.Conv2d(4, 6, (3, 2), stride=2, padding="valid", bias=False),
    nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2, padding_mode="reflect"),
    nn.Conv3d(4, 2, 2),
    nn.ConvTranspose1d(4, 4, 3, groups=4),
    nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
    nn.ConvTranspose3d(4, 2, 2, bias=False),
]
"""Each of four channels."""


def made_of(layer: nn.Module) -> Any:
    layer.qconfig = per_channel_dynamic_qconfig  # type: ignore[assignment]
    kind: Any = getattr(nnqd, type(layer).__name__)
    return kind.from_float(layer)


def example(layer: Any) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(2, 4, *[6, 5, 4][: len(layer.kernel_size)])


@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_a_convolution_computes_in_float_on_int8_weights_as_deployed(layer: Any) -> None:
    made, x = made_of(layer), example(layer)
    assert made.weight_integers.dtype == torch.int8
    stored = type(layer)(
        **{name: getattr(layer, name) for name in ("in_channels", "out_channels", "kernel_size")},
        **{name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")},
        bias=layer.bias is not None,
        padding_mode=layer.padding_mode,
        **({"output_padding": layer.output_padding} if hasattr(made, "output_padding") else {}),
    )
    stored.weight, stored.bias = nn.Parameter(made.real_weight()), layer.bias
    with torch.no_grad():
        torch.testing.assert_close(made(x), stored(x))
        wanted = made(x).numpy()
        # half an LSB of each weight, against inputs of at most 5: coarse, but for a wrong axis
        assert np.abs(wanted - layer(x).numpy()).max() < 0.02 * np.abs(wanted).max()
    exported = export(made, x)
    assert {node.op_type for node in exported.graph} >= {"DequantizeLinear"}
    assert [str(v.dtype) for v in exported.graph.initializers.values()].count("INT8") >= 1
    (name,) = (value.name for value in exported.graph.inputs)
    with runtime.open_session(exported, threads=1) as session:
        found = np.asarray(session.run({name or "": x.numpy()})[0])
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert all(node.differing == 0 for node in cross_check(exported, [{name: x.numpy()}]).nodes)


@pytest.mark.parametrize("layer", LAYERS, ids=repr)
def test_a_state_dict_round_trip_restores_the_numbers(layer: Any) -> None:
    made, x = made_of(layer), example(layer)
    other: Any = made_of(layer)
    other.set_weight_bias(other.weight(), None if layer.bias is None else layer.bias + 1)
    other.load_state_dict(made.state_dict())
    assert torch.equal(made(x), other(x))
    assert repr(made).startswith(f"DynamicQuantized{type(layer).__name__}(4, ")
    assert "dtype=int8" in repr(made)


def test_convolutions_are_quantized_where_they_are_named() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2))
    x = torch.randn(1, 2, 4, 4)
    default: Any = tq.quantize_dynamic(model)
    assert type(default[0]) is nn.Conv2d
    named: Any = tq.quantize_dynamic(model, {nn.Conv2d})
    assert type(named[0]) is nnqd.Conv2d
    assert type(named[2]) is nn.Linear
    half: Any = tq.quantize_dynamic(model, {nn.Conv2d}, dtype=torch.float16)
    assert half[0].weight_integers.dtype == torch.float16
    torch.testing.assert_close(half(x), model(x), atol=1e-2, rtol=0)


def test_a_transposed_convolution_takes_the_size_of_its_result() -> None:
    layer = nn.ConvTranspose2d(4, 2, 3, stride=2)
    x = example(layer)
    assert made_of(layer)(x, output_size=[14, 12]).shape == layer(x, output_size=[14, 12]).shape


def test_an_export_is_held_to_the_bound_of_the_float_layers() -> None:
    model = nn.Sequential(nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3))
    stored = tq.quantize_dynamic(model, {nn.Conv2d})
    assert relative_tolerance(stored) == relative_tolerance(model)


def test_another_module_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"wanted a torch\.nn\.modules\.conv\.Conv2d"):
        nnqd.Conv2d.from_float(nn.Conv1d(2, 2, 1))
