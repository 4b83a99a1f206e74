"""Measure how many pieces per second the Gymnasium environments place in random play.

python scripts/measure env --num-envs 1024 --json env.json
"""

import argparse
from typing import Any

import gymnasium
import torch

import tetris.envs
from measure.provenance import Measured
from measure.rollout import SEED, SpeedTest, measure_speeds
from tetris.envs.vector_env import OUTPUTS

FEATURES = "dt"
GPU_ENVS = 1 << 20
GPU_FEATURE_ENVS = 1 << 18  # Their features are 390 MB per step.
_DRAWN_STEPS = 64  # The number of steps whose actions are drawn before the measurement.


def make_speed_test(figure: str, count: int, **options: Any) -> SpeedTest:
    """Return a speed test of random play in a vector environment of Gymnasium.

    Args:
        figure: The name of the measured speed in the results, without the unit.
        count: The number of environments.
        options: Other arguments of `gymnasium.make_vec`.
    """
    envs: Any = gymnasium.make_vec(tetris.envs.IDS[0], count, **options)
    # Random actions for `_DRAWN_STEPS` steps are drawn before the measurement, and are used
    # again and again. So only the environments are timed.
    generator = torch.Generator().manual_seed(SEED)
    action_count = int(envs.single_action_space.n)
    drawn = torch.randint(0, action_count, (_DRAWN_STEPS, count), generator=generator)
    # A list with the actions of each step. The option "device" implies tensors.
    takes_tensors = options.get("output") == "torch" or "device" in options
    actions: list[Any] = list(drawn.to(envs.device) if takes_tensors else drawn.numpy())
    envs.reset(seed=SEED)

    def play(steps: int) -> int:
        """Play a number of steps, and return how many pieces were placed."""
        games_ended: Any = 0
        for step in range(steps):
            _, _, terminated, _, _ = envs.step(actions[step % _DRAWN_STEPS])
            games_ended = games_ended + terminated.sum()
        # The step after the end of a game only resets the game, and places no piece. `int` also
        # waits until the device has finished all steps.
        return steps * count - int(games_ended)

    return SpeedTest(f"{figure}.placements_per_second", play, warm_up=_DRAWN_STEPS)


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Measure random play in the environments that a device can run, in placements per second.

    The device "python" has no compiler, so only one game in Python is measured. "cpu" adds many
    games in C++, with every kind of output, and with features of the boards as observations.
    "cuda" adds a million games in CUDA, and fewer games with features, which need more memory.
    """
    count = arguments.num_envs
    speed_tests = [make_speed_test("env.python", count=1, vectorization_mode="sync")]
    if device != "python":
        for output in OUTPUTS:  # Whether observations are arrays of NumPy or tensors.
            speed_tests.append(
                make_speed_test(f"env.cpu.{output}.{count}", count, output=output)
            )
        figure = f"env.cpu.{FEATURES}.{count}"
        speed_tests.append(make_speed_test(figure, count, output="torch", features=FEATURES))
    if device == "cuda":
        speed_tests.append(make_speed_test(f"env.cuda.{GPU_ENVS}", GPU_ENVS, device="cuda"))
        figure = f"env.cuda.{FEATURES}.{GPU_FEATURE_ENVS}"
        speed_tests.append(
            make_speed_test(figure, GPU_FEATURE_ENVS, features=FEATURES, device="cuda")
        )
    # The keyword arguments are stored as details of the result.
    return measure_speeds(
        speed_tests,
        arguments.repeats,
        arguments.seconds,
        environment=tetris.envs.IDS[0],
        gymnasium=gymnasium.__version__,
        autoreset="next-step",
    )
