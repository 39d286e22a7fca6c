from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import QConfigError
from onnxq.operator import Precision
from onnxq.targets import all_targets
from onnxq.times import Change, Costs, Timing, Work, costs_of
from onnxq.times.table import SHOWN_BY

if TYPE_CHECKING:
    from pathlib import Path

TIMINGS = (
    *(Timing(Work("Relu", "", n, n), Precision.FLOAT, 100 + 0.1 * n) for n in (100, 10000)),
    *(Timing(Change.QUANTIZE.work(n), Precision.FLOAT, 50 + 0.5 * n) for n in (100, 10000)),
)
TABLE = Costs("x86-vnni", "a machine", "avx2", "1.31.1", "1", "2026-11-22", "9 GOP/s", TIMINGS)


def test_a_table_is_saved_and_read_back(tmp_path: Path) -> None:
    TABLE.save(tmp_path / "costs.csv")
    assert Costs.load(tmp_path / "costs.csv") == TABLE


def test_a_node_has_a_time_and_its_error() -> None:
    found = TABLE.node(Work("Relu", "", 10000, 10000), Precision.FLOAT)
    assert found is not None
    assert found.ns == pytest.approx(1100, rel=1e-3)
    assert found.error_ns == found.error * found.ns


def test_what_was_not_measured_has_no_time() -> None:
    assert TABLE.node(Work("Relu", "", 100, 100), Precision.INT8) is None
    assert TABLE.node(Work("Gelu", "", 100, 100), Precision.FLOAT) is None
    assert TABLE.change(Change.BLOCKED, 100) is None


def test_stored_weights_run_as_floats() -> None:
    work = Work("Relu", "", 100, 100)
    assert TABLE.node(work, Precision.WEIGHT_ONLY) == TABLE.node(work, Precision.FLOAT)


def test_changes_of_a_tensor_have_a_time() -> None:
    found = TABLE.change(Change.QUANTIZE, 1000)
    assert found is not None
    assert 300 < found.ns < 800


def test_tables_in_the_package_are_of_their_targets() -> None:
    for target in all_targets():
        table = costs_of(target.name)
        assert table is None or table.target == SHOWN_BY.get(target.name, target.name)
    assert costs_of("x86-vnni") is not None
    assert costs_of("arm64") is None  # no such machine was at hand


def test_portable_takes_the_forms_of_the_machine_that_was_measured() -> None:
    assert costs_of("portable") == costs_of("x86-vnni")


def test_a_table_decides_for_its_own_target_and_for_portable_files() -> None:
    TABLE.check_target("x86-vnni")
    TABLE.check_target("portable")
    with pytest.raises(QConfigError, match="measured on a machine of target 'x86-vnni'; the model"):
        TABLE.check_target("arm64")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operator,kind\n", "its first line is not '# format: onnxq.costs 2'"),
        ("# format: onnxq.costs 2\n", "its head lacks 'target'"),
        (TABLE.to_csv().replace("rows,ns", "ns,rows"), "its columns are not operator, kind"),
        (TABLE.to_csv() + "Relu,,float,1\n", "a row has 4 columns"),
        (TABLE.to_csv() + "Relu,,float,1,1,0,0,0,-3\n", "a row has sizes or a time below 0"),
        (TABLE.to_csv() + "Relu,,wrong,1,1,0,0,0,3\n", "'wrong' is not a valid Precision"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(QConfigError, match=re.escape(message)):
        Costs.load(tmp_path / "c.csv")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(QConfigError, match="onnxq costs -o FILE"):
        Costs.load(tmp_path / "none.csv")
