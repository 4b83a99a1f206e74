"""Plan in a simulator, step by step, with the cross-entropy method: swing a pendulum up, make a cheetah run.

python scripts/plan_control.py pendulum
python scripts/plan_control.py half_cheetah --gif cheetah.gif

The cheetah needs MuJoCo: pip install -e ".[mujoco]". Where there is no display set MUJOCO_GL=egl for its
movie; the movie of the pendulum needs pygame.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from kernels.support.files import check_writable, write_bytes
    from kernels.support.names import unknown_name
    from tetris.commands.command_line import Parser, one_line_errors, path_ending, run, seed, up_to

TASKS = ("pendulum", "half_cheetah")
FRAMES_PER_SECOND = 20.0
_WIDTH, _COLORS = 320, 64  # of a movie


def main(argv: Sequence[str] | None = None) -> int:
    """Control a task, and say what comes of it."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...] TASK")
    parser.add_argument("task", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--steps", type=up_to(1_000_000), default=200, help="of the episode (default: 200)")
    parser.add_argument("--seed", type=seed, default=2, help="of start and plans (default: 2)")
    parser.add_argument("--num-samples", type=up_to(100_000), metavar="N", help="plans an iteration")
    parser.add_argument("--iterations", type=up_to(1_000), default=3, help="a step (default: 3)")
    parser.add_argument("--horizon", type=up_to(1_000), help="actions a plan (default: 30)")
    parser.add_argument("--gif", type=path_ending(".gif"), metavar="FILE", help="write a movie")
    parser.add_argument("--plot", type=path_ending(".png"), metavar="FILE", help="draw the rewards")
    arguments = parser.parse_args(argv)
    if arguments.task not in TASKS:
        parser.error(str(unknown_name("task", arguments.task, TASKS)))
    from gymnasium.error import DependencyNotInstalled
    from measure import control_tasks

    from tetris.report.figures import check_picture
    from tetris.view.movies import check_gif

    with one_line_errors():
        for file in filter(None, (arguments.gif, arguments.plot)):
            check_writable(file)
        if arguments.gif:
            check_gif(FRAMES_PER_SECOND)
        if arguments.plot:
            check_picture(arguments.plot)
        task = control_tasks.TASKS[arguments.task](arguments.seed, render=arguments.gif is not None)
        told = {
            name: getattr(arguments, name) for name in ("num_samples", "horizon") if getattr(arguments, name)
        }
        control = control_tasks.planned(task, seed=arguments.seed, iterations=arguments.iterations, **told)
        rewards: list[float] = []
        frames: list[Any] = []

        def watch(reward: float) -> None:
            rewards.append(reward)
            if arguments.gif:
                try:
                    frames.append(task.env.render())
                except DependencyNotInstalled as error:
                    raise ValueError(f"a movie needs more: {error}") from error
            if len(rewards) % 25 == 0:
                print(f"step {len(rewards)}: return {sum(rewards):,.1f}", flush=True)

        control_tasks.episode(task, control, arguments.steps, watch)
    print(f"{arguments.task}: return {sum(rewards):,.1f} in {len(rewards)} steps")
    if arguments.gif:
        write_movie(frames, arguments.gif)
    if arguments.plot:
        draw_rewards(rewards, arguments.task, arguments.plot)
    return 0


def write_movie(frames: Sequence[Any], path: Path) -> None:
    """Write pictures, each an array of shape (height, width, 3), uint8, as a looping GIF."""
    from PIL import Image

    height, width, _ = frames[0].shape
    size = _WIDTH, round(_WIDTH * height / width)
    small = [Image.fromarray(frame).resize(size) for frame in frames]
    palette = small[len(small) // 2].quantize(_COLORS)
    images = [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in small]
    file = io.BytesIO()
    duration = round(1000 / FRAMES_PER_SECOND)
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=duration, loop=0)
    write_bytes(path, file.getvalue())


def draw_rewards(rewards: Sequence[float], task: str, picture: Path) -> None:
    """Draw the reward of every step."""
    from tetris.report.figures import COLORS, new_figure, save_figure

    figure = new_figure(6.0, 3.0)
    axes = figure.add_subplot()
    axes.plot(range(1, len(rewards) + 1), rewards, color=COLORS[2])
    axes.set(xlabel="step", ylabel="reward", title=f"{task}: return {sum(rewards):,.1f}")
    axes.grid(color="0.9")
    save_figure(figure, picture)


if __name__ == "__main__":
    run(main)
