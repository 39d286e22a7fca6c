from __future__ import annotations

import pytest
import torch
from torch import nn

from onnxq.errors import ModelError
from onnxq.pytorch.arguments.bound_inputs import bind
from onnxq.pytorch.arguments.forward import first_run


def test_what_forward_says_is_kept() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(ModelError, match=r"Linear fails on the example inputs .*mat1"):
        first_run(model, bind(model, torch.zeros(1, 4)))
