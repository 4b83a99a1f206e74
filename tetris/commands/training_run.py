"""A training run from arguments to page: train, draw, score, report, and print the verdict."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from contextlib import ExitStack

from kernels.ahead import build_missing
from tetris import LinearController, feature_names, native
from tetris.commands.command_line import command_of, one_line_errors
from tetris.devices import NATIVE, choose_device
from tetris.evaluation.comparison import boards, compare, references_to_play, verdict
from tetris.evaluation.text_table import Score, is_estimate, score_table
from tetris.feature_sets import feature_label
from tetris.numbers import lines
from tetris.printable import printable
from tetris.report.learning_curve import HINT, draw_learning_curve
from tetris.report.page import write_report
from tetris.report.run_record import read_metrics, read_run
from tetris.training import Interrupted, StopRequest, TrainingResult
from tetris.training.presets import PYTHON_PRESETS, Setting
from tetris.training.recipe import Recipe, make_recipe, read_settings
from tetris.training.run_folder import RunFolder, new_folder
from tetris.training.training import Training, prepare_engine, tensorboard_writer

_CPU = "--device cpu in a new run"
_NOT_SETTINGS = ("config", "out", "resume", "time_limit", "tensorboard")


def run_training(given: argparse.Namespace) -> int:
    """Train a controller, or resume a run; return the exit status."""
    stop = StopRequest()
    with ExitStack() as stack:
        with one_line_errors():
            if "resume" in given:
                folder, new = RunFolder(given.resume), None
                recipe = folder.recipe()
                choose_device(recipe.device, _CPU)
            else:
                recipe = new = new_recipe(given)
                folder = new_folder(getattr(given, "out", None), recipe.seed)
                folder.check_free()
            prepare_engine(recipe)
            callbacks = [tensorboard_writer(recipe, folder)] if "tensorboard" in given else []
            training = Training(recipe, folder, stop, getattr(given, "time_limit", None), callbacks)
            stack.enter_context(folder.claimed(new))
            for rejected in training.restore():
                note(f"passed over {rejected}")
        if is_finished(training):
            if not folder.report.is_file():
                report(folder)
            return 0
        announce(training)
        if callbacks:
            note(f"curves: tensorboard --logdir {shlex.quote(str(folder.tensorboard))}")
        with stop:
            return train(training, stop)


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


def is_finished(training: Training) -> bool:
    """Return whether a run is complete, with a message."""
    recipe, folder = training.recipe, training.folder
    if training.optimizer.generation < recipe.total_generations or not folder.controller.is_file():
        return False
    with one_line_errors():
        controller = LinearController.load(folder.controller)
    known = controller.provenance
    if known.get("generation") != recipe.total_generations:
        return False
    measured = {each["board"] for kind in ("score", "estimates") for each in known.get(kind) or ()}
    if recipe.score_decisions and not measured >= {rules.board for rules in boards(controller, recipe.rules)}:
        return False
    done = f"all {recipe.total_generations} generations are played and measured"
    print(f"{printable(folder.path)} is finished: {done}")
    return True


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


def train(training: Training, stop: StopRequest) -> int:
    """Train, draw, score and report; return the exit status."""
    recipe = training.recipe
    build_references(training)
    result = training.trainer.run()
    controller = training.save_controller()
    progress = f"after {result.generation} of {recipe.total_generations} generations"
    interrupted = progress if result.reason == "signal" else None
    said = None
    if controller is not None:
        if interrupted is None:
            summarize(training, result)
            draw(training)
        written = report(training.folder)
        if interrupted is None and recipe.score_decisions:
            try:
                said = measure(training, controller, stop)
            except Interrupted:
                interrupted = f"while measuring {training.folder.controller}"
            if written:
                report(training.folder, again=True)
    elif interrupted is None:
        note("the time limit came before the first generation was over: there is no controller yet")
    if interrupted is not None:
        return stopped(training, stop, interrupted)
    if result.reason == "time_limit":
        note(f"time is up {progress}; to go on: {resumption(training)}")
    if said is not None:
        watch = f"{command_of('watch')} {shlex.quote(str(training.folder.path))}"
        print(f"\n{said}\nto watch it play: {printable(watch)}", flush=True)
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
            feature_names(each.features, recipe.rules.width), cuda=recipe.device == "cuda"
        )
    ]
    if needed:
        threading.Thread(target=build_missing, args=(needed,), daemon=True).start()


def summarize(training: Training, result: TrainingResult) -> None:
    """Print how the training ended."""
    speed = training.decisions / max(result.elapsed_s, 1e-9)
    print(
        f"{printable(training.folder.controller)}: learned in {result.generation} of "
        f"{training.recipe.total_generations} generations, {lines(training.decisions)} decisions, "
        f"{result.elapsed_s:.0f} s ({lines(speed)} decisions/s)",
        flush=True,
    )


def draw(training: Training) -> None:
    """Draw the learning curve, or say which package is missing."""
    recipe, folder = training.recipe, training.folder
    if not draw_learning_curve(read_metrics(folder.metrics), folder.learning_curve, recipe.title):
        note(HINT)


def measure(training: Training, controller: LinearController, stop: StopRequest) -> str:
    """Print and save the scores board by board; return the verdict on the board of the controller."""
    recipe = training.recipe
    found: list[Score] = []
    said = ""
    for rules in boards(controller, recipe.rules):
        stop.check()
        print(f"scoring on {rules.board} ...", file=sys.stderr, flush=True)
        scores = list(compare(controller, rules, recipe.score_decisions, recipe.device, stop.check))
        found += scores
        if any(each["lines_per_game"] is not None for each in scores):
            print(f"\n{score_table(scores)}", flush=True)
        played = [dict(each) for each in found if not is_estimate(each)]
        training.save_controller(played, [dict(each) for each in found if is_estimate(each)])
        said = verdict(scores) if rules == recipe.rules or not said else said
    return said


def report(folder: RunFolder, *, again: bool = False) -> bool:
    """Write the report and print its path, or why it failed; return whether it is there."""
    try:
        write_report(folder.report, [read_run(folder.path)])
    except Exception as error:
        retry = f"{command_of('report')} {shlex.quote(str(folder.path))}"
        note(f"no {folder.report}: {type(error).__name__}: {error}; to try again: {retry}")
        return False
    what = "now with the scores" if again else "curves, weights and a game, for a browser"
    print(f"{printable(folder.report)}: {what}", flush=True)
    return True


def resumption(training: Training) -> str:
    """Return the command that resumes a run."""
    return f"{command_of('train')} --resume {shlex.quote(str(training.folder.path))}"


def stopped(training: Training, stop: StopRequest, where: str) -> int:
    """Print how to resume, and return the exit status."""
    number = signal.SIGINT if stop.signum is None else stop.signum
    print(
        printable(f"stopped by {signal.Signals(number).name} {where}; to go on: {resumption(training)}"),
        file=sys.stderr,
    )
    return 128 + number
