"""The recipes that scripts/train_tetris.py knows by name: data only, read by `_recipe`.

Every preset names all settings of `_recipe.Recipe` except device and backend. A curriculum is a list of
stages BOARD:GENERATIONS:DECISIONS, decisions on each stream. The boards grow: on a low one games are short,
and bad candidates are told apart fast; on a high one good ones can show what they are worth, but where no
game ends within the decisions all candidates look alike. A little constant noise keeps the search from
settling on what the low boards reward: without it 10x14 loses a third of its score.
"""

from __future__ import annotations

from collections.abc import Mapping

Setting = str | int

DEFAULT_PRESET = "quick"

_COMMON: Mapping[str, Setting] = {
    "board": "10x20",
    "rule": "published",
    "pieces": "uniform",
    "features": "dt",
    "generations": 0,
    "noise": "none",
    "seed": 1,
}

PRESETS: Mapping[str, Mapping[str, Setting]] = {
    # 400 million decisions: about a minute on two cores, two where they are busy.
    "quick": {
        **_COMMON,
        "noise": "constant:0.0003",
        "curriculum": "10x8:20:1000,10x10:20:6000,10x12:8:14000",
        "population": 100,
        "elites": 15,
        "streams": 16,
        "decisions": 10_000,
        "score_decisions": 12_000_000,
    },
    # 7 billion decisions: about a quarter of an hour on two cores.
    "standard": {
        **_COMMON,
        "noise": "constant:0.0001",
        "curriculum": "10x8:20:1000,10x10:22:8000,10x12:12:30000,10x14:8:150000",
        "population": 200,
        "elites": 30,
        "streams": 16,
        "decisions": 20_000,
        "score_decisions": 64_000_000,
    },
    # 110 billion decisions: hours on a few cores, minutes on a large GPU.
    "record": {
        **_COMMON,
        "curriculum": "10x8:20:1000,10x10:22:7500,10x12:14:40000,10x14:10:250000,10x16:7:500000",
        "population": 512,
        "elites": 40,
        "streams": 32,
        "decisions": 40_000,
        "score_decisions": 1_000_000_000,
    },
}

PYTHON_PRESETS: Mapping[str, Mapping[str, Setting]] = {
    # 120 thousand decisions: about two minutes on the Python engine.
    "quick": {
        "curriculum": "10x6:8:200,10x8:6:400",
        "population": 30,
        "elites": 5,
        "streams": 1,
        "decisions": 300,
        "score_decisions": 6_400,
    },
}
"""What a preset changes where only the Python engine plays; one that is not here stays as it is."""
