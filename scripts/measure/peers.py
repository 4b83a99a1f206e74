"""Compare our environments and searches with those of other packages, on one core.

pip install evosax jumanji tetris-gymnasium

python scripts/measure peers --json peers.json

Peers that are not installed are left out. The process uses one core. Speeds are per second of
wall time, in interleaved rounds. If the machine does other work, only speeds of the same run
can be compared. All environments have boards of 10x10 and are played at random: a step draws
one of the placements that the environment allows. Jumanji's environment and ours step 1,024
games at a time. JAX is jitted, either a single step or a scan of 32 steps. Tetris-Gymnasium is
played by key presses: a hard drop places a piece.
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
from measure.rollout import SEED, SpeedTest, measure_speeds

ROUND_STEPS = 32
"""The number of steps of a round, which a scan of JAX makes in one call."""

SHAPES = ((128, 20), (1000, 100))
"""The searches' sizes: (candidates, parameters)."""

BOARD = next(name for name in tetris.envs.IDS if "10x10" in name)
PACKAGES = {
    "evosax": "evosax",
    "jax": "jax",
    "jumanji": "jumanji",
    "tetris-gymnasium": "tetris_gymnasium",
}


def our_games(count: int) -> SpeedTest:
    """Return a speed test of random play in our vector environment, with its engine in C++.

    One step of the environment places a piece in each of its ``count`` games.
    """
    envs: Any = gymnasium.make_vec(BOARD, count, output="torch", autoreset_mode="SameStep")
    # Random scores of all placements are drawn before the measurement, for `ROUND_STEPS` steps.
    # They are used again and again. So the test mainly times the environment.
    shape = (ROUND_STEPS, count, int(envs.single_action_space.n))
    scores = torch.rand(shape, generator=torch.Generator().manual_seed(SEED))
    _, infos = envs.reset(seed=SEED)

    def play(steps: int) -> int:
        """Play a number of steps, and return how many pieces were placed."""
        nonlocal infos
        for step in range(steps):
            # The mask is 1 for allowed placements, otherwise 0. The allowed placement with the
            # highest random score is a uniform draw.
            allowed_scores = scores[step % ROUND_STEPS] * infos["action_mask"]
            placements = allowed_scores.argmax(1)
            _, _, _, _, infos = envs.step(placements)
        return steps * count

    return SpeedTest(f"peers.ours.{count}.placements_per_second", play, warm_up=ROUND_STEPS)


def one_game(name: str, env: Any, action: Callable[[Any], Any]) -> SpeedTest:
    """Return a speed test of random play in an environment with one game.

    Args:
        name: The name of the environment in the results.
        env: The environment.
        action: Maps the ``info`` of a step to the next action.
    """
    env.action_space.seed(SEED)
    _, info = env.reset(seed=SEED)

    def play(steps: int) -> int:
        """Play a number of steps, each of which places a piece, and return the number."""
        nonlocal info
        for _ in range(steps):
            _, _, is_over, _, info = env.step(action(info))
            if is_over:
                _, info = env.reset()
        return steps

    return SpeedTest(f"peers.{name}.1.placements_per_second", play, warm_up=ROUND_STEPS)


def tetris_gymnasium_games() -> Iterator[SpeedTest]:
    """Yield two speed tests of Tetris-Gymnasium on 10x10: hard drops, and random placements.

    The first one presses the key of a hard drop in every step. In the second one, a wrapper of
    the package translates each placement into key presses.
    """
    import tetris_gymnasium.envs  # noqa: F401 - it registers the environment
    import tetris_gymnasium.wrappers.grouped as grouping

    make_env = partial(gymnasium.make, "tetris_gymnasium/Tetris", width=10, height=10)
    env: Any = make_env()
    drop = int(env.unwrapped.actions.hard_drop)
    yield one_game("tetris_gymnasium", env, action=lambda info: drop)
    grouped = grouping.GroupedActionsObservations(make_env())

    def sample(info: Any) -> Any:
        """Return a random placement that the environment allows."""
        return grouped.action_space.sample(mask=info["action_mask"].astype("int8"))

    yield one_game("tetris_gymnasium_grouped", grouped, sample)


def jax_speed_tests(
    figure_template: str, start: Callable[[], Any], step: Any, inputs: Any, count: int
) -> Iterator[SpeedTest]:
    """Yield two speed tests of a step in JAX: the jitted step, and a jitted scan of many steps.

    A step is a function for `jax.lax.scan`. The carry is the state that a step passes on to the
    next step. Both tests run rounds of `ROUND_STEPS` steps. In each round, the first test calls
    the jitted step in a loop, and the second one calls the scan once.

    Args:
        figure_template: The name of a test's figure in the results, with {way} in place of
            "jit" or "scan".
        start: Returns the first carry.
        step: Maps a carry and an input to the next carry and an output. The output is ignored.
        inputs: The inputs of the `ROUND_STEPS` steps of a round, stacked.
        count: The number of placements or generations in a step.
    """
    import jax

    # `step` and `jax.lax.scan` return a pair (carry, output). Only the carry is needed.
    jitted_step = jax.jit(lambda carry, step_input: step(carry, step_input)[0])
    jitted_scan = jax.jit(lambda carry, stacked: jax.lax.scan(step, carry, stacked)[0])
    step_inputs = list(inputs)

    def run_steps(carry: Any) -> Any:
        for step_input in step_inputs:
            carry = jitted_step(carry, step_input)
        return carry

    def run_scan(carry: Any) -> Any:
        return jitted_scan(carry, inputs)

    for way, run in {"jit": run_steps, "scan": run_scan}.items():
        figure = figure_template.format(way=way)
        yield _make_speed_test(figure, start(), run, count)


def _make_speed_test(
    figure: str, carry: Any, run: Callable[[Any], Any], count: int
) -> SpeedTest:
    """Return a speed test of ``run``, which makes the steps of a round from a carry.

    Each step places ``count`` pieces, or runs ``count`` generations.
    """
    import jax

    def play(steps: int) -> int:
        """Make at least ``steps`` steps; return their placements or generations."""
        nonlocal carry
        rounds = math.ceil(steps / ROUND_STEPS)
        for _ in range(rounds):
            carry = run(carry)
        jax.block_until_ready(carry)  # JAX returns before it has computed the result.
        return rounds * ROUND_STEPS * count

    return SpeedTest(figure, play, warm_up=ROUND_STEPS)


def jumanji_games(count: int) -> Iterator[SpeedTest]:
    """Yield two speed tests of random play in Jumanji's Tetris-v0.

    The tests differ in how they call the environment's step, see `jax_speed_tests`. One step
    places a piece in each of ``count`` games. The carry that a step passes on to the next step
    is a pair: the state of the games, and the mask of allowed placements, shape (games,
    rotations, columns). The input of a step is random scores of all placements.
    """
    import jax
    import jumanji.wrappers

    rotations = 4
    columns = 10
    # The wrapper plays many games at once, and starts a new game when one has ended.
    env = jumanji.wrappers.VmapAutoResetWrapper(jumanji.make("Tetris-v0"))
    key = jax.random.PRNGKey(SEED)

    def step(carry: Any, scores: Any) -> Any:
        state, mask = carry
        # The allowed placement with the highest random score is a uniform draw.
        placement = (scores * mask).reshape(count, -1).argmax(1)
        rotation = placement // columns
        column = placement % columns
        state, timestep = env.step(state, jax.numpy.stack([rotation, column], 1))
        return (state, timestep.observation.action_mask), timestep.reward

    def start() -> Any:
        state, timestep = jax.jit(env.reset)(jax.random.split(key, count))
        return state, timestep.observation.action_mask

    scores = jax.random.uniform(key, (ROUND_STEPS, count, rotations, columns))
    figure_template = f"peers.jumanji.{{way}}.{count}.placements_per_second"
    yield from jax_speed_tests(figure_template, start, step, scores, count)


def our_generations(population: int, dim: int, backend: str) -> SpeedTest:
    """Return a speed test of our search on the sphere, in generations per second."""
    run_generations = ask_and_tell((population, dim), "cpu", backend)

    def run(count: int) -> int:
        run_generations(count)
        return count

    figure = f"peers.cem_{backend}.{population}x{dim}.generations_per_second"
    return SpeedTest(figure, run, warm_up=10)


def evosax_generations(population: int, dim: int, name: str) -> Iterator[SpeedTest]:
    """Yield two speed tests of an evosax search on the sphere function: a loop, and a scan.

    The speeds are in generations per second. One test calls the step in a loop in Python, the
    other one calls ``jax.lax.scan``. A step is one generation. The carry that a step passes on
    to the next step is the state of the search. The input of a step is a random key.

    Args:
        population: The number of candidates.
        dim: The number of parameters.
        name: The name of a class in `evosax.algorithms`.
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

    figure_template = f"peers.evosax_{name}.{{way}}.{population}x{dim}.generations_per_second"
    yield from jax_speed_tests(
        figure_template, start, step, jax.random.split(key, ROUND_STEPS), count=1
    )


def speed_tests(games: int) -> Iterator[SpeedTest]:
    """Yield the speed tests of our package, and of the other packages that are installed.

    Environments are measured in placements per second of random play, searches in generations
    per second.

    Args:
        games: The number of games in a vector environment.
    """
    # Environments of many games. A package in JAX has two tests.
    yield our_games(games)
    if find_spec("jumanji"):
        yield from jumanji_games(games)
    # Environments of one game.
    env = gymnasium.make(BOARD)
    sample = env.action_space.sample
    yield one_game("ours", env, action=lambda info: sample(mask=info["action_mask"]))
    if find_spec("tetris_gymnasium"):
        yield from tetris_gymnasium_games()
    # Searches. The backend "torch" draws our candidates without compiled operators.
    for population, dim in SHAPES:
        for backend in ("auto", "torch"):
            yield our_generations(population, dim, backend)
        if find_spec("evosax"):
            for name in ("SimpleES", "Sep_CMA_ES"):
                yield from evosax_generations(population, dim, name)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Measure our environments and searches, and those of other packages, on one core."""
    usual_threads = torch.get_num_threads()
    versions = {}
    for name, module in PACKAGES.items():
        if find_spec(module):  # The package is installed.
            versions[name] = importlib.metadata.version(name)
    # A new thread inherits the cores of the thread that starts it. JAX starts its threads in
    # this block, so they use the same core.
    with one_core():
        torch.set_num_threads(1)
        try:
            return measure_speeds(
                list(speed_tests(arguments.num_envs)),
                arguments.repeats,
                arguments.seconds,
                peers=versions,
                cores=1,
                environment=BOARD,
            )
        finally:
            torch.set_num_threads(usual_threads)
