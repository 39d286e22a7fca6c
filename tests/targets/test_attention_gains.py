from __future__ import annotations

import re
from pathlib import Path

from onnxq import targets
from onnxq.targets.attention_gains import ATTENTION, ATTENTION_ROWS
from scripts.bench_attention import ROWS, SIZES

PRINTED = Path(__file__).resolve().parent.parent / "scripts" / "bench_attention.md"


def test_the_table_is_the_one_that_the_script_printed() -> None:
    """Each line: hidden size, rows, time in float, then both kinds in their order, and others."""
    line = r"^\| (\d+) \| (\d+) \| \d+ \| ([\d.]+) \| ([\d.]+) \|"
    printed = {
        (kind, int(hidden), int(rows)): float(gain)
        for hidden, rows, *gains in re.findall(line, PRINTED.read_text(), re.MULTILINE)
        for kind, gain in zip(ATTENTION, gains, strict=True)
    }
    table = {
        (kind, hidden, rows): gain
        for kind, sizes in ATTENTION.items()
        for hidden, gains in sizes.items()
        for rows, gain in zip(ATTENTION_ROWS, gains, strict=True)
    }
    assert table == printed


def test_the_table_has_the_sizes_that_the_script_measures() -> None:
    assert all(tuple(sizes) == SIZES for sizes in ATTENTION.values())
    assert ATTENTION_ROWS == ROWS


def test_bert_gains_and_a_small_one_with_few_rows_does_not() -> None:
    target = targets.find("portable")
    bert = target.dynamic_gain("Attention", "integer", 8, 768, 3 * 768, None)
    small = target.dynamic_gain("Attention", "integer", 8, 64, 3 * 64, 1)
    assert bert is not None
    assert small is not None
    assert small < 1 < 2 < bert


def test_stored_weights_run_at_floats_speed() -> None:
    target = targets.find("portable")
    gain = target.dynamic_gain("Attention", "stored", 8, 768, 3 * 768, 128)
    assert gain is not None
    assert gain < 1


def test_a_bias_of_scores_needs_a_larger_size() -> None:
    target = targets.find("portable")
    gains = [
        target.dynamic_gain(kind, "integer", 8, 128, 3 * 128, 1)
        for kind in ("Attention", "MultiHeadAttention")
    ]
    assert gains[0] is not None
    assert gains[1] is not None
    assert gains[0] > 1 > gains[1]
