"""Dynamic layers in models of half precision: computed in float32, results in the model's type."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import onnxq.pytorch.quantization as tq
from onnxq.errors import UnsupportedError
from onnxq.pytorch.nn.quantized import dynamic as nnqd

TYPES = (torch.float16, torch.bfloat16)
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", RECURRENT)
def test_a_recurrence_in_half_precision_is_the_float32_one_rounded(
    kind: type[nn.Module], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(8), kind(8, 6, bidirectional=True)).eval().to(dtype)
    quantized: Any = tq.quantize_dynamic(model, {kind})
    x = torch.randn(5, 3, 8, dtype=dtype)
    y, states = quantized(x)  # the norm is in half precision still
    wanted, wanted_states = quantized[1](quantized[0](x).float())
    assert y.dtype == dtype
    assert torch.equal(y, wanted.to(dtype))
    for got, state in zip(flat(states), flat(wanted_states), strict=True):
        assert torch.equal(got, state.to(dtype))
    again, _ = quantized[1](quantized[0](x), states)  # a state in half precision, too
    assert again.dtype == dtype


def flat(states: Any) -> list[torch.Tensor]:
    return [states] if isinstance(states, torch.Tensor) else list(states)


@pytest.mark.parametrize("dtype", TYPES)
def test_linear_convolutions_and_cells_do_the_same(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = {
        nn.Linear(8, 4): torch.randn(3, 8),
        nn.Conv1d(8, 4, 3): torch.randn(3, 8, 9),
        nn.ConvTranspose1d(8, 4, 3): torch.randn(3, 8, 9),
        nn.GRUCell(8, 4): torch.randn(3, 8),
    }
    for layer, x in layers.items():
        quantized: Any = tq.quantize_dynamic(nn.Sequential(layer.to(dtype)), {type(layer)})
        y = quantized(x.to(dtype))
        assert y.dtype == dtype
        assert torch.equal(y, quantized(x.to(dtype).float()).to(dtype))


def test_scales_stay_float32_when_the_quantized_model_is_cast() -> None:
    torch.manual_seed(0)
    quantized: Any = tq.quantize_dynamic(nn.Sequential(nn.LSTM(8, 6)), {nn.LSTM})
    x = torch.randn(5, 3, 8).half()
    wanted = quantized(x)[0]
    assert torch.equal(quantized.half()(x)[0], wanted)
    assert quantized[0].w_0_scale.dtype == torch.float32


def test_a_packed_sequence_is_refused_with_the_way_that_takes_it() -> None:
    packed: Any = pack_sequence([torch.randn(3, 8), torch.randn(2, 8)])
    with pytest.raises(UnsupportedError, match=r"LSTM: got .*onnxq.quantize_dynamic"):
        nnqd.LSTM(8, 6)(packed)
