"""Folders for model hubs: their files, what each variant is worth, and what is left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnxq
from onnxq.errors import (
    CalibrationError,
    ModelError,
    OnnxqError,
    OutputError,
    QConfigError,
    VerificationError,
)
from onnxq.ort import runtime
from tests.dynamic_models import parsed
from tests.examples import images, network, weights

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.hub import HubFolder

TEXT = """g (int64[batch, tokens] input_ids, int64[batch, tokens] attention_mask)
    => (float[batch, tokens, 8] logits) {
    e = Gather(table, input_ids) m = Cast <to: int = 1> (attention_mask) u = Unsqueeze(m, last)
    a = Mul(e, u) b = MatMul(a, w) c = Relu(b) logits = MatMul(c, v)
}"""
CONFIG: dict[str, Any] = {"model_type": "bert", "vocab_size": 50}
NUMBERS: dict[str, Any] = {
    "table": weights(0, 50, 64),
    "w": weights(1, 64, 64),
    "v": weights(2, 64, 8),
    "last": np.array([2], np.int64),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder as save_pretrained and optimum leave it, with a text model."""
    folder = tmp_path / "given"
    (folder / "onnx").mkdir(parents=True)
    onnx.save(parsed(TEXT, NUMBERS), folder / "onnx" / "model.onnx")
    (folder / "onnx" / "model_quantized.onnx").write_bytes(b"made by another tool")
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (folder / "tokenizer.json").write_text("{}", "utf-8")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def config_of(made: HubFolder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made.path / "config.json").read_text("utf-8"))
    return found


def test_files_have_the_names_that_clients_look_for(source: Path, tmp_path: Path) -> None:
    made = onnxq.hub_folder(
        source, tmp_path / "out", variants=["fp32", "fp16", "q8", "int8", "q4", "q4f16"]
    )
    suffixes = ("", "_fp16", "_quantized", "_int8", "_q4", "_q4f16")
    wanted = {f"onnx/model{suffix}.onnx" for suffix in suffixes}
    assert names(made.path) == wanted | {"config.json", "tokenizer.json"}
    assert not made.left_out
    assert config_of(made) == CONFIG


def test_each_variant_has_a_verdict_beside_float_and_runs_from_its_file(
    source: Path, tmp_path: Path
) -> None:
    made = onnxq.hub_folder(source, tmp_path / "out", variants=["fp32", "fp16", "q8", "q4"])
    floats, *others = made.files
    assert floats.verdict is None
    assert floats.ratio == pytest.approx(1, abs=0.02)
    for file in others:
        assert file.verdict is not None
        assert file.verdict.worst_db >= 10
        assert 0 < file.ratio < 1
    ids = np.arange(6).reshape(2, 3)
    feeds = {"input_ids": ids, "attention_mask": np.ones((2, 3), np.int64)}
    for file in made.files:
        with runtime.open_session(made.path / file.file, threads=1) as session:
            assert session.run(feeds)[0].shape == (2, 3, 8)


def test_weights_beside_a_file_are_named_as_clients_want_them(source: Path, tmp_path: Path) -> None:
    made = onnxq.hub_folder(source, tmp_path / "out", variants=["fp32", "q8"], inline_bytes=0)
    data = {"onnx/model.onnx_data", "onnx/model_quantized.onnx_data"}
    assert data <= names(made.path)
    said = config_of(made)["transformers.js_config"]
    assert said == {"use_external_data_format": {"model.onnx": 1, "model_quantized.onnx": 1}}
    assert not made.left_out


def test_what_the_configuration_said_of_other_files_goes(source: Path, tmp_path: Path) -> None:
    js = {"use_external_data_format": True, "kv_cache_dtype": {"q4f16": "float16"}, "dtype": "q4"}
    given = CONFIG | {"transformers.js_config": js}
    (source / "config.json").write_text(json.dumps(given), "utf-8")
    made = onnxq.hub_folder(source, tmp_path / "out", variants=["fp32"])
    assert config_of(made)["transformers.js_config"] == {"dtype": "q4"}


def test_a_variant_below_the_floor_is_left_out_and_said(source: Path, tmp_path: Path) -> None:
    made = onnxq.hub_folder(source, tmp_path / "out", variants=["fp16", "q4"], min_sqnr_db=50)
    (left,) = made.left_out
    assert left.variant == "q4"
    assert "below 50 dB: output 'logits'" in left.why
    assert names(made.path) == {"onnx/model_fp16.onnx", "config.json", "tokenizer.json"}


def test_a_variant_that_cannot_be_made_is_left_out(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "conv.onnx")  # convolutions alone have no 4-bit form
    (tmp_path / "config.json").write_text("{}", "utf-8")
    text = "g (float[n, 3, 8, 8] x) => (float[n, 4, 6, 6] y) { y = Conv(x, w) }"
    onnx.save(parsed(text, {"w": weights(0, 4, 3, 3, 3)}), tmp_path / "conv.onnx")
    made = onnxq.hub_folder(tmp_path / "conv.onnx", tmp_path / "out", variants=["fp32", "q4"])
    (left,) = made.left_out
    assert left.variant == "q4"
    assert names(made.path) == {"onnx/model.onnx", "config.json"}


def test_a_float16_model_is_its_own_variant_fp16(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    half = onnxq.half(parsed(TEXT, NUMBERS), io_type="float16")
    onnx.save(ir.to_proto(half), given / "bert.onnx")
    (given / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    made = onnxq.hub_folder(given, tmp_path / "out", variants=["fp32", "fp16", "q8", "q4f16"])
    (left,) = made.left_out
    assert (left.variant, "variant fp16 is the model as it is" in left.why) == ("fp32", True)
    as_given = onnx.load(made.path / "onnx" / "model_fp16.onnx")
    assert len(as_given.graph.node) == len(half.graph)
    assert {file.variant for file in made.files if file.verdict} == {"q8", "q4f16"}


def test_nothing_is_written_where_every_variant_is_left_out(source: Path, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="q4: below 90 dB"):
        onnxq.hub_folder(source, tmp_path / "out", variants=["q4"], min_sqnr_db=90)
    assert {path.name for path in tmp_path.iterdir()} == {"given"}


def test_samples_make_8_bits_static(tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text("{}", "utf-8")
    made = onnxq.hub_folder(
        tmp_path / "model.onnx", tmp_path / "out", {"x": images(16)}, variants=["q8"]
    )
    file = onnx.load(made.path / "onnx" / "model_quantized.onnx")
    said = {prop.key: prop.value for prop in file.metadata_props}
    assert said["onnxq.format"] == "qdq"


def test_every_file_of_a_model_of_several_is_made(source: Path, tmp_path: Path) -> None:
    both = source / "onnx"
    (both / "model.onnx").rename(both / "encoder_model.onnx")
    onnx.save(parsed(TEXT, NUMBERS), both / "decoder_model_merged.onnx")
    made = onnxq.hub_folder(source, tmp_path / "out", variants=["q8"])
    stems = ("decoder_model_merged", "encoder_model")
    assert [file.file for file in made.files] == [f"onnx/{s}_quantized.onnx" for s in stems]
    with pytest.raises(QConfigError, match="samples are for a model of one file"):
        onnxq.hub_folder(source, tmp_path / "more", {"input_ids": np.zeros((4, 3), np.int64)})


def test_the_batch_of_a_cache_has_the_name_by_which_clients_make_an_empty_one(
    source: Path, tmp_path: Path
) -> None:
    text = """g (int64[n, t] input_ids, float[n, 2, p, 4] past_key_values_key)
        => (float[n, t, 64] logits, float[n, 2, p, 4] present_key) {
        logits = Gather(table, input_ids) present_key = Relu(past_key_values_key)
    }"""
    onnx.save(parsed(text, {"table": NUMBERS["table"]}), source / "onnx" / "model.onnx")
    made = onnxq.hub_folder(source, tmp_path / "out", variants=["fp32"])
    graph = onnx.load(made.path / "onnx" / "model.onnx").graph
    first = {v.type.tensor_type.shape.dim[0].dim_param for v in (*graph.input, *graph.output)}
    assert first == {"batch_size"}


def test_a_fixed_batch_stays_beside_a_cache_whose_batch_has_no_name(
    source: Path, tmp_path: Path
) -> None:
    text = """g (int64[1, t] input_ids, float[n, 2, p, 4] past_key_values_key)
        => (float[1, t, 64] logits, float[n, 2, p, 4] present_key) {
        logits = Gather(table, input_ids) present_key = Relu(past_key_values_key)
    }"""
    model = parsed(text, {"table": NUMBERS["table"]})
    model.graph.input[1].type.tensor_type.shape.dim[0].Clear()
    onnx.save(model, source / "onnx" / "model.onnx")
    made = onnxq.hub_folder(source, tmp_path / "out", variants=["fp32"])
    ids, past = onnx.load(made.path / "onnx" / "model.onnx").graph.input
    assert ids.type.tensor_type.shape.dim[0].dim_value == 1
    assert past.type.tensor_type.shape.dim[0].dim_param == "batch_size"


def test_what_is_there_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match="is there already"):
        onnxq.hub_folder(source, tmp_path / "out")
    assert not names(tmp_path / "out")


def without_config(source: Path) -> None:
    (source / "config.json").unlink()


def without_models(source: Path) -> None:
    for path in [*source.glob("onnx/*"), source / "model.safetensors"]:
        path.unlink()


def with_a_broken_config(source: Path) -> None:
    (source / "config.json").write_text("[]", "utf-8")


def with_a_small_vocabulary(source: Path) -> None:
    onnx.save(parsed(TEXT, NUMBERS | {"table": weights(0, 1, 64)}), source / "onnx" / "model.onnx")


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (without_config, QConfigError, "config.json'.*--files"),
        (without_models, ModelError, "no float ONNX file and no PyTorch weights"),
        (with_a_broken_config, QConfigError, "holds no JSON object"),
        (with_a_small_vocabulary, CalibrationError, "Give --samples"),
    ],
)
def test_a_folder_that_lacks_something_is_refused_whole(
    source: Path, tmp_path: Path, change: Any, error: type[OnnxqError], said: str
) -> None:
    change(source)
    with pytest.raises(error, match=said):
        onnxq.hub_folder(source, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"given"}


def test_a_quantized_model_is_no_fp32(source: Path, tmp_path: Path) -> None:
    path = source / "onnx" / "model.onnx"
    onnxq.quantize_dynamic(path).save(path)
    with pytest.raises(ModelError, match="is quantized already"):
        onnxq.hub_folder(source, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


def test_unknown_variants_are_refused_with_the_nearest(source: Path, tmp_path: Path) -> None:
    with pytest.raises(QConfigError, match="Did you mean 'q4f16'"):
        onnxq.hub_folder(source, tmp_path / "out", variants=["q4f61"])
    with pytest.raises(QConfigError, match="wanted some of"):
        onnxq.hub_folder(source, tmp_path / "out", variants=[])
