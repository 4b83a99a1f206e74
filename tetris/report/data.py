"""The data of a report: the values of its charts, the rows of its tables, its game."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any, NamedTuple

from markupsafe import Markup

from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.comparison import (
    BEST_PUBLISHED,
    LEARNED,
    PUBLISHED_SCORES,
    Score,
    counted,
    interval_text,
    published_score,
)
from tetris.game.decisions import play
from tetris.game.piece_stream import PieceStream
from tetris.game.policy import Lookahead
from tetris.record.numbers import format_lines
from tetris.record.replay import Replay
from tetris.training.run_folder import RunRecord, board, stages_of

GAME_DECISIONS = 300
"""Placements of the game of a report: with `dt` a third of a second in Python."""

_CURVES = ("generation_best", "elite_mean", "elite_threshold", "learned_mean_fitness", "std_mean")


def chart_values(run: RunRecord, name: str) -> dict[str, Any]:
    """Return the series of the charts of a run: a value per generation, null where there is none."""
    metrics = run.metrics
    values: dict[str, Any] = {
        "name": name,
        "group": seedless(run),
        "stages": [
            {"board": on, "place": first - metrics[0]["generation"], "dt20": _short(dt20_score(run, on))}
            for on, first, _ in stages_of(run.metrics)
        ],
        "board": [board(record) for record in metrics],
        "generation": [record["generation"] for record in metrics],
        "decisions": list(itertools.accumulate(record["decisions"] for record in metrics)),
        "seconds": [_short(record["elapsed_s"]) for record in metrics],
        "speed": [_short(record["decisions"] / max(record["seconds"], 1e-9)) for record in metrics],
    }
    values |= {key: [_short(record[key]) for record in metrics] for key in _CURVES}
    return values


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def recorded_game(run: RunRecord) -> Replay:
    """Play the game of a report: `GAME_DECISIONS` placements on the board of the controller."""
    rules, player = run.recipe.rules, run.controller.player(run.recipe.rules, run.recipe.lookahead)
    played = islice(play(PieceStream(rules, DEFAULT_SEED, 0), player, rules), GAME_DECISIONS)
    return Replay.of(played, rules, DEFAULT_SEED, 0, run.controller)


def seedless(run: RunRecord) -> str:
    """Return the settings of a run but for its seed, equal for runs that differ in the seed alone."""
    return " ".join(f"{name}={value}" for name, value in run.recipe.to_dict().items() if name != "seed")


def distinct_names(runs: Sequence[RunRecord]) -> list[str]:
    """Return the names of runs; equal names are numbered."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]


def dt20_score(run: RunRecord, on: str) -> float | None:
    """Return the lines per game of dt20 on a board, by the rules of the run."""
    width, height = map(int, on.split("x"))
    known = published_score(BEST_PUBLISHED, replace(run.recipe.rules, width=width, height=height))
    return known["lines_per_game"] if known else None


def weight_bars(run: RunRecord) -> list[tuple[str, str, list[float]]]:
    """Return features by the size of their weights: name, weight, and where bar and whisker are.

    These are in percent of the width, 0 in its middle: left and width of the bar, left and width of the
    whisker, a standard deviation of the last generation to both sides.
    """
    found = zip(run.feature_names, run.controller.weights, run.metrics[-1]["std"], strict=True)
    by_size = sorted(found, key=lambda each: -abs(each[1]))
    unit = 50 / (max(abs(weight) for _, weight, _ in by_size) or 1.0)
    return [
        (
            name,
            f"{weight:+.3f}",
            [50 + unit * min(weight, 0.0), unit * abs(weight), 50 + unit * (weight - std), 2 * unit * std],
        )
        for name, weight, std in by_size
    ]


class Table(NamedTuple):
    """A table of the page, whose cells it escapes but for `Markup`; the first cell of a row is its header."""

    label: str
    header: Sequence[object]
    rows: Sequence[Sequence[object]]
    titled: bool = False
    """Whether the label stands above."""


def score_tables(scored: Sequence[tuple[str, Score]]) -> list[Table]:
    """Return a table for each board: labels and scores with intervals, in numbers and as pictures."""
    kinds: dict[tuple[str, str, str, str], list[tuple[str, Score]]] = {}
    for label, score in scored:
        kind = (score["board"], score["rule"], score["pieces"], Lookahead.from_dict(score).phrase)
        kinds.setdefault(kind, []).append((label, score))
    return [_score_table(*kind, rows) for kind, rows in kinds.items()]


def _score_table(on: str, rule: str, pieces: str, more: str, scored: Sequence[tuple[str, Score]]) -> Table:
    papers = {}
    if (rule, pieces, more) == ("published", "uniform", ""):
        papers = {name: str(figures[on]) for name, figures in PUBLISHED_SCORES.items() if on in figures}
    header = ["controller", "lines per game", "95 % interval", "from", "decisions"]
    header += ["literature, about"] * bool(papers)
    rows = []
    for label, score in scored:
        name = Markup("<strong>{}</strong>").format(label) if score["controller"] == LEARNED else label
        values = [format_lines(score["lines_per_game"]), interval_text(score), counted(score)]
        paper = [papers.get(score["controller"], "–")] * bool(papers)
        rows.append([name, *values, f"{score['decisions']:,}", *paper])
    return Table(f"Board {on}, {rule} rule, pieces {pieces}{more}", header, rows, titled=True)


def weight_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Table:
    """Return the learned weights of runs, scaled to length 1."""
    features = dict.fromkeys(feature for run in runs for feature in run.feature_names)
    columns = [dict(zip(run.feature_names, run.controller.weights, strict=True)) for run in runs]
    header = ["feature", *names]
    rows = [
        [feature, *(f"{column[feature]:.4f}" if feature in column else "–" for column in columns)]
        for feature in features
    ]
    return Table("Learned weights", header, rows)


def cost_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Table:
    """Return the cost and the speed of runs."""
    header = ["run", "engine", "generations", "wall time [s]", "decisions", "decisions/s", "lines/s"]
    rows = []
    for name, run in zip(names, runs, strict=True):
        seconds, lines = max(run.seconds, 1e-9), sum(record["lines"] for record in run.metrics)
        done = f"{run.generations} of {run.recipe.total_generations}"
        speeds = [f"{count / seconds:,.0f}" for count in (run.decisions, lines)]
        rows.append([name, run.recipe.device, done, f"{seconds:,.1f}", f"{run.decisions:,}", *speeds])
    return Table("What the runs cost", header, rows)


def settings_tables(runs: Sequence[RunRecord], names: Sequence[str]) -> tuple[Table, Table]:
    """Return the settings and versions that differ between runs, and those that do not."""
    columns = [
        asdict(run.recipe)
        | {f"version of {k}": v for k, v in run.controller.provenance.get("versions", {}).items()}
        for run in runs
    ]
    settings = dict.fromkeys(name for column in columns for name in column)
    rows = [[name, *(_setting(column.get(name)) for column in columns)] for name in settings]
    different = [row for row in rows if len(set(row[1:])) > 1]
    same = [row[:2] for row in rows if len(set(row[1:])) == 1]
    label = "What is the same" if len(runs) > 1 else "Settings and versions"
    differences = Table("What differs", ["setting", *names], different, titled=True)
    return differences, Table(label, ["setting", "value"], same)


def _setting(value: object) -> str:
    return "–" if value in ("", None) else str(value).replace(",", ", ")


def start_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Table:
    """Return when, where and how runs were started or resumed."""
    keys = ("date", "hardware", "commit", "command")
    rows = [
        [name, *(str(start.get(key) or "–") for key in keys)]
        for name, run in zip(names, runs, strict=True)
        for start in run.starts
    ]
    return Table("Starts of the run", ["run", *keys], rows, titled=True)
