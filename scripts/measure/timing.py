"""How long things take, with the spread: on the host, on a GPU by events, and inside CUDA graphs.

What is compared is measured in rounds, interleaved: what disturbs the machine for a moment hits none alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from itertools import chain
from typing import NamedTuple

import torch

Function = Callable[[], object]
"""What is timed: it is called without arguments, and its result is dropped."""

Times = dict[str, dict[str, float]]
"""By name of the function: median and mean over all calls, least and most of the rounds' medians, calls."""

_WAKE_SECONDS = 0.2
_FLUSHED_BYTES, _FLUSH_MICROSECONDS = 1 << 28, 60.0  # zeroing that many on an H200
_MOST_FLUSHES = 32  # a call that waits for the device keeps the host for as long as that is busy
_GRAPH_WARM_UP = 3  # calls on a side stream before a capture, as torch.cuda.graph asks for
_CAPTURED = 20  # calls in a graph


class Plan(NamedTuple):
    """How often to measure: rounds, calls in each, and calls before them, tenfold in the first round."""

    rounds: int
    calls: int
    warm_up: int


def times_of(functions: Mapping[str, Function], plan: Plan, once: Callable[[Function], float]) -> Times:
    """Time functions in rounds; ``once`` calls one and returns the microseconds of a call."""
    rounds: dict[str, list[list[float]]] = {name: [] for name in functions}
    for number in range(plan.rounds):
        for name, function in functions.items():
            for _ in range(plan.warm_up * (10 if number == 0 else 1)):
                once(function)
            rounds[name].append([once(function) for _ in range(plan.calls)])
    return {name: _summary(measured) for name, measured in rounds.items()}


def event_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time single calls by CUDA events around each, on a busy device: the events see the device alone.

    Before each call memory is zeroed, as ``triton.testing.do_bench`` does it, for twice as long as the
    slowest call keeps the host. The device's caches then hold nothing of the call before.
    """
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    _wake()
    host = max(each["most"] for each in host_times(functions, Plan(3, 3, 1), burst=10).values())
    flushes = min(_MOST_FLUSHES, 1 + round(2 * host / _FLUSH_MICROSECONDS))

    def once(function: Function) -> float:
        for _ in range(flushes):
            flushed.zero_()
        return _between_events(function)

    return times_of(functions, plan, once)


def latency_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time single calls by CUDA events around each, on an idle device: waiting for the host is included."""
    _wake()
    return times_of(functions, plan, _between_events)


def host_times(functions: Mapping[str, Function], plan: Plan, burst: int = 100) -> Times:
    """Time how long a call keeps the host busy: the clock stops when the last call of a burst returns.

    A burst has to fit into the queue of the device, about a thousand kernels.
    """

    def once(function: Function) -> float:
        torch.cuda.synchronize()
        return _by_the_clock(function, burst)

    times = times_of(functions, plan, once)
    torch.cuda.synchronize()
    return times


def graph_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time calls as a CUDA graph replays them: many calls in one graph, its time over their number."""
    graphs = {name: capture(function, _CAPTURED) for name, function in functions.items()}
    _wake()
    return times_of(graphs, plan, lambda replay: _between_events(replay) / _CAPTURED)


def wall_times(functions: Mapping[str, Function], plan: Plan, seconds: float = 2e-3) -> Times:
    """Time calls on the CPU by the clock, in bursts of about that many seconds, one call at least."""
    bursts: dict[Function, int] = {}
    for function in functions.values():
        function()
        bursts[function] = max(1, int(seconds * 1e6 / max(_by_the_clock(function, 1), 1e-3)))
    return times_of(functions, plan, lambda function: _by_the_clock(function, bursts[function]))


def capture(function: Function, calls: int) -> Function:
    """Return a CUDA graph of some calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_GRAPH_WARM_UP):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    return graph.replay


def _by_the_clock(function: Function, burst: int) -> float:
    began = time.perf_counter()
    for _ in range(burst):
        function()
    return (time.perf_counter() - began) * 1e6 / burst


def _between_events(function: Function) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _summary(rounds: list[list[float]]) -> dict[str, float]:
    times, medians = list(chain(*rounds)), list(map(statistics.median, rounds))
    spread = {"least": min(medians), "most": max(medians), "calls": len(times)}
    return {"median": statistics.median(times), "mean": statistics.fmean(times), **spread}


def _wake() -> None:
    """Keep the device busy until its clocks have risen: an idle one sleeps at a fraction of them."""
    block, began = torch.empty(1 << 24, device="cuda"), time.perf_counter()
    while time.perf_counter() - began < _WAKE_SECONDS:
        for _ in range(50):
            block.fill_(1.0)
        torch.cuda.synchronize()
