"""Blocks of README and docs: the scores of learned controllers, and the times of training."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pages.literature_blocks import TETR_AI
from pages.optimiser_blocks import count_wins, find_shares
from pages.result_files import Result, figures, load, load_all, with_provenance
from pages.wording import in_words, markdown, span
from pages.wording import score as score_text
from tetris.evaluation.comparison import LEARNED
from tetris.play.controller import resolve
from tetris.record.numbers import format_lines

_PROCESSOR = "epyc-2core"
_GPU = "h200"


def _score_on(run: Mapping[str, Any], controller: str, board: str) -> Mapping[str, Any]:
    """Return a controller's score on a board.

    An estimate takes precedence over a score, if games ended in it.

    Args:
        run: The description of a training run. It has scores and estimates of the learned
            controller, and of published ones.
        controller: The name of the controller.
        board: The board, such as "10x20".

    Raises:
        ValueError: If the run has no such score.
    """
    estimates = [score for score in run.get("estimates", ()) if score["lines_per_game"]]
    for score in (*estimates, *run["score"]):
        if (score["controller"], score["board"]) == (controller, board):
            return dict(score)
    raise ValueError(f"expected a score of {controller} on {board}, found none")


def median_run(runs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the training run whose controller has the median score on 10x20."""
    # `LEARNED` is the name of a run's learned controller.
    in_order = sorted(runs, key=lambda run: _score_on(run, LEARNED, "10x20")["lines_per_game"])
    return in_order[len(runs) // 2]


def results() -> str:
    """Return README's Markdown table of controllers, with their lines per game on 10x20.

    The last column is the score divided by that of dt20, the best published linear controller.
    """
    # This file has the scores of two controllers in the same games.
    best, dt20 = load(f"{_GPU}/record_score").data["score"]
    best_training = load(f"{_GPU}/record_training")
    rows = [
        _score_row("dt20 (9 weights)", dt20, dt20),
        _first_command_row(),
    ]
    label = f"`best` (included, 52 weights): {_training_time(best_training)}"
    rows.append(_score_row(label, best, dt20))
    pairs_training = load(f"{_GPU}/record")
    (pairs,) = pairs_training.data["estimates"]  # There is only one estimate.
    label = f"`pairs` (included, 490 weights): {_training_time(pairs_training)}"
    rows.append(_score_row(label, pairs, dt20))
    tetr_ai = "[tetr-ai](https://github.com/misakamm/tetr-ai), not linear, score by its author"
    rows.append([tetr_ai, in_words(TETR_AI), f"{TETR_AI / dt20['lines_per_game']:.2g}"])
    # dt20 does not look ahead, so this score is not divided.
    looking_ahead = load(f"{_GPU}/lookahead").data["scores"]["pairs"]
    rows.append(_score_row("`pairs` with `--lookahead`", looking_ahead, None))
    header = ["controller", "lines per game on 10x20 (95 % interval)", "times dt20"]
    return markdown(header, rows)


def _first_command_row() -> list[str]:
    """Return the row of the controller that README's first command learns.

    Its score is an estimate, so it is divided by an estimate for dt20.
    """
    runs = load(f"{_PROCESSOR}/training").data["runs"]
    learned = _score_on(median_run(runs), LEARNED, "10x20")
    dt20 = _score_on(runs[0], "dt20", "10x20")  # It is the same in every run.
    return _score_row("learned by `train_tetris.py`", learned, dt20)


def _score_row(
    controller: str, score: Mapping[str, Any], dt20: Mapping[str, Any] | None
) -> list[str]:
    """Return a row of the table: a controller, its score, and its score divided by dt20's."""
    low, high = score["ci95"]
    lines = f"{in_words(score['lines_per_game'])} ({in_words(low)} to {in_words(high)})"
    if "estimates" in score:  # The number of estimates. Scores of played games do not have it.
        lines += ", estimated"
    ratio = "no peer"
    if dt20 is not None:
        ratio = f"{score['lines_per_game'] / dt20['lines_per_game']:.2g}"
    return [controller, lines, ratio]


def _training_time(training: Result) -> str:
    """Return how long a training with the preset ``record`` took, and on which machine."""
    seconds = training.figures["record.training_seconds"]
    return f"{seconds / 60:.0f} minutes on one {training.hardware}"


def training() -> str:
    """Return a paragraph on training with the default settings: its time and its scores.

    The result file has one run for each seed. The paragraph has medians and ranges of the runs.
    """
    result = load(f"{_PROCESSOR}/training")
    runs = result.data["runs"]
    lines_10x10 = [_score_on(run, LEARNED, "10x10")["lines_per_game"] for run in runs]
    lines_10x20 = [_score_on(run, LEARNED, "10x20")["lines_per_game"] for run in runs]
    seconds = [run["training_seconds"] for run in runs]
    # Every run has the same score of the published controller dt20.
    dt20_lines = _score_on(runs[0], "dt20", "10x20")["lines_per_game"]
    median_10x20 = median(lines_10x20)
    words = f"""On {result.hardware} training takes {median(seconds):.0f} s \
(median of {len(runs)} seeds, slowest {max(seconds):.0f} s). The learned controllers clear \
{format_lines(median(lines_10x10))} lines per game on 10x10 (median; all seeds \
{span(min(lines_10x10), max(lines_10x10))}) and an estimated {format_lines(median_10x20)} on \
10x20 (all seeds {span(min(lines_10x20), max(lines_10x20))}), \
{median_10x20 / dt20_lines:.2g} times as many as dt20."""
    return with_provenance(words, result)


def headline() -> str:
    """Return README's first paragraph: what this project is, for whom, and how good.

    It gives the problems of practice that our optimiser solves first, the shares of the
    benchmark's targets that it and two others reach, the score of the learned Tetris player,
    and this score divided by that of dt20, the best published linear player.
    """
    five = find_shares("bbob-few", "d5.200")
    twenty = find_shares("bbob-few", "d20.200")
    wins, problems = count_wins(load_all("practice")[0])
    # The training run with the median score.
    run = median_run(load(f"{_PROCESSOR}/training").data["runs"])
    learned = _score_on(run, LEARNED, "10x20")["lines_per_game"]
    dt20 = _score_on(run, "dt20", "10x20")["lines_per_game"]
    return f"""`cem` is an optimiser in Python, for NumPy and PyTorch: like \
`scipy.optimize.minimize`, but for simulations and experiments that are expensive or have no \
gradient, on CPU and CUDA. It descends by finite differences, then searches by CMA-ES or the \
cross-entropy method (CEM). On {wins} of {problems} practical problems it comes within \
1% of the best known value in fewer evaluations than each of SciPy, pycma and Optuna, given \
values alone; on BBOB's test functions it reaches {five[0]} of the accuracy targets with 1,000 \
evaluations for five parameters (SciPy {five[1]}, pycma {five[2]}), {twenty[0]} with 4,000 for \
twenty (SciPy {twenty[1]}, pycma {twenty[2]}). Its showcase learns to play Tetris in a minute \
on two cores: an estimated {in_words(learned)} lines per game, {learned / dt20:.2g} times \
dt20, the best published linear player."""


def first_run() -> str:
    """Return README's sentences on the time of its first command, without and with a GPU.

    The first run of the command is cold: it compiles the engine before it trains.
    """
    # `load_all` sorts the results by date, those with a GPU last.
    results = load_all("first_run")
    cpu_result = results[0]
    gpu_result = results[-1]
    on_cpu = figures(cpu_result, "first_run.")
    on_gpu = figures(gpu_result, "first_run.")
    return f"""Compiling and training take {on_cpu["cold.seconds"]:.0f} s on \
{cpu_result.hardware}, or {on_gpu["cold.seconds"]:.0f} s on one {gpu_result.hardware}."""


def lee() -> str:
    """Return a sentence with the scores of the controller lee, from its file in the package."""
    provenance = resolve("lee").provenance
    # "pieces_known" is 1 if the player knows only the current piece, and 2 with the next one.
    scores = {(item["pieces_known"], item["board"]): item for item in provenance["score"]}
    one_known = [score_text(scores[1, board]) for board in ("10x10", "10x20")]
    two_known = [score_text(scores[2, board]) for board in ("10x10", "10x20")]
    measured = provenance["measured"]
    return (
        f"It clears {one_known[0]} lines per game on 10x10 and {one_known[1]} on 10x20, and "
        f"with the next piece known {two_known[0]} and {two_known[1]} ({measured['machine']}, "
        f"{measured['commit'][:7]})."
    )
