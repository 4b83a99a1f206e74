"""Measure, without a cluster, how fast the driver of a search is and how busy workers are.

python scripts/measure cluster --json cluster.json

Real searches send their candidates to an engine that answers at once, and to threads that
sleep. 10,000 workers are simulated: the driver serves one candidate after another, and each
takes the time that was measured with the engine.
"""

import argparse
import heapq
import math
import random
import tempfile
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cem import minimize
from cem.run.candidate import Candidate, Fate
from cem.run.journal import Journal
from measure.provenance import Measured

OUTSTANDING = 1000
FEEDING_BUDGETS = {10: 20_000, 1000: 5_000}  # number of parameters: candidates
WORKERS = 16
MEAN_S = 0.25
CANDIDATES = 640
RECORDS = 10_000
SIMULATED_WORKERS = 10_000
DURATIONS_S = (0.01, 0.1, 1.0, 10.0, 100.0, 3600.0)
ROUNDS = 20  # candidates of a simulated worker


class InstantEngine(Executor):
    """Simulates workers whose evaluations take random times, without waiting for them.

    The durations are exponentially distributed. Such durations have no memory: while all
    workers are busy, each of them is equally likely to be the next one that ends. So the engine
    completes a random candidate whenever all workers are busy.
    """

    def __init__(self, workers: int, total: float = math.inf) -> None:
        """Expect ``total`` candidates; the last one completes all that are still running."""
        self._max_workers = workers
        self._left = total
        self._running: list[tuple[Future[Any], Any]] = []  # Futures and their results.
        self._random = random.Random(1)

    def submit(self, task: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        """Evaluate a candidate, and return a future that has the result later."""
        future: Future[Any] = Future()
        self._running.append((future, task(*arguments)))
        self._left -= 1
        if len(self._running) == self._max_workers:
            self._complete()
        while self._left == 0 and self._running:
            self._complete()
        return future

    def _complete(self) -> None:
        """Give a random running candidate its result, unless it was cancelled."""
        index = self._random.randrange(len(self._running))
        # Swap it with the last one, since removing the last item of a list is fast.
        self._running[index], self._running[-1] = self._running[-1], self._running[index]
        future, result = self._running.pop()
        if future.set_running_or_notify_cancel():
            future.set_result(result)


def first_coordinate(x: Any) -> float:
    """Return the first coordinate, an objective that takes almost no time."""
    return float(x[0])


def measure_feeding(dim: int, total: int) -> float:
    """Return how many candidates per second the driver of a search sends to workers.

    The search is asynchronous: it replaces a candidate as soon as its value is known. The
    workers answer at once, so only the work of the driver takes time.

    Args:
        dim: The number of parameters.
        total: The number of candidates.
    """
    start_time = time.perf_counter()
    minimize(
        first_coordinate,
        np.ones(dim),
        1.0,
        budget=total,
        workers=InstantEngine(OUTSTANDING, total),
        asynchronous=True,
        restarts=0,
        seed=1,
    )
    return total / (time.perf_counter() - start_time)


def measure_utilisation(*, is_asynchronous: bool) -> float:
    """Return the share of the workers' time that they spend in evaluations.

    The workers are threads. An evaluation only sleeps, for a random time with mean `MEAN_S`.

    Args:
        is_asynchronous: Whether the search replaces each candidate as soon as its value is
            known. Otherwise the workers wait for the slowest candidate of each generation.
    """
    # All durations are in seconds. They are drawn before the search, because the threads share
    # this iterator.
    rng = random.Random(1)
    durations_s = iter([rng.expovariate(1 / MEAN_S) for _ in range(CANDIDATES)])
    slept_s: list[float] = []

    def sleep(x: Any) -> float:
        """Evaluate a candidate: sleep for the next duration, and return its squared length."""
        duration_s = next(durations_s)
        slept_s.append(duration_s)
        time.sleep(duration_s)
        return float((x**2).sum())

    start_time = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as threads:
        minimize(
            sleep,
            np.ones(10),
            1.0,
            budget=CANDIDATES,
            population_size=WORKERS,
            workers=threads,
            model=None,
            asynchronous=is_asynchronous,
            drain_s=60.0,  # At the end, wait for all evaluations that are still running.
            restarts=0,
            seed=1,
        )
    elapsed_s = time.perf_counter() - start_time
    return sum(slept_s) / (elapsed_s * WORKERS)


def measure_journal(folder: Path) -> dict[str, float]:
    """Write `RECORDS` evaluations to a journal and read them again; return size and times.

    A journal is the file from which an interrupted search restores its evaluations. A record of
    the file has a candidate, here 1,000 numbers, and its value.

    Returns:
        Three figures per record: its bytes, and the microseconds to write it and to read it.
    """
    path = folder / "evaluations.journal"
    search = {"mean": [0.0] * 1000}  # The journal takes the size of a candidate from the mean.
    row = np.ones(1000)
    candidate = Candidate(number=0, generation=0, x=row, row=row, device=None)
    candidate.settle(Fate.DONE, 1.0)  # The candidate was evaluated; its value is 1.
    journal = Journal(path, search, generation=RECORDS)
    start_time = time.perf_counter()
    for number in range(RECORDS):
        journal.write(0, number, candidate)  # The first argument is the generation.
    write_end = time.perf_counter()
    journal.close()
    # Opening the journal again reads all of its records.
    Journal(path, search, RECORDS).close()
    read_end = time.perf_counter()
    return {
        "cluster.journal.bytes": path.stat().st_size / RECORDS,
        "cluster.journal.write_us": 1e6 * (write_end - start_time) / RECORDS,
        "cluster.journal.read_us": 1e6 * (read_end - write_end) / RECORDS,
    }


def simulate(mean_s: float, service_s: float) -> float:
    """Simulate many workers of one driver; return the share of their time spent evaluating.

    Whenever a worker has finished an evaluation, it asks the driver for the next candidate. The
    driver serves one worker at a time.

    Args:
        mean_s: The mean duration of an evaluation. Durations are exponentially distributed.
        service_s: The time that the driver needs to serve a worker.
    """
    rng = random.Random(1)
    # A heap of the running evaluations, as pairs (end, start). The first one of every worker
    # takes no time, so at time 0 all workers ask for a candidate.
    running = [(0.0, 0.0)] * SIMULATED_WORKERS
    driver_free_at = 0.0
    busy_s = 0.0
    now = 0.0
    for _ in range(SIMULATED_WORKERS * ROUNDS):
        # The next event is the end of the evaluation that ends first.
        now, start = heapq.heappop(running)
        busy_s += now - start
        # Its worker waits until the driver has served all workers that asked earlier.
        driver_free_at = max(driver_free_at, now) + service_s
        end = driver_free_at + rng.expovariate(1 / mean_s)
        heapq.heappush(running, (end, driver_free_at))
    # Running evaluations count up to now. Those that have not begun yet do not count.
    busy_s += sum(max(0.0, now - start) for _, start in running)
    return busy_s / (SIMULATED_WORKERS * now)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Measure the driver, the workers and the journal, and simulate many workers."""
    figures = {}
    # The first search with each number of parameters compiles operators, so its result is not
    # used.
    for dim in FEEDING_BUDGETS:
        measure_feeding(dim, OUTSTANDING)
    # The budget is the number of candidates that are sent to workers.
    for dim, budget in FEEDING_BUDGETS.items():
        figures[f"cluster.fed_per_s.{dim}"] = measure_feeding(dim, budget)
    for is_asynchronous in (False, True):
        name = "asynchronous" if is_asynchronous else "synchronous"
        utilisation = measure_utilisation(is_asynchronous=is_asynchronous)
        figures[f"cluster.utilisation.{name}"] = utilisation
    with tempfile.TemporaryDirectory() as folder:
        figures |= measure_journal(Path(folder))
    # The simulated driver takes the measured time to send a candidate.
    for dim in FEEDING_BUDGETS:
        service_s = 1 / figures[f"cluster.fed_per_s.{dim}"]
        for mean_s in DURATIONS_S:
            share = simulate(mean_s, service_s)
            figures[f"cluster.simulated_utilisation.{dim}.{mean_s:g}s"] = share
    return Measured(figures, {"workers": WORKERS, "simulated_workers": SIMULATED_WORKERS})
