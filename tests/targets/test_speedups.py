from __future__ import annotations

import math
from importlib import resources
from pathlib import Path

import pytest

from benchmarks import attention, dynamic, recurrent
from benchmarks.harness.results import FOLDER as RESULTS
from benchmarks.harness.results import Results
from benchmarks.parts.speedups import FOLDER, speedups_text
from onnxq import targets
from onnxq.targets.speedups import (
    DYNAMIC_SPEEDUPS,
    GATES,
    LINEAR_OPS,
    STORED,
    TABLES,
    measured_speedups,
)

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/dynamic.md"
ATTENTION = ("Attention", "MultiHeadAttention")


def test_each_node_was_measured_once() -> None:
    shapes = [(g.op_type, g.precision, g.bits, g.k, g.n, g.m) for g in DYNAMIC_SPEEDUPS]
    assert len(set(shapes)) == len(shapes)
    assert all(0 < g.ratio < math.inf for g in DYNAMIC_SPEEDUPS)
    assert {g.precision for g in DYNAMIC_SPEEDUPS} == {
        "dynamic_int8",
        "weight_only_groupwise",
        "weight_only",
    }


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_written_as_it_was_read(table: str) -> None:
    found: dict[tuple[str, str, int, int, int], list[float]] = {}
    rows: dict[int, None] = {}
    for g in measured_speedups(table):
        if g.op_type == "Gemm":  # in one row with MatMul
            continue
        operators = " ".join(LINEAR_OPS) if g.op_type in LINEAR_OPS else g.op_type
        found.setdefault((operators, g.precision, g.bits, g.k, g.n), []).append(g.ratio)
        rows[g.m] = None
    assert speedups_text(list(rows), found) == (FOLDER / table).read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op,precision,bits,k,n,1\n", "got columns .* wanted operators, precision"),
        ("operators,precision,bits,k,n,1,4\nGemm,dynamic_int8,8,32,32,0.5\n", "shorter"),
        ("operators,precision,bits,k,n,1\nGemm,dynamic_int8,8,32,32,fast\n", "fast"),
    ],
)
def test_an_altered_table_is_refused(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "speedups.csv").write_text(text)
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    with pytest.raises(ValueError, match=message):
        list(measured_speedups("speedups.csv"))


# --- MatMuls


def test_speedups_of_linear_layers_are_those_that_were_measured() -> None:
    """Cells of a row: K x N, M, one scale, stored, then FORMS in their order."""
    shapes = Results.load(RESULTS / "dynamic.json").tables["shapes"]
    stored = {
        (op_type, *precision, *map(int, sizes.split(" x ")), rows): speedup
        for sizes, rows, _, _, *speedups in shapes.of()
        for precision, speedup in zip(dynamic.PRECISIONS, speedups, strict=True)
        for op_type in LINEAR_OPS
    }
    assert stored == {
        (g.op_type, g.precision, g.bits, g.k, g.n, g.m): g.ratio
        for g in measured_speedups("product_speedups.csv")
    }


def test_speedups_of_linear_layers_are_of_the_shapes_that_the_script_measures() -> None:
    measured = list(measured_speedups("product_speedups.csv"))
    assert {(g.precision, g.bits) for g in measured} == set(dynamic.PRECISIONS)
    assert {g.m for g in measured} == set(dynamic.ROWS)
    assert {(g.k, g.n) for g in measured} == set(dynamic.SHAPES)


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("shape", [(32, 32, 64), (64, 64, 4), (128, 128, 1), (16, 2048, None)])
def test_small_linear_layers_are_faster_in_float(
    op_type: str, bits: int, shape: tuple[int, int, int | None]
) -> None:
    """A session of one small MatMul hides that: most of its time is the session's own."""
    target = targets.find("portable")
    precisions = ("weight_only_groupwise", "dynamic_int8", "weight_only")
    found = {
        precision: target.dynamic_speedup(op_type, precision, bits, *shape)
        for precision in precisions
    }
    assert all(speedup < 1 for speedup in found.values() if speedup is not None)
    assert found["weight_only"] == (STORED if bits == 8 else None)


@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_large_weights_are_faster_in_integers(op_type: str) -> None:
    target = targets.find("portable")
    large = target.dynamic_speedup(op_type, "dynamic_int8", 8, 768, 768, None)
    assert large is not None
    assert large > 2


def test_groups_are_faster_with_one_row_and_slower_with_many() -> None:
    target = targets.find("portable")
    one, many = (
        target.dynamic_speedup("MatMul", "weight_only_groupwise", 4, 512, 512, m) for m in (1, 256)
    )
    assert one is not None
    assert many is not None
    assert one > 2 > 1 > many


# --- recurrent layers


def test_speedups_of_layers_are_of_the_sizes_that_the_script_measures() -> None:
    measured = {
        (g.op_type, g.k, g.n, g.m): g.ratio for g in measured_speedups("recurrent_speedups.csv")
    }
    assert measured.keys() == {
        (op_type, hidden, rows * hidden, batch)
        for op_type, rows in GATES.items()
        for hidden in recurrent.HIDDEN
        for batch in recurrent.BATCHES
    }


@pytest.mark.parametrize("op_type", GATES)
def test_integers_are_faster_the_larger_the_layer_is(op_type: str) -> None:
    target = targets.find("portable")
    n = GATES[op_type]
    sizes = recurrent.HIDDEN
    found = [target.dynamic_speedup(op_type, "dynamic_int8", 8, h, n * h, 1) or 0 for h in sizes]
    assert found == sorted(found)


def test_a_batch_that_is_not_known_counts_as_the_slower_one() -> None:
    target = targets.find("portable")
    assert target.dynamic_speedup("GRU", "dynamic_int8", 8, 256, 768, None) == 0.96
    assert target.dynamic_speedup("GRU", "dynamic_int8", 8, 256, 768, 8) == 1.79


# --- attention


def test_speedups_of_attention_are_those_that_were_measured() -> None:
    """Cells of a row: hidden size, rows, time in float, then both kinds in their order."""
    sizes = Results.load(RESULTS / "attention.json").tables["sizes"]
    stored = {
        (kind, hidden, rows): speedup
        for hidden, rows, _, *speedups in sizes.of()
        for kind, speedup in zip(("Attention", "MultiHeadAttention"), speedups[:2], strict=True)
    }
    measured = list(measured_speedups("attention_speedups.csv"))
    assert stored == {(g.op_type, g.k, g.m): g.ratio for g in measured}
    assert {g.k for g in measured} == set(attention.SIZES)
    assert {g.m for g in measured} == set(attention.ROWS)


def test_bert_is_faster_and_a_small_one_with_few_rows_is_not() -> None:
    target = targets.find("portable")
    bert = target.dynamic_speedup("Attention", "dynamic_int8", 8, 768, 3 * 768, None)
    small = target.dynamic_speedup("Attention", "dynamic_int8", 8, 64, 3 * 64, 1)
    assert bert is not None
    assert small is not None
    assert small < 1 < 2 < bert


def test_stored_weights_run_at_floats_speed() -> None:
    target = targets.find("portable")
    assert target.dynamic_speedup("Attention", "weight_only", 8, 768, 3 * 768, 128) == STORED < 1


def test_a_bias_of_scores_needs_a_larger_size() -> None:
    target = targets.find("portable")
    found = [
        target.dynamic_speedup(kind, "dynamic_int8", 8, 128, 3 * 128, 1)
        for kind in ("Attention", "MultiHeadAttention")
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0] > 1 > found[1]


@pytest.mark.parametrize(
    ("row", "op_type", "bits"),
    [
        ("MatMul, int8", "MatMul", (8, "dynamic_int8")),
        ("MatMul, 4 bits in groups", "MatMul", (4, "weight_only_groupwise")),
        *((op_type, op_type, (8, "dynamic_int8")) for op_type in GATES),
        *((op_type, op_type, (8, "dynamic_int8")) for op_type in ATTENTION),
    ],
)
def test_the_guide_says_from_which_sizes_integers_pay(
    row: str, op_type: str, bits: tuple[int, str]
) -> None:
    ratios: dict[int, dict[int, float]] = {}
    for each in DYNAMIC_SPEEDUPS:
        is_square = op_type not in LINEAR_OPS or each.k == each.n
        if each.op_type == op_type and (each.bits, each.precision) == bits and is_square:
            ratios.setdefault(each.m, {})[each.k] = each.ratio
    least = {
        rows: min(k for k in by_size if all(r > 1 for size, r in by_size.items() if size >= k))
        for rows, by_size in ratios.items()
    }
    said = ", ".join(f"{rows}: {size}" for rows, size in least.items())
    assert f"| {row} | {said} |" in GUIDE.read_text("utf-8")
