"""How good the learned controllers are, that of the record too, and how long training takes: blocks."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from pages.result_files import Result, load, load_all, table_block, with_provenance
from pages.wording import ratio, score, span
from tetris.evaluation.scores import find_estimate, find_measurement
from tetris.numbers import lines

PROCESSOR, GPU = "epyc-2core", "h200"
BOARD, REFERENCE = "10x20", "dt20"


def median_run(result: Result) -> dict[str, Any]:
    """Return the training run whose estimate on 10x20 is the median."""
    runs: list[dict[str, Any]] = list(result.data["runs"])
    runs.sort(key=lambda run: float(find_measurement(run["estimates"], "learned", "10x20")["lines_per_game"]))
    return runs[len(runs) // 2]


def on_board(run: Mapping[str, Any], controller: str, board: str) -> Mapping[str, Any]:
    """Return a controller's score on a board: the estimate where there is one."""
    found = find_estimate(run, controller, board)
    return find_measurement(run["score"], controller, board) if found is None else found


def scores() -> str:
    """Return the learned controller of the median run beside the published ones."""
    result = load(f"{PROCESSOR}/training")
    run = median_run(result)
    labels = {"learned": f"**learned** ({len(run['weights'])} features)", "bcts": "bcts", "dt20": "dt20"}
    rows = []
    for name, label in labels.items():
        low, high = (on_board(run, name, board) for board in ("10x10", "10x20"))
        rows.append([label, score(low), f"{score(high)}{', estimated' if 'estimates' in high else ''}"])
    sources = [load(f"{GPU}/published")] if "measured" in high else []
    return table_block(["controller", "lines a game on 10x10", "on 10x20"], rows, result, *sources)


def training() -> str:
    """Return what the default preset comes to over the seeds, on a processor and on a GPU."""
    result = load(f"{PROCESSOR}/training")
    runs = result.data["runs"]
    small, large = (
        [on_board(run, "learned", board)["lines_per_game"] for run in runs] for board in ("10x10", "10x20")
    )
    seconds = [run["training_seconds"] for run in runs]
    reference = on_board(runs[0], "dt20", "10x20")["lines_per_game"]
    words = (
        f"On {result.hardware} training takes {median(seconds):.0f} s (median of {len(runs)} seeds, slowest "
        f"{max(seconds):.0f} s). The learned controllers clear {lines(median(small))} lines a game on 10x10 "
        f"(median; all seeds {span(min(small), max(small))}) and an estimated {lines(median(large))} on "
        f"10x20 (all seeds {span(min(large), max(large))}), {median(large) / reference:.2g} times as many as "
        "dt20."
    )
    return with_provenance(words, result)


def first_run() -> str:
    """Return how long README's first command takes, on every machine where it was measured; empty without."""
    results = load_all("first_run")
    words = [
        f"takes {result.figures['first_run.cold.seconds']:.0f} s on {result.hardware} "
        f"({result.figures['first_run.warm.seconds']:.0f} s once everything is compiled) and ends at "
        f"{result.figures['first_run.times_dt20']:.2g} times dt20"
        for result in results
    ]
    return with_provenance(f"The first command {'; it '.join(words)}.", *results) if results else ""


def record_claim() -> str:
    """Return in a sentence what the controller that ships can do."""
    trained, scored = load(f"{GPU}/record_training"), load(f"{GPU}/record_score")
    learned, reference = scored.data["score"]
    words = (
        "The controller that ships as `best`, learned from nothing in "
        f"{trained.figures['record.training_seconds'] / 60:.0f} minutes on one {trained.hardware}, clears "
        f"{score(learned)} lines a game on {BOARD}, played. {REFERENCE} clears {score(reference)} in the "
        f"same run: `best` is {ratio(scored.data['ratio'])} times as good."
    )
    return with_provenance(words, scored)


def ppo() -> str:
    """Return what PPO learned from each seed."""
    rows, results = [], load_all("ppo")
    for result in results:
        for name, made in result.figures.items():
            if name.endswith(".lines_per_game"):
                key = name.removesuffix(".lines_per_game")
                placements, seconds = (result.figures[f"{key}.{each}"] for each in ("placements", "seconds"))
                seed = key.rpartition("seed")[2]
                rows.append([seed, f"{seconds:.0f}", f"{placements:,.0f}", f"{made:,.0f}"])
    header = ["seed", "seconds of learning", "placements", "lines a game on 10x10"]
    return table_block(header, rows, *results)
