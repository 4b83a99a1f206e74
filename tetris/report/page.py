"""The report of a training run, and the comparison of several: one HTML file each that needs no network.

Every number comes from the run's folder. The game is the controller's on stream 0 of the pieces of scores,
the same in every report. Style and charts are ``page.css``, ``chart.js`` and ``page.js``, beside this
file; uPlot in ``vendor`` draws the charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels.support.files import write_text
from tetris.evaluation.comparison import LEARNED
from tetris.evaluation.estimates import METHOD
from tetris.evaluation.text_table import is_estimate
from tetris.game.policy import Lookahead
from tetris.record.score import ESTIMATOR
from tetris.report.data import chart_values, distinct_names, recorded_game, seedless
from tetris.report.html import Markup, details, escaped, paragraph, section
from tetris.report.tables import (
    cost_table,
    generation_table,
    interval_text,
    lines_text,
    score_tables,
    settings_table,
    stage_table,
    start_table,
    weight_table,
)
from tetris.training.run_record import RunRecord
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
    players = [player_fragment(recorded_game(each), name, assets=False) for name, each in named]
    games = section("Games" if several else "A game", *players, name="game")
    if several:
        title = "Training runs compared"
        about = [paragraph(f"{len(runs)} training runs: {', '.join(names)}.")]
        curves = [_curve_choice(runs), _figure("curves")]
    else:
        title, recipe = run.name, run.recipe
        what = f"Preset {recipe.preset}: {recipe.title}, for {recipe.board} by the {recipe.rule} rule."
        about = [paragraph(what), _tiles(run)]
        curves = [_figure("learning")]
    weights = [*([] if several else [_figure("weights")]), _figure("spread"), weight_table(runs, names)]
    stages = [] if several else [stage_table(run)]
    settings = [*stages, settings_table(runs, names), start_table(runs, names)]
    numbers = [details(name, generation_table(each)) for name, each in named]
    parts = [
        *about,
        section("Learning curve", _axis_choice(), *curves, name="learning"),
        section("Scores", *_scores(named), name="scores"),
        *([] if several else [games]),
        section("Weights", *weights, name="weights"),
        section("Throughput", cost_table(runs, names), _figure("speed"), name="throughput"),
        section("Configuration", *settings, name="configuration"),
        *([games] if several else []),
        section("Numbers, generation by generation", *numbers, name="numbers"),
    ]
    values = [chart_values(each, name) for name, each in named]
    data = json_script({"across": across, "runs": values}, ' id="report-data"')
    program = _read("chart.js", "page.js", *(["live.js"] if live else []))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(title)}</title>
<style>
{_read("vendor/uPlot.min.css", "page.css")}</style>
</head>
<body>
<main>
<h1>{escaped(title)}</h1>
{"".join(parts)}</main>
<noscript><p>Charts and player need JavaScript; the tables hold the same numbers.</p></noscript>
{data}
{player_assets()}<script>
/*
{_read("vendor/uPlot.LICENSE.txt")}*/
{_read("vendor/uPlot.iife.min.js")}(() => {{
{program}}})();
</script>
</body>
</html>
"""


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


def _scores(runs: Sequence[tuple[str, RunRecord]]) -> list[Markup]:
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
        return [paragraph("Nothing was measured yet: a run is scored when its training is over.")]
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
    return [score_tables(scored), paragraph(said)]


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _figure(chart: str) -> Markup:
    return Markup(f'<figure data-chart="{chart}"></figure>\n')


def _axis_choice() -> Markup:
    choices = (("generation", "generations"), ("decisions", "decisions"), ("seconds", "wall time"))
    inputs = "".join(
        f'<label><input type="radio" name="across" value="{value}"> {text}</label>\n'
        for value, text in choices
    )
    hint = (
        "Point at or tap a chart, or use the arrow keys where it has the focus, to read its values. "
        "Drag across a part to zoom in, double-click or double-tap to see the whole run."
    )
    return Markup(
        f'<fieldset class="choice"><legend>All charts across</legend>\n{inputs}</fieldset>\n'
        f'<p class="hint">{hint}</p>\n'
    )


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
