from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from onnxq.errors import ModelError, QConfigError
from onnxq.pytorch import DeQuantStub, QuantStub, default_eval_fn, quantize, quantize_qat
from onnxq.pytorch.nn import quantized as nnq
from onnxq.qconfig import get_default_qat_qconfig, get_default_qconfig

DATA = [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(3)]


def net(qconfig: Any) -> Any:
    torch.manual_seed(0)
    made: Any = nn.Sequential(QuantStub(), nn.Linear(4, 3), DeQuantStub())
    made.qconfig = qconfig
    return made


def train(model: nn.Module, steps: int) -> None:
    assert model.training
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        for x, y in DATA:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def test_quantize_observes_and_converts() -> None:
    model = net(get_default_qconfig())
    made: Any = quantize(model, default_eval_fn, [DATA])
    assert type(made[1]) is nnq.Linear
    assert type(model[1]) is nn.Linear
    assert torch.allclose(made(DATA[0][0]), model(DATA[0][0]), atol=0.1)


def test_quantize_qat_trains_and_converts() -> None:
    model = net(get_default_qat_qconfig())
    before = model[1].weight.detach().clone()
    made: Any = quantize_qat(model.eval(), train, [2])
    assert type(made[1]) is nnq.Linear
    assert torch.equal(model[1].weight, before)
    assert not torch.allclose(torch.from_numpy(made[1].weight().dequantize()), before, atol=0.02)


def test_a_model_of_which_nothing_would_be_quantized_is_refused() -> None:
    with pytest.raises(QConfigError, match="no module has a qconfig"):
        quantize(net(None), default_eval_fn, [DATA])
    moving: Any = nn.Sequential(nn.Flatten())
    moving.qconfig = get_default_qconfig()
    with pytest.raises(ModelError, match="nothing in Sequential is prepared"):
        quantize(moving, default_eval_fn, [DATA])


def test_in_place_changes_the_model_itself() -> None:
    model = net(get_default_qconfig())
    same: Any = quantize(model, default_eval_fn, [DATA], inplace=True)
    assert same is model
    assert type(model[1]) is nnq.Linear
