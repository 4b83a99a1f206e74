"""Pieces of Markdown that pages with measured figures are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def origin(result: Mapping[str, Any], file: str) -> str:
    """Return where figures come from, as a line of small print.

    Args:
        result: What was measured.
        file: The file that holds it, from the root; ``{root}`` in the line stands for the way there.
    """
    machine, versions = result["machine"], result["versions"]
    if "gpu" in machine:
        name = f"{machine['gpu']}, driver {machine.get('driver', 'unknown')}, CUDA {machine['cuda']}"
    else:
        name = f"{machine['processor']}, {machine['cores']} cores"
    return (
        f"<sub>{name}, torch {versions['torch']}, Python {versions['python']}, {result['date'][:10]}; "
        f"[{file}]({{root}}{file}), sources {result['sources'][:12]}.</sub>"
    )
