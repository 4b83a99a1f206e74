"""The settings of a training run, with their ranges and their help, and the presets.

The options of the command, the entries of config files, and the fields of
`tetris.training.recipe.Recipe` are the fields of `Settings`.

Every preset has values for all settings of a recipe except device and backend. A curriculum is
a list of stages BOARD:GENERATIONS:DECISIONS[:split], with the decisions on each stream. A low
board comes first: its games are short, so that they distinguish bad candidates quickly. But the
best weights on a low board are not the best on a high one. On a high board no game of a good
candidate ends within the decisions, so that importance splitting estimates fitness. Noise keeps
the search from converging to the optimum of the low board. It decreases, so that the search
converges at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kernels.support.checks import check_integer
from kernels.support.names import unknown_name
from tetris.game.feature_sets import feature_sets
from tetris.game.rules import MAX_HEIGHT, MAX_WIDTH, MIN_HEIGHT, MIN_WIDTH, RULES
from tetris.play.devices import AUTO, DEVICES

Setting = str | int | float

_COMMON: Mapping[str, Setting] = {
    "board": "10x20",
    "rule": "published",
    "pieces": "uniform",
    "pieces_known": 1,
    "features": "dt_columns",
    "generations": 0,
    "population": 200,
    "elites": 30,
    "averaging": 0.2,
    "halvings": 2,
    "streams": 128,
    "burn_in": 100,
    "seed": 1,
}

DEFAULT_PRESET = "quick"

PRESETS: Mapping[str, Mapping[str, Setting]] = {
    # It makes 117 million decisions, in half a minute to a minute on two cores.
    "quick": {
        **_COMMON,
        "features": "dt_full",
        "noise": "hyperbolic:0.03",
        "averaging": 0.1,
        "curriculum": "10x10:8:300,10x20:20:900:split",
        "population": 80,
        "elites": 10,
        "decisions": 1_250,
        "score_decisions": 4_000_000,
    },
    # It makes 2.3 billion decisions, in about a quarter of an hour on two slow cores.
    "standard": {
        **_COMMON,
        "noise": "hyperbolic:0.02",
        "curriculum": "10x10:20:500,10x20:80:2000:split",
        "decisions": 2_500,
        "score_decisions": 64_000_000,
    },
    # It makes 25 billion decisions, in hours on a few cores. On a GPU it makes five times as
    # many, in minutes.
    "record": {
        **_COMMON,
        "noise": "hyperbolic:0.01",
        "curriculum": "10x10:20:500,10x20:300:3000:split",
        "streams": 264,
        "decisions": 5_000,
        "score_decisions": 1_000_000_000,
    },
    # SZ-Tetris: 160 million decisions. A game has a few hundred lines, so that many games end.
    "sz": {
        **_COMMON,
        "pieces": "SZ",
        "noise": "hyperbolic:0.02",
        "curriculum": "10x20:200:1000",
        "population": 100,
        "elites": 15,
        "streams": 16,
        "decisions": 1_000,
        "score_decisions": 4_000_000,
    },
}

PYTHON_PRESETS: Mapping[str, Mapping[str, Setting]] = {
    # It makes 120 thousand decisions, in about two minutes.
    "quick": {
        "features": "dt",
        "noise": "constant:0.0003",
        "averaging": 0.0,
        "curriculum": "10x6:8:200,10x8:6:400",
        "population": 30,
        "elites": 5,
        "halvings": 0,
        "streams": 1,
        "decisions": 300,
        "score_decisions": 6_400,
    },
}
"""The settings of a preset that are different on the Python engine. Others are the same."""

# A multiprocessor plays up to 4,096 games at a time. 513 players, which are 512 candidates and
# the mean, on 524 streams are 2,036 games for each of 132 multiprocessors. Splitting makes four
# decisions at a time, so that it takes many streams to keep a GPU busy. Many streams of few
# decisions estimate as well as few streams of many decisions
# (benchmarks/notes/h200-splitting-tried.txt). The estimates are noisy for candidates that end
# one game in a billion decisions. So there are many elites, and the result is an average of
# many means. The features depend on the column, because the best controllers sort the pieces
# into lanes.
_CUDA: Mapping[str, Setting] = {
    "features": "dt_columns",
    "noise": "hyperbolic:0.01",
    "averaging": 0.2,
    "population": 512,
    "elites": 50,
    "streams": 524,
    "decisions": 10_000,
    "score_decisions": 500_000_000,
}

CUDA_PRESETS: Mapping[str, Mapping[str, Setting]] = {
    # "quick", "standard" and "record" make 12 billion, 43 billion and 282 billion decisions.
    "quick": {**_CUDA, "curriculum": "10x10:20:500,10x20:90:750:split"},
    "standard": {**_CUDA, "curriculum": "10x10:20:500,10x20:360:750:split"},
    "record": {
        **_CUDA,
        "features": "dt_step_pairs",
        "curriculum": "10x10:30:500,10x12:10:1500,10x20:1200:750:split",
        "elites": 80,
        "streams": 1_048,
        "score_decisions": 20_000_000_000,
    },
    # It makes 81 billion decisions. Games end soon, so that streams which do not fill a GPU are
    # enough.
    "sz": {
        **_CUDA,
        "features": "dt_step_pairs",
        "noise": "hyperbolic:0.005",
        "curriculum": "10x20:2400:1000",
        "streams": 132,
    },
}
"""The settings of a preset that are different on a GPU."""

CUDA_PRESETS_MULTIPROCESSORS = 132
"""The multiprocessors of the GPU for which these presets are made.

On other GPUs the streams and the score decisions are scaled by the number of multiprocessors.
"""

LEAST_SPLIT_STREAMS = 128
"""The fewest streams of a preset with splitting, and of an estimate; see `split_rollout`."""


def _setting(group: str, metavar: str, text: str, low: int = 0, high: int | None = None) -> Any:
    """Return a field of `Settings`, with the metadata of its option on the command line.

    Args:
        group: The group of options in the help.
        metavar: The placeholder for the value in the help.
        text: The text of the help.
        low: The minimum of an integer.
        high: The maximum of an integer; None: no maximum.
    """
    return field(
        metadata={"group": group, "metavar": metavar, "help": text, "low": low, "high": high}
    )


@dataclass(frozen=True)
class Settings:
    """All settings of a run and of its scores; the content of ``config.json``."""

    preset: str = _setting(
        "recipe", "NAME", f"{', '.join(PRESETS)} (default: {DEFAULT_PRESET})"
    )
    board: str = _setting(
        "game", "WxH", f"columns x rows, {MIN_WIDTH}..{MAX_WIDTH} x {MIN_HEIGHT}..{MAX_HEIGHT}"
    )
    rule: str = _setting("game", "NAME", ", ".join(RULES))
    pieces: str = _setting("game", "SOURCE", "uniform, bag, or letters of IOTZSJL such as SZ")
    features: str = _setting(
        "game",
        "SET",
        f"{', '.join(feature_sets())}, or names with commas; +8 adds 8 hidden units",
    )
    curriculum: str = _setting(
        "search",
        "STAGES",
        "BOARD:GENERATIONS[:DECISIONS][:split],... such as 10x10:22,10x12:14:4000; with it, "
        "--board is played only with --generations",
    )
    generations: int = _setting(
        "search", "N", "on --board, after --curriculum; without one there is no other stage"
    )
    population: int = _setting("search", "N", "candidates per generation", 2)
    elites: int = _setting("search", "N", "candidates that make the next generation", 2)
    noise: str = _setting(
        "search", "SCHEDULE", "none, constant:A, linear:A,B or hyperbolic:A, a variance"
    )
    averaging: float = _setting(
        "search",
        "SHARE",
        "learn an average of means, mostly over this share of the generations; "
        "0: the last mean",
    )
    halvings: int = _setting(
        "search", "N", "how often the worse half drops out in a generation", 0, 16
    )
    streams: int = _setting("search", "N", "streams of games per candidate", 1)
    burn_in: int = _setting("search", "N", "with split, decisions per stream before they count")
    decisions: int = _setting("search", "N", "decisions on each stream", 1, 1 << 62)
    backend: str = _setting(
        "machine", "NAME", f"what draws and updates: {AUTO}, cpu, cuda, torch (default: {AUTO})"
    )
    device: str = _setting("machine", "NAME", f"engine: {', '.join(DEVICES)} (default: {AUTO})")
    seed: int = _setting("recipe", "N", "same seed, same result", 0, (1 << 64) - 1)
    score_decisions: int = _setting(
        "run",
        "N",
        "decisions per controller and board in the final comparison "
        "(0: none; estimates need 2.5 M)",
    )
    pieces_known: int = _setting("game", "N", "1, or 2: the next piece is known, too", 1, 2)


SETTINGS = {setting.name: setting for setting in fields(Settings)}
"""The fields of the settings by name. Their ``metadata`` are the arguments of `_setting`."""


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Validate settings; return a copy, with their numbers converted to int or float.

    Args:
        settings: Some or all settings by name.

    Raises:
        TypeError: If a value has the wrong type.
        ValueError: If a name is unknown, or a number is out of range.
    """
    checked = dict(settings)
    for name, value in settings.items():
        if name not in SETTINGS:
            raise unknown_name("setting", name, SETTINGS)
        setting = SETTINGS[name]  # The dataclass field of this name.
        if setting.type is int:
            checked[name] = check_integer(
                name, value, setting.metadata["low"], setting.metadata["high"]
            )
        elif setting.type is float:
            # A bool is an int in Python, but not a number here.
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number:
                raise TypeError(f"expected {name} to be a number, got {value!r}")
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"expected {name} to be from 0 to 1, got {value}")
            checked[name] = float(value)
        elif not isinstance(value, str):
            raise TypeError(f"expected {name} to be a text, got {value!r}")
    return checked
