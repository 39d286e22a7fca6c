from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.harness import benchmark as benchmarks
from benchmarks.harness import command
from benchmarks.harness.apart import apart
from benchmarks.harness.benchmark import Benchmark, benchmark, find, names, question
from benchmarks.harness.command import command_of, main
from benchmarks.harness.results import FOLDER, Results, Run, load_all
from benchmarks.harness.table import RATIO, Missed, Row, Table, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN = Run("a machine", {"onnxruntime": "1.31.1"}, "abc1234", "2026-11-28", "--rounds 3")
TIMES = Table("times", {"model": "", "rows": ",", "over float": RATIO, "dB": ".1f"}, keys=2)


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (1.236, ".2f", "1.24"),
        (0.125, "+.1%", "+12.5%"),
        (75024896, ",", "75,024,896"),
        ([0.5, 0.4, 0.6], RATIO, "0.50 (0.40..0.60)"),
        ([33.5, "float"], ".1f", "33.5 / float"),
        (None, ".2f", "-"),
        ("fails | why", ".2f", "fails \\| why"),
        (2.5, "{:.2f} s", "2.50 s"),
    ],
)
def test_a_cell_is_shown_in_the_format_of_its_column(value: object, form: str, text: str) -> None:
    assert shown(value, form) == text


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="times: 2 cells; columns: model, rows, over float, dB"):
        TIMES.row("net", 8)


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    results = Results()
    results.add(RUN, TIMES.row("net", np.int64(8), (np.float32(0.5), 0.4, 0.6), np.inf))
    results.save(tmp_path / "x.json")
    read = Results.load(tmp_path / "x.json")
    assert read.runs == [RUN]
    assert read.tables["times"].of() == [["net", 8, [0.5, 0.4, 0.6], "inf"]]


def test_a_row_that_is_measured_again_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    results, later = Results(), Run("another", {})
    for run, name, rows, db in ((RUN, "a", 1, 30.0), (RUN, "b", 1, 31.0), (later, "a", 1, 32.0)):
        results.add(run, TIMES.row(name, rows, None, db))
    assert results.tables["times"].all("dB") == [32.0, 31.0]
    results.add(later, TIMES.row("b", 1, None, 33.0))
    results.save(tmp_path / "x.json")
    assert Results.load(tmp_path / "x.json").runs == [later]  # no row is left of the first


def test_rows_of_a_table_whose_columns_have_changed_are_dropped() -> None:
    results = Results()
    results.add(RUN, TIMES.row("a", 1, None, 30.0))
    results.add(RUN, Table("times", {"model": ""}).row("a"))
    assert results.tables["times"].of() == [["a"]]


def test_a_value_is_found_by_column_and_keys() -> None:
    results = Results()
    results.add(RUN, TIMES.row("a", 1, None, 30.0))
    results.add(RUN, TIMES.row("a", 8, None, 31.0))
    times = results.tables["times"]
    assert times("dB", "a", 8) == 31.0
    assert times.markdown("a").splitlines()[0] == "| rows | over float | dB |"
    with pytest.raises(KeyError, match="2 rows begin with a; wanted one"):
        times("dB", "a")
    with pytest.raises(KeyError, match="no column 'SQNR'"):
        times("SQNR", "a", 8)


# --- the command


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Benchmark:
    """A benchmark of this module, whose results go into a folder."""
    monkeypatch.setattr(benchmarks, "question", lambda _: "How much is twice a number?")
    monkeypatch.setattr(command, "FOLDER", tmp_path)

    @benchmark(Table("twice", {"x": "", "2 x": ".1f"}))
    @click.option("--most", default=2)
    def made(most: int) -> Iterator[Row | Missed]:
        (table,) = made.tables
        for x in range(most):
            yield table.row(x, 2.0 * x)
        if most > 3:
            yield Missed(f"{most} is too many")

    return made


def test_a_run_prints_its_rows_and_stores_them_if_asked(doubled: Benchmark, tmp_path: Path) -> None:
    asked = CliRunner().invoke(command_of(doubled), ["--most", "3"])
    assert asked.exit_code == 0, asked.output
    assert asked.output.endswith("| x | 2 x |\n|---|---|\n| 0 | 0.0 |\n| 1 | 2.0 |\n| 2 | 4.0 |\n")
    assert not list(tmp_path.iterdir())
    CliRunner().invoke(command_of(doubled), ["--most", "3", "--write"])
    assert Results.load(tmp_path / f"{doubled.name}.json").tables["twice"].all("2 x") == [0, 2, 4]


def test_a_bound_that_is_missed_fails_the_run(doubled: Benchmark) -> None:
    asked = CliRunner().invoke(command_of(doubled), ["--most", "4"])
    assert asked.exit_code == 1
    assert asked.output.endswith("missed: 4 is too many\n")


def test_the_list_has_every_benchmark_with_its_question() -> None:
    shown_list = CliRunner().invoke(main).output
    for name in names():
        assert name in shown_list
        assert question(name)[-1] in ".?", name


def test_an_unknown_benchmark_is_refused() -> None:
    assert "No such command 'speed'" in CliRunner().invoke(main, ["speed"]).output


@pytest.mark.parametrize("name", sorted(load_all()))
def test_stored_results_have_the_columns_that_the_benchmark_gives(name: str) -> None:
    try:
        tables = {table.name: table for table in find(name).tables}
    except ImportError as error:
        pytest.skip(str(error))  # of packages that only this benchmark needs
    stored = Results.load(FOLDER / f"{name}.json").tables
    for key in tables.keys() & stored.keys():
        assert [*stored[key].columns.items()] == [*tables[key].columns.items()], key
        assert stored[key].keys == tables[key].keys, key
    assert tables.keys() & stored.keys()


def test_a_call_apart_runs_in_a_process_of_its_own() -> None:
    assert apart(os.getpid) != os.getpid()
    assert apart(divmod, 7, 2) == (3, 1)


def test_options_are_kept_without_the_folders_of_this_machine() -> None:
    run = Run.now(["numpy"], ["--data", "/home/me/data/images.npz", "resnet20", "--write"])
    assert run.options == "--data images.npz resnet20 --write"
