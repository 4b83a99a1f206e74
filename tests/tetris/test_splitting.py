"""Importance splitting: it finds the rate that long play finds, alike on every engine."""

from __future__ import annotations

import random
from typing import cast

import pytest
import torch
from engine_games import NONE, PREVIEW, few_features, weights_for

from tetris import Lookahead, Policy, Rollout, Rules, Streams, published, rollout, split_rollout
from tetris.play import splitting
from tetris.play.splitting import (
    MOST_STREAMS,
    StreamWeights,
    least_rate,
    levels,
    resampled,
    systematic,
)

DT20 = published("dt20")
EIGHT = Policy([DT20.weights] * 8)
# Games are short here, so that they end within a test.
pytestmark = pytest.mark.filterwarnings("ignore:expected at most:RuntimeWarning")


def test_the_rate_is_that_of_long_play() -> None:
    # Both estimates are unbiased but for some percent; that they are further apart than five
    # standard errors and that has a probability below 1e-5. Boards that changed bags in the
    # middle ended games half as often again.
    rules = Rules(10, 7, pieces="bag")
    played = rollout(DT20.policy(), Streams(rules, 256, 1), 20_000)
    rate = int(played.games) / int(played.decisions)
    with pytest.warns(RuntimeWarning, match="at most 9.5e-07 games ended per decision, got"):
        split = split_rollout(EIGHT, Streams(rules, 256, 2, shared=False), 1200)
    error = (rate**2 / int(played.games) + float(split.rate.var()) / 8) ** 0.5
    assert float(split.rate.mean()) == pytest.approx(rate, abs=5 * error + 0.03 * rate)
    assert split.lines_per_game.tolist() == pytest.approx((0.4 / split.rate).tolist())
    assert split.decisions.tolist() == [256 * 1200] * 8
    assert split.resolved.all()


@pytest.mark.parametrize(("lookahead", "known"), [(NONE, 0), (PREVIEW, 1)])
def test_boards_are_copied_when_all_pieces_of_a_bag_are_known(
    monkeypatch: pytest.MonkeyPatch, lookahead: Lookahead, known: int
) -> None:
    copied = []
    monkeypatch.setattr(Rollout, "branch", lambda games, *_: copied.append(games.decisions))
    features = few_features(10)
    policy = Policy(weights_for(features, 10, 1), features, lookahead)
    split_rollout(policy, Streams(Rules(10, 7, pieces="bag"), 2), 213)
    assert copied == [7 * bag - known for bag in range(1, 31)]


@pytest.mark.parametrize(
    ("rules", "count", "lookahead"),
    [
        (Rules(6, 8), 8, NONE),
        (Rules(4, 4, pieces="bag"), 3, PREVIEW),
        (Rules(6, 6, pieces="bag", original=True), 4, NONE),
    ],
    ids=["none", "preview", "original"],
)
def test_the_engines_find_the_same(rules: Rules, count: int, lookahead: Lookahead) -> None:
    features = few_features(rules.width)
    policy = Policy(weights_for(features, rules.width, 2), features, lookahead)
    one, other = (
        split_rollout(policy, Streams(rules, count, 4, first=5), 213, device)
        for device in ("cpu", "python")
    )
    for name in ("rate", "lines_per_game", "lines", "games", "decisions"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert one.games.sum() > 0


def test_where_no_game_ends_the_rate_is_zero() -> None:
    split = split_rollout(DT20.policy(), Streams(Rules(10, 24), 2), 213)
    assert (float(split.rate), float(split.lines_per_game)) == (0.0, float("inf"))
    assert not split.resolved.any()


def test_a_rate_that_rounded_weights_bias_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is 1.32e-5 for DT-20 on 10x12 (benchmarks/notes/splitting-weights.md), and here 8.3
    # times as much.
    monkeypatch.setattr(splitting, "_WEIGHT", 1 << 16)
    monkeypatch.setattr(splitting, "_PARTS", 1)
    monkeypatch.setattr(
        splitting, "StreamWeights", lambda games, _: StreamWeights(games)
    )  # in Python
    split = split_rollout(EIGHT, Streams(Rules(10, 12), 264, 2, shared=False), 803)
    assert float(split.rate.mean()) > 4 * 1.32e-5
    assert not split.resolved.any()


class Walk:
    """Stacks that rise by a row in one decision of ten and fall by one otherwise; a game ends
    above `TOP`."""

    TOP, RISES, streams = 22, 0.1, Streams(shared=False)

    def __init__(self, population: int, streams: int) -> None:
        self.stream_games = torch.zeros(population, streams, dtype=torch.int64)
        self.heights = torch.zeros_like(self.stream_games)
        self.random = torch.Generator().manual_seed(1)

    @property
    def column_heights(self) -> torch.Tensor:
        return self.heights.unsqueeze(-1)

    def play_on(self) -> None:
        up = torch.rand(self.heights.shape, generator=self.random) < self.RISES
        self.heights = torch.where(up, self.heights + 1, (self.heights - 1).clamp(0))
        over = self.heights > self.TOP
        self.stream_games = self.stream_games + over
        self.heights[over] = 0

    def rate(self) -> float:
        """In the long run as many stacks fall from a row, or end, as rise to it."""
        shares = [
            1 / self.RISES
        ]  # of the decisions on the rows from the top, where one game ends
        for _ in range(self.TOP):
            shares.append((shares[-1] * (1 - self.RISES) + 1) / self.RISES)
        return 1 / sum(shares)


def test_a_rate_of_one_in_ten_thousand_million_million_million_is_measured() -> None:
    # The mean is further away than five standard errors with a probability below 1e-3: the
    # spread is skew.
    games, steps, burn_in, bits = Walk(32, 1024), 600, 300, random.Random(1)
    weights = StreamWeights(cast("Rollout", games))
    for step in range(steps):
        games.play_on()
        source, _ = weights.resample(bits.getrandbits(12), counts=step >= burn_in)
        games.heights = games.heights.gather(1, source)
    rates = weights.ended / (steps - burn_in)
    error = float(rates.std()) / 32**0.5
    assert error < 0.15 * games.rate()
    assert float(rates.mean()) == pytest.approx(games.rate(), abs=5 * error)
    assert games.rate() > least_rate(1024)


def test_streams_are_taken_in_proportion_to_their_copies() -> None:
    copies = torch.tensor([[1, 1, 1, 1], [4, 2, 1, 1], [1, 1, 5, 1]]) << 20
    for bits in (0, 1000, 4095):
        source = systematic(copies, torch.full((3, 1), bits))
        assert source[0].tolist() == [0, 1, 2, 3]
        assert source[1, :3].tolist() == [0, 0, 1]
        assert source[1, 3] in (2, 3)
        assert source[2].tolist().count(2) in (2, 3)
    each = systematic(copies[[1, 1]], torch.tensor([[0], [4096 + 4095]]))
    assert each[:, 3].tolist() == [2, 3]


def doubles(*shape: int, fill: float = 0.0) -> torch.Tensor:
    return torch.full(shape, fill, dtype=torch.float64)


def test_levels_get_equal_numbers_and_keep_their_weight() -> None:
    level = torch.tensor([[0] * 60 + [5] * 4])
    held, weight = doubles(1, 32), doubles(1, 64, fill=2.0**44)
    source, weight = resampled(
        weight, level, held, doubles(1, 1, fill=1), 1, torch.tensor([[77]])
    )
    assert torch.bincount(level.gather(1, source)[0]).tolist() == pytest.approx(
        [32, 0, 0, 0, 0, 32], abs=1
    )
    assert torch.bincount(source[0])[60:].tolist() == pytest.approx([8] * 4, abs=1)
    for at, held_there in ((0, 60), (5, 4)):
        there = weight[0, level.gather(1, source)[0] == at]
        assert int(there.sum()) == pytest.approx(held_there << 44, rel=0.05)
    assert int(weight.sum()) == pytest.approx(1 << 50)
    assert held[0, [0, 5]].tolist() == [60 * 2**44, 4 * 2**44]
    assert (weight == weight.floor()).all()


def test_weights_have_parts_once_one_of_them_is_below_1() -> None:
    level = torch.tensor([[0] * 62 + [5] * 2]).expand(2, -1)
    unit, weight = doubles(2, 1, fill=1), doubles(2, 64, fill=2.0**44)
    weight[:, 62:] = torch.tensor([[6000.0], [3.0]])
    source, weight = resampled(
        weight, level, doubles(2, 32), unit, 1, torch.tensor([[77], [77]])
    )
    assert unit[:, 0].tolist() == [1, 2.0**-40]
    for each, held_there in ((0, 12000), (1, 6)):
        there = weight[each, level[each].gather(0, source[each]) == 5]
        assert float(there.sum()) == pytest.approx(held_there, rel=0.1)
    assert (weight[0] == weight[0].floor()).all()
    assert 0 < float(weight[1].min()) < 1


def test_a_level_that_holds_less_than_usual_is_not_filled_up() -> None:
    level = torch.tensor([[0] * 60 + [5] * 4])
    weight, held = doubles(1, 64, fill=2.0**44), doubles(1, 32)
    held[0, [0, 5]] = 2.0**50 * 0.9  # usually half of all is at level 5
    source, _ = resampled(weight, level, held, doubles(1, 1, fill=1), 2, torch.tensor([[77]]))
    many = int((level.gather(1, source) == 5).sum())
    assert 4 < many < 16


def test_whole_numbers_suffice_for_the_most_streams_there_are() -> None:
    copies = torch.full((1, MOST_STREAMS), 1 << 36)
    assert systematic(copies, torch.tensor([[4095]]))[0].tolist() == list(range(MOST_STREAMS))
    weight = doubles(1, MOST_STREAMS, fill=1)
    weight[0, 0] = 2.0**50
    level, unit = torch.arange(MOST_STREAMS).unsqueeze(0) % 32, doubles(1, 1, fill=1)
    source, after = resampled(weight, level, doubles(1, 32), unit, 1, torch.tensor([[4095]]))
    assert torch.bincount(level.gather(1, source)[0]).tolist() == pytest.approx(
        [256] * 32, abs=1
    )
    assert float(after.min()) > 0
    assert int(after.sum()) == pytest.approx(1 << 50, rel=1e-6)


def test_levels_count_the_highest_column_and_all_of_them() -> None:
    games = Rollout(Policy([DT20.weights] * 2), Streams(Rules(10, 24), 2, 1))
    games.columns[0, 0] = (1 << 24) - 1
    games.columns[0, 1, 3] = 1 << 19  # 20 rows, 2 in the mean: 0.6 * 20 + 0.9 * 2 - 6 = 7.8
    games.columns[1, 0] = 1 << 3  # 4 rows everywhere: 2.4 + 3.6 - 6
    assert levels(games).tolist() == [[30, 7], [0, 0]]


def test_streams_go_on_with_the_boards_of_others() -> None:
    games = Rollout(Policy([DT20.weights] * 2), Streams(Rules(10, 20), 3, 1))
    games.advance(30)
    boards, heights = games.boards, games.column_heights
    cells = torch.stack([(boards >> column & 1) * torch.arange(1, 21) for column in range(10)])
    assert torch.equal(heights, cells.amax(-1).permute(1, 2, 0))
    games.branch(torch.tensor([[2, 2, 0], [0, 1, 2]]))
    assert torch.equal(games.boards[0], boards[0, [2, 2, 0]])
    assert torch.equal(games.boards[1], boards[1])
    assert torch.equal(games.column_heights[0], heights[0, [2, 2, 0]])
    # They part at the next piece, which is each stream's own.
    games.advance(20)
    assert not torch.equal(games.boards[0, 0], games.boards[0, 1])


@pytest.mark.parametrize(
    ("streams", "decisions", "message"),
    [
        (Streams(count=1), 400, "expected count of streams from 2 to 8192, got 1"),
        (Streams(count=8, games=1), 400, "expected streams that do not stop, got games=1"),
        (Streams(count=8), 212, "expected decisions from 213 to .*, got 212"),
    ],
)
def test_bad_counts_are_refused(streams: Streams, decisions: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_rollout(DT20.policy(), streams, decisions)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("population", "count", "shared", "lookahead"),
    [
        (2, 100, True, NONE),
        (300, 100, True, NONE),
        (3, 1100, False, NONE),
        (3, 100, False, PREVIEW),
    ],
    ids=[
        "warps",
        "threads",
        "several streams a thread of the resampling",
        "the next piece known",
    ],
)
def test_a_gpu_finds_what_the_cpu_does(
    population: int, count: int, shared: bool, lookahead: Lookahead
) -> None:
    weights = torch.randn(population, 9, generator=torch.Generator().manual_seed(1))
    weights[0] = torch.tensor(DT20.weights)
    policy, streams = (
        Policy(weights, lookahead=lookahead),
        Streams(Rules(10, 10), count, 4, 5, shared),
    )
    one, other = (split_rollout(policy, streams, 260, device) for device in ("cpu", "cuda"))
    for name in ("rate", "lines_per_game", "lines", "games", "decisions"):
        assert torch.equal(getattr(one, name), getattr(other, name).cpu())


@pytest.mark.parametrize(
    ("pieces", "decisions", "rate"), [("uniform", 40, 1 / 16), ("bag", 42, 1 / 28)]
)
def test_the_rate_is_what_ended_after_the_burn_in_by_the_decisions_after_it(
    monkeypatch: pytest.MonkeyPatch, pieces: str, decisions: int, rate: float
) -> None:
    class Weights:
        """Of which a quarter ends in every step."""

        def __init__(self, games: Rollout, operators: object) -> None:
            self.ended, self.keep = doubles(1), games.keep

        def resample(self, bits: int, *, counts: bool) -> tuple[torch.Tensor, None]:
            self.ended += 0.25 * counts
            return torch.arange(2).unsqueeze(0), None

    monkeypatch.setattr(splitting, "StreamWeights", Weights)
    streams = Streams(Rules(5, 20, pieces=pieces), 2)
    games = splitting.SplitRollout(Policy([-1.0], "holes"), streams, "python", burn_in=8)
    assert games.advance(decisions).rate.tolist() == pytest.approx([rate])
    assert games.advance(28).rate.tolist() == pytest.approx([rate])


def test_the_least_rate_is_four_units_of_weight_a_stream() -> None:
    assert least_rate(1024) == 4 * 1024 * 2.0**-40 / 2**50
