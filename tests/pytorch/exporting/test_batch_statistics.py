"""Batch norms without running statistics, which take no single row, are exported and trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import onnxq
from onnxq.ort import runtime
from onnxq.pytorch import convert, disable_observer, export, prepare_qat

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
ONE_ROW = pytest.mark.filterwarnings("ignore:.*refuses a single one")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    nn.init.normal_(norm.bias)
    return nn.Sequential(nn.Linear(8, 8), norm, nn.ReLU(), nn.Linear(8, 4))


def test_a_single_row_gives_the_bias_of_the_norm_and_a_warning() -> None:
    model = net().eval()
    with pytest.warns(UserWarning, match="the module refuses a single one"):
        exported = export(model, X)
    norm: Any = model[1]
    last: Any = model[3]
    with runtime.open_session(exported) as session, torch.no_grad():
        got = session.run({"input": X[:1].numpy()})[0]
        np.testing.assert_allclose(got[0], last(norm.bias.relu()).numpy(), atol=1e-5)


@ONE_ROW
def test_it_trains_and_the_integers_agree() -> None:
    model: Any = prepare_qat(net(), inputs=X)
    model(X).square().mean().backward()
    quantized = convert(model.apply(disable_observer).eval())
    assert torch.equal(quantized(X), model(X))
    exported: Any = export(quantized, X)
    found = onnxq.cross_check(exported, onnxq.Samples([{"input": X.numpy()}], batch_size=len(X)))
    assert found.exact
