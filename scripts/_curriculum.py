"""A curriculum: the boards that a training run plays before the one it is for, as a line of text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tetris import Rules


@dataclass(frozen=True)
class CurriculumStage:
    """One entry of a curriculum as it is written: ``10x12:14`` or ``10x12:14:4000``.

    Attributes:
        width: Columns of the board.
        height: Rows of the board.
        generations: Generations played on it, at least 1.
        decisions: Decisions on each stream; None: those of the recipe.
    """

    width: int
    height: int
    generations: int
    decisions: int | None

    def __str__(self) -> str:
        """Return the entry as it is written."""
        decisions = "" if self.decisions is None else f":{self.decisions}"
        return f"{self.width}x{self.height}:{self.generations}{decisions}"


def parse_curriculum(text: str) -> tuple[CurriculumStage, ...]:
    """Read stages such as ``"10x10:22,10x12:14:4000"``: board, generations, and maybe decisions a stream.

    Raises:
        ValueError: If it is written otherwise, a board is out of range, or a count is 0.
    """
    stages = []
    for entry in text.split(",") if text.strip() else []:
        board, *counts = (part.strip() for part in entry.split(":"))
        if len(counts) not in (1, 2) or not all(count.isdecimal() and int(count) for count in counts):
            raise ValueError(
                "expected a curriculum as BOARD:GENERATIONS[:DECISIONS],... such as 10x10:22,10x12:14:4000, "
                f"got {entry.strip()!r} in {text!r}"
            )
        width, height = Rules.parse_board(board)
        stages.append(
            CurriculumStage(width, height, int(counts[0]), int(counts[1]) if len(counts) > 1 else None)
        )
    return tuple(stages)


def curriculum_text(stages: Iterable[CurriculumStage]) -> str:
    """Return what `parse_curriculum` reads for these stages."""
    return ",".join(map(str, stages))


def cut_to_board(text: str, width: int, height: int) -> str:
    """Return a curriculum on boards of this width that are at most this high; its generations stay."""
    return curriculum_text(
        replace(each, width=width, height=min(each.height, height)) for each in parse_curriculum(text)
    )
