"""A curriculum: the stages of a training run before its own board, as a line of text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tetris import Rules

_ENTRY = re.compile(r"([^:]*):([1-9]\d{0,17})(?::([1-9]\d{0,17}))?(:split)?")

SPLIT_COST = 1.7
"""Relative cost of a decision with splitting on a high board; without, on a low board, it is 1.

It is 1.8 on an H200 and 1.6 on two cores, by the training metrics of benchmarks/results. It weighs the time
left."""


@dataclass(frozen=True)
class Stage:
    """A part of a run: generations on one board with the same settings.

    An entry of a curriculum such as ``10x12:14``, ``10x12:14:4000`` or ``10x20:30:2000:split``.
    """

    rules: Rules
    generations: int
    decisions: int  # on each stream; 0: those of the recipe
    split: bool = False

    def __str__(self) -> str:
        """Return the entry as text."""
        decisions = f":{self.decisions}" if self.decisions else ""
        return f"{self.rules.board}:{self.generations}{decisions}{':split' if self.split else ''}"

    @property
    def cost(self) -> float:
        """The relative cost of a generation: its decisions, times `SPLIT_COST` with splitting."""
        return self.decisions * (SPLIT_COST if self.split else 1.0)


def parse_curriculum(text: str, rules: Rules | None = None) -> list[Stage]:
    """Read stages such as ``"10x10:22,10x12:14:4000"``: board, generations, decisions, split.

    ``rules`` are those of the games, but for the board.
    """
    stages = []
    for entry in text.split(",") if text.strip() else []:
        match = _ENTRY.fullmatch("".join(entry.split()))
        if match is None:
            raise ValueError(
                "expected a curriculum as BOARD:GENERATIONS[:DECISIONS][:split],... such as "
                f"10x10:22,10x20:14:2000:split, got {entry.strip()!r} in {text!r}"
            )
        board, generations, decisions, split = match.groups()
        width, height = Rules.parse_board(board)
        on_board = replace(rules or Rules(), width=width, height=height)
        stages.append(Stage(on_board, int(generations), int(decisions or 0), bool(split)))
    return stages


def cut_to_board(text: str, width: int, height: int) -> str:
    """Return a curriculum on boards of this width and at most this height, with the same generations."""
    return ",".join(
        str(replace(each, rules=replace(each.rules, width=width, height=min(each.rules.height, height))))
        for each in parse_curriculum(text)
    )
