"""The report of a training run, and the comparison of several: one HTML file each that needs no network.

Every number comes from the run's folder. The game is the controller's on stream 0 of the pieces of scores,
the same in every report. ``page.html``, a template of Jinja, is the page; its style and charts are
``page.css``, ``chart.js`` and ``page.js``, beside this file; uPlot in ``vendor`` draws the charts.
"""

from __future__ import annotations

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
from tetris.evaluation.comparison import LEARNED, interval_text, is_estimate, verdict
from tetris.evaluation.estimates import METHOD
from tetris.game.policy import Lookahead
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
    """Return the page of `write_report`; ``live``: for a server, which it asks for what has changed.

    ``running``: whether the run goes on, for a page that says how far it is.
    """
    run, names = runs[0], data.distinct_names(runs)
    named = list(zip(names, runs, strict=True))
    charts = {"across": first_axis(runs), "runs": [data.chart_values(each, name) for name, each in named]}
    players = [
        player_fragment(data.recorded_game(each), name, lookahead=each.recipe.lookahead, assets=False)
        for name, each in named
    ]
    differences, settings = data.settings_tables(runs, names)
    return _template("page.html").render(
        live=live,
        runs=runs,
        run=run,
        recipe=run.recipe,
        names=names,
        several=len(runs) > 1,
        repeated=len(set(map(data.seedless, runs))) < len(runs),
        verdict=_verdict(run),
        badge=_badge(run) if running else None,
        tiles=_tiles(run),
        bars=data.weight_bars(run),
        **_scores(named),
        players=list(map(Markup, players)),
        weights=data.weight_table(runs, names),
        cost=data.cost_table(runs, names),
        differences=differences,
        settings=settings,
        starts=data.start_table(runs, names),
        charts=Markup(json_script(charts, ' id="report-data"')),
        player_assets=Markup(player_assets()),
    )


def runs_page(folder: Path) -> str:
    """Return the list of the runs in a folder: a page that sorts them, and compares those that are ticked."""
    paths = (path for path in folder.iterdir() if os.path.isfile(RunFolder(path).config))
    newest_first = sorted(paths, key=lambda path: -path.stat().st_mtime)
    return _template("runs.html").render(
        folder=folder, rows=[(path.name, _row(path)) for path in newest_first]
    )


def _row(path: Path) -> list[str]:
    """What the list says of a run, or why it cannot be read."""
    running = ""
    try:
        check_own(path)
        running = "running" if RunFolder(path).in_use() else ""
        run = load_run(path)
    except (OSError, ValueError) as error:
        return [running, str(error), *[""] * 5]
    state = f"{run.generations:,} of {run.recipe.total_generations:,}"
    started = run.starts[0].get("date", "") if run.starts else ""
    took = str(timedelta(seconds=round(run.seconds)))
    said = _verdict(run) or "not scored yet"
    return [running, said, run.recipe.preset, run.recipe.board, state, took, started]


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals["file"] = lambda name: Markup((_FOLDER / name).read_text(encoding="utf-8").rstrip())
    return environment.get_template(name)


def _verdict(run: RunRecord) -> str | None:
    """The learned controller beside the best published linear one, on its own board if that was measured."""
    scores = sorted(run.scores, key=lambda each: each["controller"] != LEARNED)
    boards = dict.fromkeys(each["board"] for each in scores if each["controller"] == LEARNED)
    on = run.recipe.board if run.recipe.board in boards else next(reversed(boards), None)
    return verdict([each for each in scores if each["board"] == on]) if on else None


def _badge(run: RunRecord) -> str:
    """How far a run that goes on is, and the time that is left if a decision takes what it took last."""
    costs = [stage.cost for _, stage in run.recipe.schedule]
    cost = costs[min(run.generations, len(costs)) - 1]
    seconds = sum(costs[run.generations :]) / cost * run.metrics[-1]["seconds"]
    state = f"running: generation {run.generations:,} of {len(costs):,}"
    return f"{state}, {timedelta(seconds=round(seconds))} left" if seconds else f"{state}: scores are played"


def _tiles(run: RunRecord) -> list[tuple[str, str, str]]:
    """The learned controller's score or estimate on each board, and what training took."""
    tiles, learned = [], [score for score in run.scores if score["controller"] == LEARNED]
    for score in {score["board"]: score for score in learned}.values():
        bounded = score["ci95"][1] is not None
        value = format_lines(score["lines_per_game"]) if bounded else interval_text(score)
        more = ["estimated"] * is_estimate(score) + [f"95 %: {interval_text(score)}"] * bounded
        tiles.append((f"Lines per game, {score['board']}", value, "; ".join(more) or "no game ended"))
    speed = format_lines(run.decisions / max(run.seconds, 1e-9))
    state = f"{run.generations:,} of {counted(run.recipe.total_generations, 'generation')}"
    tiles.append(("Training", str(timedelta(seconds=round(run.seconds))), state))
    tiles.append(("Decisions", format_lines(run.decisions), f"{speed} per second"))
    return tiles


def _scores(runs: Sequence[tuple[str, RunRecord]]) -> dict[str, Any]:
    """The scores of learned controllers, then those of published ones, equal ones once, and what they are."""
    kept: dict[Any, tuple[str, dict[str, Any]]] = {}
    for name, run in runs:
        for score in run.scores:
            named = len(runs) > 1 and score["controller"] == LEARNED
            label = name if named else score["controller"]
            settings = [score[key] for key in ("board", "rule", "pieces", "decisions")]
            what = (named, label, is_estimate(score), Lookahead.from_dict(score), *settings)
            kept.setdefault(what, (label, score))
    scored = sorted(kept.values(), key=lambda each: each[1]["controller"] != LEARNED)
    played = [score for _, score in scored if not is_estimate(score)]
    return {
        "score_tables": data.score_tables(scored),
        "score_method": ESTIMATOR,
        "estimate_method": METHOD,
        "unbounded": any(score["ci95"][1] is None for score in played),
        "estimated": len(played) < len(scored),
        "shipped": next((score["measured"] for score in played if "measured" in score), None),
    }
