"""Files that onnxq wrote come in again: nothing changes, and one sentence says so."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner

import onnxq
from onnxq.cli import main
from onnxq.errors import ModelError
from tests.dynamic_models import normal, parsed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnxq.quantized.quantized_model import QuantizedModel

SAMPLES = {"x": normal(16, 256)}
UNREPAIRED = onnxq.Check(repair=None)
MLP = parsed(
    "g (float[n, 256] x) => (float[n, 64] y) { a = MatMul(x, w) b = Relu(a) y = MatMul(b, v) }",
    {"w": normal(256, 256, seed=1), "v": normal(256, 64, seed=2)},
)
MLP.graph.node[0].name = "first"
FILES: dict[str, Callable[[], QuantizedModel]] = {
    "int8": lambda: onnxq.quantize(MLP, SAMPLES, check=UNREPAIRED),
    "int8 qoperator": lambda: onnxq.quantize(MLP, SAMPLES, format="qoperator", check=UNREPAIRED),
    "int4 packed": lambda: onnxq.quantize(MLP, SAMPLES, weight_bits=4, check=UNREPAIRED),
    "dynamic int8": lambda: onnxq.quantize_dynamic(MLP, check=UNREPAIRED),
    "int4": lambda: onnxq.quantize_weights(MLP),
    "int4 qdq": lambda: onnxq.quantize_weights(MLP, format="qdq"),
    "q4f16": lambda: onnxq.half(MLP, SAMPLES, weight_bits=4),
}
CALLS: dict[str, Callable[[onnx.ModelProto], ir.Model]] = {
    "quantize": lambda model: onnxq.quantize(model, SAMPLES),
    "quantize-dynamic": lambda model: onnxq.quantize_dynamic(model),
    "quantize-weights": lambda model: onnxq.quantize_weights(model),
    "import-qdq": lambda model: onnxq.import_qdq(model),
}
IN_INTEGERS = ("int8", "int8 qoperator", "int4 packed", "dynamic int8")


@functools.cache
def written(name: str) -> onnx.ModelProto:
    return FILES[name]().to_proto()


@pytest.fixture(autouse=True)
def quiet(recwarn: pytest.WarningsRecorder) -> None:
    """Verdicts of so small a model warn."""


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", FILES)
def test_a_quantized_file_is_told_to_stay_as_it_is(name: str, call: str) -> None:
    with pytest.raises(ModelError, match="othing is changed"):
        CALLS[call](written(name))


@pytest.mark.parametrize("name", IN_INTEGERS)
def test_what_computes_in_integers_does_not_become_float16(name: str) -> None:
    with pytest.raises(ModelError, match="othing is changed"):
        onnxq.half(written(name), SAMPLES)


def test_a_foreign_file_with_q_and_dq_is_sent_to_the_import_by_half_too() -> None:
    model = written("int8")
    foreign = onnx.ModelProto.FromString(model.SerializeToString())
    del foreign.metadata_props[:]
    with pytest.raises(ModelError, match="onnxq import-qdq"):
        onnxq.half(foreign, SAMPLES)


@pytest.mark.parametrize("dtype", ["float16", "q4f16"])
def test_a_float16_file_is_told_to_stay_as_it_is(dtype: str) -> None:
    made = onnxq.half(MLP, SAMPLES, weight_bits=4 if dtype == "q4f16" else None)
    with pytest.raises(ModelError, match="float16 already, and nothing is changed"):
        onnxq.half(made.to_proto(), SAMPLES)


def test_the_rest_of_a_mixed_file_becomes_float16() -> None:
    mixed = onnxq.half(MLP, SAMPLES, keep=["first"])
    made = onnxq.half(mixed.to_proto(), SAMPLES)
    stored = {v.dtype for v in made.graph.initializers.values()}
    assert stored == {ir.DataType.FLOAT16}
    assert made.verdict is not None
    assert made.verdict.worst_db > 55


def test_a_float16_file_is_a_float_model_to_the_others() -> None:
    made = onnxq.half(MLP, SAMPLES).to_proto()
    types = {node.op_type for node in onnxq.quantize_weights(made).graph}
    assert "MatMulNBits" in types


def test_the_command_line_writes_nothing(tmp_path: Path) -> None:
    path, out = tmp_path / "int8.onnx", tmp_path / "out.onnx"
    onnx.save(written("int8"), path)
    np.savez(tmp_path / "s.npz", x=SAMPLES["x"])
    given = path.read_bytes()
    words = ["quantize", str(path), str(tmp_path / "s.npz"), "-o", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == ModelError.exit_code
    assert "Nothing is changed" in " ".join(result.stderr.split())
    assert path.read_bytes() == given
    assert not out.exists()
