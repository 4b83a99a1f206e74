"""The page of a training run, or of several for comparison: an HTML file that needs no network.

Every number comes from the run's folder. In every report the controller plays the same pieces,
those of stream 0 of scores. The page is made from ``page.html``, a Jinja template beside this
file. Its style is ``page.css``. ``chart.js`` and ``page.js`` draw the charts with uPlot, which
is in ``vendor``.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from kernels.support.files import check_own, write_text
from kernels.support.printable import counted, printable
from tetris.evaluation.comparison import LEARNED, game_of, interval_text, is_estimate, verdict
from tetris.evaluation.estimates import METHOD
from tetris.record.numbers import format_lines
from tetris.record.score import ESTIMATOR
from tetris.report import data
from tetris.report.learning_curve import first_axis
from tetris.training.run_folder import RunFolder, RunRecord, load_run
from tetris.view.replay_page import json_script, player_assets, player_fragment, project_link

_FOLDER = Path(__file__).parent


def write_report(path: Path, runs: Sequence[RunRecord]) -> None:
    """Write the report of a run, or the comparison of several, atomically."""
    write_text(path, report_page(runs))


def report_page(runs: Sequence[RunRecord], *, live: bool = False, running: bool = False) -> str:
    """Return the report of a training run, or of several for comparison, as an HTML page.

    Args:
        runs: One run or several.
        live: Whether a server sends the page. Then the page asks the server for changes.
        running: Whether the first run is in progress. Then the page shows its progress.
    """
    runs = data.with_distinct_names(runs)
    first_run = runs[0]
    charts: dict[str, Any] = {"across": first_axis(runs), "runs": []}
    players = []  # An HTML element for each run, which replays a game of its controller.
    for run in runs:
        charts["runs"].append(data.chart_values(run))
        game = data.recorded_game(run)
        players.append(Markup(player_fragment(game, run.name, assets=False)))
    # Runs with the same settings, except for their seed, are repetitions of each other.
    distinct_settings = {data.seedless(run) for run in runs}
    differences, settings = data.settings_tables(runs)
    # The keyword arguments are the variables of the template.
    return _template("page.html").render(
        live=live,
        runs=runs,
        run=first_run,
        recipe=first_run.recipe,
        several=len(runs) > 1,
        repeated=len(distinct_settings) < len(runs),
        verdict=_verdict(first_run),
        comparison=_comparison(runs) if len(runs) > 1 else None,
        badge=_badge(first_run) if running else None,
        notes=[(run.name, _note(run)) for run in runs],
        tiles=_tiles(first_run),
        bars=data.weight_bars(first_run),
        **_score_values(runs),
        players=players,
        weights=data.weight_table(runs),
        cost=data.cost_table(runs),
        differences=differences,
        settings=settings,
        starts=data.start_table(runs),
        charts=Markup(json_script(charts, ' id="report-data"')),
        player_assets=Markup(player_assets()),
        project_link=Markup(project_link()),
    )


def runs_page(folder: Path) -> str:
    """Return an HTML page that lists the runs in a folder, and can compare selected ones."""
    paths = (path for path in folder.iterdir() if os.path.isfile(RunFolder(path).config))
    newest_first = sorted(paths, key=lambda path: -path.stat().st_mtime)
    rows = [(path.name, _list_row(path)) for path in newest_first]
    return _template("runs.html").render(folder=folder, rows=rows)


def _note(run: RunRecord) -> Markup:
    """Return the note of a run as HTML, with its tags in bold letters."""
    words = []
    for word in printable(run.note).split():
        is_tag = word.startswith("#")
        words.append(Markup("<b>{}</b>").format(word) if is_tag else escape(word))
    return Markup(" ").join(words)


def _list_row(path: Path) -> list[str]:
    """Return the eight cells of a row in the list of training runs, for the run in a folder.

    The cells are:

    1. "running", or empty
    2. a verdict on the scores
    3. the preset
    4. the board
    5. the progress in generations
    6. the training time
    7. the date of the first start
    8. the user's note

    If the run cannot be read, the second cell is the error, and the cells after it are empty.
    """
    running = ""
    try:
        check_own(path)  # It raises if the folder is a link.
        running = "running" if RunFolder(path).in_use() else ""
        run = load_run(path)
    except (OSError, ValueError) as error:
        return [running, str(error), "", "", "", "", "", ""]
    # A run is scored after the training, unless its recipe has no decisions for this.
    without_scores = "not scored yet" if run.recipe.score_decisions else "not scored"
    scores = _scores_of_verdict(run)
    verdict_cell = without_scores
    if scores:
        lines = scores[0]["lines_per_game"] or scores[0]["ci95"][0]
        verdict_cell = _sorted_by(lines, verdict(scores))
    generations = f"{run.generations:,} of {run.recipe.total_generations:,}"
    return [
        running,
        verdict_cell,
        run.recipe.preset,
        run.recipe.board,
        _sorted_by(run.generations, generations),
        _sorted_by(run.seconds, str(timedelta(seconds=round(run.seconds)))),
        run.starts[0].get("date", "") if run.starts else "",
        _note(run),
    ]


def _sorted_by(number: float, text: str) -> Markup:
    """Return a text as HTML, with the number by which the list of runs sorts it."""
    return Markup('<data value="{:.3f}">{}</data>').format(number, printable(text))


@cache
def _template(name: str) -> Template:
    """Return a Jinja template that escapes every value and makes it printable."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=_printable_value,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals["file"] = _file_content
    return environment.get_template(name)


def _printable_value(value: object) -> object:
    """Return a value of the template without control characters; `Markup` does not change."""
    return value if isinstance(value, Markup) else printable(value)


def _file_content(name: str) -> Markup:
    """Return the text of a file beside this one, which the template does not escape."""
    return Markup((_FOLDER / name).read_text(encoding="utf-8").rstrip())


def _verdict(run: RunRecord) -> str | None:
    """Return a text that compares the learned controller with the best published one.

    It is about the `_scores_of_verdict`. If there are none, the result is None.
    """
    scores = _scores_of_verdict(run)
    return verdict(scores) if scores else None


def _scores_of_verdict(run: RunRecord) -> list[dict[str, Any]]:
    """Return the scores on the board of a run, that of the learned controller first.

    If the learned controller has no score there, the scores are those on the last board on
    which it has one. If there is no such board, the list is empty.
    """
    boards = list(data.learned_scores(run))
    if not boards:
        return []
    board = run.recipe.board
    if board not in boards:
        board = boards[-1]
    # Sort the scores of the learned controller to the front, because `verdict` compares the
    # first score with the others.
    scores = sorted(run.scores, key=lambda score: score["controller"] != LEARNED)
    return [score for score in scores if score["board"] == board]


def _comparison(runs: Sequence[RunRecord]) -> str:
    """Return a text that lists the runs by their scores in the game of the first run.

    The run with the best score comes first. It is called the best one only if it has rivals,
    and all of them have a mean. Runs with scores of other games are only named.
    """
    recipe = runs[0].recipe
    game = (recipe.board, recipe.rule, recipe.pieces, recipe.lookahead.phrase)
    means = {}  # By the name of the run; None if no game ended.
    texts = {}
    lower_bounds = {}
    others = []
    for run in runs:
        # A run may have two scores of the game: a played one, then an estimate. Use the last.
        for score in run.scores:
            if score["controller"] == LEARNED and game_of(score) == game:
                mean = score["lines_per_game"]
                means[run.name] = mean
                texts[run.name] = interval_text(score) if mean is None else format_lines(mean)
                lower_bounds[run.name], _ = score["ci95"]
        if run.scores and run.name not in means:
            others.append(run.name)
    if not means:
        return "Training runs compared"
    best_first = sorted(means, key=lambda name: -(means[name] or lower_bounds[name]))
    scores = ", ".join(f"{name} {texts[name]}" for name in best_first)
    text = f"Lines per game on {recipe.board}: {scores}"
    if len(means) > 1 and None not in means.values():
        text = f"Best: {best_first[0]}. {text}"
    return f"{text}; another game: {', '.join(others)}" if others else text


def _badge(run: RunRecord) -> str:
    """Return a text with the progress of a run and its remaining training time.

    The remaining time is estimated from the duration of the last generation and the relative
    costs of the generations. After the training the text says what is done instead.
    """
    costs = [stage.cost for _, stage in run.recipe.schedule]  # One per generation.
    last_cost = costs[min(run.generations, len(costs)) - 1]
    last_seconds = run.metrics[-1]["seconds"]
    seconds_left = sum(costs[run.generations :]) / last_cost * last_seconds
    progress = f"running: generation {run.generations:,} of {len(costs):,}"
    if not seconds_left:
        # After the last generation the scores, if any, are played and the pictures are drawn.
        last_work = "scores are played" if run.recipe.score_decisions else "pictures are drawn"
        return f"{progress}: {last_work}"
    return f"{progress}, {timedelta(seconds=round(seconds_left))} left"


def _tiles(run: RunRecord) -> list[tuple[str, str, str]]:
    """Return the tiles at the top of a run's page, as tuples (title, value, note).

    There is a tile for the score of the learned controller on each board, one for the time of
    the training, and one for the number of decisions.
    """
    tiles = []
    for board, score in data.learned_scores(run).items():
        notes = []
        if is_estimate(score):
            notes.append("estimated")
        interval = interval_text(score)
        _, upper_end = score["ci95"]
        if upper_end is None:  # No game ended: only a lower bound is known.
            value = interval
        else:
            value = format_lines(score["lines_per_game"])
            notes.append(f"95 %: {interval}")
        note = "; ".join(notes) or "no game ended"
        tiles.append((f"Lines per game, {board}", value, note))
    all_generations = counted(run.recipe.total_generations, "generation")
    duration = timedelta(seconds=round(run.seconds))
    tiles.append(("Training", str(duration), f"{run.generations:,} of {all_generations}"))
    speed = format_lines(run.decisions / max(run.seconds, 1e-9))
    tiles.append(("Decisions", format_lines(run.decisions), f"{speed} per second"))
    return tiles


def _distinct_scores(runs: Sequence[RunRecord]) -> list[tuple[str, dict[str, Any]]]:
    """Return the scores of several runs without repetitions, as pairs (label, score).

    Every run has scores of its learned controller and, for comparison, scores of published
    controllers, which may be the same in several runs. The label of a score is the name of its
    controller. But if there are several runs, the label of a learned controller is the name of
    its run. The scores of learned controllers come first.
    """
    # A key contains everything that distinguishes a score from the others. If several scores
    # have the same key, only the first is kept.
    labelled_scores: dict[Any, tuple[str, dict[str, Any]]] = {}
    for run in runs:
        for score in run.scores:
            label = score["controller"]
            # This is in the key, because a run may have the name of a published controller.
            is_run_name = len(runs) > 1 and label == LEARNED
            if is_run_name:
                label = run.name
            game = game_of(score)
            key = (is_run_name, label, is_estimate(score), game, score["decisions"])
            labelled_scores.setdefault(key, (label, score))

    # The key is whether a controller is a published one. False comes before True.
    return sorted(labelled_scores.values(), key=lambda pair: pair[1]["controller"] != LEARNED)


def _score_values(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the variables for the part of the page's template that shows the scores.

    Returns:
        score_tables: The tables of scores.
        score_method: The explanation how scores are computed from games that were played.
        estimate_method: The explanation how estimated scores are computed.
        unbounded: Whether some played score has an interval without an upper end.
        estimated: Whether there are estimates.
        shipped: When and where the scores that come with the package were measured; None if no
            score comes with the package.
    """
    labelled_scores = _distinct_scores(runs)
    played = [score for _, score in labelled_scores if not is_estimate(score)]
    upper_ends = [score["ci95"][1] for score in played]  # None: no game ended.
    # All scores that come with the package were measured together.
    measured = [score["measured"] for score in played if "measured" in score]
    return {
        "score_tables": data.score_tables(labelled_scores),
        "score_method": ESTIMATOR,
        "estimate_method": METHOD,
        "unbounded": None in upper_ends,
        "estimated": len(played) < len(labelled_scores),
        "shipped": measured[0] if measured else None,
    }
