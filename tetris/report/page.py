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
    """Return the report of a run, or the comparison of several, as HTML.

    Args:
        runs: One run or several.
        live: Whether a server sends the page. Then the page asks it for changes.
        running: Whether the first run is in progress. Then the page shows how far it is.
    """
    run = runs[0]
    names = data.distinct_names(runs)
    charts: dict[str, Any] = {"across": first_axis(runs), "runs": []}
    players = []
    for name, one_run in zip(names, runs, strict=True):
        charts["runs"].append(data.chart_values(one_run, name))
        game = data.recorded_game(one_run)
        lookahead = one_run.recipe.lookahead
        players.append(Markup(player_fragment(game, name, lookahead=lookahead, assets=False)))
    differences, settings = data.settings_tables(runs, names)
    return _template("page.html").render(
        live=live,
        runs=runs,
        run=run,
        recipe=run.recipe,
        names=names,
        several=len(runs) > 1,
        repeated=len(set(map(data.seedless, runs))) < len(runs),  # With different seeds.
        verdict=_verdict(run),
        badge=_badge(run) if running else None,
        tiles=_tiles(run),
        bars=data.weight_bars(run),
        **_scores(runs, names),
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
    """Return the cells of a run in the list of runs.

    If the run cannot be read, its row shows the error, and the other cells are empty.
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
        _verdict(run) or "not scored yet",
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
    """Return the tiles at the top of the page, each with a title, a value and a note.

    They show the learned controller's score on each board, the time and the decisions.
    """
    tiles = []
    last_scores = {  # An estimate comes after a played score, and replaces it.
        score["board"]: score for score in run.scores if score["controller"] == LEARNED
    }
    for board, score in last_scores.items():
        notes = []
        if is_estimate(score):
            notes.append("estimated")
        value = interval_text(score)
        if score["ci95"][1] is not None:  # Without an upper end the interval is the value.
            notes.append(f"95 %: {value}")
            value = format_lines(score["lines_per_game"])
        tiles.append((f"Lines per game, {board}", value, "; ".join(notes) or "no game ended"))
    generations = (
        f"{run.generations:,} of {counted(run.recipe.total_generations, 'generation')}"
    )
    tiles.append(("Training", str(timedelta(seconds=round(run.seconds))), generations))
    speed = format_lines(run.decisions / max(run.seconds, 1e-9))
    tiles.append(("Decisions", format_lines(run.decisions), f"{speed} per second"))
    return tiles


def _scores(runs: Sequence[RunRecord], names: Sequence[str]) -> dict[str, Any]:
    """Return the values of the template that are about scores: tables, and how they were made.

    Runs may share the scores of published controllers, which the tables have once. Scores of
    learned controllers come first.
    """
    labelled: dict[Any, tuple[str, dict[str, Any]]] = {}
    for name, run in zip(names, runs, strict=True):
        for score in run.scores:
            label = score["controller"]
            needs_name = len(runs) > 1 and label == LEARNED
            if needs_name:
                label = name
            settings = [score[key] for key in ("board", "rule", "pieces", "decisions")]
            lookahead = Lookahead.from_dict(score)
            identity = (needs_name, label, is_estimate(score), lookahead, *settings)
            labelled.setdefault(identity, (label, score))
    scored = sorted(labelled.values(), key=lambda row: row[1]["controller"] != LEARNED)
    played = [score for _, score in scored if not is_estimate(score)]
    return {
        "score_tables": data.score_tables(scored),
        "score_method": ESTIMATOR,
        "estimate_method": METHOD,
        "unbounded": any(score["ci95"][1] is None for score in played),
        "estimated": len(played) < len(scored),
        "shipped": next((score["measured"] for score in played if "measured" in score), None),
    }
