"""Play Tetris in peers' environments and run generations of evosax, beside ours, in one run on one core.

pip install evosax jumanji tetris-gymnasium && python scripts/measure compare_peers

Whichever of them is installed is measured. The process keeps to one core, and speeds are per second of wall
time, interleaved: on a machine that does other work compare them within a run only. All play 10x10 at random:
a step draws a placement from those that the environment allows. Jumanji and ours step 1,024 games at a time.
What runs in JAX is jitted, a step at a time or a scan of 32. Tetris-Gymnasium plays key presses: a hard drop
places a piece.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import gymnasium
import torch

import tetris.envs
from cem import CrossEntropyMethod
from measure.benchmark_tetris import Course, measure_courses
from measure.cli import LENGTH, measurement
from measure.provenance import Measured
from tetris.commands.command_line import up_to

SEED, SCAN = 12345, 32
SHAPES = ((128, 20), (1000, 100))
"""Population and parameters of the generations."""

BOARD = next(each for each in tetris.envs.IDS if "10x10" in each)
PACKAGES = ("evosax", "jax", "jumanji", "tetris-gymnasium")


def installed(module: str) -> bool:
    """Return whether a module can be imported."""
    return importlib.util.find_spec(module) is not None


def our_games(count: int) -> Course:
    """Return random play in our vector environment, the C++ engine."""
    envs: Any = gymnasium.make_vec(BOARD, count, output="torch", autoreset_mode="SameStep")
    scores = torch.rand(
        (SCAN, count, int(envs.single_action_space.n)), generator=torch.Generator().manual_seed(SEED)
    )
    _, infos = envs.reset(seed=SEED)

    def play(steps: int) -> int:
        nonlocal infos
        for step in range(steps):
            action = (scores[step % SCAN] * infos["action_mask"]).argmax(1)
            _, _, _, _, infos = envs.step(action)
        return steps * count

    return Course(f"peers.ours.{count}.placements_per_second", play, SCAN)


def our_game() -> Course:
    """Return random play in our environment of one game, in Python."""
    env = gymnasium.make(BOARD)
    env.action_space.seed(SEED)
    _, info = env.reset(seed=SEED)

    def play(steps: int) -> int:
        nonlocal info
        for _ in range(steps):
            _, _, over, _, info = env.step(env.action_space.sample(mask=info["action_mask"]))
            if over:
                _, info = env.reset()
        return steps

    return Course("peers.ours.1.placements_per_second", play, SCAN)


def jumanji_games(count: int, scanned: bool) -> Course:
    """Return random play in Jumanji's Tetris-v0, games side by side."""
    jax: Any = importlib.import_module("jax")
    jumanji: Any = importlib.import_module("jumanji")
    wrappers: Any = importlib.import_module("jumanji.wrappers")
    env = wrappers.VmapAutoResetWrapper(jumanji.make("Tetris-v0"))
    scores = jax.random.uniform(jax.random.PRNGKey(SEED), (SCAN, count, 4, 10))
    listed = list(scores)

    def one(carry: Any, score: Any) -> Any:
        state, mask = carry
        best = (score * mask).reshape(count, -1).argmax(1)
        state, timestep = env.step(state, jax.numpy.stack([best // 10, best % 10], 1))
        return (state, timestep.observation.action_mask), timestep.reward

    once = jax.jit(one)
    scan = jax.jit(lambda carry: jax.lax.scan(one, carry, scores)[0])
    state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(SEED), count))
    carry = state, timestep.observation.action_mask

    def play(steps: int) -> int:
        nonlocal carry
        scans = -(-steps // SCAN)
        for _ in range(scans):
            if scanned:
                carry = scan(carry)
            else:
                for score in listed:
                    carry, _ = once(carry, score)
        jax.block_until_ready(carry)
        return scans * SCAN * count

    way = "scan" if scanned else "jit"
    return Course(f"peers.jumanji.{way}.{count}.placements_per_second", play, SCAN)


def tetris_gymnasium_game(grouped: bool) -> Course:
    """Return random play in Tetris-Gymnasium: hard drops, or placements by its wrapper."""
    importlib.import_module("tetris_gymnasium.envs")
    env: Any = gymnasium.make("tetris_gymnasium/Tetris", width=10, height=10)
    drop = int(env.unwrapped.actions.hard_drop)
    name = "tetris_gymnasium"
    if grouped:
        wrapper: Any = importlib.import_module("tetris_gymnasium.wrappers.grouped")
        env, name = wrapper.GroupedActionsObservations(env), "tetris_gymnasium_grouped"
    env.action_space.seed(SEED)
    _, info = env.reset(seed=SEED)

    def play(steps: int) -> int:
        nonlocal info
        for _ in range(steps):
            action = env.action_space.sample(mask=info["action_mask"].astype("int8")) if grouped else drop
            _, _, over, _, info = env.step(action)
            if over:
                _, info = env.reset()
        return steps

    return Course(f"peers.{name}.1.placements_per_second", play, SCAN)


def our_generations(population: int, dim: int, backend: str) -> Course:
    """Return generations of the default search on the sphere."""
    search = CrossEntropyMethod(
        torch.ones(dim),
        1.0,
        population,
        maximize=False,
        extra_variance="constant:0.1",
        backend=backend,
        seed=SEED,
    )

    def run(count: int) -> int:
        for _ in range(count):
            search.tell(search.ask().square().sum(-1))
        return count

    return Course(f"peers.cem_{backend}.{population}x{dim}.generations_per_second", run, 10)


def evosax_generations(population: int, dim: int, name: str, scanned: bool) -> Course:
    """Return generations of a search of evosax on the sphere: jitted one by one, or a jitted scan of them."""
    jax: Any = importlib.import_module("jax")
    algorithms: Any = importlib.import_module("evosax.algorithms")
    search = getattr(algorithms, name)(population_size=population, solution=jax.numpy.zeros(dim))
    params = search.default_params
    key = jax.random.PRNGKey(SEED)

    def generation(state: Any, key: Any) -> Any:
        ask, tell = jax.random.split(key)
        candidates, state = search.ask(ask, state, params)
        state, _ = search.tell(tell, candidates, (candidates**2).sum(-1), state, params)
        return state, None

    once = jax.jit(lambda state, key: generation(state, key)[0])
    scan = jax.jit(lambda state, keys: jax.lax.scan(generation, state, keys)[0])
    keys = list(jax.random.split(key, SCAN))
    stacked = jax.numpy.stack(keys)

    def run(count: int) -> int:
        state = search.init(key, jax.numpy.ones(dim), params)
        if scanned:
            count = -(-count // SCAN) * SCAN
            for _ in range(count // SCAN):
                state = scan(state, stacked)
        else:
            for i in range(count):
                state = once(state, keys[i % SCAN])
        jax.block_until_ready(state)
        return count

    way = "scan" if scanned else "jit"
    return Course(f"peers.evosax_{name}.{way}.{population}x{dim}.generations_per_second", run, SCAN)


def courses(games: int) -> Iterator[Course]:
    """Yield each course that can be run here."""
    yield our_games(games)
    if installed("jumanji"):
        yield from (jumanji_games(games, scanned) for scanned in (False, True))
    yield our_game()
    if installed("tetris_gymnasium"):
        yield from (tetris_gymnasium_game(grouped) for grouped in (False, True))
    for shape in SHAPES:
        yield from (our_generations(*shape, backend) for backend in ("auto", "torch"))
        if installed("evosax"):
            for name in ("SimpleES", "Sep_CMA_ES"):
                yield from (evosax_generations(*shape, name, scanned) for scanned in (False, True))


def versions() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of ours and of the peers that are installed."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {max(cores)})  # before jax starts its threads
    torch.set_num_threads(1)
    try:
        return measure_courses(
            list(courses(arguments.num_envs)),
            arguments.repeats,
            arguments.seconds,
            peers=versions(),
            cores=1,
            environment=BOARD,
        )
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


_GAMES = {"type": up_to(1 << 20), "default": 1024, "help": "games side by side (default: 1024)"}
main = measurement(measure, __doc__, {"--num-envs": _GAMES, **LENGTH}, devices=("cpu",))
