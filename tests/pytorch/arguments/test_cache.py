from __future__ import annotations

import torch
from torch import nn

from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.arguments.flat import without_cache


class Decoder(nn.Module):
    def forward(
        self, x: torch.Tensor, use_cache: bool | None = None, scale: float = 1.0
    ) -> torch.Tensor:
        return x * scale if use_cache is False else -x


X = torch.ones(2, 3)


def test_the_cache_is_left_out_where_nothing_is_said() -> None:
    given = without_cache(Decoder(), bind(Decoder(), X))
    assert given.kwargs == {"use_cache": False}
    by_position = without_cache(Decoder(), bind(Decoder(), (X, None, 2.0)))
    assert by_position.args[1:] == (False, 2.0)


def test_what_the_caller_says_stays() -> None:
    given = bind(Decoder(), {"x": X, "use_cache": True})
    assert without_cache(Decoder(), given) is given
    assert without_cache(nn.ReLU(), bind(nn.ReLU(), X)).kwargs == {}
