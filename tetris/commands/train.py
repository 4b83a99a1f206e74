"""Train a Tetris controller with the cross-entropy method and compare it with published ones.

python -m tetris train        # minutes, on any machine
python -m tetris train --preset standard --out runs/mine
python -m tetris train --resume runs/mine
"""

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
from types import FrameType

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
from tetris.training import Interrupted, StopRequest, TrainingResult
from tetris.training.recipe import Recipe, read_settings
from tetris.training.run_folder import RunFolder, load_run, new_folder
from tetris.training.settings import SETTINGS
from tetris.training.training import Training, choose_recipe, prepare_engine, tensorboard_writer

_CPU = "--device cpu in a new run"
_WITH_RESUME = ("resume", "time_limit", "tensorboard", "feature_header")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command ``train``, only those that the user has set.

    An option that the user left out is not an attribute of the result, because its value then
    comes from a configuration file or a preset.
    """
    parser = Parser(
        description=__doc__,
        argument_default=argparse.SUPPRESS,
        usage="%(prog)s [--preset NAME] [option ...]",
        epilog="What is not given comes from --config, then from --preset.",
    )
    # Every setting of a training is an option, in the group that the setting names.
    group_names = ("recipe", "game", "search", "machine", "run")
    groups = {name: parser.add_argument_group(name) for name in group_names}
    for name, setting in SETTINGS.items():
        add_setting(groups[setting.metadata["group"]], name, default=argparse.SUPPRESS)
    text = "settings as JSON, such as the config.json of a run"
    add_option(groups["recipe"], "--config", "FILE", text, Path)
    add_feature_header(groups["game"])
    run = groups["run"]
    folder = run.add_mutually_exclusive_group()
    add_option(folder, "--out", "FOLDER", "a new folder (default: runs/DATE-TIME-seedN)", Path)
    add_option(folder, "--resume", "FOLDER", "a stopped run goes on, by its settings", Path)
    text = "train at most S seconds, then measure"
    add_option(run, "--time-limit", "S", text, positive_seconds)
    text = "curves for TensorBoard (extra tensorboard)"
    run.add_argument("--tensorboard", action="store_true", help=text)
    options = parser.parse_args(argv)
    # Of a resumed run only a few options can still be changed.
    if "resume" in options:
        fixed = [name for name in vars(options) if name not in _WITH_RESUME]
        if fixed:
            flags = ", ".join("--" + name.replace("_", "-") for name in fixed)
            parser.error(f"a resumed run keeps its settings: expected no {flags}")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Train a controller in a new run, or resume a run, and return the exit status.

    The options become a recipe, and the recipe becomes a `Training`. Its trainer asks
    `run_objective` for the fitness of each generation, whose games `tetris.Rollout` plays on an
    engine.
    """
    options = parse_arguments(argv)
    # At the end the stack unlocks the folder of the run and disconnects the processes.
    with ExitStack() as stack:
        with one_line_errors():
            stack.enter_context(joined_ranks())
            training = open_training(options, stack)
        if training is None:  # The run was finished before.
            return 0
        announce(training)
        folder = training.folder
        if "tensorboard" in options:
            note(f"curves: tensorboard --logdir {shlex.quote(str(folder.tensorboard))}")
        # In this context a signal such as Ctrl-C asks the training to stop.
        with training.stop:
            announce_interrupts(training.stop)
            try:
                return train(training, options)
            except OSError:
                # For example the disk is full. The run can go on from its last checkpoint.
                resume = command_for(folder, options, "train", "--resume")
                note(f"to go on when that is mended: {resume}")
                raise


def open_training(options: argparse.Namespace, stack: ExitStack) -> Training | None:
    """Return the training of a new or a resumed run; None if the run is finished.

    The folder of the run is locked until the caller closes ``stack``. Several processes, the
    ranks, can train together. `ranks.broadcast` calls a function on rank 0 only, and returns
    its result on every rank.
    """
    recipe, folder, is_new = ranks.broadcast(lambda: choose_run(options))
    choose_device(recipe.device, _CPU)  # It raises if the engine is not available.
    prepare_engine(recipe)
    callbacks = [tensorboard_writer(recipe, folder)] if "tensorboard" in options else []
    time_limit = getattr(options, "time_limit", None)
    training = Training(recipe, folder, time_limit, callbacks)
    is_first_rank = ranks.rank() == 0
    if is_first_rank:
        new_recipe = recipe if is_new else None  # The recipe to write.
        stack.enter_context(folder.claimed(new_recipe))
    if not is_new:
        if ranks.broadcast(lambda: is_finished(folder, recipe)):
            total = recipe.total_generations
            print(
                f"{printable(folder.path)} is finished: all {total} generations are played "
                "and measured"
            )
            return None
        ranks.broadcast(lambda: restore(training))
    if is_first_rank:
        folder.add_start(recipe.device)
    return training


def choose_run(options: argparse.Namespace) -> tuple[Recipe, RunFolder, bool]:
    """Return the recipe and the folder of the run to train, and whether it is a new run.

    A new run has the settings of its options, then of its configuration file, then of its
    preset. A resumed run has the settings in its folder. An option that the user left out is
    not an attribute of ``options``.
    """
    out: Path | None = getattr(options, "out", None)
    resumed: Path | None = getattr(options, "resume", None)
    # torchrun, which sets these two variables, starts the command again after a failure. Then
    # resume the run that the command had begun.
    restarts_allowed = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    if resumed is None and restarts_allowed:
        if out is None:
            raise ValueError(
                "expected --out FOLDER with --max-restarts: what is started again goes on there"
            )
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        if restarts and RunFolder(out).config.is_file():
            resumed = out
    if resumed is not None:
        folder = RunFolder(resumed)
        return folder.recipe(), folder, False
    settings = {name: value for name, value in vars(options).items() if name in SETTINGS}
    config = read_settings(options.config) if "config" in options else {}
    device_setting = (config | settings).get("device", AUTO)
    recipe = choose_recipe(str(device_setting), config, settings, instead=_CPU)
    return recipe, new_folder(out, recipe.seed), True


def note(text: object) -> None:
    """Print a line on stderr."""
    print(f"note: {printable(text)}", file=sys.stderr)


def is_finished(folder: RunFolder, recipe: Recipe) -> bool:
    """Return whether a training run is complete, so that there is nothing to resume.

    It is complete if its controller was learned in all generations, and has a score on every
    board, unless the recipe asks for no scores.
    """
    if not folder.controller.is_file():
        return False
    controller = folder.learned()
    provenance = controller.provenance
    if provenance.get("generation") != recipe.total_generations:
        return False
    if not recipe.score_decisions:
        return True
    # Some scores are from games, others are estimates; either list may be missing.
    scores = (provenance.get("score") or []) + (provenance.get("estimates") or [])
    scored_boards = {score["board"] for score in scores}
    all_boards = {rules.board for rules in boards(controller, recipe.rules)}
    return scored_boards.issuperset(all_boards)


def restore(training: Training) -> None:
    """Resume from the newest usable checkpoint of a run, if any, with notes on damaged ones."""
    if any(training.folder.checkpoints.glob("checkpoint-*.json")):
        for problem in training.trainer.resume():
            note(f"passed over {problem}")
    training.metrics.restore(training.optimizer.generation)


def announce(training: Training) -> None:
    """Print on stderr which training run begins or resumes, its folder and its settings.

    The second line is the header of the lines that follow during the training, one for each
    generation.
    """
    recipe = training.recipe
    stages = ", ".join(f"{stage.generations} on {stage.rules.board}" for stage in recipe.stages)
    generation = training.optimizer.generation
    progress = f"going on after {generation} of " if generation else ""
    print(
        f"{printable(training.folder.path)}: {progress}"
        f"{recipe.total_generations} generations ({stages}), features "
        f"{feature_label(recipe.features)}, population {recipe.population}, "
        f"engine {recipe.device}, sampler {recipe.backend}, seed {recipe.seed}\n"
        "lines per game in a generation, of its best candidate (partly luck) and the mean of "
        "its elites:",
        file=sys.stderr,
    )


def announce_interrupts(stop: StopRequest) -> None:
    """Print at once that the first Ctrl-C was noticed, because the run may go on for seconds.

    The context of ``stop`` has set the handler of the signal, and sets the one before it again.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # Here signals have no handlers.
    handle = signal.getsignal(signal.SIGINT)
    assert callable(handle)

    def announce(number: int, frame: FrameType | None) -> None:
        if not stop.requested:
            # A handler can interrupt a print, which must not begin again. The terminal may be
            # closed.
            with suppress(OSError):
                os.write(2, b"\nstopping after this step; Ctrl-C again ends at once\n")
        handle(number, frame)

    signal.signal(signal.SIGINT, announce)


def announce_controller(training: Training, result: TrainingResult) -> None:
    """Print the file of a learned controller, and how long the training took."""
    recipe = training.recipe
    decisions = recipe.decisions_until(result.generation)
    speed = decisions / max(result.elapsed_s, 1e-9)
    print(
        f"{printable(training.folder.controller)}: learned in {result.generation} of "
        f"{recipe.total_generations} generations, {format_lines(decisions)} decisions, "
        f"{result.elapsed_s:.0f} s ({format_lines(speed)} decisions/s)",
        flush=True,
    )


def train(training: Training, options: argparse.Namespace) -> int:
    """Train a controller, then draw and score it and write the report of the run.

    If a time limit or a signal stops the training or the scores, print how to resume.

    Returns:
        The exit status.
    """
    recipe = training.recipe
    folder = training.folder
    result = training.trainer.run()
    controller = training.save_controller()
    progress = f"after {result.generation} of {recipe.total_generations} generations"
    if result.reason == "signal":
        if ranks.rank() == 0 and controller is not None:
            report(folder)
        return announce_stop(training, options, progress)
    conclusion = None  # The verdict on the scores.
    if controller is None:
        note(
            "the time limit came before the first generation was over: no controller exists yet"
        )
    else:
        announce_controller(training, result)
        conclusion = draw_and_measure(training, controller)
        # The recipe asks for scores, but there is no verdict: a signal stopped them.
        if recipe.score_decisions and conclusion is None:
            return announce_stop(training, options, f"while measuring {folder.controller}")
    if result.reason == "time_limit":
        resume = command_for(folder, options, "train", "--resume")
        note(f"time is up {progress}; to go on: {resume}")
    if conclusion is not None:
        flags = []
        if recipe.pieces_known != 1:
            flags = ["--pieces-known", str(recipe.pieces_known)]
        watch = command_for(folder, options, "watch", *flags)
        print(f"\n{conclusion}\nto watch it play: {printable(watch)}", flush=True)
    return 0


def draw_and_measure(training: Training, controller: LinearController) -> str | None:
    """Score a learned controller, draw its training, and write the report of the run.

    Several processes, the ranks, can play for the scores together; only the first one draws.

    Returns:
        The verdict on the scores; None if the recipe asks for no scores, or if a signal stopped
        them.
    """
    is_first_rank = ranks.rank() == 0
    drawing = threading.Thread(target=draw, args=(training,))
    if is_first_rank:
        drawing.start()
        # A GPU can play for the scores while the CPU draws. Without one wait, because drawing
        # would slow the games down.
        if training.recipe.device != "cuda":
            drawing.join()
    conclusion = None
    if training.recipe.score_decisions:
        with suppress(Interrupted):
            conclusion = measure(training, controller)
    if is_first_rank:
        drawing.join()
        report(training.folder)
    return conclusion


def draw(training: Training) -> None:
    """Write the picture of the learning curve and the clip of the evolution."""
    folder = training.folder
    if find_spec("matplotlib"):  # Without matplotlib only the report has the curves.
        with optional_file(folder.learning_curve):
            draw_runs([load_run(folder.path)], folder.learning_curve)
    with optional_file(folder.evolution, "the means of three generations play the same pieces"):
        write_evolution(folder.evolution, load_run(folder.path), training.recipe.device)


def report(folder: RunFolder) -> None:
    """Write the report and print its path and what it holds."""
    with optional_file(folder.report, "curves, weights and a game, for a browser"):
        write_report(folder.report, [load_run(folder.path)])


@contextmanager
def optional_file(file: Path, description: str = "") -> Iterator[None]:
    """Let the context write a file, then print its path and description.

    An error is printed as a note, because the run has its results without the file.
    """
    try:
        yield
        if description:
            with suppress(OSError):  # The terminal may be closed.
                print(f"{printable(file)}: {description}", flush=True)
    except Exception as error:
        note(f"no {file}: {type(error).__name__}: {error}")


def measure(training: Training, controller: LinearController) -> str:
    """Score a controller on all boards of its training, and return a verdict in words.

    The scores of a board are those of the controller and of published ones. They are printed
    and saved after each board, so that a signal, on which `stop.check` raises an error, loses
    only those of one board.

    Returns:
        The verdict on the board of the run, or on the first board if that was not scored.
    """
    recipe = training.recipe
    all_scores: list[Score] = []
    conclusion = ""
    for rules in boards(controller, recipe.rules):
        # If one of several processes got a signal, all of them stop.
        ranks.run_collective(training.stop.check)
        print(f"scoring on {rules.board} ...", file=sys.stderr, flush=True)
        trial = Trial(LEARNED, controller, rules, recipe.device, lookahead=recipe.lookahead)
        scores = list(compare(trial, recipe.score_decisions, training.stop.check))
        all_scores += scores
        # A score is None if no game ended.
        if any(score["lines_per_game"] is not None for score in scores):
            print(f"\n{score_table(scores)}", flush=True)
        training.save_controller(scores=all_scores)
        if rules == recipe.rules or not conclusion:
            conclusion = verdict(scores)
    return conclusion


def command_for(
    folder: RunFolder, options: argparse.Namespace, name: str, *arguments: str
) -> str:
    """Return a command line for the folder of a run, such as ``python -m tetris watch runs/a``.

    It has the option ``--feature-header`` if the user gave it to this command.
    """
    words = [*arguments, str(folder.path)]
    if "feature_header" in options:
        words += ["--feature-header", os.path.relpath(options.feature_header)]
    return f"python -m tetris {name} {shlex.join(words)}"


def announce_stop(training: Training, options: argparse.Namespace, progress: str) -> int:
    """Print how to resume a run that a signal stopped, and return the exit status.

    The status is 128 plus the number of the signal, as usual in a shell.

    Args:
        training: The run.
        options: The options of the command line.
        progress: A text that says how far the run is.
    """
    signal_number = training.stop.signum or 0
    # If several processes train, only one of them may have got the signal.
    with suppress(RanksError):
        (signal_number,) = ranks.all_reduce_max([signal_number])
    signal_number = signal_number or signal.SIGINT
    resume = command_for(training.folder, options, "train", "--resume")
    with suppress(OSError):  # The terminal may be closed.
        print(
            f"stopped by {signal.Signals(signal_number).name} {printable(progress)}; "
            f"to go on: {printable(resume)}",
            file=sys.stderr,
            flush=True,
        )
    return 128 + signal_number
