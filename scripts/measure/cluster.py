"""Measure what a search costs its driver, and how busy workers are, without a cluster.

python scripts/measure cluster --json cluster.json

Real searches feed an engine that answers at once, and threads that sleep. What 10,000 workers
would do is simulated by events: a driver that serves one candidate after another, each for the
time that was measured.
"""

import argparse
import heapq
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
FED = {10: 20_000, 1000: 5_000}  # dimensions: candidates
WORKERS = 16
MEAN_S = 0.25
CANDIDATES = 640
RECORDS = 10_000
SIMULATED_WORKERS = 10_000
DURATIONS_S = (0.01, 0.1, 1.0, 10.0, 100.0, 3600.0)
ROUNDS = 20  # candidates of a simulated worker


class InstantEngine(Executor):
    """Completes one of its candidates at random whenever ``OUTSTANDING`` wait."""

    def __init__(self, total: int) -> None:
        """Begin; the last of ``total`` candidates do not wait for others."""
        self._max_workers = OUTSTANDING
        self._left = total
        self._waiting: list[Any] = []
        self._random = random.Random(1)

    def submit(self, task: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        """Take a candidate."""
        future: Future[Any] = Future()
        self._waiting.append((future, task, arguments))
        self._left -= 1
        if len(self._waiting) == OUTSTANDING:
            self._complete()
        while self._left == 0 and self._waiting:
            self._complete()
        return future

    def _complete(self) -> None:
        index = self._random.randrange(len(self._waiting))
        self._waiting[index], self._waiting[-1] = self._waiting[-1], self._waiting[index]
        future, task, arguments = self._waiting.pop()
        if future.set_running_or_notify_cancel():
            future.set_result(task(*arguments))


def first_coordinate(x: Any) -> float:
    """Return a value that costs nothing."""
    return float(x[0])


def measure_feeding(dim: int, total: int) -> float:
    """Return the candidates per second that a driver feeds, each replaced when it is done."""
    began = time.perf_counter()
    minimize(
        first_coordinate,
        np.ones(dim),
        1.0,
        budget=total,
        workers=InstantEngine(total),
        asynchronous=True,
        restarts=0,
        seed=1,
    )
    return total / (time.perf_counter() - began)


def measure_utilisation(*, is_asynchronous: bool) -> float:
    """Return the share of time in which threads sleep that evaluate by sleeping."""
    draw = random.Random(1)
    durations = [draw.expovariate(1 / MEAN_S) for _ in range(CANDIDATES)]
    waiting = iter(durations)

    def sleep(x: Any) -> float:
        time.sleep(next(waiting))
        return float((x**2).sum())

    began = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as threads:
        minimize(
            sleep,
            np.ones(10),
            1.0,
            budget=CANDIDATES,
            population_size=WORKERS,
            workers=threads,
            asynchronous=is_asynchronous,
            drain_s=60.0,
            restarts=0,
            seed=1,
        )
    seconds = time.perf_counter() - began
    slept = CANDIDATES - sum(1 for _ in waiting)
    return sum(durations[:slept]) / (seconds * WORKERS)


def measure_journal(folder: Path) -> dict[str, float]:
    """Return the bytes of a record of 1,000 numbers, and the seconds to write and read it."""
    path = folder / "evaluations.journal"
    search = {"mean": [0.0] * 1000}
    row = np.ones(1000)
    candidate = Candidate(0, 0, row, row, None)
    candidate.settle(Fate.DONE, 1.0)
    journal = Journal(path, search, RECORDS)
    began = time.perf_counter()
    for number in range(RECORDS):
        journal.write(0, number, candidate)
    written = time.perf_counter()
    journal.close()
    Journal(path, search, RECORDS).close()
    read = time.perf_counter()
    return {
        "cluster.journal.bytes": path.stat().st_size / RECORDS,
        "cluster.journal.write_us": 1e6 * (written - began) / RECORDS,
        "cluster.journal.read_us": 1e6 * (read - written) / RECORDS,
    }


def simulate(mean_s: float, service_s: float) -> float:
    """Return the share of time in which ``SIMULATED_WORKERS`` evaluate, by events.

    A worker waits until the driver has served it, which takes ``service_s`` for each candidate,
    and then evaluates for an exponential time. Events are the ends of evaluations.
    """
    draw = random.Random(1)
    # The end and the start of what each worker evaluates; at first nothing.
    running = [(0.0, 0.0)] * SIMULATED_WORKERS
    driver_free_at = 0.0
    busy_s = 0.0
    now = 0.0
    for _ in range(SIMULATED_WORKERS * ROUNDS):
        now, start = heapq.heappop(running)
        busy_s += now - start
        driver_free_at = max(driver_free_at, now) + service_s
        end = driver_free_at + draw.expovariate(1 / mean_s)
        heapq.heappush(running, (end, driver_free_at))
    busy_s += sum(max(0.0, now - start) for _, start in running)
    return busy_s / (SIMULATED_WORKERS * now)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Measure the driver, the workers and the journal, and simulate many workers."""
    figures = {}
    for dim in FED:
        measure_feeding(dim, OUTSTANDING)  # The first search compiles operators.
    for dim, total in FED.items():
        figures[f"cluster.fed_per_s.{dim}"] = measure_feeding(dim, total)
    for is_asynchronous in (False, True):
        name = "asynchronous" if is_asynchronous else "synchronous"
        utilisation = measure_utilisation(is_asynchronous=is_asynchronous)
        figures[f"cluster.utilisation.{name}"] = utilisation
    with tempfile.TemporaryDirectory() as folder:
        figures |= measure_journal(Path(folder))
    for dim in FED:
        service_s = 1 / figures[f"cluster.fed_per_s.{dim}"]
        for mean_s in DURATIONS_S:
            share = simulate(mean_s, service_s)
            figures[f"cluster.simulated_utilisation.{dim}.{mean_s:g}s"] = share
    return Measured(figures, {"workers": WORKERS, "simulated_workers": SIMULATED_WORKERS})
