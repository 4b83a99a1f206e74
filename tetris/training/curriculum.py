"""A curriculum: the stages of a training run before its own board, as a line of text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tetris import Rules

_ENTRY = re.compile(r"([^:]*):([1-9]\d{0,17})(?::([1-9]\d{0,17}))?(:split)?")
_SHOWN = 200  # characters in an error


@dataclass(frozen=True)
class CurriculumStage:
    """One entry of a curriculum: ``10x12:14``, ``10x12:14:4000`` or ``10x20:30:2000:split``.

    Without decisions on each stream it has those of the recipe.
    """

    width: int
    height: int
    generations: int
    decisions: int | None
    split: bool = False

    def __str__(self) -> str:
        """Return the entry as text."""
        decisions = "" if self.decisions is None else f":{self.decisions}"
        return f"{self.width}x{self.height}:{self.generations}{decisions}{':split' if self.split else ''}"


def parse_curriculum(text: str) -> tuple[CurriculumStage, ...]:
    """Read stages such as ``"10x10:22,10x12:14:4000"``: board, generations, decisions, split."""
    stages = []
    for entry in text.split(",") if text.strip() else []:
        match = _ENTRY.fullmatch("".join(entry.split()))
        if match is None:
            raise ValueError(
                "expected a curriculum as BOARD:GENERATIONS[:DECISIONS][:split],... such as "
                "10x10:22,10x20:14:2000:split, "
                f"got {entry.strip()[:_SHOWN]!r} in {text[:_SHOWN]!r}"
            )
        board, generations, decisions, split = match.groups()
        width, height = Rules.parse_board(board)
        each = int(decisions) if decisions else None
        stages.append(CurriculumStage(width, height, int(generations), each, bool(split)))
    return tuple(stages)


def curriculum_text(stages: Iterable[CurriculumStage]) -> str:
    """Return the text that `parse_curriculum` reads as these stages."""
    return ",".join(map(str, stages))


def cut_to_board(text: str, width: int, height: int) -> str:
    """Return a curriculum on boards of this width and at most this height, with the same generations."""
    return curriculum_text(
        replace(each, width=width, height=min(each.height, height)) for each in parse_curriculum(text)
    )
