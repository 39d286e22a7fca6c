"""Observers of weights of fewer bits than 8, in place of those that a qconfig names."""

from onnxq.dtypes import INT8, UINT8
from onnxq.errors import QConfigError
from onnxq.observers import LeastErrorObserver, NarrowRangeObserver, ObserverSpec

BY_BITS: dict[int, ObserverSpec | None] = {
    2: LeastErrorObserver.with_args(dtype="int2"),
    4: NarrowRangeObserver.with_args(quant_max=7, dtype="int4"),
    8: None,
}
"""Bits of a weight -> its observer; None: the one that the qconfig names. At 4 bits the range keeps
its ends: the least error of a weight cuts them off, and costs ResNet-20 3 dB."""
SMALL = 1024
"""Elements of a weight that stays at 8 bits: 4 would save half a kilobyte, less the Cast's 130
bytes. The first and the last layer of a small network are such."""


def as_weight_bits(value: object, where: str) -> int:
    """The number of bits, where weights can have so many."""
    if isinstance(value, bool) or value not in BY_BITS:
        raise QConfigError(f"{where}: weight bits: got {value!r}; wanted {listed_bits()}.")
    return int(str(value))


def listed_bits() -> str:
    """The numbers of bits in words."""
    *first, last = map(str, sorted(BY_BITS))
    return f"{', '.join(first)} or {last}"


def narrowed(spec: ObserverSpec, bits: int, elements: int) -> ObserverSpec:
    """The observer of a weight at so many bits."""
    chosen = BY_BITS[bits]
    if chosen is None or elements < SMALL or spec().dtype not in (INT8, UINT8):
        return spec
    return chosen
