from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks import isa
from benchmarks.isa import Count, differing, main
from tests.isa.machines import Machine, Results
from tests.isa.node_cases import node_cases

if TYPE_CHECKING:
    from pathlib import Path


def test_cells_are_sums() -> None:
    count = Count()
    count.add(1000, 0, 3)
    count.add(234, 1, 0)
    assert count.cells() == ("2", "1,234", "1", "3")


def test_nan_equals_nan_and_nothing_else() -> None:
    x, y = np.array([1, np.nan, np.nan]), np.array([1, np.nan, 0])
    assert differing([x], [y]) == 1


def test_a_result_that_is_not_as_predicted_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = next(case for case in node_cases(()) if case.op_type == "MatMulInteger")

    def shifted(machine: Machine, _: Path, cases: Path, results: Path) -> Results:
        assert [path.stem for path in cases.glob("*.onnx")] == [one.name]
        results.mkdir()
        (y,) = one.predicted(machine.arithmetic)
        np.savez(results / f"{one.name}.npz", y.astype(np.int32) + 1)
        return Results(results, machine)

    monkeypatch.setattr(isa, "node_cases", lambda *_: [replace(one)])
    monkeypatch.setattr(isa, "run", shifted)
    machine = Machine("avx2", "x86-avx2", "Haswell")
    assert isa.operators([machine], tmp_path, tmp_path) > 0
    assert "| avx2 | MatMulInteger | 1 |" in capsys.readouterr().out


def test_an_unknown_machine_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["isa", "avx3"])
    with pytest.raises(SystemExit):
        main()
    assert "unknown machine avx3; known: sse, avx2, neon" in capsys.readouterr().err
