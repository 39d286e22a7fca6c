from __future__ import annotations

import numpy as np
import pytest

from scripts._tables import cells, head, line, sqnr_db


def test_a_table_is_markdown() -> None:
    text = f"{head('model', 'size, MB')}\n{line('net', 1.5)}"
    assert text == "| model | size, MB |\n|---|---|\n| net | 1.5 |"


def test_sqnr_counts_in_decibels_and_nothing_differs_is_infinite() -> None:
    wanted = np.array([3, 4], np.float32)  # a signal of 25
    assert sqnr_db(wanted, wanted) == np.inf
    assert sqnr_db(wanted, wanted + np.array([0.5, 0], np.float32)) == pytest.approx(20)


def test_rows_come_back_from_a_page() -> None:
    page = f"# Page\n\n{head('net', 'x')}\n{line('a', 1.5)}\n\n{head('other')}\n{line('b')}\n"
    assert cells(page, "net") == [{"net": "a", "x": "1.5"}]
