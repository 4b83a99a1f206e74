"""A training run from arguments to page: train, draw, score, report, and print the verdict.

The way down: `run_training` makes a recipe of the arguments and a `Training` of the recipe; its trainer asks
`RunObjective` for the fitness of each generation, which `tetris.rollout` plays on an engine.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from kernels.loader.ahead import build_missing
from kernels.support import ranks
from kernels.support.files import set_aside
from kernels.support.printable import printable
from kernels.support.ranks import RanksError
from tetris import LinearController, feature_names
from tetris.commands.command_line import command_of, joined_ranks, one_line_errors
from tetris.evaluation.comparison import LEARNED, boards, compare, references_to_play, verdict
from tetris.evaluation.scores import Trial
from tetris.evaluation.text_table import Score, score_table
from tetris.game.feature_sets import feature_label
from tetris.play import engines as native
from tetris.play.devices import NATIVE, choose_device
from tetris.play.own_features import header_of
from tetris.record.numbers import format_lines
from tetris.report.learning_curve import HINT, draw_learning_curve
from tetris.report.page import write_report
from tetris.training import Callback, Interrupted, StopRequest, TrainingResult
from tetris.training.presets import PYTHON_PRESETS, Setting
from tetris.training.provenance import add_start
from tetris.training.recipe import Recipe, make_recipe, read_settings
from tetris.training.run_folder import RunFolder, new_folder
from tetris.training.run_record import load_run, read_controller, read_metrics
from tetris.training.training import Training, prepare_engine, tensorboard_writer

LIVE_SECONDS = 20.0
"""The least time between two reports while a run goes on, in seconds."""

_CPU = "--device cpu in a new run"
_NOT_SETTINGS = ("feature_header", "config", "out", "resume", "time_limit", "tensorboard")


def run_training(given: argparse.Namespace) -> int:
    """Train a controller, or resume a run; return the exit status."""
    with ExitStack() as stack:
        with one_line_errors():
            stack.enter_context(joined_ranks())
            recipe, folder, is_new = ranks.broadcast(lambda: run_of(given))
            choose_device(recipe.device, _CPU)
            prepare_engine(recipe)
            curves = [tensorboard_writer(recipe, folder)] if "tensorboard" in given else []
            callbacks = [*curves, *([LiveReport(folder)] if ranks.rank() == 0 else [])]
            limit = getattr(given, "time_limit", None)
            training = Training(recipe, folder, StopRequest(), limit, callbacks)
            if ranks.rank() == 0:
                stack.enter_context(folder.claimed(recipe if is_new else None))
            finished = ranks.broadcast(lambda: not is_new and restore(training))
        if finished:
            if ranks.rank() == 0:
                complete_files(training)
            return 0
        if ranks.rank() == 0:
            with one_line_errors():
                add_start(folder.starts, recipe.device)
        announce(training)
        if curves:
            note(f"curves: tensorboard --logdir {shlex.quote(str(folder.tensorboard))}")
        with training.stop:
            return train(training)


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
    recipe = new_recipe(given)
    folder = new_folder(out, recipe.seed)
    folder.check_free()
    return recipe, folder, True


def new_recipe(given: argparse.Namespace) -> Recipe:
    """Return the recipe of a new run from command line, config file and preset."""
    options: dict[str, Setting] = {
        name: value for name, value in vars(given).items() if name not in _NOT_SETTINGS
    }
    config: dict[str, Setting] = read_settings(given.config) if "config" in given else {}
    device = choose_device(str((config | options).get("device", "auto")), _CPU)
    return make_recipe(device, config, options)


def note(text: object) -> None:
    """Print a line on stderr."""
    print(f"note: {printable(text)}", file=sys.stderr)


def restore(training: Training) -> bool:
    """Resume a run, with notes on its damaged files; return whether it is finished, with a message."""
    recipe, folder, total = training.recipe, training.folder, training.recipe.total_generations
    problems = training.restore()
    controller = saved_controller(folder)
    finished = controller is not None and is_finished(controller, recipe)
    begun = total if finished else training.optimizer.generation
    if not begun and folder.metrics.is_file() and folder.metrics.stat().st_size:
        problems += [f"{folder.checkpoints}: no checkpoint: the run begins again"]
    for problem in problems + training.metrics.restore(begun):
        note(problem)
    if finished:
        print(f"{printable(folder.path)} is finished: all {total} generations are played and measured")
    return finished


def saved_controller(folder: RunFolder) -> LinearController | None:
    """Return the controller of a run, if any; a damaged one is set aside, to be made again."""
    if not folder.controller.is_file():
        return None
    try:
        return read_controller(folder.controller)
    except ValueError as error:
        aside = set_aside(folder.controller)
        note(f"{folder.controller} is made again: {error}; the old file is {aside}")
        return None


def is_finished(controller: LinearController, recipe: Recipe) -> bool:
    """Return whether a controller was learned in all generations, and measured on all boards."""
    known = controller.provenance
    if known.get("generation") != recipe.total_generations:
        return False
    measured = {each["board"] for kind in ("score", "estimates") for each in known.get(kind) or ()}
    return not recipe.score_decisions or measured >= {
        rules.board for rules in boards(controller, recipe.rules)
    }


def complete_files(training: Training) -> None:
    """Make the picture and the page of a finished run where they are not there, or older than its scores."""
    folder = training.folder
    if not folder.learning_curve.is_file():
        draw(training)
    page, controller = folder.report, folder.controller
    if not page.is_file() or page.stat().st_mtime_ns < controller.stat().st_mtime_ns:
        report(folder)


def announce(training: Training) -> None:
    """Print on stderr which run begins or resumes, and its folder."""
    recipe = training.recipe
    cut_down = PYTHON_PRESETS.get(recipe.preset, {}).get("curriculum")
    if recipe.device == "python" and recipe.curriculum == cut_down:
        note(f"preset {recipe.preset} is cut down to what Python plays in about two minutes")
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


def train(training: Training) -> int:
    """Train, draw, score and report; return the exit status."""
    recipe, folder = training.recipe, training.folder
    build_references(training)
    result = training.trainer.run()
    controller = training.save_controller()
    first = ranks.rank() == 0
    progress = f"after {result.generation} of {recipe.total_generations} generations"
    if result.reason == "signal":
        if first and controller is not None:
            report(folder)
        return stopped(training, progress)
    said = None
    if controller is None:
        note("the time limit came before the first generation was over: there is no controller yet")
    else:
        summarize(training, result)
        if first:
            draw(training)
        written = first and report(folder, live=bool(recipe.score_decisions))
        if recipe.score_decisions:
            with suppress(Interrupted):
                said = measure(training, controller)
            if written:
                report(folder, again=True)
            if said is None:
                return stopped(training, f"while measuring {folder.controller}")
    if result.reason == "time_limit":
        note(f"time is up {progress}; to go on: {resumption(training)}")
    if said is not None:
        watch = "watch" if recipe.pieces_known == 1 else f"watch --pieces-known {recipe.pieces_known}"
        print(f"\n{said}\nto watch it play: {printable(with_header(watch, training))}", flush=True)
    return 0


def build_references(training: Training) -> None:
    """Compile the engines of the published controllers that will be scored, during training."""
    recipe = training.recipe
    if not recipe.score_decisions or recipe.device not in NATIVE:
        return
    needed = [
        library
        for each in references_to_play(boards(training.controller(), recipe.rules))
        for library in native.libraries(
            feature_names(each.features, recipe.rules.width),
            recipe.lookahead,
            cuda=recipe.device == "cuda",
        )
    ]
    if needed:
        threading.Thread(target=build_missing, args=(needed,), daemon=True).start()


def summarize(training: Training, result: TrainingResult) -> None:
    """Print how the training ended."""
    speed = training.decisions / max(result.elapsed_s, 1e-9)
    print(
        f"{printable(training.folder.controller)}: learned in {result.generation} of "
        f"{training.recipe.total_generations} generations, {format_lines(training.decisions)} decisions, "
        f"{result.elapsed_s:.0f} s ({format_lines(speed)} decisions/s)",
        flush=True,
    )


def draw(training: Training) -> None:
    """Draw the learning curve, or print why it failed."""
    recipe, folder = training.recipe, training.folder
    try:
        metrics = read_metrics(folder.metrics)
        if metrics and not draw_learning_curve(metrics, folder.learning_curve, recipe.title):
            note(HINT)
    except Exception as error:  # of a full disk or of a library: the scores come all the same
        note(f"no {folder.learning_curve}: {type(error).__name__}: {error}")


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


class LiveReport(Callback):
    """Writes the report while the run goes on, in at most a hundredth of the time."""

    def __init__(self, folder: RunFolder) -> None:
        """``folder`` is that of the run."""
        self._folder = folder
        self._due = time.monotonic() + LIVE_SECONDS

    def on_checkpoint(self, generation: int, state: Mapping[str, Any]) -> None:
        """Write it if it is due."""
        begun = time.monotonic()
        if begun < self._due:
            return
        with suppress(Exception):  # the report at the end says what is wrong
            write_report(self._folder.report, [load_run(self._folder.path)], live=True)
        ended = time.monotonic()
        self._due = ended + max(LIVE_SECONDS, 100 * (ended - begun))


def report(folder: RunFolder, *, again: bool = False, live: bool = False) -> bool:
    """Write the report and print its path, or why it failed; return whether it is there."""
    try:
        write_report(folder.report, [load_run(folder.path)], live=live)
    except Exception as error:
        retry = f"{command_of('report')} {shlex.quote(str(folder.path))}"
        note(f"no {folder.report}: {type(error).__name__}: {error}; to try again: {retry}")
        return False
    what = "now with the scores" if again else "curves, weights and a game, for a browser"
    with suppress(OSError):  # of a terminal that was closed
        print(f"{printable(folder.report)}: {what}", flush=True)
    return True


def resumption(training: Training) -> str:
    """Return the command that resumes a run."""
    return with_header("train --resume", training)


def with_header(command: str, training: Training) -> str:
    """Return a command for the folder of a run, with the header of features that the run needs."""
    name, *options = command.split()
    words = [*options, shlex.quote(str(training.folder.path))]
    names = feature_names(training.recipe.features, training.recipe.rules.width)
    header = header_of(names)
    if header is not None:
        words += ["--feature-header", shlex.quote(os.path.relpath(header[0]))]
    return " ".join([command_of(name), *words])


def stopped(training: Training, where: str) -> int:
    """Print how to resume, and return the exit status."""
    number = training.stop.signum or 0
    with suppress(RanksError):
        (number,) = ranks.all_reduce_max([number])
    number = number or signal.SIGINT
    name, how = signal.Signals(number).name, printable(resumption(training))
    with suppress(OSError):  # of a terminal that was closed
        print(f"stopped by {name} {printable(where)}; to go on: {how}", file=sys.stderr, flush=True)
    return 128 + number
