"""How much faster com.microsoft Attention was as QAttention than in float: a generated table.

Printed by `python scripts/bench_attention.py sizes` (a test compares it with what is kept in
scripts/bench_attention.md) on AVX512-VNNI (Zen 5), onnxruntime 1.31.1, one thread, heads of 64,
int8 weights with a scale per column. The other targets use the same numbers: no other machine was
at hand, and an emulator's times say nothing.

What it says: a hidden size of 128 is enough, with one row too; of 64, few rows are slower. ONNX's
own Attention has no weights and no row here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTENTION_ROWS = (1, 16, 128)
"""Length of the sequence, one per number below; each element of a batch is a product of its own."""

ATTENTION: Mapping[int, tuple[float, ...]] = {
    64: (0.79, 1.00, 1.15),
    128: (1.41, 1.45, 1.53),
    256: (2.12, 2.33, 1.76),
    512: (2.73, 2.96, 2.26),
    768: (3.86, 4.46, 2.42),
    1024: (4.74, 4.83, 2.53),
}
"""Hidden size -> time in float / time in integers, for each of ATTENTION_ROWS."""
