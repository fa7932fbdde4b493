"""What is begun in the foreground ends with it, however it is ended, and the signals are given back."""

from __future__ import annotations

import os
import signal

import pytest

from drafthouse.core.foreground import SIGNALS, Stop, signals_as_ctrl_c


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_block_like_ctrl_c_and_is_given_back(number: int) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    ended = False
    with pytest.raises(KeyboardInterrupt), signals_as_ctrl_c():
        try:
            os.kill(os.getpid(), number)
            signal.pause()
        finally:
            ended = True
    assert ended
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_a_lock_that_complains_of_the_signal_is_the_signal() -> None:
    with pytest.raises(KeyboardInterrupt), signals_as_ctrl_c():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            raise RuntimeError("cannot release un-acquired lock")
    with pytest.raises(RuntimeError), signals_as_ctrl_c():
        raise RuntimeError("of its own")


def test_signals_that_are_heard_are_kept_and_given_back() -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    with Stop().handling_signals() as stop:
        for number in SIGNALS:
            os.kill(os.getpid(), number)
    assert sorted(stop.received) == sorted(SIGNALS)
    assert [signal.getsignal(one) for one in SIGNALS] == before
