from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from click.testing import CliRunner

from benchmarks import isa
from benchmarks.harness.command import command_of
from benchmarks.harness.table import Missed, Row
from benchmarks.isa import Count, as_predicted, differing
from tests.isa.machines import Machine, Results
from tests.isa.node_cases import node_cases

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_cells_are_sums() -> None:
    count = Count()
    count.add(1000, 0, 3)
    count.add(234, 1, 0)
    assert count.cells() == (2, 1234, 1, 3)


def test_nan_equals_nan_and_nothing_else() -> None:
    x, y = np.array([1, np.nan, np.nan]), np.array([1, np.nan, 0])
    assert differing([x], [y]) == 1


def test_a_result_that_is_not_as_predicted_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = next(case for case in node_cases(()) if case.op_type == "MatMulInteger")

    def shifted(machine: Machine, _: Path, cases: Path, results: Path) -> Results:
        assert [path.stem for path in cases.glob("*.onnx")] == [one.name]
        results.mkdir()
        (y,) = one.predicted(machine.saturation_mode)
        np.savez(results / f"{one.name}.npz", y.astype(np.int32) + 1)
        return Results(results, machine)

    monkeypatch.setattr(isa, "node_cases", lambda *_: [replace(one)])
    monkeypatch.setattr(isa, "run", shifted)
    machine = Machine("avx2", "x86-avx2", "Haswell")
    row, missed = as_predicted(isa.operators([machine], tmp_path, tmp_path))
    assert isinstance(row, Row)
    assert row.cells[:3] == ("avx2", "MatMulInteger", 1)
    assert isinstance(missed, Missed)


def test_an_unknown_machine_is_refused() -> None:
    asked = CliRunner().invoke(command_of(isa.measure), ["avx3"])
    assert "'avx3' is not one of" in asked.output
