"""How things are timed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from measure.timing import Plan, event_times, graph_times, host_times, wall_times

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_competitors_are_interleaved_after_a_warm_up() -> None:
    called = []

    def note(name: str) -> Callable[[], None]:
        return lambda: called.append(name)

    # No burst is longer than one call where it shall take no time.
    wall_times({"a": note("a"), "b": note("b")}, Plan(rounds=2, calls=3, warm_up=1), seconds=0.0)
    measuring = called[4:]  # two calls each tell how long a burst has to be
    assert measuring == ["a"] * 13 + ["b"] * 13 + ["a"] * 4 + ["b"] * 4


def test_median_mean_and_spread_are_of_the_timed_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    now, durations = 0.0, iter([9.0, 9.0, 1.0, 1.0, 4.0, 2.0, 2.0, 2.0])

    def call() -> None:
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    timing = wall_times({"call": call}, Plan(rounds=2, calls=3, warm_up=0), seconds=0.0)["call"]
    assert timing == {"median": 2e6, "mean": 2e6, "least": 1e6, "most": 2e6, "calls": 6}


@pytest.mark.cuda
@gpu
def test_events_see_the_device_and_the_host_clock_does_not() -> None:
    cycles = 2_000_000  # about a millisecond, far more than a launch takes
    functions = {"sleep": lambda: torch.cuda._sleep(cycles)}
    plan = Plan(rounds=2, calls=3, warm_up=1)
    on_device = event_times(functions, plan)["sleep"]["median"]
    assert on_device > 300
    assert host_times(functions, plan, burst=10)["sleep"]["median"] < on_device / 3


@pytest.mark.cuda
@gpu
def test_a_graph_is_divided_by_its_calls() -> None:
    functions = {"sleep": lambda: torch.cuda._sleep(200_000)}
    plan = Plan(rounds=2, calls=3, warm_up=1)
    single = event_times(functions, plan)["sleep"]["median"]
    assert graph_times(functions, plan)["sleep"]["median"] == pytest.approx(single, rel=0.5)


def slow_on_the_host() -> None:
    time.sleep(0.0004)  # far longer than it takes to zero the memory once
    torch.cuda._sleep(10_000)


@pytest.mark.cuda
@pytest.mark.timing
@gpu
def test_the_time_that_a_call_keeps_the_host_is_hidden() -> None:
    plan = Plan(rounds=3, calls=5, warm_up=1)
    functions = {"fast": lambda: torch.cuda._sleep(10_000), "slow": slow_on_the_host}
    found = event_times(functions, plan)
    assert found["slow"]["median"] < 2 * found["fast"]["median"] + 20
