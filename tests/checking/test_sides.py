from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

import onnxq
from onnxq.checking.sides import sides_of
from onnxq.errors import ModelError, QConfigError
from tests.examples import as_ir, images, network

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def pair() -> tuple[ir.Model, ir.Model]:
    source = as_ir(network())
    return source, onnxq.quantize(source, [{"x": images(4)}], check=onnxq.Check.NONE)


def test_tensors_and_outputs_of_the_same_name_are_matched(pair: tuple[ir.Model, ir.Model]) -> None:
    sides = sides_of(*pair)
    assert [p.target for p in sides.tensors] == [f"{p.name}_quantized" for p in sides.tensors]
    assert [p.name for p in sides.pairs][-1] == sides.outputs[0].name == "y"
    assert sides.unmatched == ()


def test_a_tensor_has_the_node_that_computes_it_not_the_relu_behind(
    pair: tuple[ir.Model, ir.Model],
) -> None:
    sides = sides_of(*pair)
    makers = {str(v.name): n.name for n in sides.source.graph for v in n.outputs}
    nodes = {p.name: p.node for p in sides.tensors}
    assert nodes["x"] == ""
    assert nodes["r1"] == makers["c1"]
    assert nodes["f"] == makers["f"]


def test_globs_leave_pairs_out(pair: tuple[ir.Model, ir.Model]) -> None:
    assert [p.name for p in sides_of(*pair, ["r*"]).pairs] == ["r1"]
    with pytest.raises(QConfigError, match="matches 'nothing'"):
        sides_of(*pair, ["nothing"])


def test_models_that_do_not_belong_together_are_refused(pair: tuple[ir.Model, ir.Model]) -> None:
    other = network()
    other.graph.initializer[0].raw_data = bytes(len(other.graph.initializer[0].raw_data))
    with pytest.raises(ModelError, match="was made from float model"):
        sides_of(as_ir(other), pair[1])


def test_swapped_models_are_told_apart_by_their_files(
    pair: tuple[ir.Model, ir.Model], tmp_path: Path
) -> None:
    paths = (tmp_path / "float.onnx", tmp_path / "int8.onnx")
    for model, path in zip(pair, paths, strict=True):
        onnx.save(ir.to_proto(model), path)
    with pytest.raises(
        ModelError, match=r"int8\.onnx' is quantized, and .*look swapped.*float model"
    ):
        sides_of(paths[1], paths[0])
    with pytest.raises(ModelError, match=r"int8\.onnx' is quantized already"):
        sides_of(paths[1], paths[1])


class Reader(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    def __init__(self) -> None:
        self.batches = iter([{"x": images(4)}])

    def get_next(self) -> object:
        return next(self.batches, None)


@pytest.mark.parametrize("form", list(QuantFormat))
def test_every_tensor_of_a_file_of_quantize_static_is_compared(
    form: QuantFormat, tmp_path: Path
) -> None:
    onnx.save(network(), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "q.onnx", Reader(), quant_format=form)
    found = onnxq.verify(tmp_path / "float.onnx", tmp_path / "q.onnx", [{"x": images(4)}])
    assert [t.name for t in found.tensors] == ["x", "r1", "c2", "a", "m", "g", "f", "y"]
    assert found.unmatched == ()
    # a Relu that is dropped, or integers of another tensor, would leave less than 10 dB
    found.check(min_sqnr_db=30)
    assert all(o.max_error_lsb is not None for o in found.outputs)
