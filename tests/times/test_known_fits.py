from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.times import Costs, costs_of
from onnxq.times.fit import Fit
from tests.times.test_table import TABLE

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt


def saved(folder: Path) -> str:
    TABLE.save(folder / "costs.csv")
    return (folder / "costs.csv").read_text("utf-8")


def test_a_saved_table_knows_its_fits(tmp_path: Path) -> None:
    read = Costs.from_csv(saved(tmp_path))
    assert read.fits == Costs.from_csv(TABLE.to_csv()).known_fits() == read.known_fits()


def test_fits_of_other_rows_are_not_taken(tmp_path: Path) -> None:
    edited = saved(tmp_path).replace("1100", "2200")
    assert edited != saved(tmp_path)
    assert not Costs.from_csv(edited).fits


def test_a_line_that_is_no_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'wrong' is not a valid Precision"):
        Costs.from_csv(saved(tmp_path) + "# fit: Relu,,wrong,0.1,1.0\n")


def test_fits_in_the_package_are_as_near_as_those_found_anew() -> None:
    table = costs_of("x86-vnni")
    assert table is not None
    assert table.fits.keys() == table._rows.keys()
    for key, rows in table._rows.items():
        measured = [t.work.sizes for t in rows], [t.ns for t in rows]
        anew = Fit.of(*measured).residuals
        known = Fit.with_base(table.fits[key].base, *measured).residuals
        # of few rows, several bases have no error: which is found depends on the last digits
        assert squares(known) == pytest.approx(squares(anew), rel=1e-6, abs=1e-12)


def squares(residuals: npt.NDArray[np.float64]) -> float:
    """Value that a base makes least: squares of base / measured - 1."""
    return float(np.square(np.exp(-residuals) - 1).sum())
