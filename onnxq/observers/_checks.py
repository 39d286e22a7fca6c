"""Guard that constructors of observers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import QConfigError

if TYPE_CHECKING:
    from onnxq.observers._base import Observer


def check_qscheme(observer: Observer, ch_axis: int | None) -> None:
    """Guards an observer that has a range for each channel along ch_axis; None: one range."""
    if observer.qscheme.per_channel == (ch_axis is not None):
        return
    has = (
        "one range for the tensor. Use a per_tensor qscheme, or PerChannelMinMaxObserver."
        if ch_axis is None
        else "a range for each channel. Use a per_channel qscheme, or MinMaxObserver."
    )
    raise QConfigError(
        f"{type(observer).__name__}: got qscheme {observer.qscheme.value}; it has {has}"
    )
