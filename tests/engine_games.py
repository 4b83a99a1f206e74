"""The same games by several engines, to be compared."""

from __future__ import annotations

import dataclasses
import re
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.loader import CompilerMissingError, Extension
from tetris import Lookahead, Policy, Streams
from tetris.game.feature_sets import _last_column, feature_names, weight_names
from tetris.game.features import FEATURES
from tetris.game.rules import MIN_WIDTH, Rules
from tetris.play import engines as native
from tetris.play.controller import published
from tetris.play.rollouts import ENGINES, Rollout

_TETRIS = Path(__file__).parent / "tetris"
_PIECES = "IOTZSJL"
_REGISTERED = tuple(FEATURES)  # before a test adds features of its own
GAMES = [
    Streams(Rules(10, 20), 3),
    Streams(Rules(10, 9, clear_on_overflow=True, pieces="bag"), 3, shared=False),
    Streams(Rules(4, 4), 3, first=1 << 62, seed=(1 << 64) - 1, games=2),
    Streams(Rules(5, 8, pieces="bag", original=True), 3, shared=False, games=3),
    Streams(Rules(7, 13, clear_on_overflow=True, pieces="SZ"), 3, games=1),
    Streams(Rules(10, 24, pieces="IT", original=True), 3, first=5),
]
"""Every rule, kind of pieces and option, on boards of every kind; by pairs, not all
together."""

NONE, PREVIEW, EXPECTIMAX = Lookahead

LANES = {"portable": ("-msse4.1",), "avx2": ("-mavx2",)}
"""Builds of the C++ engine for other processors: both keep low stacks in 16 bits."""


def policy_for(lookahead: Lookahead, width: int, population: int = 3) -> Policy:
    """Random policies of every feature, or of some of each kind where they look ahead."""
    features = every_feature(width) if lookahead is NONE else few_features(width)
    return Policy(weights_for(features, width, population), features, lookahead)


def every_feature(width: int) -> str:
    """All features of the registry, of those with numbers some five.

    Columns are those that every board has: one library, and the tables of the steps, for boards
    of any width.
    """
    families: dict[str, list[str]] = {}
    for name in _REGISTERED:
        if (_last_column(name) or 0) < (width if name.startswith("step_") else MIN_WIDTH):
            families.setdefault(re.sub(r"(_\d+)+$", "", name), []).append(name)
    return ", ".join(
        chain(*(names[:: max(1, (len(names) - 1) // 4)] for names in families.values()))
    )


def few_features(width: int) -> str:
    """Some of each kind: what two pieces or all next ones do with them does not depend on the
    feature."""
    return ", ".join(
        [*feature_names("dellacherie"), f"column_height_3, step_0_4, step_pair_{width - 3}_2_4"]
    )


def weights_for(features: str, width: int, population: int = 3) -> torch.Tensor:
    """Random weights, of which the last ones give many placements the same score, after a good
    controller."""
    names = weight_names(features, width)
    weights = torch.randn(
        population, len(names), generator=torch.Generator().manual_seed(len(names) + width)
    )
    weights[2:] = weights[2:].round()
    good = "dt20" if "wells_fast" in names else "dellacherie"
    known = dict(zip(published(good).names_on(Rules()), published(good).weights, strict=True))
    weights[0] = torch.tensor([known.get(name, 0.0) for name in names])
    return weights


def stacks(rules: Rules, count: int) -> torch.Tensor:
    """Stacks of all heights, shape (count, width), as `Rollout.columns` has them."""
    generator = torch.Generator().manual_seed(count + rules.height)
    shape = (count, rules.height, rules.width)
    cells = (
        torch.rand(shape, generator=generator)
        < torch.rand(count, 1, 1, generator=generator) + 0.2
    )
    cells.scatter_(2, torch.randint(rules.width, (*shape[:2], 1), generator=generator), False)
    rows = torch.arange(rules.height)
    cells &= (
        rows < torch.randint(rules.height + 1, (count, 1), generator=generator)
    ).unsqueeze(-1)
    return (cells << rows.unsqueeze(-1)).sum(1, dtype=torch.int32)


def rebuilt(library: Extension, ending: str, **changes: Any) -> Any:
    """The operators of a library that is built in another way; without a compiler the test is
    skipped."""
    name = f"{library.name}_{ending}"
    defines = tuple(
        (key, name if key == "TETRIS_LIBRARY" else value) for key, value in library.defines
    )
    try:
        dataclasses.replace(library, name=name, defines=defines, native=False, **changes).load()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    return getattr(torch.ops, name)


def emulated(library: Extension, kernels: str) -> Any:
    """The operators of a library by its CUDA kernels, on emulated threads."""
    folders = (*library.include_dirs, _TETRIS)
    sources = (_TETRIS / f"emulated_{kernels}.cpp",)
    return rebuilt(
        library, "emulated", sources=sources, include_dirs=folders, cuda=False, cflags=("-O1",)
    )


def played_by(
    engine: str, policy: Policy, streams: Streams, blocks: int = 2, warps: int = 2
) -> Rollout:
    """A rollout on an engine: a device, one of `LANES`, or emulated, a warp or a thread per
    game."""
    device = engine if engine in ENGINES else "cpu"
    games = Rollout(policy, streams, device)
    if device == engine:
        return games
    if engine == "avx2" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip(
            "without AVX-512 the lanes of AVX2 are those of the engine cpu, where there are any"
        )
    library = native.extension(games.names, games.lookahead)
    if engine in LANES:
        games.operators = rebuilt(library, engine, cflags=("-O1", *LANES[engine]))
        return games
    operators = emulated(library, "rollout")

    def advance(*tensors: Any) -> None:
        operators.launch_as(blocks, 0 if engine == "warps" else warps)
        operators.advance(*tensors)

    games.operators = SimpleNamespace(advance=advance)
    return games


def decide(
    engine: str,
    weights: torch.Tensor,
    rules: Rules,
    boards: torch.Tensor,
    pieces: list[int],
    features: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Columns, lines and games after a decision on each board with its piece: (population,
    boards, ...)."""
    shape, falls = (len(weights), len(boards)), torch.tensor(pieces)
    columns = torch.empty((*shape, rules.width), dtype=torch.int32)
    lines, games = torch.empty(shape, dtype=torch.int64), torch.empty(shape, dtype=torch.int64)
    for piece in set(pieces):
        here = (falls == piece).nonzero()[:, 0]
        one = dataclasses.replace(rules, pieces=_PIECES[piece])
        played = played_by(engine, Policy(weights, features), Streams(one, len(here)))
        played.columns[:] = boards[here].to(played.columns.device)
        played.play_on(1)
        columns[:, here], lines[:, here], games[:, here], _ = totals(played)
    return columns, lines, games


def totals(games: Rollout) -> list[torch.Tensor]:
    """All that two engines have in common after the same games."""
    return [
        each.cpu().clone()
        for each in (games.columns, games.stream_lines, games.stream_games, games._placed)
    ]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(first, second) for first, second in zip(one, other, strict=True))
