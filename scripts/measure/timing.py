"""Times of functions with their spread: on the host, on a GPU, and inside CUDA graphs.

Functions are measured in interleaved rounds, so that a disturbance of the machine slows all of
them down.
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
"""By function: the median and the mean of all calls ("median", "mean"), the smallest and the
largest median of a round ("least", "most"), and the number of calls ("calls")."""

_WAKE_SECONDS = 0.2
_FLUSHED_BYTES = 1 << 28
_FLUSH_MICROSECONDS = 60.0  # The time in which an H200 zeroes the flushed bytes.
# A limit for calls that wait for the device, and so seem to keep the host busy for long.
_MAX_FLUSHES = 32
_GRAPH_WARM_UP = 3  # The number of calls before a capture.
_CAPTURED = 20  # The number of calls in a graph.


class Plan(NamedTuple):
    """How often to call each function.

    Attributes:
        rounds: The number of rounds.
        calls: The number of timed calls in a round.
        warm_up: The number of calls before them, which do not count. In the first round there
            are ten times as many.
    """

    rounds: int
    calls: int
    warm_up: int


def times_of(
    functions: Mapping[str, Function], plan: Plan, time_call: Callable[[Function], float]
) -> Times:
    """Time functions in interleaved rounds, and return statistics of their microseconds.

    In each round every function is called a few times to warm up, and then a few more times
    with the clock. So a disturbance of the machine slows all functions down, not only one.

    Args:
        functions: The functions by name.
        plan: The number of rounds, and the numbers of warm-up calls and of timed calls in a
            round. The first round has ten times as many warm-up calls.
        time_call: Calls a function, and returns the microseconds that the call took.
    """
    # By the name of a function: a list of times for each round.
    times: dict[str, list[list[float]]] = {name: [] for name in functions}
    for round_number in range(plan.rounds):
        for name, function in functions.items():
            warm_up = plan.warm_up
            if round_number == 0:
                warm_up *= 10
            for _ in range(warm_up):  # The times of these calls do not count.
                time_call(function)
            times_of_round = [time_call(function) for _ in range(plan.calls)]
            times[name].append(times_of_round)
    return {name: _summary(rounds) for name, rounds in times.items()}


def event_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time single calls with CUDA events on a busy device, without the time of the host.

    Before each call the device zeroes a block of memory several times, as in
    ``triton.testing.do_bench``. This flushes the device's caches. It takes twice as long as the
    slowest call keeps the host busy, so the device never waits for the host.
    """
    flushed = torch.empty(_FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    _wake()
    # For how long each call keeps the host busy.
    host = host_times(functions, Plan(3, 3, 1), burst=10)
    slowest = max(times["most"] for times in host.values())
    flushes = min(_MAX_FLUSHES, 1 + round(2 * slowest / _FLUSH_MICROSECONDS))

    def time_call(function: Function) -> float:
        for _ in range(flushes):
            flushed.zero_()
        return _between_events(function)

    return times_of(functions, plan, time_call)


def latency_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time single calls with CUDA events on an idle device, which has to wait for the host."""
    _wake()
    return times_of(functions, plan, _between_events)


def host_times(functions: Mapping[str, Function], plan: Plan, burst: int = 100) -> Times:
    """Time for how long a call keeps the host busy: the time of a burst of calls / burst.

    The clock does not wait for the device. The queue of the device holds about a thousand
    kernels, so a burst must not launch more.
    """

    def time_call(function: Function) -> float:
        torch.cuda.synchronize()
        return _by_the_clock(function, burst)

    times = times_of(functions, plan, time_call)
    torch.cuda.synchronize()
    return times


def graph_times(functions: Mapping[str, Function], plan: Plan) -> Times:
    """Time calls in a CUDA graph: the time of a graph divided by its number of calls."""
    graphs = {name: capture(function, _CAPTURED) for name, function in functions.items()}
    _wake()
    return times_of(graphs, plan, lambda replay: _between_events(replay) / _CAPTURED)


def wall_times(functions: Mapping[str, Function], plan: Plan, seconds: float = 2e-3) -> Times:
    """Time calls on the CPU, in bursts that each take about ``seconds``."""
    bursts = {}  # The number of calls in a burst, by function.
    for function in functions.values():
        function()  # The first call may be slower.
        bursts[function] = max(1, int(seconds * 1e6 / max(_by_the_clock(function, 1), 1e-3)))
    return times_of(functions, plan, lambda function: _by_the_clock(function, bursts[function]))


def capture(function: Function, calls: int) -> Function:
    """Capture ``calls`` calls of a function in a CUDA graph.

    Returns:
        A function that replays the graph. It launches the work of all calls at once.
    """
    # Before a capture, PyTorch needs a few warm-up calls on a side stream.
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
    """Return the mean microseconds of a call in a burst of calls, by the clock of the host."""
    start_time = time.perf_counter()
    for _ in range(burst):
        function()
    return (time.perf_counter() - start_time) * 1e6 / burst


def _between_events(function: Function) -> float:
    """Return the microseconds of a call by the clock of the GPU."""
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _summary(rounds: list[list[float]]) -> dict[str, float]:
    """Return statistics of the times of a function, see `Times`."""
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
    """Keep the device busy until its clocks are at full speed, since an idle device is slow."""
    block = torch.empty(1 << 24, device="cuda")
    start_time = time.perf_counter()
    while time.perf_counter() - start_time < _WAKE_SECONDS:
        for _ in range(50):
            block.fill_(1.0)
        torch.cuda.synchronize()
