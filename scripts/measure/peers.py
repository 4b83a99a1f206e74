"""Play Tetris in peers' environments and run generations of evosax, beside ours, on one core.

pip install evosax jumanji tetris-gymnasium

python scripts/measure peers --json peers.json

Peers that are not installed are left out. The process uses one core; speeds are per second of
wall time, in interleaved rounds: on a machine that does other work only compare them within a
run. All play 10x10 at random: a step draws a placement from those that the environment allows.
Jumanji and ours step 1,024 games at a time. JAX is jitted, a step at a time or a scan of 32.
Tetris-Gymnasium plays key presses: a hard drop places a piece.
"""

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

BOARD = next(name for name in tetris.envs.IDS if "10x10" in name)
PACKAGES = {
    "evosax": "evosax",
    "jax": "jax",
    "jumanji": "jumanji",
    "tetris-gymnasium": "tetris_gymnasium",
}


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
    """Return random play in an environment of one game; ``action`` maps infos to actions."""
    env.action_space.seed(SEED)
    _, info = env.reset(seed=SEED)

    def play(steps: int) -> int:
        nonlocal info
        for _ in range(steps):
            _, _, is_over, _, info = env.step(action(info))
            if is_over:
                _, info = env.reset()
        return steps

    return Course(f"peers.{name}.1.placements_per_second", play, SCAN)


def tetris_gymnasium_games() -> Iterator[Course]:
    """Yield random play in Tetris-Gymnasium: hard drops, and placements by its wrapper."""
    importlib.import_module("tetris_gymnasium.envs")
    wrapper: Any = importlib.import_module("tetris_gymnasium.wrappers.grouped")
    env: Any = gymnasium.make("tetris_gymnasium/Tetris", width=10, height=10)
    drop = int(env.unwrapped.actions.hard_drop)
    yield one_game("tetris_gymnasium", env, lambda info: drop)
    grouped = wrapper.GroupedActionsObservations(
        gymnasium.make("tetris_gymnasium/Tetris", width=10, height=10)
    )

    def sample(info: Any) -> Any:
        return grouped.action_space.sample(mask=info["action_mask"].astype("int8"))

    yield one_game("tetris_gymnasium_grouped", grouped, sample)


def jitted(
    figure: str, start: Callable[[], Any], step: Any, inputs: Any, count: int
) -> Iterator[Course]:
    """Yield courses of a step of JAX: jitted step by step, and as a scan of `SCAN` steps.

    Args:
        figure: The name of the figure, with {way}.
        start: Returns the first carry.
        step: Maps a carry and an input to a carry and a result, which is ignored.
        inputs: The inputs of `SCAN` steps.
        count: A step counts as so many.
    """
    jax: Any = importlib.import_module("jax")
    run_step = jax.jit(lambda carry, step_input: step(carry, step_input)[0])
    run_scan = jax.jit(lambda carry, stacked: jax.lax.scan(step, carry, stacked)[0])

    def course(way: str) -> Course:
        carry = start()
        step_inputs = list(inputs)

        def play(steps: int) -> int:
            nonlocal carry
            scans = -(-steps // SCAN)
            for _ in range(scans):
                if way == "scan":
                    carry = run_scan(carry, inputs)
                else:
                    for step_input in step_inputs:
                        carry = run_step(carry, step_input)
            jax.block_until_ready(carry)
            return scans * SCAN * count

        return Course(figure.format(way=way), play, SCAN)

    yield from map(course, ("jit", "scan"))


def jumanji_games(count: int) -> Iterator[Course]:
    """Yield random play in Jumanji's Tetris-v0, many games at a time."""
    jax: Any = importlib.import_module("jax")
    jumanji: Any = importlib.import_module("jumanji")
    wrappers: Any = importlib.import_module("jumanji.wrappers")
    env = wrappers.VmapAutoResetWrapper(jumanji.make("Tetris-v0"))

    def step(carry: Any, score: Any) -> Any:
        state, mask = carry
        best = (score * mask).reshape(count, -1).argmax(1)
        state, timestep = env.step(state, jax.numpy.stack([best // 10, best % 10], 1))
        return (state, timestep.observation.action_mask), timestep.reward

    def start() -> Any:
        state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(SEED), count))
        return state, timestep.observation.action_mask

    scores = jax.random.uniform(jax.random.PRNGKey(SEED), (SCAN, count, 4, 10))
    figure = f"peers.jumanji.{{way}}.{count}.placements_per_second"
    yield from jitted(figure, start, step, scores, count)


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
    search = getattr(algorithms, name)(
        population_size=population, solution=jax.numpy.zeros(dim)
    )
    params = search.default_params
    key = jax.random.PRNGKey(SEED)

    def step(state: Any, key: Any) -> Any:
        ask_key, tell_key = jax.random.split(key)
        candidates, state = search.ask(ask_key, state, params)
        state, _ = search.tell(tell_key, candidates, (candidates**2).sum(-1), state, params)
        return state, None

    def start() -> Any:
        return search.init(key, jax.numpy.ones(dim), params)

    figure = f"peers.evosax_{name}.{{way}}.{population}x{dim}.generations_per_second"
    yield from jitted(figure, start, step, jax.random.split(key, SCAN), 1)


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
        for backend in ("auto", "torch"):
            yield our_generations(*shape, backend)
        if find_spec("evosax"):
            for name in ("SimpleES", "Sep_CMA_ES"):
                yield from evosax_generations(*shape, name)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return the speeds of ours and of the peers that are installed."""
    cores = os.sched_getaffinity(0)
    threads = torch.get_num_threads()
    os.sched_setaffinity(0, {max(cores)})  # JAX starts its threads later.
    torch.set_num_threads(1)
    versions = {}
    for name, module in PACKAGES.items():
        if find_spec(module):
            versions[name] = importlib.metadata.version(name)
    try:
        return measure_courses(
            list(courses(arguments.num_envs)),
            arguments.repeats,
            arguments.seconds,
            peers=versions,
            cores=1,
            environment=BOARD,
        )
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)
