"""The same games by several engines, to be compared."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from tetris import native
from tetris.controller import published
from tetris.feature_sets import feature_names
from tetris.rollouts import Rollout
from tetris.rules import Rules


def weights_for(features: str, width: int, population: int = 3) -> torch.Tensor:
    """Random weights, and a good controller where there is one for the set."""
    names = feature_names(features, width)
    generator = torch.Generator().manual_seed(len(names) + width)
    weights = torch.randn(population, len(names), generator=generator)
    good = {"dt": "dt20", "bcts": "bcts", "dellacherie": "dellacherie"}.get(features)
    if good is not None:
        weights[0] = torch.tensor(published(good).weights)
    return weights


def assert_equal(one: Rollout, *others: Rollout, decisions: int) -> None:
    first = one.advance(decisions)
    for other in others:
        second = other.advance(decisions)
        assert torch.equal(first.lines, second.lines)
        assert torch.equal(first.games, second.games)
        assert torch.equal(first.decisions, second.decisions)
        assert torch.equal(one.boards, other.boards)


def all_engines(
    weights: torch.Tensor, rules: Rules, streams: int, seed: int, **options: Any
) -> list[Rollout]:
    """The same games in Python, in the processor's vectors and on the path of any processor."""
    return [
        Rollout(weights, rules, streams, seed, "python", **options),
        Rollout(weights, rules, streams, seed, "cpu", **options),
        Rollout(weights, rules, streams, seed, "cpu", portable=True, **options),
    ]


def engines_and_avx2(
    weights: torch.Tensor, rules: Rules, streams: int, seed: int, **options: Any
) -> list[Rollout]:
    """The same, and in the lanes of AVX2 where the processor has them: low stacks in 16 bits."""
    found = all_engines(weights, rules, streams, seed, **options)
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return found
    games = Rollout(weights, rules, streams, seed, portable=True, **options)
    portable = native.extension(
        games.names, native=False, pieces_known=games.pieces_known, lookahead=games.lookahead
    )
    name = f"{portable.name}_avx2"
    defines = tuple((key, name if key == "TETRIS_LIBRARY" else value) for key, value in portable.defines)
    dataclasses.replace(portable, name=name, defines=defines, flags=("-mavx2",)).load()
    games._operators = getattr(torch.ops, name)
    return [*found, games]
