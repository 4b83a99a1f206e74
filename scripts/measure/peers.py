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
import importlib.metadata
import math
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium
import torch

import tetris.envs
from kernels.support.system import one_core
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
    """Return a speed test of random play in our vector environment, whose engine is C++.

    ``count`` games are stepped together; every step places a piece in each.
    """
    envs: Any = gymnasium.make_vec(BOARD, count, output="torch", autoreset_mode="SameStep")
    # Random scores of all placements are drawn beforehand, for `SCAN` steps, and repeated, so
    # that the clock measures only the environments.
    shape = (SCAN, count, int(envs.single_action_space.n))
    scores = torch.rand(shape, generator=torch.Generator().manual_seed(SEED))
    _, infos = envs.reset(seed=SEED)

    def play(steps: int) -> int:
        """Play a number of steps, and return how many pieces were placed."""
        nonlocal infos
        for step in range(steps):
            # The mask is 0 for a placement that is not allowed. The allowed one with the best
            # random score is a uniform draw.
            allowed_scores = scores[step % SCAN] * infos["action_mask"]
            placements = allowed_scores.argmax(1)
            _, _, _, _, infos = envs.step(placements)
        return steps * count

    return Course(f"peers.ours.{count}.placements_per_second", play, warm_up=SCAN)


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

    return Course(f"peers.{name}.1.placements_per_second", play, warm_up=SCAN)


def tetris_gymnasium_games() -> Iterator[Course]:
    """Yield two courses of Tetris-Gymnasium on 10x10: hard drops, and random placements.

    The first presses the key of a hard drop in every step. In the second the package's wrapper
    turns a placement into key presses.
    """
    import tetris_gymnasium.envs  # noqa: F401 - it registers the environment
    import tetris_gymnasium.wrappers.grouped as grouping

    make_env = partial(gymnasium.make, "tetris_gymnasium/Tetris", width=10, height=10)
    env: Any = make_env()
    drop = int(env.unwrapped.actions.hard_drop)
    yield one_game("tetris_gymnasium", env, lambda info: drop)
    grouped = grouping.GroupedActionsObservations(make_env())

    def sample(info: Any) -> Any:
        """Return a random placement that the environment allows."""
        return grouped.action_space.sample(mask=info["action_mask"].astype("int8"))

    yield one_game("tetris_gymnasium_grouped", grouped, sample)


def jax_courses(
    figure: str, start: Callable[[], Any], step: Any, inputs: Any, count: int
) -> Iterator[Course]:
    """Yield two speed tests of a step in JAX: jitted alone, and in a scan of `SCAN` steps.

    JAX calls the state that a step passes on to the next one the carry.

    Args:
        figure: The name of the result, with {way} in the place of "jit" or "scan".
        start: Returns the first carry.
        step: Maps a carry and an input to the next carry and a result, which is ignored.
        inputs: The inputs of `SCAN` steps, stacked.
        count: How many placements or generations a step makes.
    """
    import jax

    jitted_step = jax.jit(lambda carry, step_input: step(carry, step_input)[0])
    jitted_scan = jax.jit(lambda carry, stacked: jax.lax.scan(step, carry, stacked)[0])
    step_inputs = list(inputs)

    def run_steps(carry: Any) -> Any:
        for step_input in step_inputs:
            carry = jitted_step(carry, step_input)
        return carry

    def run_scan(carry: Any) -> Any:
        return jitted_scan(carry, inputs)

    def make_course(way: str, run: Callable[[Any], Any]) -> Course:
        """Return the speed test of a function that makes `SCAN` steps from a carry."""
        carry = start()

        def play(steps: int) -> int:
            nonlocal carry
            scans = math.ceil(steps / SCAN)
            for _ in range(scans):
                carry = run(carry)
            jax.block_until_ready(carry)
            return scans * SCAN * count

        return Course(figure.format(way=way), play, warm_up=SCAN)

    yield make_course("jit", run_steps)
    yield make_course("scan", run_scan)


def jumanji_games(count: int) -> Iterator[Course]:
    """Yield speed tests of random play in ``count`` games of Jumanji's Tetris-v0 at a time.

    Every step places a piece in all games. The state that JAX passes from step to step is the
    state of the games and a mask of the placements that they allow, shape (games, rotations,
    columns). The inputs of the steps are random scores of the placements, drawn beforehand.
    """
    import jax
    import jumanji.wrappers

    rotations = 4
    columns = 10
    env = jumanji.wrappers.VmapAutoResetWrapper(jumanji.make("Tetris-v0"))
    key = jax.random.PRNGKey(SEED)

    def step(carry: Any, scores: Any) -> Any:
        state, mask = carry
        # The allowed placement with the best random score is a uniform draw.
        placement = (scores * mask).reshape(count, -1).argmax(1)
        rotation = placement // columns
        column = placement % columns
        state, timestep = env.step(state, jax.numpy.stack([rotation, column], 1))
        return (state, timestep.observation.action_mask), timestep.reward

    def start() -> Any:
        state, timestep = jax.jit(env.reset)(jax.random.split(key, count))
        return state, timestep.observation.action_mask

    scores = jax.random.uniform(key, (SCAN, count, rotations, columns))
    figure = f"peers.jumanji.{{way}}.{count}.placements_per_second"
    yield from jax_courses(figure, start, step, scores, count)


def our_generations(population: int, dim: int, backend: str) -> Course:
    """Return the course of our search on the sphere, which counts generations."""
    run_generations = ask_and_tell((population, dim), "cpu", backend)

    def run(count: int) -> int:
        run_generations(count)
        return count

    figure = f"peers.cem_{backend}.{population}x{dim}.generations_per_second"
    return Course(figure, run, warm_up=10)


def evosax_generations(population: int, dim: int, name: str) -> Iterator[Course]:
    """Yield speed tests of a search of the package evosax on the sphere, in generations.

    The state that JAX passes from step to step is the state of the search. A step is one
    generation, and its input is a random key.

    Args:
        population: The number of candidates.
        dim: The number of parameters.
        name: The name of the search's class in `evosax.algorithms`.
    """
    import evosax.algorithms
    import jax

    make_search = getattr(evosax.algorithms, name)
    search = make_search(population_size=population, solution=jax.numpy.zeros(dim))
    params = search.default_params
    key = jax.random.PRNGKey(SEED)

    def step(state: Any, key: Any) -> Any:
        ask_key, tell_key = jax.random.split(key)
        candidates, state = search.ask(ask_key, state, params)
        fitness = (candidates**2).sum(-1)
        state, _ = search.tell(tell_key, candidates, fitness, state, params)
        return state, None

    def start() -> Any:
        return search.init(key, jax.numpy.ones(dim), params)

    figure = f"peers.evosax_{name}.{{way}}.{population}x{dim}.generations_per_second"
    yield from jax_courses(figure, start, step, jax.random.split(key, SCAN), count=1)


def courses(games: int) -> Iterator[Course]:
    """Yield all speed tests: ours, and those of other packages that are installed.

    They count the placements per second of random play, or the generations per second of a
    search. ``games`` is the number of games that are stepped together.
    """
    # Environments of many games.
    yield our_games(games)
    if find_spec("jumanji"):
        yield from jumanji_games(games)
    # Environments of one game.
    env = gymnasium.make(BOARD)
    yield one_game("ours", env, lambda info: env.action_space.sample(mask=info["action_mask"]))
    if find_spec("tetris_gymnasium"):
        yield from tetris_gymnasium_games()
    # Searches.
    for population, dim in SHAPES:
        for backend in ("auto", "torch"):
            yield our_generations(population, dim, backend)
        if find_spec("evosax"):
            for name in ("SimpleES", "Sep_CMA_ES"):
                yield from evosax_generations(population, dim, name)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Measure the speeds of our environments and searches, and of other packages', on one core.

    The process uses a single core for the time of the measurement.
    """
    all_threads = torch.get_num_threads()
    versions = {}
    for name, module in PACKAGES.items():
        if find_spec(module):
            versions[name] = importlib.metadata.version(name)
    # A new thread may use the cores of the thread that starts it. JAX starts its threads later,
    # so they are on this core, too.
    with one_core():
        torch.set_num_threads(1)
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
            torch.set_num_threads(all_threads)
