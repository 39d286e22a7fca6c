"""How much faster com.microsoft Attention was as QAttention than in float: a generated table.

Printed by `python scripts/bench_attention.py sizes` (a test compares it with what is kept in
scripts/bench_attention.md) on AVX512-VNNI (Zen 5), onnxruntime 1.31.1, one thread, heads of 64,
int8 weights with a scale per column. The other targets use the same numbers: no other machine was
at hand, and an emulator's times say nothing.

What it says: as QAttention, a hidden size of 128 is enough, with one row too; of 64, few rows are
slower. A product of its own and MultiHeadAttention gain from 256 on. ONNX's own Attention has no
weights and no row here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ATTENTION_ROWS = (1, 16, 128)
"""Length of the sequence, one per number below; each element of a batch is a product of its own."""

ATTENTION: Mapping[str, Mapping[int, tuple[float, ...]]] = {
    "Attention": {
        64: (0.77, 1.01, 1.23),
        128: (1.20, 1.57, 1.43),
        256: (1.97, 2.14, 1.79),
        512: (3.14, 2.76, 2.27),
        768: (4.20, 5.00, 2.39),
        1024: (5.32, 4.19, 2.53),
    },
    "MultiHeadAttention": {
        64: (0.37, 0.67, 1.04),
        128: (0.77, 0.97, 1.20),
        256: (1.34, 1.67, 1.59),
        512: (2.68, 2.51, 2.08),
        768: (3.45, 3.36, 2.22),
        1024: (5.65, 4.00, 2.37),
    },
}
"""What it becomes -> hidden size -> time in float / time in integers, for each of ATTENTION_ROWS.

"Attention" is QAttention; "MultiHeadAttention", behind a product of its own, is what a node with an
attention_bias becomes, or one whose V has another size.
"""
