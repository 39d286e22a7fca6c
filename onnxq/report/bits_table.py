"""Tables of mixed bits: what each size costs, and what was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.weights.mixed_bits import CHOICES, FLOAT_BITS

if TYPE_CHECKING:
    from onnxq.weights.mixed_bits import Mix, Mixed

CHOSEN = "chosen"


def mixed_rows(mixed: Mixed) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(header, rows) of the front, in the order of its sizes, and of the choice among it."""
    header = ("", "average bits", "MB", "predicted dB", *(_name(bits) for bits in CHOICES))
    mixes = [("", mix) for mix in mixed.front if mix.bits != mixed.chosen.bits]
    ordered = sorted([*mixes, (CHOSEN, mixed.chosen)], key=lambda row: row[1].size_bytes)
    return header, [_row(*each) for each in ordered]


def _row(mark: str, mix: Mix) -> tuple[str, ...]:
    counts = mix.counts
    size, noise = f"{mix.size_bytes / 1e6:.2f}", f"{mix.sqnr_db:.1f}"
    return (mark, f"{mix.average:.2f}", size, noise, *(str(counts[bits]) for bits in CHOICES))


def _name(bits: int) -> str:
    return "float" if bits == FLOAT_BITS else f"{bits} bits"


def mixed_json(mixed: Mixed) -> dict[str, object]:
    """Plain values of the table for programs, with the bits of every product."""
    return {
        "front": [_values(mix) for mix in mixed.front],
        "chosen": {**_values(mixed.chosen), "bits": dict(mixed.chosen.bits)},
    }


def _values(mix: Mix) -> dict[str, object]:
    return {
        "bits_average": mix.average,
        "weight_bytes": mix.size_bytes,
        "predicted_sqnr_db": None if mix.noise <= 0 else mix.sqnr_db,
        "products": {_name(bits): count for bits, count in mix.counts.items()},
    }
