from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import onnxq.pytorch.quantization as tq
from onnxq.errors import QConfigError
from onnxq.pytorch.nn.quantized import EmbeddingBag, dynamic


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(6, 5), nn.Dropout(0.0), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc2(self.drop(torch.relu(self.fc1(x))))
        return y


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(8, 6)


def test_the_documented_script_runs_with_one_changed_import(x: torch.Tensor) -> None:
    model = tq.QuantWrapper(Net()).eval()
    model.qconfig = tq.get_default_qconfig("fbgemm")  # type: ignore[assignment]
    prepared = tq.prepare(model)
    prepared(x)
    quantized = tq.convert(prepared)
    float_range = model(x).abs().max()
    # 127 integers for each activation: a few steps of each layer
    assert (quantized(x) - model(x)).abs().max() < 0.05 * float_range


def test_train_mode_is_prepared_with_a_warning(x: torch.Tensor) -> None:
    model = tq.QuantWrapper(Net()).train()
    model.qconfig = tq.default_qconfig  # type: ignore[assignment]
    with pytest.warns(UserWarning, match="train mode"):
        prepared = tq.prepare(model)
    assert prepared.training
    prepared(x)
    assert tq.convert(prepared)(x).shape == (8, 3)


def test_a_state_dict_loads_into_a_model_that_saw_no_data(x: torch.Tensor) -> None:
    made = []
    for _ in range(2):
        model = tq.QuantWrapper(Net()).eval()
        model.qconfig = tq.default_qconfig  # type: ignore[assignment]
        made.append(tq.prepare(model))
    made[0](x)
    first = tq.convert(made[0])
    with pytest.warns(UserWarning, match="every scale is 1"):
        second = tq.convert(made[1])
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))


def test_a_float_model_comes_back_with_a_warning(x: torch.Tensor) -> None:
    model = Net()
    with pytest.warns(UserWarning, match="nothing in Net is prepared"):
        assert torch.equal(tq.convert(model)(x), model(x))


@pytest.mark.parametrize("spec", [None, {nn.Linear}, {"fc1": tq.default_dynamic_qconfig}])
def test_dynamic_quantization_gives_a_module(spec: object, x: torch.Tensor) -> None:
    model = Net()
    made = tq.quantize_dynamic(model, spec, dtype=torch.qint8)  # type: ignore[arg-type]
    assert isinstance(made.fc1, dynamic.Linear)
    assert isinstance(made.fc2, dynamic.Linear) == (not isinstance(spec, dict))
    assert isinstance(model.fc1, nn.Linear)
    # 8 bits of weights and activations in each of two layers
    assert (made(x) - model(x)).abs().max() < 0.03 * model(x).abs().max()


def test_float16_weights_are_stored_so(x: torch.Tensor) -> None:
    model = Net()
    made = tq.quantize_dynamic(model, {nn.Linear}, dtype=torch.float16)
    assert made.fc1.weight_integers.dtype == torch.float16  # type: ignore[union-attr]
    assert torch.allclose(made(x), model(x), atol=1e-2)
    again = tq.quantize_dynamic(Net(), {nn.Linear}, dtype=torch.float16)
    again.load_state_dict(made.state_dict())
    assert torch.equal(again(x), made(x))


def test_a_layer_without_dynamic_form_stays_float_and_the_others_do_not() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.LSTM(3, 4, proj_size=2))
    with pytest.warns(UserWarning, match=r"'1' stays in float: LSTM.*proj_size 2"):
        made = tq.quantize_dynamic(model)
    assert [type(part) for part in made.children()] == [dynamic.Linear, nn.LSTM]


def test_other_types_of_weights_are_refused() -> None:
    with pytest.raises(QConfigError, match=r"dtype torch\.qint32; wanted"):
        tq.quantize_dynamic(Net(), {nn.Linear}, dtype=torch.qint32)
    with pytest.raises(QConfigError, match=r"quint8 is for embeddings, not for 'Linear'"):
        tq.quantize_dynamic(Net(), {nn.Linear}, dtype=torch.quint8)
    with pytest.raises(QConfigError, match="qconfig_spec is"):
        tq.quantize_dynamic(Net(), 3)  # type: ignore[arg-type]


def test_a_model_without_what_is_named_comes_back_with_a_warning(x: torch.Tensor) -> None:
    model = Net().eval()
    with pytest.warns(UserWarning, match="Net has none of LSTM"):
        same = tq.quantize_dynamic(model, {nn.LSTM})
    assert torch.equal(same(x), model(x))


@pytest.mark.parametrize(("dtype", "steps"), [(torch.quint8, 255), (torch.quint4x2, 15)])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings_are_stored_in_8_and_4_bits(kind: Any, dtype: torch.dtype, steps: int) -> None:
    torch.manual_seed(0)
    table = kind(10, 8)
    model = nn.Sequential(table, nn.Linear(8, 4))
    quantized: Any = tq.quantize_dynamic(model, dtype=dtype)
    ids = torch.arange(10)[:, None]
    weight = table.weight
    scale = (weight.amax(1).clamp(min=0) - weight.amin(1).clamp(max=0)) / steps
    error = (quantized[0](ids).reshape(10, 8) - weight).abs()
    # half an LSB of rounding, and half of one that the zero point is rounded by
    assert (error <= 1.01 * scale[:, None]).all()
    assert type(quantized[1]) is nn.Linear


def test_an_embedding_with_the_documented_qconfig_is_prepared_and_converted() -> None:
    model: Any = nn.Sequential(nn.EmbeddingBag(10, 8)).eval()
    model[0].qconfig = tq.float_qparams_weight_only_qconfig
    ids = torch.arange(10)[:, None]
    prepared = tq.prepare(model)
    assert torch.equal(prepared(ids), model(ids))
    converted: Any = tq.convert(prepared)
    assert isinstance(converted[0], EmbeddingBag)
