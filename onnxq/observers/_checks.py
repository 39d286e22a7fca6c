"""Guards that constructors of observers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import QConfigError

if TYPE_CHECKING:
    from onnxq.observers._base import Observer


def check_per_tensor(observer: Observer) -> None:
    """Guards an observer that has one range for the tensor.

    Raises:
        QConfigError: its qscheme is per channel.
    """
    if observer.qscheme.per_channel:
        raise QConfigError(
            f"{type(observer).__name__}: got qscheme {observer.qscheme.value}; it has one range "
            "for the tensor. Use a per_tensor qscheme, or PerChannelMinMaxObserver."
        )


def check_per_channel(observer: Observer) -> None:
    """Guards an observer that has a range per channel.

    Raises:
        QConfigError: its qscheme is per tensor.
    """
    if not observer.qscheme.per_channel:
        raise QConfigError(
            f"{type(observer).__name__}: got qscheme {observer.qscheme.value}; it has a range for "
            "each channel. Use a per_channel qscheme, or MinMaxObserver."
        )


def check_averaging_constant(observer: Observer, constant: float) -> None:
    """Guards the weight of a new batch in a moving average.

    Raises:
        QConfigError: it is not in (0, 1].
    """
    if not 0 < constant <= 1:
        raise QConfigError(
            f"{type(observer).__name__}: got averaging_constant {constant}; "
            "wanted 0 < constant <= 1."
        )
