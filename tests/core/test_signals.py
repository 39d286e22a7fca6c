from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest

from onnxq.core import signals
from onnxq.core.signals import stoppable

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Python's own handlers: a shell starts what it runs in the background with Ctrl-C ignored."""
    inherited = {number: signal.getsignal(number) for number in signals.ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in inherited.items():
        signal.signal(number, handler)
    signals.forget()


@pytest.mark.parametrize("number", signals.ENDING)
def test_both_signals_raise_and_the_exit_code_says_which(number: signal.Signals) -> None:
    signals.hear()
    assert signals.exit_code() is None
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert signals.exit_code() == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


def test_a_signal_that_was_switched_off_stays_off() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.hear()
    with stoppable() as stopped:
        signal.raise_signal(signal.SIGINT)
        assert not stopped.is_set()


def test_the_first_signal_asks_and_the_second_kills() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stoppable() as stopped:
        signal.raise_signal(signal.SIGINT)
        assert stopped.is_set()
        assert signals.exit_code() == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_sigterm_asks_too() -> None:
    with stoppable() as stopped:
        signal.raise_signal(signal.SIGTERM)
    assert stopped.is_set()
    assert signals.exit_code() == 143


def test_a_signal_that_a_finalizer_swallowed_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python prints "Exception ignored" there, and goes on."""

    class Dropped:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", lambda it: ignored.append(it.exc_type))
    signals.hear()
    Dropped()
    assert ignored == [KeyboardInterrupt]
    with stoppable() as stopped:
        assert stopped.is_set()
    assert signals.exit_code() == 143
