"""Train a Tetris controller with the cross-entropy method and compare it with published ones.

python -m tetris train        # minutes, on any machine
python -m tetris train --preset standard --out runs/mine
python -m tetris train --resume runs/mine
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from kernels.support import ranks
from kernels.support.printable import printable
from kernels.support.ranks import RanksError
from tetris import LinearController
from tetris.commands.arguments import add_feature_header, add_option, add_setting
from tetris.commands.command_line import Parser, joined_ranks, one_line_errors, positive_seconds
from tetris.evaluation.comparison import LEARNED, Score, boards, compare, score_table, verdict
from tetris.evaluation.measurement import Trial
from tetris.game.feature_sets import feature_label
from tetris.play.devices import AUTO, choose_device
from tetris.record.numbers import format_lines
from tetris.report.evolution import write_evolution
from tetris.report.learning_curve import draw_runs
from tetris.report.page import write_report
from tetris.training import Interrupted
from tetris.training.recipe import Recipe, make_recipe, read_settings
from tetris.training.run_folder import RunFolder, load_run, new_folder
from tetris.training.settings import SETTINGS
from tetris.training.training import Training, prepare_engine, tensorboard_writer

_CPU = "--device cpu in a new run"
_WITH_RESUME = ("resume", "time_limit", "tensorboard", "feature_header")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; arguments that are not given are absent from the result."""
    parser = Parser(
        description=__doc__,
        argument_default=argparse.SUPPRESS,
        usage="%(prog)s [--preset NAME] [option ...]",
        epilog="What is not given comes from --config, then from --preset.",
    )
    groups = {
        name: parser.add_argument_group(name) for name in ("recipe", "game", "search", "machine", "run")
    }
    for name, setting in SETTINGS.items():
        add_setting(groups[setting.metadata["group"]], name, default=argparse.SUPPRESS)
    text = "settings as JSON, such as the config.json of a run"
    add_option(groups["recipe"], "--config", "FILE", text, Path)
    add_feature_header(groups["game"])
    run = groups["run"]
    where = run.add_mutually_exclusive_group()
    add_option(where, "--out", "FOLDER", "a new folder (default: runs/DATE-TIME-seedN)", Path)
    add_option(where, "--resume", "FOLDER", "a stopped run goes on, by its settings", Path)
    add_option(run, "--time-limit", "S", "train at most S seconds, then measure", positive_seconds)
    run.add_argument("--tensorboard", action="store_true", help="curves for TensorBoard (extra tensorboard)")
    given = parser.parse_args(argv)
    fixed = [f"--{name.replace('_', '-')}" for name in vars(given) if name not in _WITH_RESUME]
    if "resume" in given and fixed:
        parser.error(f"a resumed run keeps its settings: expected no {', '.join(fixed)}")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    """Train a controller, or resume a run.

    The way down: a recipe is made of the arguments, a `Training` of the recipe. Its trainer asks
    `run_objective` for the fitness of each generation, which `tetris.rollout` plays on an engine.
    """
    given = parse_arguments(argv)
    with ExitStack() as stack:
        with one_line_errors():
            stack.enter_context(joined_ranks())
            recipe, folder, is_new = ranks.broadcast(lambda: run_of(given))
            choose_device(recipe.device, _CPU)
            prepare_engine(recipe)
            first = ranks.rank() == 0
            callbacks = [tensorboard_writer(recipe, folder)] if "tensorboard" in given else []
            training = Training(recipe, folder, getattr(given, "time_limit", None), callbacks)
            if first:
                stack.enter_context(folder.claimed(recipe if is_new else None))
            if not is_new and ranks.broadcast(lambda: is_finished(folder, recipe)):
                path, total = printable(folder.path), recipe.total_generations
                print(f"{path} is finished: all {total} generations are played and measured")
                return 0
            if not is_new:
                ranks.broadcast(lambda: restore(training))
            if first:
                folder.add_start(recipe.device)
        announce(training)
        if "tensorboard" in given:
            note(f"curves: tensorboard --logdir {shlex.quote(str(folder.tensorboard))}")
        with training.stop:
            try:
                return train(training, given)
            except OSError:  # a full disk, for example: the last checkpoint is there
                note(f"to go on when that is mended: {command_for(folder, given, 'train', '--resume')}")
                raise


def run_of(given: argparse.Namespace) -> tuple[Recipe, RunFolder, bool]:
    """Return the recipe and the folder of a run, and whether it is a new one.

    What ``torchrun`` starts again goes on with the run of ``--out``.
    """
    out: Path | None = getattr(given, "out", None)
    old: Path | None = getattr(given, "resume", None)
    if old is None and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")):
        if out is None:
            raise ValueError("expected --out FOLDER with --max-restarts: what is started again goes on there")
        if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) and RunFolder(out).config.is_file():
            old = out
    if old is not None:
        folder = RunFolder(old)
        return folder.recipe(), folder, False
    options = {name: value for name, value in vars(given).items() if name in SETTINGS}
    config = read_settings(given.config) if "config" in given else {}
    device = choose_device(str((config | options).get("device", AUTO)), _CPU)
    recipe = make_recipe(device, config, options)
    return recipe, new_folder(out, recipe.seed), True


def note(text: object) -> None:
    """Print a line on stderr."""
    print(f"note: {printable(text)}", file=sys.stderr)


def is_finished(folder: RunFolder, recipe: Recipe) -> bool:
    """Return whether the controller of a run was learned in all generations, and measured on all boards."""
    if not folder.controller.is_file():
        return False
    controller = folder.learned()
    known = controller.provenance
    if known.get("generation") != recipe.total_generations:
        return False
    measured = {each["board"] for kind in ("score", "estimates") for each in known.get(kind) or ()}
    wanted = {rules.board for rules in boards(controller, recipe.rules)}
    return not recipe.score_decisions or measured >= wanted


def restore(training: Training) -> None:
    """Go on from the newest usable checkpoint of a run, if any, with notes on damaged ones."""
    if any(training.folder.checkpoints.glob("checkpoint-*.json")):
        for problem in training.trainer.resume():
            note(f"passed over {problem}")
    training.metrics.restore(training.optimizer.generation)


def announce(training: Training) -> None:
    """Print on stderr which run begins or resumes, and its folder."""
    recipe = training.recipe
    stages = ", ".join(f"{stage.generations} on {stage.rules.board}" for stage in recipe.stages)
    begun = training.optimizer.generation
    print(
        f"{printable(training.folder.path)}: {f'going on after {begun} of ' if begun else ''}"
        f"{recipe.total_generations} generations ({stages}), features {feature_label(recipe.features)}, "
        f"population {recipe.population}, engine {recipe.device}, sampler {recipe.backend}, "
        f"seed {recipe.seed}\n"
        "lines per game of the best candidate of a generation, which is a lucky one, and of its elites:",
        file=sys.stderr,
    )


def train(training: Training, given: argparse.Namespace) -> int:
    """Train, draw, score and report; return the exit status."""
    recipe, folder = training.recipe, training.folder
    result = training.trainer.run()
    controller = training.save_controller()
    first = ranks.rank() == 0
    progress = f"after {result.generation} of {recipe.total_generations} generations"
    if result.reason == "signal":
        if first and controller is not None:
            report(folder)
        return stopped(training, given, progress)
    said = None
    if controller is None:
        note("the time limit came before the first generation was over: there is no controller yet")
    else:
        decisions = recipe.decisions_until(result.generation)
        print(
            f"{printable(folder.controller)}: learned in {result.generation} of {recipe.total_generations} "
            f"generations, {format_lines(decisions)} decisions, {result.elapsed_s:.0f} s "
            f"({format_lines(decisions / max(result.elapsed_s, 1e-9))} decisions/s)",
            flush=True,
        )
        drawing = threading.Thread(target=draw, args=(training,))
        if first:
            drawing.start()
            drawing.join(0 if recipe.device == "cuda" else None)  # a GPU plays for the scores meanwhile
        if recipe.score_decisions:
            with suppress(Interrupted):
                said = measure(training, controller)
        if first:
            drawing.join()
            report(folder)
        if recipe.score_decisions and said is None:
            return stopped(training, given, f"while measuring {folder.controller}")
    if result.reason == "time_limit":
        note(f"time is up {progress}; to go on: {command_for(folder, given, 'train', '--resume')}")
    if said is not None:
        known = [] if recipe.pieces_known == 1 else ["--pieces-known", str(recipe.pieces_known)]
        watch = command_for(folder, given, "watch", *known)
        print(f"\n{said}\nto watch it play: {printable(watch)}", flush=True)
    return 0


def draw(training: Training) -> None:
    """Draw the learning curve and the evolution."""
    folder = training.folder
    if find_spec("matplotlib"):  # without it the report alone has the curves
        with kept(folder.learning_curve):
            draw_runs([load_run(folder.path)], folder.learning_curve)
    with kept(folder.evolution, "the means of three generations play the same pieces"):
        write_evolution(folder.evolution, load_run(folder.path), training.recipe.device)


def report(folder: RunFolder) -> None:
    """Write the report and print its path and what it holds."""
    with kept(folder.report, "curves, weights and a game, for a browser"):
        write_report(folder.report, [load_run(folder.path)])


@contextmanager
def kept(file: Path, what: str = "") -> Iterator[None]:
    """Make a file that a run can do without, and print what it is: an error is a note."""
    try:
        yield
        with suppress(OSError):  # of a terminal that was closed
            print(*[f"{printable(file)}: {what}\n"] * bool(what), end="", flush=True)
    except Exception as error:
        note(f"no {file}: {type(error).__name__}: {error}")


def measure(training: Training, controller: LinearController) -> str:
    """Print and save the scores board by board; return the verdict on the board of the controller."""
    recipe = training.recipe
    found: list[Score] = []
    said = ""
    for rules in boards(controller, recipe.rules):
        ranks.run_collective(training.stop.check)
        print(f"scoring on {rules.board} ...", file=sys.stderr, flush=True)
        trial = Trial(LEARNED, controller, rules, recipe.device, lookahead=recipe.lookahead)
        scores = list(compare(trial, recipe.score_decisions, training.stop.check))
        found += scores
        if any(each["lines_per_game"] is not None for each in scores):
            print(f"\n{score_table(scores)}", flush=True)
        training.save_controller(scores=found)
        said = verdict(scores) if rules == recipe.rules or not said else said
    return said


def command_for(folder: RunFolder, given: argparse.Namespace, name: str, *options: str) -> str:
    """Return a command for the folder of a run, with the header of features that this one was given."""
    words = [*options, str(folder.path)]
    if "feature_header" in given:
        words += ["--feature-header", os.path.relpath(given.feature_header)]
    return f"python -m tetris {name} {shlex.join(words)}"


def stopped(training: Training, given: argparse.Namespace, where: str) -> int:
    """Print how to resume, and return the exit status."""
    number = training.stop.signum or 0
    with suppress(RanksError):
        (number,) = ranks.all_reduce_max([number])
    number = number or signal.SIGINT
    name, how = signal.Signals(number).name, command_for(training.folder, given, "train", "--resume")
    with suppress(OSError):  # of a terminal that was closed
        print(
            f"stopped by {name} {printable(where)}; to go on: {printable(how)}", file=sys.stderr, flush=True
        )
    return 128 + number
