"""How good the learned controllers are, that of the record too, and how long training takes: blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median, median_high
from typing import Any, NamedTuple

from pages.result_files import Result, load, load_all, table_block, with_provenance
from pages.wording import count, markdown, ratio, score, span
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


def gpu_claim() -> str:
    """Return in a sentence what the default preset comes to on a GPU."""
    result = load(f"{GPU}/training")
    learned, reference = result.data["score"]
    words = (
        f"On one {result.hardware} the controller is there {result.figures['train.total_seconds']:.0f} s "
        f"after the start of the process. It clears {_with_interval(learned)} on 10x20; dt20 clears "
        f"{_with_interval(reference)} on the same pieces."
    )
    return with_provenance(words, result)


def gpu_training() -> str:
    """Return what training comes to on a GPU, step by step."""
    result = load(f"{GPU}/training")
    figures, data = result.figures, result.data
    learned, reference = data["score"]
    rows = [
        ["from the start of the process to the controller", f"{figures['train.total_seconds']:.1f} s"],
        ["the generations alone", f"{data['training_seconds']:.1f} s"],
        ["decisions", count(data["decisions"])],
        ["share of the time in which a kernel runs", f"{figures['train.gpu_busy_fraction']:.1%}"],
        ["longest time without one", f"{data['gpu']['longest_gap'] * 1e3:.1f} ms"],
        ["learned controller, lines a game on 10x20", score(learned)],
        ["dt20 on the same pieces", score(reference)],
    ]
    config = data["config"]
    title = f"preset {config['preset']}, features `{config['features']}`, seed {config['seed']}"
    return table_block([title, ""], rows, result)


class Arrival(NamedTuple):
    """When the runs of a machine reached a target."""

    target: str  # in words
    median: float | None  # seconds; None where most seeds missed it
    seconds: list[float]  # of the seeds that reached it, the fastest first
    decisions: float  # the median
    runs: int
    longest: float  # seconds of the longest run


def arrivals(result: Result) -> list[Arrival]:
    """Return when the runs of a machine reached each target."""
    runs, found = result.data["runs"], []
    for target in result.data["goals"]:
        reached = [each for run in runs if (each := run["reached"].get(target["name"]))]
        missed = [math.inf] * (len(runs) - len(reached))
        arrival = Arrival(
            f"{lines(target['lines'])} lines on {target['board']}",
            result.figures.get(f"time_to_quality.{target['name']}.seconds"),
            sorted(each["seconds"] for each in reached),
            median_high([*(each["decisions"] for each in reached), *missed]),
            len(runs),
            max(run["total_seconds"] for run in runs),
        )
        found.append(arrival)
    return found


def time_to_target() -> str:
    """Return the wall time from nothing to given scores, on a processor and on a GPU."""
    results = load_all("time_to_target")
    header = ["from nothing to", *(text for each in results for text in (each.hardware, "decisions"))]
    rows = [
        [row[0].target, *(text for each in row for text in _cells(each))]
        for row in zip(*map(arrivals, results), strict=True)
    ]
    recipes = "; ".join(
        f"{result.hardware}: preset {run['config']['preset']}, features `{run['config']['features']}`"
        for result in results
        for run in result.data["runs"][:1]
    )
    words = (
        f"Median of {len(results[0].data['runs'])} seeds; in brackets the fastest and the slowest. {recipes}."
    )
    return with_provenance(f"{markdown(header, rows)}\n\n{words}", *results)


def _cells(arrival: Arrival) -> tuple[str, str]:
    found = arrival.seconds
    missed = f", {len(found)} of {arrival.runs} seeds" if len(found) < arrival.runs else ""
    if arrival.median is None:
        return f"not within {arrival.longest:.0f} s{missed}", "-"
    slowest = "..." if missed else f"{found[-1]:.1f}"
    return f"{arrival.median:.1f} s ({found[0]:.1f}-{slowest}{missed})", count(arrival.decisions)


def _with_interval(measurement: Mapping[str, Any]) -> str:
    low, high = measurement["ci95"]
    return f"{lines(measurement['lines_per_game'])} lines a game (95 % interval {span(low, high)})"


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


def record_training_today() -> str:
    """Return in a sentence how long what the preset that learned the record became takes."""
    result = load("h100/record_training")
    figures, config = result.figures, result.data["config"]
    words = (
        "The preset plays more streams for fewer decisions since then. With "
        f"`{config['curriculum']}` on {config['streams']:,} streams its "
        f"{figures['record.generations']:.0f} generations of as many decisions take "
        f"{figures['record.training_seconds']:.0f} s on one {result.hardware}, "
        f"{count(figures['train.split.decisions_per_second'])} decisions a second by importance splitting."
    )
    return with_provenance(words, result)


def model_card() -> str:
    """Return how the controller came about and how good it is."""
    trained, scored = load(f"{GPU}/record_training"), load(f"{GPU}/record_score")
    others = load_all("best_scores")
    config, figures = trained.data["config"], trained.figures
    learned, reference = scored.data["score"]
    features = len(trained.data["controller"]["weights"])
    measured = [each for result in others for each in result.data["measurements"]]
    rows = [
        ["controller", f"linear, {features} features (`{config['features']}`), boards ten columns wide"],
        ["training", f"preset {config['preset']}, seed {config['seed']}, from nothing"],
        [
            "curriculum",
            f"`{config['curriculum']}` (board:generations:decisions a stream, {config['streams']} streams)",
        ],
        ["search", f"population {config['population']}, {config['elites']} elites, noise {config['noise']}"],
        [
            "training time",
            f"{figures['record.training_seconds']:.0f} s on one {trained.hardware}: "
            f"{figures['record.generations']:.0f} generations, "
            f"{count(figures['record.training_decisions'])} decisions",
        ],
        _played(f"lines a game on {BOARD}", learned),
        _played(f"{REFERENCE} in the same run", reference),
        [f"times {REFERENCE}", ratio(scored.data["ratio"])],
        *(_played(f"lines a game on {x['board']}", x) for x in measured if x["controller"] == "best"),
        ["commit", trained.commit[:7]],
    ]
    method = (
        f"Scores: the {learned['rule']} rule, pieces {learned['pieces']}, seed {learned['seed']}, "
        f"{count(learned['decisions'])} decisions each, the same pieces for both, none met in training. "
        "Brackets are exact 95 % intervals; the ratio's is that of Przyborowski & Wilenski (1940) with "
        "Clopper & Pearson (1934). The training time is that of all generations, without imports and "
        "compilation."
    )
    commands = (
        f"```bash\n{trained.data['command']}\n"
        f"python scripts/evaluate_tetris.py best {REFERENCE} --board {BOARD} --decisions "
        f"{learned['decisions']} --seed {learned['seed']}\n```"
    )
    weights = zip(trained.data["feature_names"], trained.data["controller"]["weights"], strict=True)
    heaviest = sorted(weights, key=lambda each: -abs(float(each[1])))
    parts = (
        markdown(["`best`", ""], rows),
        method,
        "At that commit, on such a GPU, these commands learn the same controller and score it:",
        commands,
        "All weights, the heaviest first:",
        "; ".join(f"`{name}` {weight:.4f}" for name, weight in heaviest),
    )
    return with_provenance("\n\n".join(parts), trained, scored, *others)


def _played(label: str, measurement: Mapping[str, Any]) -> list[str]:
    return [label, f"{score(measurement)}, {measurement['games']:,} games"]


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
