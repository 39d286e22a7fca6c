from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import defaults
from scripts._architectures import Size
from scripts._defaults import SUBJECTS
from scripts._defaults.demand import Demand, unmet
from scripts._defaults.encoders import OUTLYING, RANGE, SentenceEncoder, stand_out
from scripts._defaults.images import VIT_STEM
from scripts._defaults.measured import WAYS, Figures, Row, measure
from scripts._timing import Ratio, session
from scripts._ways import Way, linear_layers_alone

if TYPE_CHECKING:
    from pathlib import Path

GOOD = Figures(40.0, 0.26, 1.0, 0.9, {"": Ratio(0.5, 0.4, 0.6)})


def row(**ways: Figures) -> Row:
    return Row("net", 0.905, {Way[name]: figures for name, figures in ways.items()}, {})


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Row:
    folder = tmp_path_factory.mktemp("block")
    case = SUBJECTS["bert_block"].make(Size.TINY, folder)
    named = linear_layers_alone(case.model).nodes
    assert len(named) == 6  # of eight MatMuls, two are those of attention
    return measure("bert_block", case, folder, rounds=3)


@pytest.mark.nightly
def test_every_way_makes_a_file_of_the_block_with_its_figures(block: Row) -> None:
    assert set(block.figures) == set(WAYS)
    assert not block.failed
    assert all(figures.sqnr_db > 20 for figures in block.figures.values())
    assert block.figures[Way.LINEAR_LAYERS].ratio.keys() == {""}
    (made,) = defaults.rows(block)
    assert made.cells[0] == "bert_block"


def test_a_file_within_all_bounds_misses_nothing() -> None:
    demand = Demand(0.6, 40, 0.5, 0.03, 0.3, 0.01, 0.6)
    assert not list(
        unmet(row(DEFAULT=GOOD, LINEAR_LAYERS=GOOD, PORTABLE=GOOD, DYNAMIC=GOOD), demand)
    )


@pytest.mark.parametrize(
    ("worse", "demand", "told"),
    [
        ({"ratio": {"": Ratio(1.05, 1.01, 1.1)}}, Demand(), "time 1.05"),
        ({"sqnr_db": 35.0}, Demand(sqnr_db=36), "35.0 dB; wanted 36.0"),
        ({"sqnr_db": 39.0}, Demand(behind_db=0.5), "1.0 dB below linear layers alone"),
        ({"sqnr_db": 42.5}, Demand(), "portable 2.5 dB below"),
        ({"ratio": {"": Ratio(0.6, 0.5, 0.7)}}, Demand(behind_ratio=0.03), "time 0.10 above"),
        ({"size": 0.4}, Demand(size=0.3), "size 0.40"),
        ({"score": 0.85}, Demand(lost_score=0.01), "score 0.055 below"),
    ],
)
def test_each_bound_that_is_missed_is_told_with_its_figure(
    worse: dict[str, object], demand: Demand, told: str
) -> None:
    default = dataclasses.replace(GOOD, **worse)  # type: ignore[arg-type]  # of several types
    misses = list(unmet(row(DEFAULT=default, LINEAR_LAYERS=GOOD, PORTABLE=GOOD), demand))
    assert len(misses) == 1
    assert told in misses[0]


def test_a_doubtful_time_is_not_slower() -> None:
    doubtful = dataclasses.replace(GOOD, ratio={"": Ratio(1.05, 0.99, 1.1)})
    assert not list(unmet(row(DEFAULT=doubtful), Demand()))


def test_some_columns_stand_out_ahead_of_the_norm_and_not_behind_it() -> None:
    import torch

    torch.manual_seed(0)
    encoder = SentenceEncoder(64, 48, 3, 4, 16).eval()
    feeds = {"ids": torch.arange(16)[None], "mask": torch.ones(1, 16)}
    stand_out(encoder, feeds)
    seen: list[torch.Tensor] = []
    norm = encoder.layers[0].get_submodule("norm2")
    norm.register_forward_hook(lambda _, x, y: seen.extend((x[0], y)))
    with torch.no_grad():
        encoder(**feeds)
    spans = [float(np.ptp(x[..., list(OUTLYING[0])].numpy())) for x in seen]
    assert spans[0] > 0.9 * RANGE
    assert spans[1] < 1


def test_the_weights_that_are_not_kept_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VIT_STEM, raising=False)
    with pytest.raises(FileNotFoundError, match="train_vit_stem"):
        SUBJECTS["vit_stem"].make(Size.REAL, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_small_case_runs_in_float(name: str, tmp_path: Path) -> None:
    """Some seconds: each is exported by torch, and one is trained."""
    case = SUBJECTS[name].make(Size.TINY, tmp_path)
    for batch in (*case.timed.values(), case.test[0]):
        assert all(np.isfinite(y).all() for y in session(case.model).run(None, batch))
