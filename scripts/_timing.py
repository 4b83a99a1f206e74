"""How long things take, said with its spread: on the host, on a GPU by events, and inside CUDA graphs.

What is compared is measured in turns: a few calls of the first, a few of the second, and again. What disturbs
the machine for a moment then hits none alone. A `Timing` keeps the median and the mean over all calls, and as
its spread the least and the greatest median of a turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch

Function = Callable[[], object]
"""What is timed: it is called without arguments, and its result is dropped."""

_WAKE_SECONDS = 0.2
_FLUSHED_BYTES = 1 << 28
_GRAPH_WARM_UP = 3  # calls on a side stream before a capture, as torch.cuda.graph asks for


@dataclass(frozen=True)
class Timing:
    """The time of one call in microseconds.

    Attributes:
        median: Over all calls.
        mean: Over all calls.
        least: The least median of a turn.
        most: The greatest median of a turn.
        calls: How many calls were timed.
    """

    median: float
    mean: float
    least: float
    most: float
    calls: int

    def to_dict(self) -> dict[str, float]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Plan:
    """How often to measure.

    Attributes:
        turns: How often each comes to its turn.
        calls: Timed calls in a turn.
        warm_up: Calls before them that do not count; the first turn has ten times as many.
    """

    turns: int = 10
    calls: int = 40
    warm_up: int = 3


def event_times(functions: Mapping[str, Function], plan: Plan) -> dict[str, Timing]:
    """Time single calls by CUDA events around each, the device being busy when the host makes the call.

    Before each call 256 MB are zeroed, as ``triton.testing.do_bench`` does it: the device's caches then hold
    nothing of the call before, and the host is ahead, so that events see the device alone. A call that keeps
    the host for longer than the zeroing takes, some 60 us, shows that too.
    """
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    _wake()

    def batch(function: Function, count: int) -> list[float]:
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        for start, end in events:
            flushed.zero_()
            start.record()
            function()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events]

    return _in_turns(functions, plan, batch)


def latency_times(functions: Mapping[str, Function], plan: Plan) -> dict[str, Timing]:
    """Time single calls by CUDA events around each, the device being idle when it begins.

    So it holds what passes on the device until the last kernel of the call is over, waiting for the host to
    launch it included.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    _wake()

    def once(function: Function) -> float:
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3

    return _in_turns(functions, plan, _one_by_one(once))


def host_times(functions: Mapping[str, Function], plan: Plan, burst: int = 100) -> dict[str, Timing]:
    """Time how long a call keeps the host busy: the clock stops when the last call of a burst returns.

    A burst has to fit into the queue of the device, about a thousand kernels, or the host would wait for it.
    """

    def once(function: Function) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(burst):
            function()
        return (time.perf_counter() - began) * 1e6 / burst

    timings = _in_turns(functions, plan, _one_by_one(once))
    torch.cuda.synchronize()
    return timings


def graph_times(functions: Mapping[str, Function], plan: Plan, captured: int = 20) -> dict[str, Timing]:
    """Time calls as a CUDA graph replays them: so many calls in one graph, its time divided by their number.

    The host has no part in it but to launch the graph.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graphs = {name: _capture(function, captured) for name, function in functions.items()}
    _wake()

    def once(replay: Function) -> float:
        start.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / captured

    return _in_turns({name: graph.replay for name, graph in graphs.items()}, plan, _one_by_one(once))


def wall_times(functions: Mapping[str, Function], plan: Plan, seconds: float = 2e-3) -> dict[str, Timing]:
    """Time calls on the CPU by the wall clock, in bursts of about so many seconds, one call at least."""
    bursts: dict[str, int] = {}
    for name, function in functions.items():
        function()
        began = time.perf_counter()
        function()
        bursts[name] = max(1, int(seconds / max(time.perf_counter() - began, 1e-9)))

    def timed(function: Function, burst: int) -> Callable[[], float]:
        def call() -> float:
            began = time.perf_counter()
            for _ in range(burst):
                function()
            return (time.perf_counter() - began) * 1e6 / burst

        return call

    return _in_turns(
        {name: timed(function, bursts[name]) for name, function in functions.items()},
        plan,
        _one_by_one(lambda call: float(call())),  # type: ignore[arg-type]
    )


Batch = Callable[[Function, int], list[float]]
"""Calls a function so many times and returns the time of each call in microseconds."""


def _one_by_one(once: Callable[[Function], float]) -> Batch:
    return lambda function, count: [once(function) for _ in range(count)]


def _in_turns(functions: Mapping[str, Function], plan: Plan, batch: Batch) -> dict[str, Timing]:
    turns: dict[str, list[list[float]]] = {name: [] for name in functions}
    for turn in range(plan.turns):
        for name, function in functions.items():
            batch(function, plan.warm_up * (10 if turn == 0 else 1))
            turns[name].append(batch(function, plan.calls))
    return {name: _summary(each) for name, each in turns.items()}


def _summary(turns: list[list[float]]) -> Timing:
    times = [time for turn in turns for time in turn]
    medians = [statistics.median(turn) for turn in turns]
    return Timing(statistics.median(times), statistics.fmean(times), min(medians), max(medians), len(times))


def _wake() -> None:
    """Keep the device busy until its clocks have risen: an idle one sleeps at a fraction of them."""
    block = torch.empty(1 << 24, device="cuda")
    began = time.perf_counter()
    while time.perf_counter() - began < _WAKE_SECONDS:
        for _ in range(50):
            block.fill_(1.0)
        torch.cuda.synchronize()


def _capture(function: Function, captured: int) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_GRAPH_WARM_UP):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(captured):
            function()
    return graph
