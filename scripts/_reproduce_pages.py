"""What docs/results.md says: our figures beside the papers', and whether they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from _markdown import Report, cell, markdown, origin
from _noisy_ce import NOISES, scored_lines, searches_with
from _noisy_ce_plot import LABELS

from tetris.evaluation.papers import LEARNED_SCORES, MDPTETRIS, PUBLISHED_SCORES, PaperFigure
from tetris.evaluation.text_table import lines

CPU_FILE, GPU_FILE = "benchmarks/results/reproduce-cpu.json", "benchmarks/results/reproduce-h200.json"
FEATURES = ("bertsekas", "bcts")
BOARDS = ("10x10", "10x20")

Reports = Mapping[str, Mapping[str, Any]]
"""Reports of scripts/reproduce.py by their file's name from the root."""

_NOT_YET = "Not measured yet."
_TELLING_GAMES = 100  # with fewer the interval reaches more than a fifth to either side


def verdict(measurement: Mapping[str, Any], paper: PaperFigure | None) -> str:
    """Return how a score lies to a paper's figure: whether its interval holds it, or how far apart they are.

    Args:
        measurement: With ``ci95`` and ``lines_per_game``, as `Measurement.to_dict` gives them.
        paper: What it is compared with; None where no paper says anything.
    """
    if paper is None:
        return "-"
    low, high = measurement["ci95"]
    if low <= paper.high and (high is None or high >= paper.low):
        return "too few games to say" if measurement["games"] < _TELLING_GAMES else "agree"
    ours = low if high is None else measurement["lines_per_game"]
    if low > paper.high:
        return f"ours {ours / paper.high - 1:.1%} higher"
    return f"ours {1 - ours / paper.low:.1%} lower"


def published_rows(measurements: list[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each controller and board, and one more where the reference simulator was measured."""
    rows = []
    for each in measurements:
        name, board = each["controller"], each["board"]
        paper = PUBLISHED_SCORES[name].get(board)
        rows.append([name, board, cell(each), "-" if paper is None else str(paper), verdict(each, paper)])
        reference = MDPTETRIS.get((name, board))
        if reference is not None:
            rows.append(["", "", "", f"MDPTetris itself: {reference}", verdict(each, reference.interval)])
    return rows


PUBLISHED_HEADER = ["controller", "board", "lines a game, here", "paper, about", "do they agree?"]


def published_table(result: Report) -> str:
    """Return the published controllers, and a sentence on how certain the scores are."""
    precision = ", ".join(f"{share:.1%} on {board}" for board, share in result["precision"].items())
    table = markdown(PUBLISHED_HEADER, published_rows(result["measurements"]))
    clock = sorted({each["board"] for each in result["measurements"]} - set(result["precision"]))
    rest = f"; {' and '.join(clock)} for {result['seconds']:g} s a controller" if clock else ""
    return f"{table}\n\nPlayed for 95 % intervals of at most {precision} to either side{rest}."


NOISY_CE_HEADER = ["noise", "lines a game of the last mean: median", "quartiles", "best search"]


def noisy_ce_rows(experiment: dict[str, Any]) -> list[list[str]]:
    """Return a row for each noise schedule: what the last means of its searches score."""
    rows = []
    for noise in NOISES:
        searches = sorted(searches_with(experiment, noise), key=scored_lines)
        low, median, high = _quartiles(searches)
        rows.append([LABELS[noise], median, f"{low} and {high}", cell(searches[-1]["score"])])
    return rows


def _quartiles(searches: list[dict[str, Any]]) -> list[str]:
    """Return lower quartile, median and upper quartile; with a > where that is the least it can be."""
    least = [scored_lines(each) for each in searches]
    more = [value * (1 if each["score"]["games"] else 2) for value, each in zip(least, searches, strict=True)]
    pairs = zip(*(np.quantile(values, (0.25, 0.5, 0.75)) for values in (least, more)), strict=True)
    return [f"> {lines(value)}" if other > value else lines(value) for value, other in pairs]


def games_cut(experiment: Report) -> tuple[int, int]:
    """Return how many games of candidates and means were cut off, and how many were played."""
    searches, method = experiment["searches"], experiment["method"]
    cut = sum(sum(each["candidate_games_cut"]) + sum(each["mean_games_cut"]) for each in searches)
    played = sum(
        len(each["candidate_games_cut"]) * method["population"]
        + len(each["mean_games_cut"]) * method["games_of_the_mean"]
        for each in searches
    )
    return cut, played


def noisy_ce_section(experiment: dict[str, Any]) -> str:
    """Return what came of an experiment: how it was done, its table, and the paper's figure."""
    plan, method = experiment["plan"], experiment["method"]
    cut, played = games_cut(experiment)
    paper = LEARNED_SCORES.get((plan["features"], plan["board"]))
    best = (
        f" The best of {paper.source} has about {paper}."
        if paper is not None
        else " There is no figure of a paper to set beside it."
    )
    text = (
        f"**{plan['features']}, {plan['board']}**: {plan['seeds']} searches with each noise schedule, "
        f"{plan['generations']} generations of {method['population']} candidates, one game each, "
        f"cut off after {plan['limit']:,} decisions ({cut:,} of {played:,} games were).{best}"
    )
    return f"{text}\n\n{markdown(NOISY_CE_HEADER, noisy_ce_rows(experiment))}"


def part_name(features: str, board: str) -> str:
    """Return the name of the part of a report that holds the searches with these features on a board."""
    return f"noisy_ce_{features}_{board}"


def picture_name(board: str) -> str:
    """Return the file name of the learning curves on a board."""
    return f"noisy_ce_{board}.png"


def experiments_on(board: str, reports: Reports) -> list[tuple[dict[str, Any], str]]:
    """Return the experiments on a board, each with its file; a GPU's go before a processor's."""
    found = []
    for features in FEATURES:
        name = part_name(features, board)
        files = [file for file in (GPU_FILE, CPU_FILE) if name in reports.get(file, {}).get("parts", {})]
        found += [(reports[file]["parts"][name], file) for file in files[:1]]
    return found


def published_block(file: str, reports: Reports) -> str:
    """Return the block of the published controllers from one file."""
    found = reports.get(file, {}).get("parts", {}).get("published")
    return _NOT_YET if found is None else f"{published_table(found)}\n\n{origin(found, file)}"


def noisy_ce_block(board: str, reports: Reports) -> str:
    """Return the block of the noisy cross-entropy searches on a board, with their picture."""
    found = experiments_on(board, reports)
    if not found:
        return _NOT_YET
    names = [experiment["plan"]["features"] for experiment, _ in found]
    picture = f"![Learning curves of noisy searches on {board}: {' and '.join(names)}]({picture_name(board)})"
    sections = [f"{noisy_ce_section(experiment)}\n\n{origin(experiment, file)}" for experiment, file in found]
    missing = [f"**{features}, {board}**: {_NOT_YET}" for features in FEATURES if features not in names]
    return "\n\n".join([picture, *sections, *missing])


REPRODUCE_BLOCKS: Mapping[str, Callable[[Reports], str]] = {
    "published_cpu": partial(published_block, CPU_FILE),
    "published_gpu": partial(published_block, GPU_FILE),
    **{f"noisy_ce_{board}": partial(noisy_ce_block, board) for board in BOARDS},
}
"""Blocks by name: what writes each from the reports."""
