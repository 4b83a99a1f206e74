"""The presets of a training run: data only, read by `tetris.training.recipe`.

Every preset names all settings of a recipe except device and backend. A curriculum is a list of stages
BOARD:GENERATIONS:DECISIONS[:split], decisions on each stream. A low board comes first: its games are short
and tell bad candidates apart quickly. The best weights there are not the best on a high board.
There no game of a good candidate ends within the decisions, and importance splitting estimates fitness. Noise
keeps the search from converging on the low board's optimum. It fades, so that the search converges.
"""

from __future__ import annotations

from collections.abc import Mapping

Setting = str | int | float

DEFAULT_PRESET = "quick"

_COMMON: Mapping[str, Setting] = {
    "board": "10x20",
    "rule": "published",
    "pieces": "uniform",
    "features": "dt_full",
    "generations": 0,
    "seed": 1,
    "pieces_known": 1,
}

PRESETS: Mapping[str, Mapping[str, Setting]] = {
    # 230 million decisions: about a minute on two cores. After 10x10 the controller scores about as
    # DT-20 on 10x20; the generations on 10x20 multiply that several times.
    "quick": {
        **_COMMON,
        "noise": "hyperbolic:0.03",
        "averaging": 0.1,
        "curriculum": "10x10:15:500,10x20:10:1000:split",
        "population": 100,
        "elites": 15,
        "streams": 128,
        "decisions": 1_250,
        "score_decisions": 12_000_000,
    },
    # 4.4 billion decisions: about a quarter of an hour on two cores.
    "standard": {
        **_COMMON,
        "features": "dt_columns",
        "noise": "hyperbolic:0.02",
        "averaging": 0.2,
        "curriculum": "10x10:20:500,10x20:80:2000:split",
        "population": 200,
        "elites": 30,
        "streams": 128,
        "decisions": 2_500,
        "score_decisions": 64_000_000,
    },
    # 48 billion decisions: hours on a few cores. On a GPU five times as many, in minutes.
    "record": {
        **_COMMON,
        "features": "dt_columns",
        "noise": "hyperbolic:0.01",
        "averaging": 0.2,
        "curriculum": "10x10:20:500,10x20:300:3000:split",
        "population": 200,
        "elites": 30,
        "streams": 264,
        "decisions": 5_000,
        "score_decisions": 1_000_000_000,
    },
}

PYTHON_PRESETS: Mapping[str, Mapping[str, Setting]] = {
    # 120 thousand decisions: about two minutes on the Python engine.
    "quick": {
        "features": "dt",
        "noise": "constant:0.0003",
        "averaging": 0.0,
        "curriculum": "10x6:8:200,10x8:6:400",
        "population": 30,
        "elites": 5,
        "streams": 1,
        "decisions": 300,
        "score_decisions": 6_400,
    },
}

# A multiprocessor has up to 4,096 games in hand. 513 candidates, the mean among them, are 2,036 for each of
# 132 on 524 streams, and twice as many on 1,048. Many streams of few decisions keep a GPU busy, since
# splitting makes four decisions at a time, and estimate as well as few streams of many decisions or better:
# benchmarks/notes/h200-splitting-tried.txt. On 10x20 importance splitting ranks candidates that end a game in
# a billion decisions. Its estimates are noisy: hence many elites, and the average of many means. The features
# depend on the column: the best controllers sort the pieces into lanes.
_CUDA: Mapping[str, Setting] = {
    "population": 512,
    "decisions": 10_000,
    "features": "dt_columns",
    "noise": "hyperbolic:0.01",
    "averaging": 0.2,
}

CUDA_PRESETS: Mapping[str, Mapping[str, Setting]] = {
    # 21 billion decisions.
    "quick": {
        **_CUDA,
        "streams": 524,
        "curriculum": "10x10:20:500,10x20:90:750:split",
        "elites": 50,
        "score_decisions": 500_000_000,
    },
    # 76 billion decisions.
    "standard": {
        **_CUDA,
        "streams": 524,
        "curriculum": "10x10:20:500,10x20:360:750:split",
        "elites": 50,
        "score_decisions": 500_000_000,
    },
    # 260 billion decisions.
    "record": {
        **_CUDA,
        "streams": 1_048,
        "curriculum": "10x10:30:500,10x12:10:1500,10x20:600:750:split",
        "elites": 80,
        "score_decisions": 20_000_000_000,
    },
}

CUDA_PRESETS_MULTIPROCESSORS = 132
"""Multiprocessors of the GPU of these presets; streams and score decisions scale with the GPU in use."""

LEAST_SPLIT_STREAMS = 128
"""The least streams of a preset with importance splitting on a small GPU: see `tetris.split_rollout`."""

DEVICE_PRESETS: Mapping[str, Mapping[str, Mapping[str, Setting]]] = {
    "python": PYTHON_PRESETS,
    "cuda": CUDA_PRESETS,
}
"""The changes of a preset by engine; other presets have none."""
