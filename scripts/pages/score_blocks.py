"""How good the controllers are that training finds, and how long it takes: blocks of README and docs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pages.result_files import Result, load, load_all, with_provenance
from pages.wording import count, markdown, score, span
from tetris.evaluation.scores import find_measurement
from tetris.numbers import lines

PROCESSOR, GPU = "epyc-2core", "h200"


def median_run(result: Result) -> dict[str, Any]:
    """Return the training run whose estimate on 10x20 is the median."""
    runs: list[dict[str, Any]] = list(result.data["runs"])
    runs.sort(key=lambda run: float(find_measurement(run["estimates"], "learned", "10x20")["lines_per_game"]))
    return runs[len(runs) // 2]


def scores() -> str:
    """Return the learned controller of the median run beside the published ones of the same run."""
    result = load(f"{PROCESSOR}/training")
    run = median_run(result)
    rows = []
    for name in ("learned", "bcts", "dt20"):
        label = f"**learned** ({len(run['weights'])} features)" if name == "learned" else name
        played, estimated = (
            find_measurement(run["score"], name, "10x10"),
            find_measurement(run["estimates"], name, "10x20"),
        )
        rows.append([label, score(played), score(estimated)])
    header = ["controller", "lines a game on 10x10, played", "on 10x20, estimated"]
    return with_provenance(markdown(header, rows), result)


def training() -> str:
    """Return what the default preset comes to over the seeds, on a processor and on a GPU."""
    result = load(f"{PROCESSOR}/training")
    runs = result.data["runs"]
    small = [find_measurement(run["score"], "learned", "10x10")["lines_per_game"] for run in runs]
    large = [find_measurement(run["estimates"], "learned", "10x20")["lines_per_game"] for run in runs]
    seconds = [run["training_seconds"] for run in runs]
    reference = find_measurement(median_run(result)["estimates"], "dt20", "10x20")["lines_per_game"]
    words = (
        f"On {result.hardware} training takes {statistics.median(seconds):.0f} s (median of {len(runs)} "
        f"seeds, slowest {max(seconds):.0f} s). The learned controllers clear "
        f"{lines(statistics.median(small))} lines a game on 10x10 (median; all seeds "
        f"{span(min(small), max(small))}) and an estimated {lines(statistics.median(large))} on 10x20 (all "
        f"seeds {span(min(large), max(large))}), {statistics.median(large) / reference:.2g} times as many as "
        "dt20."
    )
    return with_provenance(words, result)


def first_run() -> str:
    """Return how long README's first command takes, on every machine where it was measured; empty without."""
    results = load_all("first_run")
    if not results:
        return ""
    words = [
        f"takes {result.figures['first_run.cold.seconds']:.0f} s on {result.hardware} "
        f"({result.figures['first_run.warm.seconds']:.0f} s once everything is compiled) and ends at "
        f"{result.figures['first_run.times_dt20']:.2g} times dt20"
        for result in results
    ]
    return with_provenance(f"The first command {'; it '.join(words)}.", *results)


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
    return with_provenance(markdown([title, ""], rows), result)


def time_to_target() -> str:
    """Return the wall time from nothing to given scores, on a processor and on a GPU."""
    results = load_all("time_to_target")
    header = ["from nothing to"]
    for result in results:
        header += [result.hardware, "decisions"]
    rows = [
        [
            target_label(target),
            *(text(result, target["name"]) for result in results for text in (_time, _decisions)),
        ]
        for target in targets(results)
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


def targets(results: Sequence[Result]) -> list[Mapping[str, Any]]:
    """Return the targets of any of the results, in the order of the longest list."""
    longest = max(results, key=lambda result: len(result.data["goals"]))
    return list(longest.data["goals"])


def target_label(target: Mapping[str, Any]) -> str:
    """Return a target in words."""
    return f"{lines(target['lines'])} lines on {target['board']}"


def median_time(result: Result, target: str) -> float | None:
    """Return the median seconds to a target; None where most seeds missed it."""
    return result.figures.get(f"time_to_quality.{target}.seconds")


def reached(result: Result, target: str) -> list[dict[str, Any]]:
    """Return when the runs reached a target, the fastest first, without those that missed it."""
    found = [run["reached"].get(target) for run in result.data["runs"]]
    return sorted((each for each in found if each is not None), key=lambda each: float(each["seconds"]))


def _time(result: Result, target: str) -> str:
    found, runs, median = reached(result, target), result.data["runs"], median_time(result, target)
    missed = "" if len(found) == len(runs) else f", {len(found)} of {len(runs)} seeds"
    if median is None:
        return f"not within {max(run['total_seconds'] for run in runs):.0f} s{missed}"
    slowest = "..." if missed else f"{found[-1]['seconds']:.1f}"
    return f"{median:.1f} s ({found[0]['seconds']:.1f}-{slowest}{missed})"


def _decisions(result: Result, target: str) -> str:
    if median_time(result, target) is None:
        return "-"
    missed = [float("inf")] * (len(result.data["runs"]) - len(reached(result, target)))
    made = [float(each["decisions"]) for each in reached(result, target)]
    return count(statistics.median_high([*made, *missed]))


def _with_interval(measurement: Mapping[str, Any]) -> str:
    low, high = measurement["ci95"]
    return f"{lines(measurement['lines_per_game'])} lines a game (95 % interval {span(low, high)})"
