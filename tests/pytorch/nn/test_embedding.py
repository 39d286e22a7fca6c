"""nn.Embedding and nn.EmbeddingBag, from torch to ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

from onnxq import cross_check, export, prepare, quantize
from onnxq.errors import ModelError
from onnxq.graph import io
from onnxq.operator import Float
from onnxq.ort import runtime
from onnxq.pytorch import convert, prepare_qat
from onnxq.qconfig import QConfigMapping, onnxq_default_qconfig
from tests.examples import ALL_INTEGERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onnxq.core.arrays import Singles

pytestmark = pytest.mark.oracle

ROWS, SIZE = 1000, 64
ASKED = QConfigMapping(onnxq_default_qconfig, op_types={"Gather": onnxq_default_qconfig})
IDS = torch.arange(24).reshape(4, 6) * 41 % ROWS


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(ROWS, SIZE)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.table(ids)
        return y


class Projected(Words):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(SIZE, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.table(ids))
        return y


class Bag(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.EmbeddingBag(ROWS, SIZE, mode=mode)
        self.fc = nn.Linear(SIZE, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.fc(self.table(ids))
        return y


class BagOfOffsets(Bag):
    def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        y: torch.Tensor = self.fc(self.table(ids, offsets))
        return y


def outputs(model: ir.Model) -> Singles:
    return np.asarray(runtime.open_session(model).run({"ids": IDS.numpy()})[0], np.float32)


def sqnr_db(wanted: Singles, got: Singles) -> float:
    return float(10 * np.log10(np.square(wanted).mean() / np.square(wanted - got).mean()))


@pytest.mark.parametrize("opset", [18, 21])
def test_an_embedding_before_a_linear_layer_is_stored_in_a_quarter(
    opset: int, tmp_path: Path
) -> None:
    model = export(Projected(), IDS, opset=opset)
    integer = quantize(model, [{"ids": IDS.numpy()}])
    assert "table.weight" not in integer.graph.initializers
    assert integer.graph.initializers["table.weight_quantized"].dtype == ir.DataType.UINT8
    io.save(integer, tmp_path / "int8.onnx")
    integers, overhead = ROWS * SIZE + SIZE * 8, 6000
    assert (tmp_path / "int8.onnx").stat().st_size < integers + overhead
    # 8 bits per tensor keep about 40 dB of normally distributed rows, and the weight costs a few
    assert sqnr_db(outputs(model), outputs(integer)) > 30


def test_an_embedding_that_only_float_nodes_read_is_no_static_node_unless_named() -> None:
    model = export(Words(), IDS)
    (decision,) = prepare(model, ALL_INTEGERS).decisions.values()
    assert isinstance(decision, Float)
    assert "neither side of it is in integers" in decision.reason.words
    integer = quantize(model, [{"ids": IDS.numpy()}], qconfig=ASKED)
    assert "table.weight" not in integer.graph.initializers
    assert sqnr_db(outputs(model), outputs(integer)) > 35


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_a_bag_is_a_loop_whose_embedding_is_no_static_node_with_the_reason(mode: str) -> None:
    model = export(Bag(mode), IDS)
    reasons = {
        decision.reason.words
        for decision in prepare(model, ALL_INTEGERS).decisions.values()
        if isinstance(decision, Float)
    }
    assert any("inside the body of Loop" in reason for reason in reasons)
    integer = quantize(model, [{"ids": IDS.numpy()}], qconfig=ALL_INTEGERS)
    assert integer.graph.initializers["table.weight"].dtype == ir.DataType.FLOAT
    assert sqnr_db(outputs(model), outputs(integer)) > 30


@pytest.mark.parametrize("module", [Words(), Bag("sum")], ids=["table", "bag"])
def test_an_embedding_between_floats_is_stored_in_a_quarter(module: nn.Module) -> None:
    model = export(module, IDS)
    integer = quantize(model, [{"ids": IDS.numpy()}])
    assert "table.weight" not in integer.graph.initializers
    assert integer.graph.initializers["table.weight_quantized"].dtype == ir.DataType.INT8
    assert sqnr_db(outputs(model), outputs(integer)) > 35


def test_what_stands_behind_a_bag_is_trained_with_fake_quantization() -> None:
    model = Bag("sum")
    prepared = prepare_qat(model, inputs=IDS)
    prepared(IDS).sum().backward()
    integer = export(convert(prepared.eval()), IDS)
    assert any(v.dtype == ir.DataType.INT8 for v in integer.graph.initializers.values())
    assert sqnr_db(outputs(export(model, IDS)), outputs(integer)) > 30


def test_what_is_looked_up_for_a_linear_layer_is_trained_with_fake_quantization() -> None:
    model = Projected()
    prepared = prepare_qat(model, inputs=IDS)
    prepared(IDS).sum().backward()
    integer = export(convert(prepared.eval()), IDS)
    checked = cross_check(integer, {"ids": IDS.numpy()})
    assert checked.exact
    assert "QGemm" in {node.op_type for node in checked.nodes}
    assert sqnr_db(outputs(export(model, IDS)), outputs(integer)) > 30


@pytest.fixture
def _two_threads() -> Iterator[None]:
    """Torch refuses offsets that fall with two threads; with one it reads what is not its own."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_a_bag_of_offsets_has_no_batch_axis_and_the_error_says_what_to_do() -> None:
    inputs = (torch.arange(12), torch.tensor([0, 4, 9]))
    with pytest.raises(ModelError, match=r"another number of rows.*dynamic_axes"):
        export(BagOfOffsets("sum"), inputs)
    model = export(BagOfOffsets("sum"), inputs, dynamic_axes={})
    names = ("ids", "offsets")
    sample = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
    stacked = {name: np.stack([x, x]) for name, x in sample.items()}
    integer = quantize(model, stacked)
    session = runtime.open_session
    got, wanted = (np.asarray(session(m).run(sample)[0], np.float32) for m in (integer, model))
    assert sqnr_db(wanted, got) > 30
