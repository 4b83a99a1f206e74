"""The settings of a training run, a field each with its range and its help.

The options of the command, config files and `tetris.training.recipe.Recipe` are made of these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kernels.support.checks import check_integer
from kernels.support.names import unknown_name
from tetris.game.feature_sets import feature_sets
from tetris.game.rules import MAX_HEIGHT, MAX_WIDTH, MIN_HEIGHT, MIN_WIDTH, RULES
from tetris.play.devices import DEVICES
from tetris.training.presets import DEFAULT_PRESET, PRESETS


def _setting(group: str, metavar: str, text: str, least: int = 0, most: int | None = None) -> Any:
    """Return a field: the group of its option, what its value is called there, its help, and its range."""
    return field(metadata={"group": group, "metavar": metavar, "help": text, "least": least, "most": most})


@dataclass(frozen=True)
class Settings:
    """All settings of a run and of its scores; the content of ``config.json``."""

    preset: str = _setting("recipe", "NAME", f"{', '.join(PRESETS)} (default: {DEFAULT_PRESET})")
    board: str = _setting(
        "game", "WxH", f"columns x rows, {MIN_WIDTH}..{MAX_WIDTH} x {MIN_HEIGHT}..{MAX_HEIGHT}"
    )
    rule: str = _setting("game", "NAME", ", ".join(RULES))
    pieces: str = _setting("game", "SOURCE", "uniform, bag, or letters of IOTZSJL such as SZ")
    features: str = _setting(
        "game", "SET", f"{', '.join(feature_sets())}, or names with commas (docs/features.md)"
    )
    curriculum: str = _setting(
        "search",
        "STAGES",
        "BOARD:GENERATIONS[:DECISIONS][:split],... such as 10x10:22,10x12:14:4000; where it is given, "
        "--board is played only with --generations",
    )
    generations: int = _setting(
        "search", "N", "on --board, after --curriculum; without one there is no other stage"
    )
    population: int = _setting("search", "N", "candidates per generation", 2)
    elites: int = _setting("search", "N", "candidates that make the next generation", 2)
    noise: str = _setting(
        "search",
        "SCHEDULE",
        "none, constant:A, linear:A,B or hyperbolic:A, a variance",
    )
    averaging: float = _setting(
        "search",
        "SHARE",
        "learn an average of means, mostly over this share of the generations; 0: the last mean",
    )
    streams: int = _setting("search", "N", "streams of games per candidate", 1)
    decisions: int = _setting("search", "N", "decisions on each stream", 1, 1 << 62)
    backend: str = _setting(
        "machine", "NAME", "what draws and updates: auto, cpu, cuda, torch (default: auto)"
    )
    device: str = _setting("machine", "NAME", f"engine: {', '.join(DEVICES)} (default: auto)")
    seed: int = _setting("recipe", "N", "same seed, same result", 0, (1 << 64) - 1)
    score_decisions: int = _setting(
        "run",
        "N",
        "decisions per controller and board in the final comparison (0: none; estimates need 2.5 M)",
    )
    pieces_known: int = _setting("game", "N", "1, or 2: the next piece is known, too", 1, 2)


SETTINGS = {each.name: each for each in fields(Settings)}
"""The settings by name; their ``metadata`` are the arguments of `_setting`."""


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name; TypeError and ValueError name a wrong one."""
    checked = dict(settings)
    for name, value in settings.items():
        if name not in SETTINGS:
            raise unknown_name("setting", name, SETTINGS)
        setting = SETTINGS[name]
        if setting.type == "int":
            checked[name] = check_integer(name, value, setting.metadata["least"], setting.metadata["most"])
        elif setting.type == "float":
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise TypeError(f"expected {name} to be a number, got {value!r}")
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"expected {name} to be from 0 to 1, got {value}")
            checked[name] = float(value)
        elif not isinstance(value, str):
            raise TypeError(f"expected {name} to be a text, got {value!r}")
    return checked
