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
from tetris.report.html import Markup, details, escaped, json_script, paragraph, section
from tetris.report.tables import (
    cost_table,
    generation_table,
    lines_text,
    score_tables,
    settings_table,
    stage_table,
    start_table,
    weight_table,
)
from tetris.training.run_record import RunRecord
from tetris.view.replay_page import player_assets, player_fragment
from tetris.view.wording import counted

_FOLDER = Path(__file__).parent


def report_page(run: RunRecord, across: str = "generation", *, live: bool = False) -> str:
    """Return the report of a run as a page.

    Args:
        run: The run.
        across: The first x axis of its charts.
        live: Whether the page loads itself again: from the disk now and then, from a server when it changed.
    """
    recipe, names = run.recipe, [run.name]
    scored = [(score["controller"], score) for score in _measured(run)]
    numbers = details("Generation by generation", generation_table(run))
    parts = [
        paragraph(f"Preset {recipe.preset}: {recipe.title}, for {recipe.board} by the {recipe.rule} rule."),
        _tiles([*_best_scores(run), *_costs(run)]),
        section("Learning curve", _axis_choice(), _figure("learning"), name="learning"),
        section("Scores", *_scores(scored), name="scores"),
        section("A game", _game(run, run.name), name="game"),
        section("Weights", _figure("weights"), _figure("spread"), weight_table([run], names), name="weights"),
        section("Throughput", paragraph(_throughput(run)), _figure("speed"), name="throughput"),
        section(
            "Configuration",
            *(stage_table(run), start_table([run], names), settings_table([run], names)),
            name="configuration",
        ),
        section("Numbers", numbers, name="numbers"),
    ]
    return _page(run.name, parts, [run], across, live)


def comparison_page(runs: Sequence[RunRecord], across: str = "decisions", *, live: bool = False) -> str:
    """Return a page that compares at least two runs; see `report_page`."""
    named = list(zip(distinct_names(runs), runs, strict=True))
    names = [name for name, _ in named]
    scored = [
        (name if score["controller"] == LEARNED else score["controller"], score)
        for name, run in named
        for score in _measured(run)
    ]
    numbers = (details(name, generation_table(run)) for name, run in named)
    parts = [
        paragraph(f"{len(runs)} training runs: {', '.join(names)}."),
        section("Learning curves", _axis_choice(), _curve_choice(runs), _figure("curves"), name="learning"),
        section("Scores", *_scores(_without_repetitions(scored)), name="scores"),
        section("Spread of the search", _figure("spread"), name="spread"),
        section("Throughput", cost_table(runs, names), _figure("speed"), name="throughput"),
        section("Configuration", settings_table(runs, names), start_table(runs, names), name="configuration"),
        section("Weights", weight_table(runs, names), name="weights"),
        section("Games", *(_game(run, name) for name, run in named), name="game"),
        section("Numbers", *numbers, name="numbers"),
    ]
    return _page("Training runs compared", parts, runs, across, live)


def page_of(runs: Sequence[RunRecord], across: str = "generation", *, live: bool = False) -> str:
    """Return the report of one run or the comparison of several; see `report_page`."""
    if len(runs) == 1:
        return report_page(runs[0], across, live=live)
    return comparison_page(runs, across, live=live)


def write_report(
    path: Path, runs: Sequence[RunRecord], across: str = "generation", *, live: bool = False
) -> None:
    """Write the report of a run, or the comparison of several, atomically; see `report_page`.

    Raises:
        OSError: If the file cannot be written.
    """
    write_text(path, page_of(runs, across, live=live))


def _page(title: str, parts: Sequence[str], runs: Sequence[RunRecord], across: str, live: bool) -> str:
    style = _read("vendor/uPlot.min.css", "page.css")
    licence, plot = _read("vendor/uPlot.LICENSE.txt"), _read("vendor/uPlot.iife.min.js")
    program = _read("chart.js", "page.js", *(["live.js"] if live else []))
    values = [chart_values(run, name) for name, run in zip(distinct_names(runs), runs, strict=True)]
    data = json_script({"across": across, "runs": values}, "report-data")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{escaped(title)}</h1>
{"".join(parts)}</main>
<noscript><p>Charts and player need JavaScript; the tables hold the same numbers.</p></noscript>
{data}{player_assets()}<script>
/*
{licence}*/
{plot}(() => {{
{program}}})();
</script>
</body>
</html>
"""


def _read(*names: str) -> str:
    return "".join(f"{(_FOLDER / name).read_text(encoding='utf-8').rstrip()}\n" for name in names)


def _tiles(figures: Sequence[tuple[str, str, str]]) -> Markup:
    tiles = "".join(
        f'<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd><dd class="more">{escaped(more)}</dd></div>\n'
        for name, value, more in figures
    )
    return Markup(f'<dl class="tiles">\n{tiles}</dl>\n')


def _best_scores(run: RunRecord) -> list[tuple[str, str, str]]:
    """The learned controller's score on each board, or the estimate where there is one."""
    measured = [*run.scores, *(each for each in run.estimates if each["lines_per_game"] is not None)]
    learned = [score for score in measured if score["controller"] == LEARNED]
    tiles = []
    for score in {score["board"]: score for score in learned}.values():
        (low, high), estimated = score["ci95"], is_estimate(score)
        value = f"> {lines_text(low)}" if high is None else lines_text(score["lines_per_game"])
        interval = f"95 %: {lines_text(low)} – {lines_text(high)}" if high is not None else ""
        more = f"estimated; {interval}".rstrip("; ") if estimated else interval or "no game ended"
        tiles.append((f"Lines a game, {score['board']}", value, more))
    return tiles


def _measured(run: RunRecord) -> list[dict[str, Any]]:
    """All scores, played or estimated, those of the learned controller first."""
    return sorted([*run.scores, *run.estimates], key=lambda score: score["controller"] != LEARNED)


def _costs(run: RunRecord) -> list[tuple[str, str, str]]:
    speed = run.decisions / max(run.seconds, 1e-9)
    state = f"{run.generations:,} of {counted(run.recipe.total_generations, 'generation')}"
    return [
        ("Training", _duration(run.seconds), state),
        ("Decisions", _amount(run.decisions), f"{_amount(speed)} a second"),
    ]


def _scores(scored: Sequence[tuple[str, dict[str, Any]]]) -> list[Markup]:
    if not scored:
        return [paragraph("Nothing was measured yet: a run is scored when its training is over.")]
    played = [score for _, score in scored if not is_estimate(score)]
    told = f"A score is the number of lines removed a game. Games: {ESTIMATOR}."
    if any(score["ci95"][1] is None for score in played):
        told += " Where no game ended there is a lower bound only."
    if len(played) < len(scored):
        told += f" Estimates: {METHOD}."
    shipped = [score["measured"] for score in played if "measured" in score]
    if shipped:
        told += (
            f" Scores of published controllers come with the package, played on one {shipped[0]['machine']} "
            f"on {shipped[0]['date'][:10]} at commit {shipped[0]['commit'][:7]}."
        )
    return [score_tables(scored), paragraph(told)]


def _without_repetitions(scored: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """The scores of several runs: learned ones first, equal scores of published controllers once."""
    kept: dict[Any, tuple[str, dict[str, Any]]] = {}
    for place, (label, score) in enumerate(scored):
        settings = [score[name] for name in ("board", "rule", "pieces", "decisions")]
        what = (label, is_estimate(score), Lookahead.from_dict(score), *settings)
        kept.setdefault(place if score["controller"] == LEARNED else what, (label, score))
    return sorted(kept.values(), key=lambda each: each[1]["controller"] != LEARNED)


def _game(run: RunRecord, name: str) -> str:
    return player_fragment(recorded_game(run), name, assets=False)


def _throughput(run: RunRecord) -> str:
    seconds = max(run.seconds, 1e-9)
    return (
        f"{_amount(run.decisions)} decisions and {_amount(run.lines)} lines in {_duration(run.seconds)}: "
        f"{_amount(run.decisions / seconds)} decisions and {_amount(run.lines / seconds)} lines a second, "
        f"on the engine {run.recipe.device}."
    )


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _amount(value: float) -> str:
    for unit, size in (("billion", 1e9), ("million", 1e6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


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
    told = "median and range of runs that differ only in the seed"
    bands = f'<label><input type="checkbox" name="bands"> {told}</label>'
    repeated = len(set(map(seedless, runs))) < len(runs)
    return Markup(
        f'<p class="choice"><label>Curve <select name="curve">{options}</select></label>'
        f"{bands if repeated else ''}</p>\n"
    )
