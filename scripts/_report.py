"""The report of a training run, and the comparison of several: one HTML file each that needs no network.

Every number comes from the run's folder; the game is what its controller plays on stream 0 of the pieces on
which scores are measured, so that it is the same whenever a report is made. Look and charts are
``_report.css``, ``_report_chart.js`` and ``_report.js``, beside this file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from _html import Markup, details, escaped, json_script, paragraph, section
from _report_tables import (
    LEARNED,
    generation_table,
    lines_text,
    score_tables,
    settings_table,
    stage_table,
    weight_table,
)
from _run_record import RunRecord, stages_of
from _scoring import DEFAULT_SEED

from tetris.files import write_text
from tetris.judgement import decisions
from tetris.player import player_assets, player_fragment
from tetris.replay import Replay
from tetris.score import ESTIMATOR
from tetris.stream import PieceStream

GAME_DECISIONS = 400
"""Placements of the game that a report holds: under a second of play in Python, half a kilobyte."""

MOST_POINTS = 500
"""Generations that charts and tables show at most; of longer runs every second, third, ... is shown."""

_FOLDER = Path(__file__).parent
_DIGITS = 5


def shown_places(run: RunRecord) -> list[int]:
    """Return the places of the generations to show: at most `MOST_POINTS` steps apart alike, and the last."""
    last = run.generations - 1
    step = math.ceil(run.generations / MOST_POINTS)
    return [*range(0, last, step), last]


def chart_values(run: RunRecord, name: str) -> dict[str, Any]:
    """Return what the charts draw of a run: lists with a value a generation, null where there is none.

    Args:
        run: The run.
        name: What to call it.
    """
    places = shown_places(run)
    metrics = [run.metrics[place] for place in places]
    made = list(itertools.accumulate(record["decisions"] for record in run.metrics))
    values: dict[str, Any] = {
        "name": name,
        "stages": [{"board": on, "first": first} for on, first, _ in stages_of(run.metrics)],
        "generation": [record["generation"] for record in metrics],
        "decisions": [made[place] for place in places],
        "seconds": [_short(record["elapsed_s"]) for record in metrics],
        "speed": [_short(record["decisions"] / max(record["seconds"], 1e-9)) for record in metrics],
        "features": list(run.feature_names),
    }
    for key in ("generation_best", "elite_mean", "elite_worst", "mean_fitness", "std_mean"):
        values[key] = [_short(record.get(key)) for record in metrics]
    for key in ("mean", "std"):
        values[key] = [
            [_short(record[key][feature]) if key in record else None for record in metrics]
            for feature in range(len(run.feature_names))
        ]
    return values


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def recorded_game(run: RunRecord) -> Replay:
    """Play the game of a report: `GAME_DECISIONS` placements on the board that the controller is for."""
    rules = run.recipe.rules
    played = decisions(run.controller, rules, PieceStream(rules, DEFAULT_SEED, 0))
    return Replay.of(islice(played, GAME_DECISIONS), rules, DEFAULT_SEED, 0, run.controller)


def report_page(run: RunRecord) -> str:
    """Return the report of a run as a page."""
    state = f"{run.generations} of {run.recipe.total_generations} generations"
    parts = [
        paragraph(f"Preset {run.recipe.preset}: {run.title}, for {run.recipe.board} by the {run.recipe.rule} rule."),
        _tiles([*_best_scores(run), *_costs(run, state)]),
        section("Learning curve", _axis_choice(), _learning_figure(), name="learning"),
        section("Scores", *_scores([(_label(score, LEARNED), score) for score in run.scores]), name="scores"),
        section("A game", _game(run, run.name), name="game"),
        section("Weights", *_weights(run), name="weights"),
        section("Throughput", paragraph(_throughput(run)), _figure("speed"), name="throughput"),
        section("Configuration", stage_table(run), settings_table([run], [run.name]), name="configuration"),
        section(
            "Numbers",
            details("All that the charts show", generation_table(run, shown_places(run))),
            name="numbers",
        ),
    ]
    return _page(run.name, parts, [chart_values(run, run.name)], "generation")


def comparison_page(runs: Sequence[RunRecord]) -> str:
    """Return a page that sets at least two runs side by side."""
    names = distinct_names(runs)
    scored = [
        (_label(score, name), score)
        for name, run in zip(names, runs, strict=True)
        for score in run.scores
    ]
    parts = [
        paragraph(f"{len(runs)} training runs: {', '.join(names)}."),
        section("Learning curves", _axis_choice(), _curve_choice(), _figure("curves"), name="learning"),
        section("Scores", *_scores(_without_repetitions(scored)), name="scores"),
        section("Spread of the search", _figure("spread"), name="spread"),
        section("Throughput", *_throughputs(runs, names), _figure("speed"), name="throughput"),
        section("Configuration", settings_table(runs, names), name="configuration"),
        section("Weights", weight_table(runs, names), name="weights"),
        section("Games", *(_game(run, name) for name, run in zip(names, runs, strict=True)), name="game"),
        section(
            "Numbers",
            *(
                details(name, generation_table(run, shown_places(run)))
                for name, run in zip(names, runs, strict=True)
            ),
            name="numbers",
        ),
    ]
    values = [chart_values(run, name) for name, run in zip(names, runs, strict=True)]
    return _page("Training runs compared", parts, values, "decisions")


def distinct_names(runs: Sequence[RunRecord]) -> list[str]:
    """Return the names of runs, numbered where they would be the same."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]


def write_report(path: Path, runs: Sequence[RunRecord]) -> None:
    """Write the report of a run, or the comparison of several, whole or not at all.

    Raises:
        OSError: If the file cannot be written.
    """
    write_text(path, report_page(runs[0]) if len(runs) == 1 else comparison_page(runs))


def _page(title: str, parts: Sequence[str], runs: Sequence[dict[str, Any]], across: str) -> str:
    style, *program = (
        (_FOLDER / name).read_text(encoding="utf-8")
        for name in ("_report.css", "_report_chart.js", "_report.js")
    )
    data = json_script({"across": across, "runs": list(runs)}, "report-data")
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
(() => {{
{"".join(program)}}})();
</script>
</body>
</html>
"""


def _tiles(figures: Sequence[tuple[str, str, str]]) -> Markup:
    tiles = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd><dd class=\"more\">{escaped(more)}</dd></div>\n"
        for name, value, more in figures
    )
    return Markup(f'<dl class="tiles">\n{tiles}</dl>\n')


def _best_scores(run: RunRecord) -> list[tuple[str, str, str]]:
    tiles = []
    for score in run.scores:
        if score["controller"] != LEARNED:
            continue
        low, high = score["ci95"]
        value = f"> {lines_text(low)}" if high is None else lines_text(score["lines_per_game"])
        more = "no game ended" if high is None else f"95 %: {lines_text(low)} – {lines_text(high)}"
        tiles.append((f"Lines a game, {score['board']}", value, more))
    return tiles


def _costs(run: RunRecord, state: str) -> list[tuple[str, str, str]]:
    speed = run.decisions / max(run.seconds, 1e-9)
    return [
        ("Training", _duration(run.seconds), state),
        ("Decisions", _amount(run.decisions), f"{_amount(speed)} a second"),
    ]


def _scores(scored: Sequence[tuple[str, dict[str, Any]]]) -> list[Markup]:
    if not scored:
        return [paragraph("Nothing was measured yet: a run is scored when its training is over.")]
    told = f"Lines removed a game, by {ESTIMATOR}. All controllers of a table met the same pieces."
    if any(score["ci95"][1] is None for _, score in scored):
        told += " Where no game ended there is a lower bound only."
    return [score_tables(scored), paragraph(told)]


def _label(score: dict[str, Any], learned: str) -> str:
    return learned if score["controller"] == LEARNED else str(score["controller"])


def _without_repetitions(scored: Sequence[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Runs measure the published controllers alike: each measurement is shown once, learned ones first."""
    kept: dict[Any, tuple[str, dict[str, Any]]] = {}
    for place, (label, score) in enumerate(scored):
        learned = score["controller"] == LEARNED
        what = place if learned else (label, score["board"], score["rule"], score["pieces"])
        kept.setdefault(what if learned else (*what, score["decisions"]), (label, score))
    return sorted(kept.values(), key=lambda each: each[1]["controller"] != LEARNED)


def _game(run: RunRecord, name: str) -> str:
    return player_fragment(recorded_game(run), name, assets=False)


def _weights(run: RunRecord) -> list[str]:
    spread = [_figure("spread"), weight_table([run], [run.name])]
    if not any("mean" in record for record in run.metrics):
        return [paragraph("This run recorded no weights on its way, only how far they spread."), *spread]
    return [_figure("weights"), *spread]


def _throughput(run: RunRecord) -> str:
    lines = sum(record["lines"] for record in run.metrics)
    seconds = max(run.seconds, 1e-9)
    return (
        f"{_amount(run.decisions)} decisions and {_amount(lines)} lines in {_duration(run.seconds)}: "
        f"{_amount(run.decisions / seconds)} decisions and {_amount(lines / seconds)} lines a second, "
        f"on the engine {run.recipe.device}."
    )


def _throughputs(runs: Sequence[RunRecord], names: Sequence[str]) -> list[Markup]:
    return [paragraph(f"{name}: {_throughput(run)}") for name, run in zip(names, runs, strict=True)]


def _duration(seconds: float) -> str:
    if seconds < 120:
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


def _learning_figure() -> Markup:
    return _figure("learning")


def _axis_choice() -> Markup:
    choices = (("generation", "generations"), ("decisions", "decisions"), ("seconds", "wall time"))
    inputs = "".join(
        f'<label><input type="radio" name="across" value="{value}"> {text}</label>\n' for value, text in choices
    )
    return Markup(f'<fieldset class="choice"><legend>All charts across</legend>\n{inputs}</fieldset>\n')


def _curve_choice() -> Markup:
    choices = (
        ("elite_mean", "mean of the elites"),
        ("mean_fitness", "mean of the distribution"),
        ("generation_best", "best candidate"),
    )
    options = "".join(f'<option value="{value}">{text}</option>' for value, text in choices)
    return Markup(f'<p class="choice"><label>Curve <select name="curve">{options}</select></label></p>\n')
