"""Modules that take and return nested tensors: exported, quantized, run on ONNX Runtime."""

from __future__ import annotations

import dataclasses
import pickle
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onnxq
from onnxq.errors import UnsupportedError
from onnxq.observers import NarrowRangeObserver
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.pytorch import convert, export, feeds, prepare, prepare_qat, quantize_dynamic
from onnxq.pytorch.arguments.forward import flatten
from onnxq.pytorch.deployed import Feeding, compare
from onnxq.qconfig import QConfigDynamic

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx_ir as ir

pytestmark = pytest.mark.oracle

TOKENS, FEATURES, HIDDEN, LAYERS, STEPS, BATCH = 60, 32, 48, 2, 6, 3
NEAR = 0.04  # of the largest output: 8-bit weights and activations, a few layers

INTEGERS = QConfigDynamic(NarrowRangeObserver.with_args(), Precision.DYNAMIC_INT8)
"""Whatever the target's measurements say of nets this small."""

State = tuple[Tensor, Tensor]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def words(*shape: int) -> Tensor:
    return torch.randint(0, TOKENS, shape, generator=torch.Generator().manual_seed(2))


class LanguageModel(nn.Module):
    """Model of PyTorch's tutorial on dynamic quantization: (steps, batch) words, two states."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.drop = nn.Dropout(0.5)
        self.encoder = nn.Embedding(TOKENS, FEATURES)
        self.rnn = nn.LSTM(FEATURES, HIDDEN, LAYERS, dropout=0.5)
        self.decoder = nn.Linear(HIDDEN, TOKENS)

    def forward(
        self,
        input: Tensor,  # noqa: A002  # as in the tutorial
        hidden: State,
    ) -> tuple[Tensor, State]:
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return self.decoder(self.drop(output)), hidden


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, FEATURES)
        self.gru = nn.GRU(FEATURES, HIDDEN, batch_first=True)

    def forward(self, source: Tensor) -> dict[str, Tensor]:
        memory, hidden = self.gru(self.embedding(source))
        return {"memory": memory, "hidden": hidden}


class Decoder(nn.Module):
    """One step with attention over what the encoder gave, which it takes as a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, HIDDEN)
        self.gru = nn.GRU(2 * HIDDEN, HIDDEN, batch_first=True)
        self.out = nn.Linear(HIDDEN, TOKENS)

    def forward(self, word: Tensor, encoded: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        x, memory = self.embedding(word), encoded["memory"]
        shares = torch.softmax(x @ memory.transpose(1, 2), -1)
        y, hidden = self.gru(torch.cat([x, shares @ memory], -1), encoded["hidden"])
        return self.out(y), {"memory": memory, "hidden": hidden}


@dataclasses.dataclass
class Answer:
    logits: Tensor
    pooled: Tensor
    states: tuple[Tensor, ...] | None = None


class Reader(nn.Module):
    """A transformer whose inputs are keywords and whose result is a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, FEATURES)
        self.layer = nn.TransformerEncoderLayer(FEATURES, 4, 64, batch_first=True)
        self.head = nn.Linear(FEATURES, 5)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        scale: float = 1.0,
        output_states: bool = False,
        **unused: Tensor,  # noqa: ARG002  # as those of BERT
    ) -> Answer:
        x = self.embedding(input_ids) * scale
        padding = None if attention_mask is None else attention_mask == 0
        y = self.layer(x, src_key_padding_mask=padding)
        states = (x, y) if output_states else None
        return Answer(self.head(y), y.mean(1), states)


def names(values: list[ir.Value]) -> list[tuple[str, str]]:
    return [(str(value.name), str(value.shape)) for value in values]


def run(model: ir.Model, fed: dict[str, npt.NDArray[np.generic]]) -> list[npt.NDArray[np.generic]]:
    with runtime.open_session(model) as session:
        return list(session.run(fed))


STATE = (drawn(LAYERS, BATCH, HIDDEN), drawn(LAYERS, BATCH, HIDDEN))
AXES = {"input": {0: "steps", 1: "batch"}, "hidden": {1: "batch"}}


@pytest.mark.nightly
def test_the_language_model_is_quantized_as_near_as_torch_itself_does() -> None:
    module = LanguageModel().eval()
    example = (words(STEPS, BATCH), STATE)
    kinds: dict[type[nn.Module] | str, QConfigDynamic | None]
    kinds = {nn.LSTM: INTEGERS, nn.Linear: INTEGERS}
    int8 = quantize_dynamic(module, kinds, inputs=example, dynamic_axes=AXES)
    types = [node.op_type for node in int8.graph]
    assert types.count("DynamicQuantizeLSTM") == LAYERS
    assert "LSTM" not in types
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates its own
        quantize: Any = torch.ao.quantization.quantize_dynamic  # has no types
        theirs = quantize(module, {*kinds})
    for steps, rows in ((STEPS, BATCH), (9, 1), (1, 5)):
        given = (words(steps, rows), (drawn(LAYERS, rows, HIDDEN), drawn(LAYERS, rows, HIDDEN)))
        wanted = flatten(module(*given))
        got = run(int8, feeds(module, given))
        for ours, their, exact in zip(got, flatten(theirs(*given)), wanted, strict=True):
            reference = exact.detach().numpy()
            error, limit = np.abs(ours - reference).max(), np.abs(reference).max()
            assert error <= NEAR * limit
            assert error <= 2 * np.abs(their.detach().numpy() - reference).max()


def test_the_language_model_keeps_its_state_between_calls() -> None:
    module = LanguageModel().eval()
    model = export(module, (words(STEPS, BATCH), STATE))
    assert names(list(model.graph.inputs)) == [
        ("input", f"[{STEPS},batch]"),
        ("hidden_0", f"[{LAYERS},batch,{HIDDEN}]"),
        ("hidden_1", f"[{LAYERS},batch,{HIDDEN}]"),
    ]
    outputs = [name for name, _ in names(list(model.graph.outputs))]
    assert outputs == ["output_0", "output_1_0", "output_1_1"]
    given = words(2 * STEPS, 2)
    start = (torch.zeros(LAYERS, 2, HIDDEN), torch.zeros(LAYERS, 2, HIDDEN))
    wanted, _ = module(given, start)
    fed = feeds(module, (given[:STEPS], start))
    first, h, c = run(model, fed)
    second, _, _ = run(model, {"input": given[STEPS:].numpy(), "hidden_0": h, "hidden_1": c})
    got = np.concatenate([first, second])
    np.testing.assert_allclose(got, wanted.detach().numpy(), atol=1e-5)


@pytest.mark.nightly
def test_an_encoder_and_its_decoder_pass_a_dict_on() -> None:
    torch.manual_seed(0)
    encoder, decoder = Encoder().eval(), Decoder().eval()
    source, word = words(BATCH, STEPS), words(BATCH, 1)
    encoded = encoder(source)
    kinds: dict[type[nn.Module] | str, QConfigDynamic | None]
    kinds = {nn.GRU: INTEGERS, nn.Linear: INTEGERS}
    first = quantize_dynamic(encoder, {nn.GRU: INTEGERS}, inputs=source)
    second = quantize_dynamic(decoder, kinds, inputs=(word, encoded))
    assert [name for name, _ in names(list(first.graph.outputs))] == ["memory", "hidden"]
    assert names(list(second.graph.inputs)) == [
        ("word", "[batch,1]"),
        ("encoded_memory", f"[batch,{STEPS},{HIDDEN}]"),
        ("encoded_hidden", f"[1,batch,{HIDDEN}]"),
    ]
    source, word = words(5, STEPS), words(5, 1)
    memory, hidden = run(first, feeds(encoder, source))
    outputs = run(
        second, {"word": word.numpy(), "encoded_memory": memory, "encoded_hidden": hidden}
    )
    wanted = flatten(decoder(word, encoder(source)))
    for got, exact in zip(outputs, wanted, strict=True):
        reference = exact.detach().numpy()
        assert np.abs(got - reference).max() <= NEAR * np.abs(reference).max()


@pytest.mark.nightly
def test_a_transformer_takes_keywords_and_gives_fields() -> None:
    torch.manual_seed(0)
    module = Reader().eval()
    mask = torch.ones(BATCH, STEPS, dtype=torch.long)
    mask[0, 4:] = 0
    batch = {"input_ids": words(BATCH, STEPS), "attention_mask": mask, "scale": 2.0}
    batch |= {"output_states": True, "token_type_ids": mask}
    model = export(module, batch)
    inputs = [name for name, _ in names(list(model.graph.inputs))]
    assert inputs == ["input_ids", "attention_mask", "token_type_ids"]
    assert names(list(model.graph.outputs)) == [
        ("logits", f"[batch,{STEPS},5]"),
        ("pooled", f"[batch,{FEATURES}]"),
        ("states_0", f"[batch,{STEPS},{FEATURES}]"),
        ("states_1", f"[batch,{STEPS},{FEATURES}]"),
    ]
    without = export(module, {"input_ids": batch["input_ids"], "attention_mask": None})
    assert [name for name, _ in names(list(without.graph.inputs))] == ["input_ids"]
    assert [name for name, _ in names(list(without.graph.outputs))] == ["logits", "pooled"]
    samples = [feeds(module, batch) for _ in range(2)]
    int8 = onnxq.quantize(model, samples)
    got = run(int8, samples[0])[0]
    wanted = module(**batch).logits.detach().numpy()
    assert np.abs(got - wanted).max() <= 4 * NEAR * np.abs(wanted).max()


class Pair(NamedTuple):
    image: Tensor
    other: Tensor


class Siamese(nn.Module):
    """Two images in a named tuple, one convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, 4)

    def forward(self, pair: Pair, factor: float = 1.0) -> dict[str, Tensor]:
        left = torch.relu(self.conv(pair.image)).mean((2, 3))
        right = torch.relu(self.conv(pair.other)).mean((2, 3))
        return {"score": self.fc(left * right) * factor}


@pytest.mark.nightly
def test_static_quantization_in_torch_takes_the_arguments_of_forward() -> None:
    torch.manual_seed(0)
    module = Siamese().eval()
    pair = Pair(drawn(4, 3, 8, 8), drawn(4, 3, 8, 8) + 0.5)
    prepared = prepare(module, inputs=(pair, 2.0))
    prepared(pair, 2.0)
    quantized = convert(prepared)
    model = export(quantized, (pair, 2.0))
    assert [name for name, _ in names(list(model.graph.inputs))] == ["pair_image", "pair_other"]
    assert [name for name, _ in names(list(model.graph.outputs))] == ["score"]
    got = run(model, feeds(quantized, (pair, 2.0)))[0]
    wanted = module(pair, 2.0)["score"].detach().numpy()
    assert np.abs(got - wanted).max() <= NEAR * np.abs(wanted).max()


def test_training_takes_the_arguments_of_forward() -> None:
    torch.manual_seed(0)
    pair = Pair(drawn(4, 3, 8, 8), drawn(4, 3, 8, 8) + 0.5)
    prepared = prepare_qat(Siamese(), inputs=(pair, 2.0))
    prepared(pair, 2.0)["score"].sum().backward()
    again = pickle.loads(pickle.dumps(prepared.eval()))
    assert torch.equal(again(pair, 2.0)["score"], prepared(pair, 2.0)["score"])
    quantized = convert(prepared)
    model = export(quantized, (pair, 2.0))
    found = compare(quantized, model, [(pair, 2.0)], Feeding.LAYER_BY_LAYER)
    assert {"pair_image_fake_quant", "pair_other_fake_quant"} <= set(found.tensors)
    assert all(tensor.largest <= 1 for tensor in found.tensors.values())


def test_a_branch_on_a_nested_value_is_refused_with_the_remedy() -> None:
    class Branching(nn.Module):
        def forward(self, state: dict[str, Tensor]) -> Tensor:
            return state["h"] * 2 if state["h"].sum() > 0 else state["h"]

    with pytest.raises(UnsupportedError, match=r"torch\.where or torch\.cond"):
        export(Branching(), ({"h": drawn(2, 3)},))


def test_example_inputs_may_be_slices() -> None:
    x = drawn(BATCH, STEPS, FEATURES)[:, :2]
    model = export(nn.Linear(FEATURES, 4), x)
    assert [str(size) for size in model.graph.inputs[0].shape or ()] == ["batch", "2", "32"]
