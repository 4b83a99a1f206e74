"""The lines of ``metrics.jsonl`` that a resumed run keeps, and what became of the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernels.support.files import check_own, set_aside, write_bytes

_MOST_NAMED = 5


def keep_lines(
    path: Path, generation: int, check: Callable[[dict[str, Any]], None] | None = None
) -> list[str]:
    """Reduce a metrics file to the readable lines of the first generations, in order.

    Lines of later generations and a torn last line, which the resumed run writes again, go quietly. If
    another line is unreadable or out of order, the old file is kept beside the new one.

    Args:
        path: The file; a missing one holds no lines.
        generation: The generations told by the checkpoint, ``>= 0``.
        check: Called with the record of a line; ValueError tells that it is damaged. None accepts all.

    Returns:
        What is wrong with the file, in sentences: damaged lines, no line of the last generation.

    Raises:
        OSError: If it cannot be read or written, or is a link, a pipe or a device.
    """
    check_own(path)
    content = path.read_bytes() if path.exists() else b""
    lines = content.splitlines(keepends=True)
    kept: list[bytes] = []
    last = 0  # generation that has a line
    damaged: list[int] = []
    later: list[int] = []
    for number, line in enumerate(lines, start=1):
        found = line_generation(line, check)
        if found is None and not line.endswith(b"\n"):
            continue
        if found is None or found <= last:
            damaged.append(number)
        elif found > generation:
            later.append(number)
        else:
            damaged += later  # its number is wrong, or this line would not follow
            later = []
            kept.append(line.rstrip(b"\n") + b"\n")
            last = found
    problems = []
    if damaged:
        aside = set_aside(path)
        problems.append(f"{path}: {_listed(damaged)} damaged; the old file is {aside}")
    if damaged or b"".join(kept) != content:
        write_bytes(path, b"".join(kept))
    if last < generation:
        problems.append(f"{path}: the lines after generation {last} are missing")
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


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]} is"
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    return f"lines {shown}{f' and {len(numbers) - _MOST_NAMED} more' * (len(numbers) > _MOST_NAMED)} are"
