"""Times of functions with their spread: on the host, on a GPU, and inside CUDA graphs.

Functions are measured in interleaved rounds: a disturbance of the machine then hits all of
them.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import torch

Function = Callable[[], Any]
"""A function to be timed."""

Times = dict[str, dict[str, float]]
"""By function: median and mean of all calls, least and most of the rounds' medians, calls."""

_WAKE_SECONDS = 0.2
_FLUSHED_BYTES = 1 << 28
_FLUSH_MICROSECONDS = 60.0  # An H200 zeroes the flushed bytes in this time.
_MAX_FLUSHES = (
    32  # A call that waits for the device seems to keep the host busy for ever longer.
)
_GRAPH_WARM_UP = 3  # Calls before a capture.
_CAPTURED = 20  # Calls in a graph.


class Plan(NamedTuple):
    """How often to measure: rounds, timed calls in a round, and warm-up calls before it.

    Before the first round the warm-up calls are ten times as many.
    """

    rounds: int
    calls: int
    warm_up: int


def times_of(
    functions: Mapping[str, Function], plan: Plan, time_call: Callable[[Function], float]
) -> Times:
    """Time functions in rounds, and return statistics of their times in microseconds.

    In a round every function has its turn, so a disturbance of the machine hits all of them. In
    its turn a function is called a few times to warm up, and then as often as it is timed.

    Args:
        functions: The functions by name.
        plan: The numbers of rounds, of timed calls in a turn, and of calls to warm up. In the
            first round there are ten times as many of the latter.
        time_call: Calls a function, and returns the microseconds that it took.
    """
    rounds: dict[str, list[list[float]]] = {name: [] for name in functions}
    for number in range(plan.rounds):
        for name, function in functions.items():
            warm_up = plan.warm_up
            if number == 0:
                warm_up *= 10
            for _ in range(warm_up):
                time_call(function)
            times_of_turn = [time_call(function) for _ in range(plan.calls)]
            rounds[name].append(times_of_turn)
    return {name: _summary(times) for name, times in rounds.items()}


def event_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time single calls by CUDA events on a busy device, without the time of the host.

    Before each call memory is zeroed, as in ``triton.testing.do_bench``, for twice as long as
    the slowest call keeps the host busy. So the device's caches have no data of the call
    before.
    """
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    _wake()
    host = host_times(functions, Plan(3, 3, 1), burst=10)
    slowest = max(times["most"] for times in host.values())
    flushes = min(_MAX_FLUSHES, 1 + round(2 * slowest / _FLUSH_MICROSECONDS))

    def once(function: Function) -> float:
        for _ in range(flushes):
            flushed.zero_()
        return _between_events(function)

    return times_of(functions, plan, once)


def latency_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time single calls by CUDA events on an idle device, with its waiting for the host."""
    _wake()
    return times_of(functions, plan, _between_events)


def host_times(functions: Mapping[str, Function], plan: Plan, burst: int = 100) -> Times:
    """Time how long a call keeps the host busy: until the last call of a burst returns.

    A burst has to fit into the queue of the device, about a thousand kernels.
    """

    def once(function: Function) -> float:
        torch.cuda.synchronize()
        return _by_the_clock(function, burst)

    times = times_of(functions, plan, once)
    torch.cuda.synchronize()
    return times


def graph_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time calls in a CUDA graph: its time, divided by the number of calls in it."""
    graphs = {name: capture(function, _CAPTURED) for name, function in functions.items()}
    _wake()
    return times_of(graphs, plan, lambda replay: _between_events(replay) / _CAPTURED)


def wall_times(functions: Mapping[str, Function], plan: Plan, seconds: float = 2e-3) -> Times:
    """Time calls on the CPU by the clock, in bursts of about a time in seconds."""
    bursts = {}
    for function in functions.values():
        function()
        bursts[function] = max(1, int(seconds * 1e6 / max(_by_the_clock(function, 1), 1e-3)))
    return times_of(functions, plan, lambda function: _by_the_clock(function, bursts[function]))


def capture(function: Function, calls: int) -> Function:
    """Capture a number of calls of a function in a CUDA graph; return a function to replay it.

    A replay launches the work of all calls at once.
    """
    # torch.cuda.graph requires some calls on another stream before the capture.
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(_GRAPH_WARM_UP):
            function()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    return graph.replay


def _by_the_clock(function: Function, burst: int) -> float:
    start_time = time.perf_counter()
    for _ in range(burst):
        function()
    return (time.perf_counter() - start_time) * 1e6 / burst


def _between_events(function: Function) -> float:
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _summary(rounds: list[list[float]]) -> dict[str, float]:
    times = list(chain(*rounds))
    medians = list(map(statistics.median, rounds))
    return {
        "median": statistics.median(times),
        "mean": statistics.fmean(times),
        "least": min(medians),
        "most": max(medians),
        "calls": len(times),
    }


def _wake() -> None:
    """Keep the device busy until its clocks have risen: an idle device has slow clocks."""
    block = torch.empty(1 << 24, device="cuda")
    start_time = time.perf_counter()
    while time.perf_counter() - start_time < _WAKE_SECONDS:
        for _ in range(50):
            block.fill_(1.0)
        torch.cuda.synchronize()
