"""Train a Tetris controller with the cross-entropy method, and measure it beside published ones.

python scripts/train_tetris.py        # minutes, on any machine
python scripts/train_tetris.py --preset standard --out runs/mine
python scripts/train_tetris.py --resume runs/mine
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kernels.names import unknown_name
from tetris import LinearController, Rollout, feature_names, native
from tetris.commands.arguments import add_board, add_pieces, add_rule
from tetris.commands.command_line import (
    Parser,
    command_of,
    one_line_errors,
    positive_int,
    positive_seconds,
    seed,
    share,
)
from tetris.commands.comparison import boards, compare, estimate_rare
from tetris.devices import DEVICES, check_gpu, choose_device
from tetris.evaluation.estimates import estimate_table
from tetris.evaluation.scores import score_table
from tetris.feature_sets import feature_label, feature_sets
from tetris.report.learning_curve import HINT, draw_learning_curve
from tetris.report.page import write_report
from tetris.report.run_record import read_metrics, read_run
from tetris.training import Interrupted, StopRequest, TrainingResult
from tetris.training.presets import DEFAULT_PRESET, PRESETS, PYTHON_PRESETS, Setting
from tetris.training.recipe import Recipe, make_recipe, read_settings
from tetris.training.run_folder import RunFolder, new_folder
from tetris.training.training import Training, tensorboard_writer

_NOT_SETTINGS = ("config", "out", "resume", "time_limit", "tensorboard")
_WITH_RESUME = ("resume", "time_limit", "tensorboard")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; what was not given is not in the result."""
    parser = Parser(
        description=__doc__,
        argument_default=argparse.SUPPRESS,
        usage="%(prog)s [--preset NAME] [option ...]",
        epilog="What is not given comes from --config, then from --preset.",
    )
    recipe = parser.add_argument_group("recipe")
    recipe.add_argument("--preset", metavar="NAME", help=f"{', '.join(PRESETS)} (default: {DEFAULT_PRESET})")
    recipe.add_argument(
        "--config", type=Path, metavar="FILE", help="settings as JSON, such as the config.json of a run"
    )
    recipe.add_argument("--seed", type=seed, metavar="N", help="same seed, same result")

    game = parser.add_argument_group("game")
    add_board(game, default=None)
    add_rule(game, default=None)
    add_pieces(game, default=None)
    game.add_argument(
        "--features",
        metavar="SET",
        help=f"{', '.join(feature_sets())}, or feature names separated by commas (docs/features.md)",
    )

    search = parser.add_argument_group("search")
    search.add_argument(
        "--curriculum",
        metavar="STAGES",
        help="BOARD:GENERATIONS[:DECISIONS][:split],... such as 10x10:22,10x12:14:4000; where it is given, "
        "--board is played only with --generations",
    )
    search.add_argument(
        "--generations",
        type=positive_int,
        metavar="N",
        help="on --board, after --curriculum; without one there is no other stage",
    )
    search.add_argument("--population", type=positive_int, metavar="N", help="candidates a generation")
    search.add_argument(
        "--elites", type=positive_int, metavar="N", help="candidates that make the next generation"
    )
    search.add_argument(
        "--noise", metavar="SCHEDULE", help="none, constant:A, linear:A,B or hyperbolic:A, a variance"
    )
    search.add_argument(
        "--averaging",
        type=share,
        metavar="SHARE",
        help="learn an average of means, mostly over this share of the generations; 0: the last mean",
    )
    search.add_argument("--streams", type=positive_int, metavar="N", help="streams of games a candidate")
    search.add_argument("--decisions", type=positive_int, metavar="N", help="decisions on each stream")

    machine = parser.add_argument_group("machine")
    machine.add_argument("--device", metavar="NAME", help=f"engine: {', '.join(DEVICES)} (default: auto)")
    machine.add_argument("--backend", metavar="NAME", help="sampler: auto, torch, cuda (default: auto)")

    output = parser.add_argument_group("run")
    where = output.add_mutually_exclusive_group()
    where.add_argument(
        "--out", type=Path, metavar="FOLDER", help="a new folder (default: runs/DATE-TIME-seedN)"
    )
    where.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="instead: go on with a stopped run, whose settings stay"
    )
    output.add_argument(
        "--time-limit", type=positive_seconds, metavar="S", help="train at most S seconds, then measure"
    )
    output.add_argument(
        "--score-decisions",
        type=_count,
        metavar="N",
        help="decisions a controller and board in the final comparison; 0 leaves it out",
    )
    output.add_argument(
        "--tensorboard",
        action="store_true",
        help="write curves for TensorBoard into the run's folder (extra tensorboard)",
    )
    given = parser.parse_args(argv)
    fixed = [f"--{name.replace('_', '-')}" for name in vars(given) if name not in _WITH_RESUME]
    if "resume" in given and fixed:
        parser.error(f"a resumed run keeps its settings: expected no {', '.join(fixed)}")
    return given


def _count(text: str) -> int:
    return 0 if text == "0" else positive_int(text)


def settle_device(requested: str) -> str:
    """Return the engine that plays.

    Raises:
        BuildError: If it needs a compiler and there is none.
        ValueError: If it is unknown, or needs a GPU and there is none.
    """
    if requested not in DEVICES:
        raise unknown_name("device", requested, DEVICES)
    if requested == "cuda":
        check_gpu("device cuda", "--device cpu in a new run")
    return choose_device(requested)


def new_recipe(given: argparse.Namespace) -> Recipe:
    """Put the recipe of a new run together from command line, config file and preset.

    Raises:
        BuildError: As `settle_device`.
        OSError: If the config file cannot be read.
        TypeError: If a setting has the wrong type.
        ValueError: If a setting is unknown or out of range.
    """
    options: dict[str, Setting] = {
        name: value for name, value in vars(given).items() if name not in _NOT_SETTINGS
    }
    config: dict[str, Setting] = read_settings(given.config) if "config" in given else {}
    device = settle_device(str((config | options).get("device", "auto")))
    return make_recipe(device, config, options)


def note(text: object) -> None:
    """Print a remark on stderr."""
    print(f"note: {text}", file=sys.stderr)


def prepare_engine(recipe: Recipe) -> None:
    """Compile what is played with where need be, so that what can fail has failed before anything is written.

    Raises:
        BuildError: If it cannot be built.
    """
    weights = [[0.0] * len(feature_names(recipe.features, recipe.rules.width))]
    Rollout(weights, recipe.rules, device=recipe.device, features=recipe.features)
    if recipe.device == "cuda" and any(stage.split for stage in recipe.stages):
        native.resampling_operators()


def announce(training: Training) -> None:
    """Say on stderr what begins, or goes on, and where."""
    recipe = training.recipe
    cut_down = PYTHON_PRESETS.get(recipe.preset, {}).get("curriculum")
    if recipe.device == "python" and recipe.curriculum == cut_down:
        note(f"preset {recipe.preset} is cut down to what Python plays in about two minutes")
    stages = ", ".join(f"{stage.generations} on {stage.rules.board}" for stage in recipe.stages)
    begun = training.optimizer.generation
    print(
        f"{training.folder.path}: {f'going on after {begun} of ' if begun else ''}"
        f"{recipe.total_generations} generations ({stages}), features {feature_label(recipe.features)}, "
        f"population {recipe.population}, engine {recipe.device}, sampler {recipe.backend}, "
        f"seed {recipe.seed}",
        file=sys.stderr,
    )


def restore(training: Training) -> None:
    """Go on from the newest usable checkpoint, or from the beginning where none was written yet.

    Raises:
        CheckpointError: If there are checkpoints, but none that can be used.
    """
    checkpoints = training.folder.checkpoints
    if not checkpoints.is_dir() or not any(checkpoints.glob("checkpoint-*.json")):
        return
    for refused in training.trainer.resume().refused:
        note(f"passed over {refused}")


def is_finished(training: Training) -> bool:
    """Tell whether nothing is left to do, and say so."""
    recipe, folder = training.recipe, training.folder
    if training.optimizer.generation < recipe.total_generations or not folder.controller.is_file():
        return False
    with one_line_errors():
        controller = LinearController.load(folder.controller)
    if controller.provenance.get("generation") != recipe.total_generations:
        return False
    measured = {each["board"] for each in controller.provenance.get("score") or ()}
    if recipe.score_decisions and not measured >= {rules.board for rules in boards(recipe, controller)}:
        return False
    print(f"{folder.path} is finished: all {recipe.total_generations} generations are played and measured")
    return True


def summarize(training: Training, result: TrainingResult) -> None:
    """Say what came of the training."""
    speed = training.decisions / max(result.elapsed_s, 1e-9)
    print(
        f"{training.folder.controller}: learned in {result.generation} of "
        f"{training.recipe.total_generations} generations, {training.decisions:,} decisions, "
        f"{result.elapsed_s:.0f} s ({speed:,.0f} decisions/s)",
        flush=True,
    )


def draw(training: Training) -> None:
    """Draw the learning curve, or say what it takes."""
    recipe, folder = training.recipe, training.folder
    if not draw_learning_curve(read_metrics(folder.metrics), folder.learning_curve, recipe.title):
        note(HINT)


def measure(training: Training, controller: LinearController, stop: StopRequest) -> None:
    """Print the learned controller's scores beside the published ones', and write them down, board by board.

    Raises:
        Interrupted: If the run is to stop.
    """
    scores: list[dict[str, Any]] = []
    estimated: list[dict[str, Any]] = []
    for rules in boards(training.recipe, controller):
        stop.check()
        measurements = list(compare(training.recipe, controller, rules, stop.check))
        scores.extend(measurement.to_dict() for measurement in measurements)
        print(f"\n{score_table(measurements)}", flush=True)
        found = list(estimate_rare(training.recipe, measurements, stop.check))
        if found:
            estimated.extend(each.to_dict() for each in found)
            print(f"\nestimated by importance splitting, board {rules.board}", flush=True)
            print(estimate_table(found), flush=True)
        training.save_controller(scores, estimated)


def report(folder: RunFolder) -> None:
    """Write the report and say where it is, or why there is none: no run is lost over it."""
    try:
        write_report(folder.report, [read_run(folder.path)])
    except Exception as error:
        again = f"{command_of('report')} {shlex.quote(str(folder.path))}"
        note(f"no {folder.report}: {type(error).__name__}: {error}; to try again: {again}")
    else:
        print(f"{folder.report}: curves, scores, weights and a game, for a browser", flush=True)


def resumption(training: Training) -> str:
    """Return the command that goes on with a run."""
    return f"{command_of('train')} --resume {shlex.quote(str(training.folder.path))}"


def stopped(training: Training, stop: StopRequest, where: str) -> int:
    """Say how to go on, and return the exit status."""
    number = signal.SIGINT if stop.signum is None else stop.signum
    print(
        f"stopped by {signal.Signals(number).name} {where}; to go on: {resumption(training)}",
        file=sys.stderr,
    )
    return 128 + number


def finish(
    training: Training, controller: LinearController, result: TrainingResult, stop: StopRequest
) -> str | None:
    """Say what came of the training, draw and measure; return where that was interrupted, if it was."""
    summarize(training, result)
    draw(training)
    try:
        if training.recipe.score_decisions:
            measure(training, controller, stop)
    except Interrupted:
        return f"while measuring {training.folder.controller}"
    return None


def train(training: Training, stop: StopRequest) -> int:
    """Train, draw, measure and report; return the exit status."""
    recipe = training.recipe
    result = training.trainer.run()
    controller = training.save_controller()
    progress = f"after {result.generation} of {recipe.total_generations} generations"
    interrupted = progress if result.reason == "signal" else None
    if controller is not None:
        if interrupted is None:
            interrupted = finish(training, controller, result, stop)
        report(training.folder)
    elif interrupted is None:
        note("the time limit came before the first generation was over: there is no controller yet")
    if interrupted is not None:
        return stopped(training, stop, interrupted)
    if result.reason == "time_limit":
        note(f"time is up {progress}; to go on: {resumption(training)}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Train a controller, from the beginning or from where a run was stopped."""
    given = parse_arguments(argv)
    stop = StopRequest()
    with ExitStack() as stack:
        with one_line_errors():
            if "resume" in given:
                folder, new = RunFolder(given.resume), None
                recipe = folder.recipe()
                settle_device(recipe.device)
            else:
                recipe = new = new_recipe(given)
                folder = new_folder(getattr(given, "out", None), recipe.seed)
                folder.check_free()
            callbacks = [tensorboard_writer(recipe, folder)] if "tensorboard" in given else []
            training = Training(recipe, folder, stop, getattr(given, "time_limit", None), callbacks)
            prepare_engine(recipe)
            stack.enter_context(folder.claimed(new))
            restore(training)
        if is_finished(training):
            if not folder.report.is_file():
                report(folder)
            return 0
        announce(training)
        if callbacks:
            note(f"curves: tensorboard --logdir {shlex.quote(str(folder.tensorboard))}")
        with stop:
            return train(training, stop)
