"""How much faster dynamically quantized nodes were than float ones, by shape, as measured.

The numbers are in the tables beside this file, which the scripts write; a column per number of rows
m (tests compare them with benchmarks/results/*.md):

    product_speedups.csv    benchmarks/dynamic.py: MatMul and Gemm, int8 weights with a scale per
                            column, groups of 32
    recurrent_speedups.csv  benchmarks/recurrent.py --speedups: 32 steps, m is the batch; of GRU the
                            slower of its two kinds
    attention_speedups.csv  benchmarks/attention.py: heads of 64, m is the sequence's length;
                            "Attention" is QAttention; "MultiHeadAttention", behind a MatMul
                            of its own, is what a node becomes that has an attention_bias, or a
                            V of another size

on AVX512-VNNI (Zen 5), onnxruntime 1.31.1, one thread. The other targets use the same numbers: no
other machine was at hand, and an emulator's times say nothing. Time of the session itself, 2.6 us,
is not in them: a MatMul of 32 x 32 takes 0.4 us, and would look as fast as float.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources

LINEAR_OPS = ("MatMul", "Gemm")
"""Float operators that become one integer matrix product, with or without a bias."""
GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Rows of W and R, in multiples of the hidden size."""
R_SLOT = 2
"""Input slot of the recurrent weight."""

TABLES = ("product_speedups.csv", "recurrent_speedups.csv", "attention_speedups.csv")
COLUMNS = ("operators", "precision", "bits", "k", "n")
"""Columns of a table in front of those for each m; `operators` are separated by spaces."""

STORED = 0.99
"""Speedup of stored weights: the float kernel runs on the floats that were made of them at load.
Measured 0.90 to 1.08 with a median of 1.00, which is what a second session of the float model shows
too; as it saves nothing but size, it counts as a little slower than float, so that objective speed
leaves such a node in float."""


@dataclass(frozen=True, slots=True)
class DynamicSpeedup:
    """How much faster a dynamically quantized node was than the float one, as measured.

    Attributes:
        op_type: of the float node.
        precision: a Precision's value: "dynamic_int8", "weight_only", ...
        bits: of the weight's integers.
        k: numbers that are summed per result; of an LSTM, GRU or RNN, the hidden size.
        n: results per row: columns of the weight.
        m: rows of the activation: batch times sequence.
        ratio: time in float / time so quantized, one thread; above 1, it is faster.
    """

    op_type: str
    precision: str
    bits: int
    k: int
    n: int
    m: int
    ratio: float


def measured_speedups(table: str) -> Iterator[DynamicSpeedup]:
    """The speedups of one table, in its order."""
    head, *lines = csv.reader(
        (resources.files("onnxq.targets") / table).read_text("utf-8").splitlines()
    )
    if tuple(head[: len(COLUMNS)]) != COLUMNS:
        raise ValueError(f"{table}: got columns {head}; wanted {', '.join(COLUMNS)} and rows")
    rows = [int(m) for m in head[len(COLUMNS) :]]
    for operators, precision, bits, k, n, *ratios in lines:
        for op_type in operators.split():
            for m, ratio in zip(rows, ratios, strict=True):
                yield DynamicSpeedup(op_type, precision, int(bits), int(k), int(n), m, float(ratio))


def all_speedups() -> Iterator[DynamicSpeedup]:
    """The speedups of all tables; int8 weights may be stored as well."""
    for table in TABLES:
        for speedup in measured_speedups(table):
            yield speedup
            if speedup.precision == "dynamic_int8":
                yield replace(speedup, precision="weight_only", ratio=STORED)


DYNAMIC_SPEEDUPS: tuple[DynamicSpeedup, ...] = tuple(all_speedups())
