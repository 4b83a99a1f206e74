"""The C++ engine plays the same games from every compiler, on every processor, in a wheel.

A digest is of games with 11 shapes on boards of all sizes, by all rules, with all pieces.
"""

from __future__ import annotations

import hashlib

import pytest
import torch
from measure.equality import SHAPES, Configuration, configurations
from measure.work import good_weights

from tetris import Lookahead, Policy, Rollout, feature_names

DIGESTS = {
    ("dellacherie", Lookahead.NONE): (
        "a004aa4453bbb33e669a5052513f40d5bdfda29342c483d93f9b23da63b1605f"
    ),
    ("bcts", Lookahead.NONE): (
        "7d7c7bd07eefdd2985ff03e2b120fe7736beb378f61c9313d3fe5918e7fad355"
    ),
    ("dt", Lookahead.NONE): (
        "bd04ab93186c988e98646dd675312928b55bb7388a56d8d98f692f502ed5911e"
    ),
    ("dt_full", Lookahead.NONE): (
        "47da974b948d169d7437962e8fe573402b3fb01e1cf81572e6155be32f3110b8"
    ),
    ("dt", Lookahead.PREVIEW): (
        "a66c6faee923709371c049f2e50df51a703b5c1aa71a8bf8105f65b5853bec3d"
    ),
}


def weights_of(game: Configuration) -> torch.Tensor:
    """Return weights that are the same on every processor, as random normal numbers are not."""
    width = game.streams.rules.width
    shape = (game.population, len(feature_names(game.features, width)))
    generator = torch.Generator().manual_seed(game.population)
    noise = torch.randint(-512, 513, shape, generator=generator) / 1024
    if game.weights == "random":
        return noise
    return torch.tensor(good_weights(game.features, width)) * (1 + noise)


def digest_of(features: str, lookahead: Lookahead) -> tuple[str, int]:
    """Return the digest of games, and how many decisions they have."""
    digest = hashlib.sha256()
    decisions = 0
    for game in configurations(len(SHAPES), [features], lookahead):
        policy = Policy(weights_of(game), game.features, game.lookahead)
        rollout = Rollout(policy, game.streams)
        totals = rollout.advance(sum(game.parts))
        for tensor in (totals.lines, totals.games, totals.decisions, rollout.boards):
            digest.update(tensor.numpy().tobytes())
        decisions += int(totals.decisions.sum())
    return digest.hexdigest(), decisions


@pytest.mark.slow
@pytest.mark.parametrize(("features", "lookahead"), DIGESTS)
def test_games_have_the_digest_of_every_build(features: str, lookahead: Lookahead) -> None:
    digest, decisions = digest_of(features, lookahead)
    assert decisions > 1_000_000
    assert digest == DIGESTS[features, lookahead]
