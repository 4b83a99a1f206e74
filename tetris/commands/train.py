"""Train a Tetris controller with the cross-entropy method and compare it with published ones.

python -m tetris train        # minutes, on any machine
python -m tetris train --preset standard --out runs/mine
python -m tetris train --resume runs/mine
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from kernels.support import ranks
from kernels.support.files import write_bytes
from kernels.support.printable import printable
from kernels.support.ranks import RanksError
from kernels.support.system import join_words
from tetris import LinearController
from tetris.commands.arguments import (
    GAME,
    add_feature_header,
    add_flag,
    add_option,
    add_setting,
)
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

_INSTEAD_OF_GPU = "--device cpu in a new run"  # What an error recommends without a GPU.
_ALLOWED_WITH_RESUME = ("resume", "time_limit", "tensorboard", "feature_header", "note")


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command ``train`` that the user gave.

    An option that the user left out is not an attribute of the result. Its value comes from a
    configuration file or a preset instead. `add_setting` adds the option of a setting, with the
    help text of the setting. `add_option` takes the name of an option, the placeholder of its
    value in the help, the help text, and a function that reads the value.
    """
    parser = Parser(
        description=__doc__,
        argument_default=argparse.SUPPRESS,
        usage="%(prog)s [--preset NAME] [option ...]",
        epilog="Settings that are not given come from --config, then from --preset.",
    )
    # Every setting of a training is an option. The setting names the group of its option.
    group_names = ("recipe", "game", "search", "machine", "run")
    groups = {name: parser.add_argument_group(name) for name in group_names}
    for name, setting in SETTINGS.items():
        add_setting(groups[setting.metadata["group"]], name, default=argparse.SUPPRESS)
    text = "settings as JSON, such as the config.json of a run"
    add_option(groups["recipe"], "--config", "FILE", text, read=Path)
    add_feature_header(groups["game"])
    run = groups["run"]
    folder = run.add_mutually_exclusive_group()
    text = "a new folder (default: runs/DATE-TIME-seedN)"
    add_option(folder, "--out", "FOLDER", text, read=Path)
    text = "resume the stopped run in FOLDER, with its settings"
    add_option(folder, "--resume", "FOLDER", text, read=Path)
    text = "train for at most S seconds, then measure"
    add_option(run, "--time-limit", "S", text, read=positive_seconds)
    text = "a note for reports; words with # are tags"
    add_option(run, "--note", "TEXT", text)
    text = "write curves for TensorBoard (extra tensorboard)"
    add_flag(run, "--tensorboard", text)
    options = parser.parse_args()
    # A resumed run keeps its settings, so only a few options are allowed with --resume.
    if "resume" in options:
        refused = [name for name in vars(options) if name not in _ALLOWED_WITH_RESUME]
        if refused:
            flags = ", ".join("--" + name.replace("_", "-") for name in refused)
            parser.error(f"a resumed run keeps its settings: expected no {flags}")
    return options


def main() -> int:
    """Train a controller in a new run, or resume a run, and return the exit status.

    `open_training` makes a `Training` of the options, and `train` runs it. The training has a
    recipe, which has all settings of the run, and a folder.
    """
    options = parse_arguments()
    # When the stack closes, it unlocks the folder of the run and disconnects the processes.
    with ExitStack() as stack:
        with one_line_errors():
            stack.enter_context(joined_ranks())
            training = open_training(options, stack)
        if training is None:  # The run to resume is already finished.
            return 0
        announce(training)
        folder = training.folder
        if "tensorboard" in options:
            note(f"curves: tensorboard --logdir {join_words([str(folder.tensorboard)])}")
        # Inside this context a signal, such as Ctrl-C, asks the training to stop.
        with training.stop:
            announce_interrupts(training.stop)
            try:
                return train(training, options)
            except OSError:
                # The disk may be full, for example. The run has a checkpoint to resume from.
                resume = command_for(folder, options, "train", "--resume")
                note(f"once this is fixed, resume with: {resume}")
                raise


def open_training(options: argparse.Namespace, stack: ExitStack) -> Training | None:
    """Return the training of a new or a resumed run; None if that run is already finished.

    The folder of the run stays locked until the caller closes ``stack``. Several processes,
    called ranks, can train together. `ranks.broadcast` calls a function on rank 0 only, and
    returns its result on every rank.
    """
    recipe, folder, is_new = ranks.broadcast(lambda: choose_run(options))
    # This raises an error if the engine is not available. If a GPU is missing, the error
    # recommends the options in _INSTEAD_OF_GPU.
    choose_device(recipe.device, instead=_INSTEAD_OF_GPU)
    prepare_engine(recipe)
    callbacks = [tensorboard_writer(recipe, folder)] if "tensorboard" in options else []
    time_limit = getattr(options, "time_limit", None)
    training = Training(recipe, folder, time_limit, callbacks)
    is_first_rank = ranks.rank() == 0
    if is_first_rank:
        # Lock the folder. With a new recipe, create it first, and write the recipe to it.
        new_recipe = recipe if is_new else None
        stack.enter_context(folder.claimed(new_recipe))
        if "note" in options:
            # The bytes of the command line, which need not be UTF-8.
            write_bytes(folder.note, os.fsencode(options.note + "\n"))
    if not is_new:
        if ranks.broadcast(lambda: is_finished(folder, recipe)):
            total = recipe.total_generations
            text = f"{printable(folder.path)} is finished: all {total} generations are trained"
            if recipe.score_decisions:
                text += ", and the scores are measured"
            print(text)
            if is_first_rank and not folder.report.exists():
                report(folder)
            return None
        # The other ranks get the restored state when the training begins.
        ranks.broadcast(lambda: restore(training))
    if is_first_rank:
        folder.add_start(recipe.device)  # Record when and where this process began.
    return training


def choose_run(options: argparse.Namespace) -> tuple[Recipe, RunFolder, bool]:
    """Choose the run to train: a new one or one to resume.

    The settings of a new run come from the options. A setting without an option comes from the
    configuration file, or else from the preset. A resumed run keeps the settings in its folder.
    An option that the user left out is not an attribute of ``options``.

    Returns:
        The recipe of the run.
        The folder of the run.
        Whether the run is new.
    """
    resumed = folder_to_resume(options)
    if resumed is not None:
        folder = RunFolder(resumed)
        return folder.recipe(), folder, False
    settings = {name: value for name, value in vars(options).items() if name in SETTINGS}
    config = read_settings(options.config) if "config" in options else {}
    device_setting = (config | settings).get("device", AUTO)
    # `choose_recipe` adds the settings of the preset. If a GPU is missing, it raises an error
    # that recommends the options in _INSTEAD_OF_GPU.
    recipe = choose_recipe(str(device_setting), config, settings, instead=_INSTEAD_OF_GPU)
    return recipe, new_folder(getattr(options, "out", None), recipe.seed), True


def folder_to_resume(options: argparse.Namespace) -> Path | None:
    """Return the folder of the run to resume; None if the run is new.

    After a failure torchrun can start the same command again. The restarted command must resume
    the run that it began the first time.
    """
    resumed: Path | None = getattr(options, "resume", None)
    if resumed is not None:
        return resumed
    # torchrun sets two environment variables: the number of restarts that it allows, and the
    # number of restarts so far.
    restarts_allowed = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    if restarts_allowed == 0:
        return None
    out: Path | None = getattr(options, "out", None)
    if out is None:
        raise ValueError(
            "expected --out FOLDER with --max-restarts: a restart resumes the run in FOLDER"
        )
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    # The first attempt may have failed before it wrote the configuration of the run.
    has_begun = restarts > 0 and RunFolder(out).config.is_file()
    return out if has_begun else None


def note(text: object) -> None:
    """Print a line on stderr."""
    print(f"note: {printable(text)}", file=sys.stderr)


def is_finished(folder: RunFolder, recipe: Recipe) -> bool:
    """Return whether a training run is complete, so that there is nothing to resume.

    A run is complete if its controller comes from the last generation and has a score on every
    board. If the recipe asks for no scores, the controller alone is enough.
    """
    if not folder.controller.is_file():
        return False
    controller = folder.learned()  # The controller that the run has saved.
    provenance = controller.provenance
    if provenance.get("generation") != recipe.total_generations:
        return False
    if not recipe.score_decisions:
        return True
    # Scores from games and estimated scores are in two lists. Either list may be missing.
    scores = (provenance.get("score") or []) + (provenance.get("estimates") or [])
    scored_boards = {score["board"] for score in scores}
    all_boards = {rules.board for rules in boards(controller, recipe.rules)}
    return scored_boards.issuperset(all_boards)


def restore(training: Training) -> None:
    """Restore the newest usable checkpoint, if any, and print notes on damaged ones.

    Raises:
        ValueError: If a line of the metrics is damaged or missing. No report could be written
            after the training then.
    """
    folder = training.folder
    if any(folder.checkpoints.glob("checkpoint-*.json")):
        for problem in training.trainer.resume():
            note(f"skipped {problem}")
    generation = training.optimizer.generation
    lines = training.metrics.restore(generation)
    if len(lines) < generation:
        raise ValueError(
            f"{folder.metrics}: expected lines of {generation} generations, got {len(lines)}; "
            f"without the folder {folder.checkpoints} the run begins again"
        )


def announce(training: Training) -> None:
    """Print on stderr the folder and the settings of a training run that begins or resumes.

    The training then prints two scores for each generation. A heading for these scores is
    printed below the settings.
    """
    recipe = training.recipe
    stages = ", ".join(f"{stage.generations} on {stage.rules.board}" for stage in recipe.stages)
    generation = training.optimizer.generation
    progress = f"resuming after {generation} of " if generation else ""
    settings = (
        f"{progress}{recipe.total_generations} generations ({stages}), features "
        f"{feature_label(recipe.features)}, population {recipe.population}, "
        f"engine {recipe.device}, sampler {recipe.backend}, seed {recipe.seed}"
    )
    # A score is the number of lines that a player clears in a game.
    heading = (
        "lines per game, for each generation: the best candidate (partly luck), "
        "the mean of the elites"
    )
    print(f"{printable(training.folder.path)}: {settings}\n{heading}", file=sys.stderr)


def announce_interrupts(stop: StopRequest) -> None:
    """Make the first Ctrl-C print a notice at once, because the run may go on for seconds.

    Call this inside ``with stop:``. There ``stop`` has installed a signal handler that requests
    the stop. This function installs another handler, which prints the notice and then calls
    that one. At the end of the ``with`` block, ``stop`` restores the original handler.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # Python runs signal handlers in the main thread only.
    request_stop = signal.getsignal(signal.SIGINT)
    assert callable(request_stop)

    def announce_and_stop(number: int, frame: FrameType | None) -> None:
        if not stop.requested:
            with suppress(OSError):  # The terminal may have been closed.
                # The signal may interrupt a call of print, inside which print must not be
                # called again. So write to stderr, file descriptor 2, directly.
                os.write(2, b"\nstopping after this step; Ctrl-C again ends at once\n")
        request_stop(number, frame)

    signal.signal(signal.SIGINT, announce_and_stop)


def announce_controller(training: Training, result: TrainingResult) -> None:
    """Print the file of a learned controller and the duration of the training."""
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
    """Train a controller, draw its training, score it, and write the report of the run.

    In each generation `run_objective` plays games with the candidates, and computes their
    fitness. If a time limit or a signal stops the training or the scoring, print how to resume
    the run.

    Returns:
        The exit status.
    """
    recipe = training.recipe
    folder = training.folder
    result = training.trainer.run()
    controller = training.save_controller()  # None if no generation was finished.
    progress = f"after {result.generation} of {recipe.total_generations} generations"
    if result.reason == "signal":
        if ranks.rank() == 0 and controller is not None:
            report(folder)
        return announce_stop(training, options, progress)
    conclusion = None  # The verdict on the scores, in words; None: there are no scores.
    if controller is None:
        note("the time limit ended the run before its first generation: there is no controller")
    else:
        announce_controller(training, result)
        conclusion = draw_and_measure(training, controller)
        was_stopped = recipe.score_decisions and conclusion is None
        if was_stopped:  # The recipe asks for scores, but a signal stopped the scoring.
            return announce_stop(training, options, f"while measuring {folder.controller}")
    if result.reason == "time_limit":
        resume = command_for(folder, options, "train", "--resume")
        note(f"time is up {progress}; to resume: {resume}")
    if conclusion is not None:
        flags = []
        for name in ("board", "rule", "pieces", "pieces_known"):
            value = getattr(recipe, name)
            if value != GAME[name]:  # This is the default of the command `watch`.
                flags += [f"--{name.replace('_', '-')}", str(value)]
        watch = command_for(folder, options, "watch", *flags)
        print(f"\n{conclusion}\nto watch it play: {printable(watch)}", flush=True)
    return 0


def draw_and_measure(training: Training, controller: LinearController) -> str | None:
    """Score a learned controller, draw its training, and write the report of the run.

    Several processes, called ranks, can share the games for the scores. Only rank 0 draws.

    Returns:
        The verdict on the scores, in words. None if the recipe asks for no scores, or if a
        signal stopped the scoring.
    """
    is_first_rank = ranks.rank() == 0
    drawing = threading.Thread(target=draw, args=(training,))
    if is_first_rank:
        drawing.start()
        # If a GPU plays the games, the CPU can draw at the same time. Otherwise drawing would
        # slow the games down, so finish it first.
        if training.recipe.device != "cuda":
            drawing.join()
    conclusion = None
    if training.recipe.score_decisions:
        with suppress(Interrupted):  # A signal came; the caller prints how to resume.
            conclusion = measure(training, controller)
    if is_first_rank:
        drawing.join()
        report(training.folder)
    return conclusion


def draw(training: Training) -> None:
    """Write the picture of the learning curve and the clip of the evolution."""
    folder = training.folder
    if find_spec("matplotlib"):  # Without matplotlib the curves are in the report only.
        with optional_file(folder.learning_curve):
            draw_runs([load_run(folder.path)], folder.learning_curve)
    with optional_file(folder.evolution, "the means of three generations play the same pieces"):
        write_evolution(folder.evolution, load_run(folder.path), training.recipe.device)


def report(folder: RunFolder) -> None:
    """Write the report, and print its path and a description."""
    with optional_file(folder.report, "curves, weights and a game, for a browser"):
        write_report(folder.report, [load_run(folder.path)])


@contextmanager
def optional_file(file: Path, description: str = "") -> Iterator[None]:
    """Print the path and the description of a file after the context has written it.

    An error in the context is only printed as a note: the file is not needed for the results.
    """
    try:
        yield
        if description:
            with suppress(OSError):  # The terminal may have been closed.
                print(f"{printable(file)}: {description}", flush=True)
    except Exception as error:
        note(f"no {file}: {type(error).__name__}: {error}")


def measure(training: Training, controller: LinearController) -> str:
    """Score a controller and published ones on each board, and return a verdict in words.

    This function prints and saves the scores of each board before it goes on to the next. After
    a signal `stop.check` raises an error. Then only the scores of the current board are lost.

    Returns:
        The verdict for the board of the run. If the controller cannot play there, the verdict
        for the first board.
    """
    recipe = training.recipe
    all_scores: list[Score] = []
    conclusion = ""
    # `boards` returns the rules of the game on each board where the controller can play.
    for rules in boards(controller, recipe.rules):
        # If one of several processes has received a signal, this raises in all of them.
        ranks.run_collective(training.stop.check)
        print(f"scoring on {rules.board} ...", file=sys.stderr, flush=True)
        trial = Trial(LEARNED, controller, rules, recipe.device, lookahead=recipe.lookahead)
        scores = list(compare(trial, recipe.score_decisions, training.stop.check))
        all_scores += scores
        # The lines per game are None if no game ended. Then a table would say nothing.
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

    If the user gave the option ``--feature-header``, the command line repeats it.
    """
    path = str(folder.path)
    if path.startswith("-"):  # The command would take it for an option.
        path = f"./{path}"
    words = [*arguments, path]
    if "feature_header" in options:
        words += ["--feature-header", str(options.feature_header)]
    return f"python -m tetris {name} {join_words(words)}"


def announce_stop(training: Training, options: argparse.Namespace, progress: str) -> int:
    """Print how to resume a run that a signal stopped, and return the exit status.

    The exit status is 128 plus the number of the signal, as a shell reports it.

    Args:
        training: The run.
        options: The options of the command line.
        progress: How far the run has come, such as "after 3 of 5 generations".
    """
    signal_number = training.stop.signum or 0  # 0: this process has received no signal.
    # If several processes train, perhaps only one of them has received the signal. So take the
    # greatest number of all processes, unless they are no longer connected.
    with suppress(RanksError):
        (signal_number,) = ranks.all_reduce_max([signal_number])
    signal_number = signal_number or signal.SIGINT  # The number is unknown: assume Ctrl-C.
    resume = command_for(training.folder, options, "train", "--resume")
    with suppress(OSError):  # The terminal may have been closed.
        print(
            f"stopped by {signal.Signals(signal_number).name} {printable(progress)}; "
            f"to resume: {printable(resume)}",
            file=sys.stderr,
            flush=True,
        )
    return 128 + signal_number
