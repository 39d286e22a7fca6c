"""Decoders whose past is more than keys and values of one part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import onnxq
from onnxq.errors import CalibrationError, ModelError, QConfigError, UnsupportedError
from onnxq.language.decoder import Decoder
from onnxq.language.genai_folder import genai_folder
from onnxq.language.token_run import TokenRun
from onnxq.metrics import as_samples, bits_in_windows
from onnxq.ort.runtime import open_session
from tests.language.decoder_kinds import FRAMES, WIDTH, behind_encoder, encoder, with_state
from tests.tiny_decoder import tiny_decoder

if TYPE_CHECKING:
    from pathlib import Path

    from onnxq.core.arrays import Array

TEXTS = np.random.default_rng(4).integers(0, 256, (2, 24))


def encoded() -> dict[str, Array]:
    """Arrays that the encoder gives, by the names under which the decoder takes them."""
    frames = np.random.default_rng(0).standard_normal((2, FRAMES, WIDTH)).astype(np.float32)
    session = open_session(encoder())
    made = session.run({"audio_features": frames})
    return {n.replace("present", "past"): x for n, x in zip(session.outputs, made, strict=True)}


def test_states_are_handed_on_from_step_to_step() -> None:
    with TokenRun(with_state(), 1) as run:
        whole, steps = run.whole(TEXTS), np.concatenate(list(run.in_steps(TEXTS, 5)), axis=1)
    np.testing.assert_allclose(steps, np.asarray(whole, np.float32), atol=1e-5)


def test_a_state_is_no_layer_of_keys() -> None:
    decoder = Decoder.of(with_state())
    assert (decoder.past, decoder.keys) == ({"past.0.conv": "present.0.conv"}, {})
    assert decoder.empty(3)["past.0.conv"].shape == (3, WIDTH, 2)


def test_a_decoder_with_states_gets_four_bits_from_samples() -> None:
    model = with_state()
    made = onnxq.quantize_weights(model, as_samples(model, TEXTS), check=onnxq.Check.NONE)
    wanted = bits_in_windows(model, TEXTS).per_token
    assert bits_in_windows(made, TEXTS).per_token == pytest.approx(wanted, rel=0.02)


def test_a_decoder_behind_an_encoder_gets_four_bits_from_samples() -> None:
    model = behind_encoder()
    samples = as_samples(model, TEXTS, encoded())
    made = onnxq.quantize_weights(model, samples, check=samples)
    assert made.verdict is not None
    logits = next(each for each in made.verdict.outputs if each.name == "logits")
    assert logits.sqnr_db is not None
    assert logits.sqnr_db > 15


def test_inputs_that_tokens_do_not_give_are_asked_for() -> None:
    with pytest.raises(CalibrationError, match=r"past_key_cross_0.*encoded"):
        as_samples(behind_encoder(), TEXTS)


def test_keys_beside_a_state_become_int8_and_the_state_stays() -> None:
    model = tiny_decoder()
    state = ir.Value(name="past.1.conv", type=ir.TensorType(ir.DataType.FLOAT))
    state.shape = ir.Shape(["n", 4, 2])
    model.graph.inputs.append(state)
    kept = ir.node("Identity", [state], name="keep")
    kept.outputs[0].name, kept.outputs[0].type = "present.1.conv", state.type
    model.graph.append(kept)
    model.graph.outputs.append(kept.outputs[0])
    made = onnxq.quantize_cache(model, as_samples(model, TEXTS))
    types = {str(value.name): str(value.dtype) for value in made.graph.inputs}
    assert types["past_key_values.0.key"] == "INT8"
    assert types["past.1.conv"] == "FLOAT"


def test_what_cannot_be_an_int8_cache_says_so() -> None:
    samples = as_samples(with_state(), TEXTS)
    with pytest.raises(ModelError, match="the model has no cache"):
        onnxq.quantize_cache(with_state(), samples)
    with pytest.raises(UnsupportedError, match="MultiHeadAttention reads the cache"):
        onnxq.quantize_cache(behind_encoder(), as_samples(behind_encoder(), TEXTS, encoded()))


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder of two parts, as the builder writes Whisper's."""
    folder = tmp_path / "built"
    folder.mkdir()
    ir.save(encoder(), folder / "encoder.onnx", external_data="encoder.onnx.data")
    onnxq.save(behind_encoder(), folder / "decoder.onnx")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "genai_config.json").write_text(
        '{"model": {"type": "whisper", "encoder": {"filename": "encoder.onnx"}, '
        '"decoder": {"filename": "decoder.onnx"}}}'
    )
    return folder


def test_part_after_part_takes_its_place_in_the_builder_s_folder(
    built: Path, tmp_path: Path
) -> None:
    folder = built
    for number, part in enumerate((encoder(), behind_encoder())):
        made = onnxq.quantize_weights(part, check=onnxq.Check.NONE)
        folder = genai_folder(made, tmp_path / str(number), like=folder)
    names = {"encoder.onnx", "decoder.onnx", "tokenizer.json", "genai_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    for name in ("encoder.onnx", "decoder.onnx"):
        assert "MatMulNBits" in {node.op_type for node in ir.load(folder / name).graph}
    config = "genai_config.json"
    assert (folder / config).read_bytes() == (built / config).read_bytes()


def test_a_model_that_is_no_part_of_the_folder_is_refused(built: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"0 parts of .*encoder \(encoder.onnx\), decoder"):
        genai_folder(with_state(), tmp_path / "made", like=built)
    assert not (tmp_path / "made").exists()


def test_requests_beside_a_folder_to_be_like_are_refused(built: Path, tmp_path: Path) -> None:
    with pytest.raises(QConfigError, match="name no others"):
        genai_folder(encoder(), tmp_path / "made", like=built, context=16)
    with pytest.raises(QConfigError, match="write to another folder"):
        genai_folder(encoder(), built, like=built)
    with pytest.raises(ModelError, match="no folder of onnxruntime-genai"):
        genai_folder(encoder(), tmp_path / "made", like=tmp_path)


@pytest.mark.parametrize("text", ['{"model": {}}', '{"model": {"decoder": {"filename": "../m"}}}'])
def test_a_configuration_without_files_of_its_folder_is_refused(
    text: str, built: Path, tmp_path: Path
) -> None:
    (built / "genai_config.json").write_text(text)
    with pytest.raises(ModelError, match="wanted files beside it"):
        genai_folder(encoder(), tmp_path / "made", like=built)


@pytest.mark.parametrize("model", [with_state(), behind_encoder()], ids=["state", "encoder"])
def test_a_kind_that_a_plain_configuration_does_not_tell_wants_the_builder_s(
    model: ir.Model, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"(past\.0\.conv|past_key_cross_0).*--like"):
        genai_folder(model, tmp_path / "made", context=32)
