import signal
import threading
import time

import pytest

from cem import Interrupted, StopRequest
from kernels.support.system import STOP_SIGNALS

needs_hangup = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")


@pytest.fixture(autouse=True)
def _sighup_is_not_ignored():
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_raises_the_flag_and_nothing_else(number):
    with StopRequest() as stop:
        assert not stop.requested
        stop.check()
        signal.raise_signal(number)
        assert (stop.requested, stop.signum) == (True, number)
        with pytest.raises(Interrupted):
            stop.check()


@needs_hangup
def test_a_signal_that_nohup_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGHUP)
        assert not stop.requested
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_deadline_interrupts_without_a_request():
    stop = StopRequest()
    stop.deadline = time.monotonic() + 1000
    stop.check()
    stop.deadline = time.monotonic()
    assert (stop.expired, stop.requested) == (True, False)
    with pytest.raises(Interrupted):
        stop.check()


def test_outside_the_main_thread_signals_are_left_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with StopRequest() as stop:
            seen.extend([signal.getsignal(signal.SIGINT), stop.requested])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, False]


def test_the_first_of_several_signals_is_the_reason():
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert (stop.due, stop.signum) == ((2, signal.SIGINT), signal.SIGINT)


def test_afterwards_the_handlers_are_those_from_before():
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with StopRequest():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
