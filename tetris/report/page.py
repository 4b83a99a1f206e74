"""The report of a training run, and the comparison of several: one HTML file each that needs no network.

Every number comes from the run's folder. The game is the controller's on stream 0 of the pieces of scores,
the same in every report. ``page.html`` is the order of the page; style and charts are ``page.css``,
``chart.js`` and ``page.js``, beside this file; uPlot in ``vendor`` draws the charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from kernels.support.files import write_text
from tetris.evaluation.comparison import LEARNED, is_estimate
from tetris.evaluation.estimates import METHOD
from tetris.game.policy import Lookahead
from tetris.record.score import ESTIMATOR
from tetris.report.data import chart_values, distinct_names, recorded_game, seedless
from tetris.report.tables import (
    Markup,
    cost_table,
    details,
    escaped,
    generation_table,
    interval_text,
    lines_text,
    paragraph,
    score_tables,
    settings_table,
    stage_table,
    start_table,
    weight_table,
)
from tetris.training.run_folder import RunRecord
from tetris.view.replay_page import json_script, player_assets, player_fragment
from tetris.view.wording import counted

_FOLDER = Path(__file__).parent


def write_report(
    path: Path, runs: Sequence[RunRecord], across: str = "generation", *, live: bool = False
) -> None:
    """Write the report of a run, or the comparison of several, atomically.

    Args:
        path: The file. OSError if it cannot be written.
        runs: The runs, at least one.
        across: The first x axis of the charts.
        live: Whether the page loads itself again: from the disk now and then, from a server when it changed.
    """
    write_text(path, report_page(runs, across, live=live))


def report_page(runs: Sequence[RunRecord], across: str = "generation", *, live: bool = False) -> str:
    """Return the page of `write_report`."""
    names = distinct_names(runs)
    run, several = runs[0], len(runs) > 1
    named = list(zip(names, runs, strict=True))
    players = "".join(player_fragment(recorded_game(each), name, assets=False) for name, each in named)
    game = f'<section id="game">\n<h2>{"Games" if several else "A game"}</h2>\n{players}</section>\n'
    title, recipe = run.name, run.recipe
    what = f"Preset {recipe.preset}: {recipe.title}, for {recipe.board} by the {recipe.rule} rule."
    about, curves = paragraph(what) + _tiles(run), str(_figure("learning"))
    if several:
        title = "Training runs compared"
        about = paragraph(f"{len(runs)} training runs: {', '.join(names)}.")
        curves = _curve_choice(runs) + _figure("curves")
    values = [chart_values(each, name) for name, each in named]
    return Template(_read("page.html")).substitute(
        title=escaped(title),
        style=_read("vendor/uPlot.min.css", "page.css"),
        about=about,
        curves=curves,
        scores=_scores(named),
        game="" if several else game,
        weights=("" if several else _figure("weights")) + _figure("spread") + weight_table(runs, names),
        throughput=cost_table(runs, names),
        configuration=("" if several else stage_table(run))
        + settings_table(runs, names)
        + start_table(runs, names),
        games=game if several else "",
        numbers="".join(details(name, generation_table(each)) for name, each in named),
        data=json_script({"across": across, "runs": values}, ' id="report-data"'),
        player=player_assets(),
        license=_read("vendor/uPlot.LICENSE.txt"),
        uplot=_read("vendor/uPlot.iife.min.js"),
        program=_read("chart.js", "page.js", *(["live.js"] if live else [])),
    )


def _read(*names: str) -> str:
    return "".join(f"{(_FOLDER / name).read_text(encoding='utf-8').rstrip()}\n" for name in names)


def _tiles(run: RunRecord) -> Markup:
    """The learned controller's score or estimate on each board, and what training took."""
    measured = [*run.scores, *(each for each in run.estimates if each["lines_per_game"] is not None)]
    learned = [score for score in measured if score["controller"] == LEARNED]
    figures = []
    for score in {score["board"]: score for score in learned}.values():
        bounded = score["ci95"][1] is not None
        value = lines_text(score["lines_per_game"]) if bounded else interval_text(score)
        more = ["estimated"] * is_estimate(score) + [f"95 %: {interval_text(score)}"] * bounded
        figures.append((f"Lines a game, {score['board']}", value, "; ".join(more) or "no game ended"))
    speed = lines_text(run.decisions / max(run.seconds, 1e-9))
    state = f"{run.generations:,} of {counted(run.recipe.total_generations, 'generation')}"
    figures.append(("Training", _duration(run.seconds), state))
    figures.append(("Decisions", lines_text(run.decisions), f"{speed} a second"))
    tiles = "".join(
        f'<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd><dd class="more">{escaped(more)}</dd></div>\n'
        for name, value, more in figures
    )
    return Markup(f'<dl class="tiles">\n{tiles}</dl>\n')


def _scores(runs: Sequence[tuple[str, RunRecord]]) -> str:
    """The scores of learned controllers, then those of published ones, equal ones once."""
    kept: dict[Any, tuple[str, dict[str, Any]]] = {}
    for name, run in runs:
        for score in [*run.scores, *run.estimates]:
            named = len(runs) > 1 and score["controller"] == LEARNED
            label = name if named else score["controller"]
            settings = [score[key] for key in ("board", "rule", "pieces", "decisions")]
            what = (named, label, is_estimate(score), Lookahead.from_dict(score), *settings)
            kept.setdefault(what, (label, score))
    if not kept:
        return paragraph("Nothing was measured yet: a run is scored when its training is over.")
    scored = sorted(kept.values(), key=lambda each: each[1]["controller"] != LEARNED)
    played = [score for _, score in scored if not is_estimate(score)]
    said = f"A score is the number of lines removed a game. Games: {ESTIMATOR}."
    if any(score["ci95"][1] is None for score in played):
        said += " Where no game ended there is a lower bound only."
    if len(played) < len(scored):
        said += f" Estimates: {METHOD}."
    shipped = [score["measured"] for score in played if "measured" in score]
    if shipped:
        said += (
            f" Scores of published controllers come with the package, played on one {shipped[0]['machine']} "
            f"on {shipped[0]['date'][:10]} at commit {shipped[0]['commit'][:7]}."
        )
    return score_tables(scored) + paragraph(said)


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _figure(chart: str) -> Markup:
    return Markup(f'<figure data-chart="{chart}"></figure>\n')


def _curve_choice(runs: Sequence[RunRecord]) -> Markup:
    choices = (
        ("elite_mean", "mean of the elites"),
        ("learned_mean_fitness", "learned mean"),
        ("generation_best", "best candidate"),
    )
    options = "".join(f'<option value="{value}">{text}</option>' for value, text in choices)
    said = "median and range of runs that differ only in the seed"
    bands = f'<label><input type="checkbox" name="bands"> {said}</label>'
    repeated = len(set(map(seedless, runs))) < len(runs)
    return Markup(
        f'<p class="choice"><label>Curve <select name="curve">{options}</select></label>'
        f"{bands if repeated else ''}</p>\n"
    )
