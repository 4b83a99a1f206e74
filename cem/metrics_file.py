"""The lines of ``metrics.jsonl`` that a resumed run keeps, and what became of the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from statistics import mode
from typing import Any

from kernels.files import check_own, set_aside, write_bytes

_MOST_NAMED = 5


def keep_lines(
    path: Path,
    generation: int,
    check: Callable[[dict[str, Any]], None] | None = None,
    record_every: int = 1,
) -> list[str]:
    """Reduce a metrics file to the readable lines of the first generations, in order.

    Lines of later generations and a torn last line, which the resumed run writes again, go quietly. If
    another line is unreadable or out of order, the old file is kept beside the new one.

    Args:
        path: The file; a missing one holds no lines.
        generation: The generations told by the checkpoint, ``>= 0``.
        check: Called with the record of a line; ValueError tells that it is damaged. None accepts all.
        record_every: The generations from one record to the next; a run may end between.

    Returns:
        What is wrong with the file, in sentences: damaged lines, generations without a line.

    Raises:
        OSError: If it cannot be read or written, or is a link, a pipe or a device.
    """
    check_own(path)
    content = path.read_bytes() if path.exists() else b""
    lines = content.splitlines(keepends=True)
    kept: list[bytes] = []
    told = [0]  # generations, from the start of the run
    damaged: list[int] = []
    later: list[int] = []
    for number, line in enumerate(lines, start=1):
        found = line_generation(line, check)
        if found is None and not line.endswith(b"\n"):
            continue
        if found is None or found <= told[-1]:
            damaged.append(number)
        elif found > generation:
            later.append(number)
        else:
            damaged += later  # its number is wrong, or this line would not follow
            later = []
            kept.append(line.rstrip(b"\n") + b"\n")
            told.append(found)
    problems = []
    if damaged:
        aside = set_aside(path)
        problems.append(f"{path}: {_listed('line', damaged)} damaged; the old file is {aside}")
    if damaged or b"".join(kept) != content:
        write_bytes(path, b"".join(kept))
    if missing := _missing(told, generation, record_every):
        problems.append(f"{path}: {_listed('generation', missing)} missing")
    return problems


def line_generation(line: bytes, check: Callable[[dict[str, Any]], None] | None = None) -> int | None:
    """Return the generation of a line of ``metrics.jsonl``; None if the line is damaged."""
    try:
        record = json.loads(line.decode())
        if not isinstance(record, dict) or not all(_is_figure(value) for value in record.values()):
            return None
        if check is not None:
            check(record)
    except (ValueError, RecursionError):
        return None
    found = record.get("generation")
    return found if type(found) is int and found > 0 else None


def _is_figure(value: object) -> bool:
    return value is None or isinstance(value, (int, float, list))


def _missing(told: Sequence[int], generation: int, record_every: int) -> list[int]:
    """Return the generations between records that are further apart than usual, and after the last one."""
    steps = [after - before for before, after in pairwise(told)]
    # The smaller one of two as frequent; the run may have been recorded less often before.
    usual = max(record_every, mode(sorted(steps)) if steps else 1)
    missing: list[int] = []
    before = told[0]
    for step, alike in groupby(steps):
        after = before + sum(alike)
        if usual < step == after - before:  # of several in a row the run was recorded less often
            missing += range(before + usual, after, usual)
        before = after
    return [*missing, *range(told[-1] + usual, generation, usual), *([generation] * (told[-1] < generation))]


def _listed(what: str, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{what} {numbers[0]} is"
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    return f"{what}s {shown}{f' and {len(numbers) - _MOST_NAMED} more' * (len(numbers) > _MOST_NAMED)} are"
