"""The optimiser beside its peers: quality on BBOB, speed of a generation, behaviour on awkward fitness."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from measure import bbob, behaviour, generation
from measure.provenance import Measured
from tetris.commands.command_line import one_line_errors

Part = Callable[[argparse.Namespace, str], tuple[dict[str, float], dict[str, Any]]]
PARTS: dict[str, Part] = {
    "quality": lambda arguments, device: bbob.measure_searches(jobs=arguments.jobs),
    "speed": lambda arguments, device: generation.measure(arguments, device)[:2],
    "behaviour": lambda arguments, device: behaviour.measure(),
}
"""What is compared: each returns figures and details."""


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details of the parts, one after the other."""
    figures: dict[str, float] = {}
    details: dict[str, Any] = {}
    for part in arguments.parts or PARTS:
        with one_line_errors():
            found, details[part] = PARTS[part](arguments, device)
        figures |= found
    return figures, details, {}
