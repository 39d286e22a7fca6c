from __future__ import annotations

import re
from pathlib import Path

from onnxq import targets
from onnxq.attention_gains import ATTENTION, ATTENTION_ROWS
from scripts.bench_attention import ROWS, SIZES

PRINTED = Path(__file__).resolve().parent.parent / "scripts" / "bench_attention.md"


def test_the_table_is_the_one_that_the_script_printed() -> None:
    """Each line: hidden size, rows, time in float, QAttention, then what onnxq does not write."""
    lines = re.findall(
        r"^\| (\d+) \| (\d+) \| \d+ \| ([\d.]+) \|", PRINTED.read_text(), re.MULTILINE
    )
    printed = {(int(hidden), int(rows)): float(gain) for hidden, rows, gain in lines}
    table = {
        (hidden, rows): gain
        for hidden, gains in ATTENTION.items()
        for rows, gain in zip(ATTENTION_ROWS, gains, strict=True)
    }
    assert table == printed


def test_the_table_has_the_sizes_that_the_script_measures() -> None:
    assert tuple(ATTENTION) == SIZES
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
