"""Our figures beside the literature's, and whether they agree: blocks of docs/results.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from measure.work import least_lines

from pages.result_files import Cell, Result, columns, load, load_all, with_provenance
from pages.wording import markdown, score
from tetris.evaluation.comparison import LEARNED_SCORES, PUBLISHED_SCORES, PaperFigure
from tetris.record.numbers import format_lines

FEATURES = ("bertsekas", "bcts")
NOISES = {"none": "no noise", "constant": "constant 4", "linear": "max(5 - t / 10, 0)"}
"""The noise schedules of the searches: how their name begins in a result, and how pages call them."""

_ENOUGH_GAMES = 100  # with fewer the interval reaches more than a fifth to either side


def published(machine: str) -> str:
    """Return the published controllers beside the papers' figures."""
    result = load(f"{machine}/published")

    def paper(each: Mapping[str, Any]) -> PaperFigure | None:
        return PUBLISHED_SCORES[each["controller"]].get(each["board"])

    cells: dict[str, Cell] = {
        "controller": "controller",
        "board": "board",
        "lines per game (95 % interval)": score,
        "games": lambda each: f"{each['games']:,}",
        "paper, about": lambda each: str(paper(each) or "-"),
        "do they agree?": lambda each: verdict(each, paper(each)),
    }
    return columns(cells, result.data["measurements"], result)


def verdict(measurement: Mapping[str, Any], paper: PaperFigure | None) -> str:
    """Return whether a score's interval holds a paper's figure, or how far apart they are."""
    if paper is None:
        return "-"
    low, high = measurement["ci95"]
    if low <= paper.high and (high is None or high >= paper.low):
        return "too few games to say" if measurement["games"] < _ENOUGH_GAMES else "yes"
    ours = low if high is None else measurement["lines_per_game"]
    if low > paper.high:
        return f"ours {ours / paper.high - 1:.1%} higher"
    return f"ours {1 - ours / paper.low:.1%} lower"


def noisy_ce(board: str) -> str:
    """Return what the noisy cross-entropy searches on a board came to."""
    found = (load_all(f"noisy_ce_{features}_{board}") for features in FEATURES)
    results = [each[-1] for each in found if each]  # that of a GPU where both were measured
    return with_provenance("\n\n".join(map(_searches, results)), *results)


def _searches(result: Result) -> str:
    plan, method, curves = result.data["plan"], result.data["method"], result.series()
    cut = played = 0
    for name, games in (("candidate", "population"), ("mean", "games_of_the_mean")):
        counts = [count for each in curves for count in each[f"{name}_games_cut"]]
        cut, played = cut + sum(counts), played + len(counts) * method[games]
    paper = LEARNED_SCORES.get((plan["features"], plan["board"]))
    best = "" if paper is None else f" {paper.source}: about {paper} for the best search."
    rows = []
    for noise, label in NOISES.items():
        searches = result.data["searches"]
        found = [each["score"] for each in searches if each["noise"].partition(":")[0] == noise]
        low, middle, high = np.quantile([*map(least_lines, found)], (0.25, 0.5, 0.75))
        best_score = score(max(found, key=least_lines))
        rows.append(
            [label, format_lines(middle), f"{format_lines(low)} and {format_lines(high)}", best_score]
        )
    header = ["noise", "lines per game of the last mean, median", "quartiles", "best search (95 % interval)"]
    return (
        f"**{plan['features']} on {plan['board']}**: {plan['seeds']} searches with each noise schedule, "
        f"{plan['generations']} generations of {method['population']} candidates, one game each, cut off "
        f"after {plan['limit']:,} decisions ({cut:,} of {played:,} games "
        f"are).{best}\n\n{markdown(header, rows)}"
    )
