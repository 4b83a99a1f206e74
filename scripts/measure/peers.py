"""Play Tetris in peers' environments and run generations of evosax, beside ours, in one run on one core.

pip install evosax jumanji tetris-gymnasium

python scripts/measure peers --json peers.json

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
import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import gymnasium
import torch

import tetris.envs
from measure.generation import ask_and_tell
from measure.provenance import Measured
from measure.rollout import SEED, Course, measure_courses

SCAN = 32
SHAPES = ((128, 20), (1000, 100))
"""Population and parameters of the generations."""

BOARD = next(each for each in tetris.envs.IDS if "10x10" in each)
PACKAGES = {"evosax": "evosax", "jax": "jax", "jumanji": "jumanji", "tetris-gymnasium": "tetris_gymnasium"}


def our_games(count: int) -> Course:
    """Return random play in our vector environment, the C++ engine."""
    envs: Any = gymnasium.make_vec(BOARD, count, output="torch", autoreset_mode="SameStep")
    shape = (SCAN, count, int(envs.single_action_space.n))
    scores = torch.rand(shape, generator=torch.Generator().manual_seed(SEED))
    _, infos = envs.reset(seed=SEED)

    def play(steps: int) -> int:
        nonlocal infos
        for step in range(steps):
            *_, infos = envs.step((scores[step % SCAN] * infos["action_mask"]).argmax(1))
        return steps * count

    return Course(f"peers.ours.{count}.placements_per_second", play, SCAN)


def one_game(name: str, env: Any, action: Callable[[Any], Any]) -> Course:
    """Return random play in an environment of one game; ``action`` is drawn by the information of a step."""
    env.action_space.seed(SEED)
    _, info = env.reset(seed=SEED)

    def play(steps: int) -> int:
        nonlocal info
        for _ in range(steps):
            _, _, over, _, info = env.step(action(info))
            if over:
                _, info = env.reset()
        return steps

    return Course(f"peers.{name}.1.placements_per_second", play, SCAN)


def tetris_gymnasium_games() -> Iterator[Course]:
    """Yield random play in Tetris-Gymnasium: hard drops, and placements by its wrapper."""
    importlib.import_module("tetris_gymnasium.envs")
    wrapper: Any = importlib.import_module("tetris_gymnasium.wrappers.grouped")
    one, other = (gymnasium.make("tetris_gymnasium/Tetris", width=10, height=10) for _ in range(2))
    drop = int(getattr(one.unwrapped, "actions").hard_drop)  # noqa: B009 - Gymnasium knows none
    yield one_game("tetris_gymnasium", one, lambda info: drop)
    grouped = wrapper.GroupedActionsObservations(other)

    def drawn(info: Any) -> Any:
        return grouped.action_space.sample(mask=info["action_mask"].astype("int8"))

    yield one_game("tetris_gymnasium_grouped", grouped, drawn)


def jitted(figure: str, start: Callable[[], Any], one: Any, inputs: Any, of_each: int) -> Iterator[Course]:
    """Yield courses of a step of JAX, jitted step by step and as a scan over the inputs of `SCAN` steps.

    The figure has {way}; ``one`` maps a carry and an input to a carry and what is dropped; a step counts as
    ``of_each``.
    """
    jax: Any = importlib.import_module("jax")
    once = jax.jit(lambda carry, one_input: one(carry, one_input)[0])
    scan = jax.jit(lambda carry, stacked: jax.lax.scan(one, carry, stacked)[0])

    def course(way: str) -> Course:
        carry, listed = start(), list(inputs)

        def play(steps: int) -> int:
            nonlocal carry
            scans = -(-steps // SCAN)
            for _ in range(scans):
                if way == "scan":
                    carry = scan(carry, inputs)
                else:
                    for each in listed:
                        carry = once(carry, each)
            jax.block_until_ready(carry)
            return scans * SCAN * of_each

        return Course(figure.format(way=way), play, SCAN)

    yield from map(course, ("jit", "scan"))


def jumanji_games(count: int) -> Iterator[Course]:
    """Yield random play in Jumanji's Tetris-v0, games side by side."""
    jax: Any = importlib.import_module("jax")
    jumanji: Any = importlib.import_module("jumanji")
    wrappers: Any = importlib.import_module("jumanji.wrappers")
    env = wrappers.VmapAutoResetWrapper(jumanji.make("Tetris-v0"))

    def one(carry: Any, score: Any) -> Any:
        state, mask = carry
        best = (score * mask).reshape(count, -1).argmax(1)
        state, timestep = env.step(state, jax.numpy.stack([best // 10, best % 10], 1))
        return (state, timestep.observation.action_mask), timestep.reward

    def start() -> Any:
        state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(SEED), count))
        return state, timestep.observation.action_mask

    scores = jax.random.uniform(jax.random.PRNGKey(SEED), (SCAN, count, 4, 10))
    figure = f"peers.jumanji.{{way}}.{count}.placements_per_second"
    yield from jitted(figure, start, one, scores, count)


def our_generations(population: int, dim: int, backend: str) -> Course:
    """Return generations of our search on the sphere."""
    generations = ask_and_tell((population, dim), "cpu", backend)

    def run(count: int) -> int:
        generations(count)
        return count

    return Course(f"peers.cem_{backend}.{population}x{dim}.generations_per_second", run, 10)


def evosax_generations(population: int, dim: int, name: str) -> Iterator[Course]:
    """Yield generations of a search of evosax on the sphere."""
    jax: Any = importlib.import_module("jax")
    algorithms: Any = importlib.import_module("evosax.algorithms")
    search = getattr(algorithms, name)(population_size=population, solution=jax.numpy.zeros(dim))
    params, key = search.default_params, jax.random.PRNGKey(SEED)

    def one(state: Any, key: Any) -> Any:
        ask, tell = jax.random.split(key)
        candidates, state = search.ask(ask, state, params)
        state, _ = search.tell(tell, candidates, (candidates**2).sum(-1), state, params)
        return state, None

    def start() -> Any:
        return search.init(key, jax.numpy.ones(dim), params)

    figure = f"peers.evosax_{name}.{{way}}.{population}x{dim}.generations_per_second"
    yield from jitted(figure, start, one, jax.random.split(key, SCAN), 1)


def courses(games: int) -> Iterator[Course]:
    """Yield each course that can be run here."""
    yield our_games(games)
    if find_spec("jumanji"):
        yield from jumanji_games(games)
    env = gymnasium.make(BOARD)
    yield one_game("ours", env, lambda info: env.action_space.sample(mask=info["action_mask"]))
    if find_spec("tetris_gymnasium"):
        yield from tetris_gymnasium_games()
    for shape in SHAPES:
        yield from (our_generations(*shape, backend) for backend in ("auto", "torch"))
        for name in ("SimpleES", "Sep_CMA_ES") if find_spec("evosax") else ():
            yield from evosax_generations(*shape, name)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of ours and of the peers that are installed."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {max(cores)})  # before jax starts its threads
    torch.set_num_threads(1)
    found = [name for name, module in PACKAGES.items() if find_spec(module)]
    try:
        every = list(courses(arguments.num_envs))
        versions = {name: importlib.metadata.version(name) for name in found}
        about = {"peers": versions, "cores": 1, "environment": BOARD}
        return measure_courses(every, arguments.repeats, arguments.seconds, **about)
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
