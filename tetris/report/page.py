"""The page of a training run, or of several for comparison: an HTML file that needs no network.

Every number comes from the run's folder. In every report the controller plays the same pieces,
those of stream 0 of scores. The page is ``page.html``, a template of Jinja, beside this file;
its style and charts are ``page.css``, ``chart.js`` and ``page.js``; uPlot in ``vendor`` draws
the charts.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from kernels.support.files import check_own, write_text
from kernels.support.printable import counted, printable
from tetris import Lookahead
from tetris.evaluation.comparison import LEARNED, interval_text, is_estimate, verdict
from tetris.evaluation.estimates import METHOD
from tetris.record.numbers import format_lines
from tetris.record.score import ESTIMATOR
from tetris.report import data
from tetris.report.learning_curve import first_axis
from tetris.training.run_folder import RunFolder, RunRecord, load_run
from tetris.view.replay_page import json_script, player_assets, player_fragment

_FOLDER = Path(__file__).parent


def write_report(path: Path, runs: Sequence[RunRecord]) -> None:
    """Write the report of a run, or the comparison of several, atomically."""
    write_text(path, report_page(runs))


def report_page(runs: Sequence[RunRecord], *, live: bool = False, running: bool = False) -> str:
    """Return the report of a training run, or of several for comparison, as an HTML page.

    Args:
        runs: One run or several.
        live: Whether a server sends the page. Then the page asks it for changes.
        running: Whether the first run is in progress. Then the page shows how far it is.
    """
    first_run = runs[0]
    names = data.distinct_names(runs)
    charts: dict[str, Any] = {"across": first_axis(runs), "runs": []}
    players = []  # HTML elements, which replay a game of the controller of each run.
    for name, run in zip(names, runs, strict=True):
        charts["runs"].append(data.chart_values(run, name))
        game = data.recorded_game(run)
        player = player_fragment(game, name, lookahead=run.recipe.lookahead, assets=False)
        players.append(Markup(player))
    # Runs with the same settings except for the seed repeat each other.
    distinct_settings = {data.seedless(run) for run in runs}
    differences, settings = data.settings_tables(runs, names)
    # The names of the arguments are the variables of the template.
    return _template("page.html").render(
        live=live,
        runs=runs,
        run=first_run,
        recipe=first_run.recipe,
        names=names,
        several=len(runs) > 1,
        repeated=len(distinct_settings) < len(runs),
        verdict=_verdict(first_run),
        comparison=_comparison(runs, names) if len(runs) > 1 else None,
        badge=_badge(first_run) if running else None,
        tiles=_tiles(first_run),
        bars=data.weight_bars(first_run),
        **_score_values(runs, names),
        players=players,
        weights=data.weight_table(runs, names),
        cost=data.cost_table(runs, names),
        differences=differences,
        settings=settings,
        starts=data.start_table(runs, names),
        charts=Markup(json_script(charts, ' id="report-data"')),
        player_assets=Markup(player_assets()),
    )


def runs_page(folder: Path) -> str:
    """Return a page, as HTML, that lists the runs in a folder, and compares the ticked ones."""
    paths = (path for path in folder.iterdir() if os.path.isfile(RunFolder(path).config))
    newest_first = sorted(paths, key=lambda path: -path.stat().st_mtime)
    rows = [(path.name, _list_row(path)) for path in newest_first]
    return _template("runs.html").render(folder=folder, rows=rows)


def _list_row(path: Path) -> list[str]:
    """Return the cells of a row in the list of training runs, for the run in a folder.

    The cells are whether it is running, a verdict on its scores, its preset and board, its
    progress, its training time and the date of its first start. If the run cannot be read, the
    second cell is the error, and the cells after it are empty.
    """
    running = ""
    try:
        check_own(path)
        running = "running" if RunFolder(path).in_use() else ""
        run = load_run(path)
    except (OSError, ValueError) as error:
        return [running, str(error), *[""] * 5]
    return [
        running,
        _verdict(run) or ("not scored yet" if run.recipe.score_decisions else "not scored"),
        run.recipe.preset,
        run.recipe.board,
        f"{run.generations:,} of {run.recipe.total_generations:,}",
        str(timedelta(seconds=round(run.seconds))),
        run.starts[0].get("date", "") if run.starts else "",
    ]


@cache
def _template(name: str) -> Template:
    """Return a template of Jinja, in which every value is escaped and made printable."""
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
    return value if isinstance(value, Markup) else printable(value)


def _file_content(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text(encoding="utf-8").rstrip())


def _verdict(run: RunRecord) -> str | None:
    """Return a text that compares the learned controller with the best published one.

    It is about the board of the run, or about the last board with a score if the run's board
    has none. It is None if no board has a score.
    """
    scores = sorted(run.scores, key=lambda score: score["controller"] != LEARNED)
    learned = (score["board"] for score in scores if score["controller"] == LEARNED)
    boards = list(dict.fromkeys(learned))
    if not boards:
        return None
    board = run.recipe.board if run.recipe.board in boards else boards[-1]
    return verdict([score for score in scores if score["board"] == board])


def _comparison(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """Return a text with the scores of runs on the board of the first one, the best first."""
    board = runs[0].recipe.board
    lines = {}
    for name, run in zip(names, runs, strict=True):
        for score in run.scores:
            if (score["controller"], score["board"]) == (LEARNED, board):
                lines[name] = score["lines_per_game"] or score["ci95"][0]
    if not lines:
        return "Training runs compared"
    best_first = sorted(lines, key=lambda name: -lines[name])
    scores = ", ".join(f"{name} {format_lines(lines[name])}" for name in best_first)
    return f"Best: {best_first[0]}. Lines per game on {board}: {scores}"


def _badge(run: RunRecord) -> str:
    """Return a text that says how far a run is, and how much time is left.

    The time is estimated from the last generation and the relative costs of all generations.
    """
    costs = [stage.cost for _, stage in run.recipe.schedule]
    last_cost = costs[min(run.generations, len(costs)) - 1]
    seconds_left = sum(costs[run.generations :]) / last_cost * run.metrics[-1]["seconds"]
    progress = f"running: generation {run.generations:,} of {len(costs):,}"
    if not seconds_left:
        return f"{progress}: scores are played"
    return f"{progress}, {timedelta(seconds=round(seconds_left))} left"


def _tiles(run: RunRecord) -> list[tuple[str, str, str]]:
    """Return the tiles at the top of a run's page, each with a title, a value and a note.

    There is a tile for the score of the learned controller on each board, one for the time of
    the training, and one for the number of decisions.
    """
    # A board can have two scores, one of games that were played and after it an estimate. The
    # later one replaces the earlier one.
    last_scores = {
        score["board"]: score for score in run.scores if score["controller"] == LEARNED
    }
    tiles = []
    for board, score in last_scores.items():
        notes = []
        if is_estimate(score):
            notes.append("estimated")
        interval = interval_text(score)
        _, upper_end = score["ci95"]
        if upper_end is None:  # Too few games ended: only a lower bound is known.
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


def _distinct_scores(
    runs: Sequence[RunRecord], names: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the scores of runs with the labels of their controllers, without repetitions.

    Every run has the scores of its own learned controller, and of published ones for
    comparison, which may be the same in several runs. Learned controllers come first. If there
    are several runs, their labels are the names of the runs.
    """
    scores: dict[Any, tuple[str, dict[str, Any]]] = {}  # By what makes a score different.
    for name, run in zip(names, runs, strict=True):
        for score in run.scores:
            label = score["controller"]
            needs_name = len(runs) > 1 and label == LEARNED
            if needs_name:
                label = name
            settings = [score[key] for key in ("board", "rule", "pieces", "decisions")]
            lookahead = Lookahead.from_dict(score)
            identity = (needs_name, label, is_estimate(score), lookahead, *settings)
            scores.setdefault(identity, (label, score))
    return sorted(scores.values(), key=lambda row: row[1]["controller"] != LEARNED)


def _score_values(runs: Sequence[RunRecord], names: Sequence[str]) -> dict[str, Any]:
    """Return the variables of the page's template that are about scores.

    They are the tables of scores, how played scores and estimates are made, whether some score
    has no upper end of its interval, whether there are estimates, and when and where the scores
    that the package ships with were measured.
    """
    scored = _distinct_scores(runs, names)
    played = [score for _, score in scored if not is_estimate(score)]
    # Shipped scores were all measured together.
    measured = [score["measured"] for score in played if "measured" in score]
    return {
        "score_tables": data.score_tables(scored),
        "score_method": ESTIMATOR,
        "estimate_method": METHOD,
        "unbounded": any(score["ci95"][1] is None for score in played),
        "estimated": len(played) < len(scored),
        "shipped": measured[0] if measured else None,
    }
