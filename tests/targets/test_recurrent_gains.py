from __future__ import annotations

import pytest

from onnxq import targets
from onnxq.targets.recurrent_gains import GATES, RECURRENT, STEP_ROWS
from scripts.bench_recurrent import BATCHES, HIDDEN
from scripts.bench_recurrent import GATES as BENCH_GATES


def test_the_table_is_of_the_sizes_that_the_bench_measures() -> None:
    assert GATES == BENCH_GATES
    assert tuple(BATCHES) == STEP_ROWS
    for sizes in RECURRENT.values():
        assert tuple(sizes) == HIDDEN
        assert all(len(ratios) == len(STEP_ROWS) for ratios in sizes.values())


@pytest.mark.parametrize("op_type", RECURRENT)
def test_integers_gain_more_the_larger_the_layer_is(op_type: str) -> None:
    target = targets.find("portable")
    n = GATES[op_type]
    gains = [target.dynamic_gain(op_type, "integer", 8, h, n * h, 1) or 0 for h in HIDDEN]
    assert gains == sorted(gains)


def test_a_batch_that_is_not_known_counts_as_the_slower_one() -> None:
    target = targets.find("portable")
    assert target.dynamic_gain("GRU", "integer", 8, 256, 768, None) == RECURRENT["GRU"][256][0]
    assert target.dynamic_gain("GRU", "integer", 8, 256, 768, 8) == RECURRENT["GRU"][256][1]
