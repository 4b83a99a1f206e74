"""Importance splitting: it finds the rate that long play finds, alike on every engine."""

from __future__ import annotations

import random
from typing import cast

import pytest
import torch
from engine_games import few_features, weights_for

from tetris import Rollout, Rules, published, rollout, split_rollout
from tetris.play import splitting
from tetris.play.splitting import MOST_STREAMS, StreamWeights, least_rate, levels, resampled, systematic

DT20 = published("dt20").weights


def test_the_rate_is_that_of_long_play() -> None:
    # Both estimates are unbiased but for some percent; that they are further apart than five standard errors
    # and that has a probability below 1e-5. Boards that changed bags in the middle ended games half as often
    # again.
    rules = Rules(10, 7, pieces="bag")
    played = rollout([DT20], rules, 256, 20_000, 1, features="dt")
    rate = int(played.games) / int(played.decisions)
    split = split_rollout([DT20] * 8, rules, 256, 1200, 2, share_streams=False)
    error = (rate**2 / int(played.games) + float(split.rate.var()) / 8) ** 0.5
    assert float(split.rate.mean()) == pytest.approx(rate, abs=5 * error + 0.03 * rate)
    assert split.lines_per_game.tolist() == pytest.approx((0.4 / split.rate).tolist())
    assert split.decisions.tolist() == [256 * 1200] * 8
    assert split.resolved.all()


@pytest.mark.parametrize("known", [1, 2])
def test_boards_are_copied_when_all_pieces_of_a_bag_are_known(
    monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    copied = []
    monkeypatch.setattr(Rollout, "branch", lambda games, _: copied.append(games.decisions))
    features = few_features(10)
    weights = weights_for(features, 10, 1)
    split_rollout(weights, Rules(10, 7, pieces="bag"), 2, 213, features=features, pieces_known=known)
    assert copied == [7 * bag - (known - 1) for bag in range(1, 31)]


@pytest.mark.parametrize(
    ("rules", "streams", "known"),
    [
        (Rules(6, 8), 8, 1),
        (Rules(4, 4, pieces="bag"), 3, 2),
        (Rules(6, 6, pieces="bag", original=True), 4, 1),
    ],
    ids=["one known", "two known", "original"],
)
def test_the_engines_find_the_same(rules: Rules, streams: int, known: int) -> None:
    features = few_features(rules.width)
    weights = weights_for(features, rules.width, 2)
    one, other = (
        split_rollout(
            *(weights, rules, streams, 213, 4, device), features=features, first_stream=5, pieces_known=known
        )
        for device in ("cpu", "python")
    )
    for name in ("rate", "lines_per_game", "lines", "games", "decisions"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    assert one.games.sum() > 0


def test_seed_and_first_stream_choose_pieces_and_resampling() -> None:
    found = {
        float(split_rollout([DT20], Rules(10, 6), 16, 213, seed, first_stream=first).rate)
        for seed, first in ((0, 0), (0, 16), (1, 0))
    }
    assert len(found) == 3


def test_where_no_game_ends_the_rate_is_zero() -> None:
    split = split_rollout([DT20], Rules(10, 24), 2, 213)
    assert (float(split.rate), float(split.lines_per_game)) == (0.0, float("inf"))
    assert not split.resolved.any()


def test_a_rate_that_rounded_weights_bias_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is 1.32e-5 for DT-20 on 10x12 (benchmarks/notes/splitting-weights.md), and here 8.3 times as much.
    monkeypatch.setattr(splitting, "_WEIGHT", 1 << 16)
    monkeypatch.setattr(splitting, "_PARTS", 1)
    split = split_rollout([DT20] * 8, Rules(10, 12), 264, 803, 2, share_streams=False)
    assert float(split.rate.mean()) > 4 * 1.32e-5
    assert not split.resolved.any()


class Walk:
    """Stacks that rise by a row in one decision of ten and fall by one otherwise; a game ends above `TOP`."""

    TOP, RISES, share_streams = 22, 0.1, False

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
        shares = [1 / self.RISES]  # of the decisions on the rows from the top, where one game ends
        for _ in range(self.TOP):
            shares.append((shares[-1] * (1 - self.RISES) + 1) / self.RISES)
        return 1 / sum(shares)


def test_a_rate_of_one_in_ten_thousand_million_million_million_is_measured() -> None:
    # The mean is further away than five standard errors with a probability below 1e-3: the spread is skew.
    games, steps, burn_in, bits = Walk(32, 1024), 600, 300, random.Random(1)
    weights = StreamWeights(cast("Rollout", games))
    for step in range(steps):
        games.play_on()
        source = weights.resample(bits.getrandbits(12), counts=step >= burn_in)
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


def test_levels_get_equal_numbers_and_keep_their_weight() -> None:
    level = torch.tensor([[0] * 60 + [5] * 4])
    held, unit = torch.zeros(1, 32, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    weight = torch.full((1, 64), 2.0**44, dtype=torch.float64)
    source, weight = resampled(weight, level, held, unit, 1, torch.tensor([[77]]))
    assert torch.bincount(level.gather(1, source)[0]).tolist() == pytest.approx([32, 0, 0, 0, 0, 32], abs=1)
    assert torch.bincount(source[0])[60:].tolist() == pytest.approx([8] * 4, abs=1)
    for at, held_there in ((0, 60), (5, 4)):
        there = weight[0, level.gather(1, source)[0] == at]
        assert int(there.sum()) == pytest.approx(held_there << 44, rel=0.05)
    assert int(weight.sum()) == pytest.approx(1 << 50)
    assert held[0, [0, 5]].tolist() == [60 * 2**44, 4 * 2**44]
    assert (weight == weight.floor()).all()


def test_weights_have_parts_once_one_of_them_is_below_1() -> None:
    level = torch.tensor([[0] * 62 + [5] * 2]).expand(2, -1)
    held, unit = torch.zeros(2, 32, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    weight = torch.full((2, 64), 2.0**44, dtype=torch.float64)
    weight[:, 62:] = torch.tensor([[6000.0], [3.0]])
    source, weight = resampled(weight, level, held, unit, 1, torch.tensor([[77], [77]]))
    assert unit[:, 0].tolist() == [1, 2.0**-40]
    for each, held_there in ((0, 12000), (1, 6)):
        there = weight[each, level[each].gather(0, source[each]) == 5]
        assert float(there.sum()) == pytest.approx(held_there, rel=0.1)
    assert (weight[0] == weight[0].floor()).all()
    assert 0 < float(weight[1].min()) < 1


def test_a_level_that_holds_less_than_usual_is_not_filled_up() -> None:
    level = torch.tensor([[0] * 60 + [5] * 4])
    weight = torch.full((1, 64), 2.0**44, dtype=torch.float64)
    held, unit = torch.zeros(1, 32, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    held[0, [0, 5]] = torch.tensor([2.0**50 * 0.9, 2.0**50 * 0.1 * 9], dtype=torch.float64)
    source, _ = resampled(
        weight, level, held, unit, 2, torch.tensor([[77]])
    )  # usually half of all is at level 5
    many = int((level.gather(1, source) == 5).sum())
    assert 4 < many < 16


def test_whole_numbers_suffice_for_the_most_streams_there_are() -> None:
    copies = torch.full((1, MOST_STREAMS), 1 << 36)
    assert systematic(copies, torch.tensor([[4095]]))[0].tolist() == list(range(MOST_STREAMS))
    weight = torch.ones(1, MOST_STREAMS, dtype=torch.float64)
    weight[0, 0] = 2.0**50
    level = torch.arange(MOST_STREAMS).unsqueeze(0) % 32
    held, unit = torch.zeros(1, 32, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    source, after = resampled(weight, level, held, unit, 1, torch.tensor([[4095]]))
    assert torch.bincount(level.gather(1, source)[0]).tolist() == pytest.approx([256] * 32, abs=1)
    assert float(after.min()) > 0
    assert int(after.sum()) == pytest.approx(1 << 50, rel=1e-6)


def test_levels_count_the_highest_column_and_all_of_them() -> None:
    games = Rollout([DT20, DT20], Rules(10, 24), 2, 1)
    games._columns[0, 0] = (1 << 24) - 1
    games._columns[0, 1, 3] = 1 << 19  # 20 rows, 2 in the mean: 0.6 * 20 + 0.9 * 2 - 6 = 7.8
    games._columns[1, 0] = 1 << 3  # 4 rows everywhere: 2.4 + 3.6 - 6
    assert levels(games).tolist() == [[30, 7], [0, 0]]


def test_streams_go_on_with_the_boards_of_others() -> None:
    games = Rollout([DT20, DT20], Rules(10, 20), 3, 1)
    games.advance(30)
    boards, heights = games.boards, games.column_heights
    assert heights.amax(-1).tolist() == [[int((board > 0).sum()) for board in each] for each in boards]
    cells = torch.stack([(boards >> column & 1) * torch.arange(1, 21) for column in range(10)])
    assert torch.equal(heights, cells.amax(-1).permute(1, 2, 0))
    games.branch(torch.tensor([[2, 2, 0], [0, 1, 2]]))
    assert torch.equal(games.boards[0], boards[0, [2, 2, 0]])
    assert torch.equal(games.boards[1], boards[1])
    assert torch.equal(games.column_heights[0], heights[0, [2, 2, 0]])
    # They part at the next piece, which is each stream's own.
    games.advance(20)
    assert not torch.equal(games.boards[0, 0], games.boards[0, 1])


def test_an_empty_board_has_height_zero_and_a_full_one_that_of_the_board() -> None:
    games = Rollout([[1.0, 0.0]], Rules(4, 24), 1, 1, "python", features="holes,max_height")
    assert games.column_heights.tolist() == [[[0] * 4]]
    games.advance(9)
    assert int(games.column_heights.max()) == int((games.boards > 0).sum())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 400), "expected streams from 2 to 8192, got 1"),
        ((MOST_STREAMS + 1, 400), "expected streams from 2 to 8192, got 8193"),
        ((8, 212), "expected decisions from 213 to .*, got 212"),
    ],
)
def test_bad_counts_are_refused(arguments: tuple[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_rollout([DT20], Rules(10, 10), *arguments)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    ("population", "streams", "shared", "known"),
    [(2, 100, True, 1), (300, 100, True, 1), (3, 1100, False, 1), (3, 100, False, 2)],
    ids=["warps", "threads", "several streams a thread of the resampling", "the next piece known"],
)
def test_a_gpu_finds_what_the_cpu_does(population: int, streams: int, shared: bool, known: int) -> None:
    weights = torch.randn(population, 9, generator=torch.Generator().manual_seed(1))
    weights[0] = torch.tensor(DT20)
    one, other = (
        split_rollout(
            *(weights, Rules(10, 10), streams, 260, 4, device),
            share_streams=shared,
            first_stream=5,
            pieces_known=known,
        )
        for device in ("cpu", "cuda")
    )
    for name in ("rate", "lines_per_game", "lines", "games", "decisions"):
        assert torch.equal(getattr(one, name), getattr(other, name).cpu())
