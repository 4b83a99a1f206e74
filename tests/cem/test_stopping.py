import os
import signal
import threading
import time

import pytest

from cem import Interrupted, StopRequest


@pytest.fixture(autouse=True)
def _sighup_is_not_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_raises_the_flag_and_nothing_else(number):
    with StopRequest() as stop:
        assert not stop.requested
        stop.check()
        os.kill(os.getpid(), number)
        assert (stop.requested, stop.signum) == (True, number)
        with pytest.raises(Interrupted):
            stop.check()


def test_a_signal_that_nohup_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
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
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
        assert (stop.due, stop.signum) == ((2, signal.SIGTERM), signal.SIGTERM)


def test_afterwards_the_handlers_are_those_from_before():
    before = [
        signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ]
    with StopRequest():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [
        signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ] == before
