"""How much faster recurrent layers in integers were than float ones: a generated table.

Printed by `python scripts/bench_recurrent.py sizes --gains` on AVX512-VNNI (Zen 5), onnxruntime
1.31.1, one thread, 32 steps; of GRU the slower of its two kinds. The other targets use the same
numbers: no other machine was at hand, and an emulator's times say nothing.

What it says: DynamicQuantizeLSTM, one kernel, gains from 64 on. GRU and RNN are a Scan whose body
costs half a microsecond per node and step, whatever the size: they gain where a step's products
cost more than that, GRU above 256 (from 192 on for a batch of 8), RNN from 192 on (64).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Rows of W and R, in multiples of the hidden size."""

R_SLOT = 2
"""Of the recurrent weight among an operator's inputs."""

STEP_ROWS = (1, 8)
"""Rows of a step's product, one per number below: the batch."""

RECURRENT: Mapping[str, Mapping[int, tuple[float, ...]]] = {
    "LSTM": {
        32: (0.83, 0.98),
        64: (1.34, 1.35),
        128: (1.94, 1.92),
        192: (2.27, 2.27),
        256: (2.69, 2.60),
        384: (3.64, 3.04),
        512: (3.93, 3.30),
        1024: (4.57, 4.17),
    },
    "GRU": {
        32: (0.08, 0.29),
        64: (0.14, 0.50),
        128: (0.39, 0.99),
        192: (0.68, 1.43),
        256: (0.96, 1.79),
        384: (1.72, 2.34),
        512: (2.33, 2.62),
        1024: (3.28, 3.33),
    },
    "RNN": {
        32: (0.20, 0.90),
        64: (0.32, 1.99),
        128: (0.70, 3.73),
        192: (1.12, 4.82),
        256: (1.52, 5.34),
        384: (2.19, 5.95),
        512: (2.81, 6.11),
        1024: (3.98, 6.39),
    },
}
"""Operator -> hidden size -> time in float / time in integers, for each of STEP_ROWS."""

STORED = 0.99
"""Of stored weights: the float kernel runs on the floats that were made of them at load. Measured
0.90 to 1.08 with a median of 1.00, which is what a second session of the float model shows too; as
it gains nothing but size, it counts as a little slower than float, so that objective speed leaves
such a node in float."""
