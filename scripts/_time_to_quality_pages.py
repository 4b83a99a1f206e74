"""What docs/results.md says of the time from nothing to given scores, on a processor and on a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from _machine import processor_of
from _markdown import Report, markdown, origin

from tetris.evaluation.papers import EFFORTS
from tetris.evaluation.text_table import lines
from tetris.feature_sets import feature_label

Reports = Mapping[str, Mapping[str, Any]]
"""Result files by their name from the root."""

PICTURE_NAME = "time_to_quality.png"
_PART = "time_to_quality"
_NOT_YET = "Not measured yet."
_FILES = {"benchmarks/results/cpu.json": "a processor", "benchmarks/results/h200.json": "an H200"}


def measured(reports: Reports) -> list[tuple[Report, str]]:
    """Return the parts that were measured, each with its file; a processor's go before a GPU's."""
    found = []
    for file in _FILES:
        report = reports.get(file, {})
        result = report.get("parts", report).get(_PART)
        if result is not None:
            found.append((result, file))
    return found


def machine_name(result: Report) -> str:
    """Return on what a part was measured, in a few words."""
    machine = result["machine"]
    return str(machine["gpu"]) if "gpu" in machine else f"{machine['cores']} cores, {processor_of(machine)}"


def goal_label(goal: Mapping[str, Any]) -> str:
    """Return a goal as a person reads it."""
    return f"{lines(goal['lines'])} lines on {goal['board']}"


def reached(result: Report, goal: str) -> list[Report]:
    """Return when the runs reached a goal, the fastest first; those that did not are left out."""
    found = [run["reached"][goal] for run in result["runs"]]
    return sorted((each for each in found if each is not None), key=lambda each: float(each["seconds"]))


def all_goals(results: Sequence[Report]) -> list[Mapping[str, Any]]:
    """Return the goals of any of the results, in the order of the longest list."""
    longest = max(results, key=lambda result: len(result["goals"]))
    return list(longest["goals"])


def time_cell(result: Report, goal: str) -> str:
    """Return the median, and the fastest and the slowest run; or by when it was not reached."""
    if goal not in {each["name"] for each in result["goals"]}:
        return "-"
    found, runs = reached(result, goal), len(result["runs"])
    share = "" if len(found) == runs else f", {len(found)} of {runs} seeds"
    median = result["figures"].get(f"{_PART}.{goal}.seconds")
    if median is None:
        longest = max(run["total_seconds"] for run in result["runs"])
        return f"not within {longest:.0f} s{share}"
    slowest = f"{found[-1]['seconds']:.1f}" if len(found) == runs else "..."
    return f"{median:.1f} s ({found[0]['seconds']:.1f}-{slowest}{share})"


def decisions_cell(result: Report, goal: str) -> str:
    """Return the decisions until then of the median run."""
    if f"{_PART}.{goal}.seconds" not in result["figures"]:
        return "-"
    late = [float("inf")] * (len(result["runs"]) - len(reached(result, goal)))
    counts = [float(each["decisions"]) for each in reached(result, goal)]
    return f"{float(f'{statistics.median_high([*counts, *late]):.3g}'):,.0f}"


def time_to_quality(reports: Reports) -> str:
    """Return the table of both machines, with its picture."""
    found = measured(reports)
    if not found:
        return _NOT_YET
    results = [result for result, _ in found]
    header = ["from nothing to"]
    for result in results:
        header += [machine_name(result), "decisions until then"]
    rows = [
        [goal_label(goal)]
        + [write(result, goal["name"]) for result in results for write in (time_cell, decisions_cell)]
        for goal in all_goals(results)
    ]
    presets = "; ".join(f"{machine_name(result)}: {_recipe_words(result)}" for result in results)
    count = " and ".join(dict.fromkeys(str(len(result["runs"])) for result in results))
    text = (
        f"Wall time from the start of the process: the median of {count} seeds, in brackets the fastest and "
        f"the slowest. {presets}."
    )
    files = {file for _, file in found}
    missing = [f"On {what}: {_NOT_YET}" for file, what in _FILES.items() if file not in files]
    picture = f"![Wall time from nothing to given scores]({PICTURE_NAME})"
    origins = [origin(result, file) for result, file in found]
    return "\n\n".join([picture, markdown(header, rows), text, *missing, *origins])


def _recipe_words(result: Report) -> str:
    """Return what the runs were trained by, in a few words."""
    config, limit = result["runs"][0]["config"], result["time_limit"]
    cut_off = f", cut off after {limit:g} s" if limit else ""
    return f"preset {config['preset']}, features {feature_label(config['features'])}{cut_off}"


def published_efforts(reports: Reports) -> str:
    """Return what papers say of the effort of learning."""
    rows = [[effort.source, effort.statement, effort.where] for effort in EFFORTS]
    return markdown(["paper", "what it says of the effort", "where"], rows)


QUALITY_BLOCKS: Mapping[str, Callable[[Reports], str]] = {
    "time_to_quality": time_to_quality,
    "published_efforts": published_efforts,
}
"""Blocks by name: what writes each from the result files."""
