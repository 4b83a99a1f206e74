"""Pieces of Markdown that pages with measured figures are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from _machine import processor_of

from tetris.numbers import lines

Report = Mapping[str, Any]
Block = Callable[[Report, str], str]
"""Writes a block from a result file and the file's name from the root."""


def part(name: str, absent: str = "") -> Callable[[Callable[[Report], str]], Block]:
    """Return a decorator: a block made from one part of a result file.

    Args:
        name: The part.
        absent: The block where that was not measured.
    """

    def decorated(write: Callable[[Report], str]) -> Block:
        def block(report: Report, file: str) -> str:
            found = report.get("parts", report).get(name)
            return f"{write(found)}\n\n{origin(found, file)}" if found is not None else absent

        return block

    return decorated


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def cell(measurement: Report) -> str:
    """Return a score with its interval."""
    if measurement["ci95"][1] is None:
        return f"{estimate_cell(measurement)} (no game ended)"
    games = measurement["games"]
    return f"{estimate_cell(measurement)}, {games:,} game{'s'[: games != 1]}"


def estimate_cell(estimate: Report) -> str:
    """Return lines a game with their interval, of an estimate as of a score."""
    (low, high), value = estimate["ci95"], estimate["lines_per_game"]
    return f"> {lines(low)}" if high is None else f"{lines(value)} [{lines(low)}, {lines(high)}]"


def origin(result: Report, file: str) -> str:
    """Return where figures come from, as a line of small print.

    Args:
        result: What was measured.
        file: The file that holds it, from the root; ``{root}`` in the line stands for the way there.
    """
    machine, versions = result["machine"], result["versions"]
    if "gpu" in machine:
        name = f"{machine['gpu']}, driver {machine.get('driver', 'unknown')}, CUDA {machine['cuda']}"
    else:
        name = f"{processor_of(machine)}, {machine['cores']} cores"
    return (
        f"<sub>{name}, torch {versions['torch']}, Python {versions['python']}, {result['date'][:10]}; "
        f"[{file}]({{root}}{file}), sources {result['sources'][:12]}.</sub>"
    )
