"""onnxq.pytorch.quantize_dynamic: which modules of a spec become which quantized nodes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

from onnxq.errors import ModelError, NothingQuantizedError, QConfigError, UnsupportedError
from onnxq.ort import runtime
from onnxq.pytorch import export, quantize_dynamic
from onnxq.pytorch.exporting import dynamic_export
from onnxq.qconfig import default_dynamic_qconfig, default_qconfig, float16_dynamic_qconfig

if TYPE_CHECKING:
    import onnx_ir as ir

pytestmark = pytest.mark.oracle

WORDS, SIZE = 50, 32
IDS = torch.arange(24).reshape(4, 6)


class Square(nn.Linear):
    """A Linear of its own type."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(WORDS, SIZE)
        self.body = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), Square(SIZE, SIZE))
        self.rnn = nn.LSTM(SIZE, SIZE, batch_first=True)
        self.cell = nn.GRUCell(SIZE, SIZE)
        self.head = nn.Linear(SIZE, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits (N, 5) of (N, steps) words."""
        x = self.rnn(self.body(self.table(ids)))[0]
        y: torch.Tensor = self.head(self.cell(x[:, -1]))
        return y


@functools.cache
def exported() -> ir.Model:
    return export(Net(), IDS)


def quantized(spec: Any = None, dtype: Any = torch.qint8, **options: Any) -> ir.Model:
    """The Net, exported but once, for that takes seconds."""
    defaults: dict[str, Any] = {"inputs": IDS, "objective": "size"}
    with mock.patch.object(dynamic_export, "export", return_value=exported()):
        return quantize_dynamic(Net(), spec, dtype, **(defaults | options))


def count(model: ir.Model) -> dict[str, int]:
    """How many weights of each type there are; stacks of matrices count once."""
    found: dict[str, int] = {}
    for graph in model.graphs():
        for value in graph.initializers.values():
            shape = () if value.shape is None else value.shape.numpy()
            if value.dtype is not None and len(shape) > 1 and min(shape[-2:]) > 1:
                found[value.dtype.name] = found.get(value.dtype.name, 0) + 1
    return found


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Net, "^the model is Net; wanted a torch.nn.Module, an instance and not its class"),
        ("net.onnx", "^the model is str; .* is for onnxq.quantize_dynamic"),
    ],
)
def test_what_is_no_module_is_refused(source: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        quantize_dynamic(source, {nn.Linear}, inputs=IDS)


@pytest.mark.parametrize("option", [{"target": "x86-vni"}, {"objective": "sise"}])
def test_a_misspelt_option_is_refused_before_the_export(option: dict[str, Any]) -> None:
    with mock.patch.object(dynamic_export, "export") as export_:
        with pytest.raises(QConfigError, match="is not known"):
            quantize_dynamic(Net(), {nn.Linear}, inputs=IDS, **option)
        export_.assert_not_called()


MATRICES = 8  # table, two of body, two of rnn, two of cell, head


@pytest.mark.parametrize(
    ("spec", "integers"),
    [
        (None, 8),
        ({nn.LSTM, nn.Linear}, 5),
        ({nn.Linear}, 3),
        ({Square}, 1),
        ({nn.GRUCell}, 2),
        ({nn.Embedding}, 1),
        ({nn.Sequential}, 2),
        ({"body"}, 2),
        ({"body.0", "head"}, 2),
        ({""}, 8),
        (default_dynamic_qconfig, 8),
        ({nn.Linear: default_dynamic_qconfig, "body": None}, 3),  # the innermost module decides
        ({nn.Linear: default_dynamic_qconfig, "body.0": None}, 2),
        ({nn.Linear: None, "body": default_dynamic_qconfig}, 0),
        ({nn.Linear: default_dynamic_qconfig, Square: None}, 2),
        ({nn.Linear, nn.GRU, nn.Conv2d}, 3),
    ],
)
def test_a_spec_names_modules_by_type_and_name(spec: Any, integers: int) -> None:
    if not integers:
        with pytest.raises(NothingQuantizedError, match="no weights to quantize"):
            quantized(spec)
        return
    found = count(quantized(spec))
    assert found.get("INT8", 0) == integers
    assert found.get("FLOAT", 0) == MATRICES - integers


def test_float16_stores_halves_of_what_is_named() -> None:
    assert count(quantized({nn.LSTM, nn.Linear}, torch.float16)) == {"FLOAT16": 5, "FLOAT": 3}
    spec = {nn.Linear: float16_dynamic_qconfig, "head": default_dynamic_qconfig}
    assert count(quantized(spec)) == {"FLOAT16": 2, "FLOAT": 5, "INT8": 1}


def test_the_result_is_near_the_module_which_stays_as_it_is() -> None:
    net = Net().eval()
    before = {name: p.clone() for name, p in net.named_parameters()}
    model = quantize_dynamic(net, {nn.LSTM, nn.Linear}, inputs=IDS, objective="size")
    with torch.no_grad():
        wanted = net(IDS).numpy()
    with runtime.open_session(model) as session:
        got = np.asarray(session.run({"ids": IDS.numpy()})[0], np.float32)
    assert np.abs(got - wanted).max() < 0.05
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())


def test_a_bag_of_words_has_its_embedding_stored() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table = nn.EmbeddingBag(WORDS, SIZE, mode="mean")

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            """(N, SIZE), the mean of the rows."""
            y: torch.Tensor = self.table(ids)
            return y

    bag = Bag().eval()
    model = quantize_dynamic(bag, {nn.EmbeddingBag}, inputs=IDS, objective="size")
    assert count(model) == {"INT8": 1}
    with runtime.open_session(model) as session:
        got = np.asarray(session.run({"ids": IDS.numpy()})[0], np.float32)
    step = float(bag.table.weight.detach().abs().max()) / 127
    with torch.no_grad():
        assert np.abs(got - bag(IDS).numpy()).max() <= 0.51 * step


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({nn.BatchNorm1d}, ("no module of type BatchNorm1d", "Embedding", "Linear")),
        ({nn.LSTMCell, nn.Conv3d}, ("LSTMCell", "Conv3d", "no such module of Net")),
        ({nn.ReLU, nn.Linear}, ("names ReLU: no such module of Net became",)),
        ({"body.1", "head"}, ("names 'body.1': no such module of Net became",)),
        ({"Linear"}, ("no submodule 'Linear'", "Did you mean the type nn.Linear, without quotes?")),
        ({"square"}, ("Did you mean the type Square, without quotes?",)),
        ({"haed"}, ("no submodule 'haed'", "Did you mean 'head'?")),
        ({nn.ReLU}, ("ReLU", "became an operator that is quantized dynamically")),
        ({torch.Tensor}, ("wanted a type of module",)),
        ("Linear", ("wanted None, a set such as",)),
        ({nn.Linear: default_qconfig}, ("qconfig_spec[Linear] is a QConfig",)),
    ],
)
def test_a_spec_that_fits_nothing_is_an_error(spec: Any, words: tuple[str, ...]) -> None:
    with pytest.raises((QConfigError, ModelError)) as error:
        quantized(spec)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (default_dynamic_qconfig, "the entry of qconfig_spec has int8 weights"),
        (
            {nn.Linear: float16_dynamic_qconfig, "head": default_dynamic_qconfig},
            r"the entry of qconfig_spec\['head'\] has int8 weights",
        ),
    ],
)
def test_a_dtype_that_an_entry_would_overrule_is_refused(spec: Any, words: str) -> None:
    with pytest.raises(QConfigError, match=f"dtype float16 is asked for, and {words}"):
        quantized(spec, torch.float16)


@pytest.mark.parametrize("dtype", [torch.float16, np.float16, "float16"])
def test_float16_has_several_names(dtype: Any) -> None:
    assert count(quantized({"head"}, dtype)) == {"FLOAT16": 1, "FLOAT": 7}


def test_no_dtype_is_int8_and_others_are_told_what_is_wanted() -> None:
    assert count(quantized({"head"}, None)) == {"INT8": 1, "FLOAT": 7}
    with pytest.raises(QConfigError, match=r"'torch.float32' is not known; wanted qint8 or"):
        quantized({"head"}, torch.float32)
    with pytest.raises(QConfigError, match="dtype 8: wanted 'qint8' or 'float16'"):
        quantized({"head"}, 8)


def test_weights_that_another_module_computes_with_are_told_which() -> None:
    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.MultiheadAttention(SIZE, 2, batch_first=True)
            self.head = nn.Linear(SIZE, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Logits (N, steps, 5)."""
            y: torch.Tensor = self.head(self.attend(x, x, x)[0])
            return y

    made = export(Attend(), torch.randn(2, 3, SIZE))
    with (
        mock.patch.object(dynamic_export, "export", return_value=made),
        pytest.raises(ModelError, match=r"'attend' \(MultiheadAttention\) .* name that one"),
    ):
        quantize_dynamic(Attend(), {"attend.out_proj", "head"}, inputs=torch.randn(2, 3, SIZE))


def test_a_module_of_two_names_is_found_by_either() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(SIZE, SIZE)
            self.other = self.one

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(N, SIZE), multiplied twice."""
            y: torch.Tensor = self.other(self.one(x))
            return y

    x = torch.randn(2, SIZE)
    made = export(Twice(), x)
    for name in ("one", "other"):
        with mock.patch.object(dynamic_export, "export", return_value=made):
            model = quantize_dynamic(Twice(), {name}, inputs=x, objective="size")
        assert count(model) == {"INT8": 1}


def test_an_lstm_with_a_projection_is_refused_in_words() -> None:
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(SIZE, SIZE, proj_size=8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(steps, N, 8)."""
            y: torch.Tensor = self.rnn(x)[0]
            return y

    with pytest.raises(UnsupportedError, match=r"'rnn' is an LSTM with proj_size=8; ONNX's LSTM"):
        quantize_dynamic(Projected(), {nn.LSTM}, inputs=torch.randn(2, 3, SIZE))


def test_what_torch_documents_and_has_no_meaning_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="mapping: onnxq has no quantized modules"):
        quantized(None, mapping={})
    with pytest.raises(UnsupportedError, match="inplace: the result is an ONNX model"):
        quantized(None, inplace=True)
    with pytest.raises(QConfigError, match="wanted qint8 or float16"):
        quantized(None, torch.quint8)


def test_without_inputs_the_module_must_offer_them() -> None:
    with pytest.raises(QConfigError, match=r"no example inputs.*pass inputs="):
        quantize_dynamic(Net(), {nn.Linear})
