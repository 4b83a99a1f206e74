"""Do all that the library does again and again in one process, and look at memory, files and threads.

python scripts/measure soak --device cpu --seconds 3600 --json soak.json
python scripts/measure soak --device cuda --seconds 600 --json soak.json

A round trains until a time limit, resumes and ends the run with scores, picture and report, evaluates and
estimates controllers, plays environments, minimises and plans. After each, and after Python's garbage
collection, the process is looked at. The first tenth of the time, in which engines are loaded and caches
fill, is left out of the slopes. A slope is Theil and Sen's: the median of those of all pairs of samples,
with its 95 % interval. By default it lasts an hour, on a GPU ten minutes.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch

import tetris.envs
from cem import Planner, minimize
from measure.cli import Options, measurement
from measure.control_tasks import pendulum_cost
from measure.processes import called
from measure.provenance import Measured
from tetris.commands.command_line import positive_seconds
from tetris.training.run_folder import RunFolder

MIB = 1 << 20
SECONDS = {"cpu": 3600.0, "cuda": 600.0}
WARM_UP = 0.1  # of the time
RECIPE = (
    *("--features=dt", "--population=20", "--elites=5", "--streams=64", "--score-decisions=200000"),
    "--curriculum=10x8:6:500,10x10:4:400:split",
)
STEPS, ENVS, PLANS, BUDGET = 100, 64, 20, 3000
SLOPES = {
    "resident_mib_per_hour": ("resident", MIB),
    "cuda_mib_per_hour": ("cuda_allocated", MIB),
    "files_per_hour": ("files", 1),
    "threads_per_hour": ("threads", 1),
}


def command(name: str, *arguments: object) -> None:
    """Run a script in this process; RuntimeError with what it said where it fails."""
    ended = called(name, *arguments)
    if ended.status:
        raise RuntimeError(f"{name} ended with {ended.status}:\n{ended.err[-2000:]}")


def work(device: str, seed: int) -> None:
    """Do everything once; the seed makes each round another one."""
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        command(
            "train_tetris", *RECIPE, f"--device={device}", f"--seed={seed}", "--out", run, "--time-limit=0.2"
        )
        command("train_tetris", "--resume", run)
        assert RunFolder(run).report.is_file()
        command("evaluate_tetris", run, "dt20", "--board=10x10", "--decisions=200000", f"--device={device}")
    command("estimate_tetris", "best", "--decisions=1000", "--streams=64", f"--device={device}")
    envs: Any = gymnasium.make_vec(tetris.envs.IDS[0], ENVS, output="torch", device=device)
    envs.reset(seed=seed)
    for _ in range(STEPS):
        envs.step(torch.as_tensor(envs.action_space.sample(), device=device))
    envs.close()
    minimize(lambda x: x.square().sum(-1), torch.ones(20, device=device), 1.0, budget=BUDGET, seed=seed)
    planner = Planner(pendulum_cost, 30, 1, (-2.0, 2.0), seed=seed, device=device)
    for _ in range(PLANS):
        planner.plan(torch.tensor([3.0, 0.0], device=device))


def look(began: float, device: str) -> dict[str, float]:
    """Return what this process holds: bytes, open files and threads."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    told = dict(line.split(":", 1) for line in status.splitlines())
    return {
        "seconds": round(time.monotonic() - began, 3),
        "resident": int(told["VmRSS"].split()[0]) * 1024,
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": int(told["Threads"]),
        **({"cuda_allocated": torch.cuda.memory_allocated()} if device == "cuda" else {}),
    }


def slope(seconds: Sequence[float], values: Sequence[float]) -> tuple[float, float, float]:
    """Return the growth an hour by Theil and Sen, and its 95 % interval."""
    from scipy.stats import theilslopes

    found = theilslopes(values, [each / 3600.0 for each in seconds], 0.95)
    return float(found.slope), float(found.low_slope), float(found.high_slope)


def growth(samples: Sequence[dict[str, float]]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the slopes after the warm-up by figure, and their intervals."""
    kept = [each for each in samples if each["seconds"] >= WARM_UP * samples[-1]["seconds"]]
    if len(kept) < 3:
        raise RuntimeError(f"expected three rounds after the warm-up, got {len(kept)}: more --seconds")
    figures, ranges = {}, {}
    for name, (key, unit) in SLOPES.items():
        if key in kept[0]:
            middle, *ends = slope([each["seconds"] for each in kept], [each[key] / unit for each in kept])
            figures[f"soak.{name}"], ranges[f"soak.{name}"] = middle, ends
    figures["soak.resident_mib_after_warm_up"] = kept[0]["resident"] / MIB
    figures["soak.resident_mib_at_the_end"] = kept[-1]["resident"] / MIB
    return figures, ranges


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the growth of what the process holds."""
    began, samples = time.monotonic(), list[dict[str, float]]()
    while not samples or samples[-1]["seconds"] < (arguments.seconds or SECONDS[device]):
        work(device, len(samples) + 1)
        samples.append(look(began, device))
    figures, ranges = growth(samples)
    told = {"soak.seconds": samples[-1]["seconds"], "soak.rounds": len(samples)}
    return {**told, **figures}, {"ranges": ranges, "warm_up": WARM_UP}, {"": samples}


LENGTH: Options = {"--seconds": {"type": positive_seconds, "help": "how long (default: by the device)"}}
main = measurement(measure, __doc__, LENGTH)
