"""Bounds: every candidate is inside, and distributed as ``cem.core.bounds`` says."""

import math
from statistics import NormalDist
from typing import get_args

import pytest
import torch

from cem import Bounds, CEMConfig, CrossEntropyMethod, minimize
from cem.core.bounds import BoundHandling, into_box, out_of_box

INF = math.inf
ALPHA = 1e-6
"""The error probability of each statistical test; the seeds are fixed."""
LOW = [-1.0, -INF, 0.5, -INF, 2.0, -3.0]
HIGH = [2.0, 1.0, INF, INF, 2.0, 1e3]
START = [0.0, 0.5, 0.5, 0.0, 2.0, 999.0]
"""An interval, an upper bound, a lower bound, none, a single point, a wide interval near its
end."""


def make(mean, std, population_size, low, high, handling, **options):
    config = CEMConfig(
        bound_handling=handling, covariance=options.pop("covariance", "diagonal")
    )
    settings = {
        "maximize": False,
        "seed": 1,
        "bounds": Bounds(low, high),
        "config": config,
        **options,
    }
    return CrossEntropyMethod(mean, std, population_size, **settings)


def assert_inside(x, low=LOW, high=HIGH):
    low, high = torch.as_tensor(low, dtype=x.dtype), torch.as_tensor(high, dtype=x.dtype)
    assert bool(((x >= low) & (x <= high)).all())


def assert_distributed(x, distribution):
    """The distance of n samples from their distribution is below eps but for 2 exp(-2 n eps^2).

    P. Massart, The Tight Constant in the Dvoretzky-Kiefer-Wolfowitz Inequality, Annals of
    Probability 18, 1990.
    """
    ordered, size = x.double().sort().values, len(x)
    expected = torch.tensor(
        [distribution(value) for value in ordered.tolist()], dtype=torch.float64
    )
    steps = torch.arange(size + 1, dtype=torch.float64) / size
    distance = torch.maximum(expected - steps[:-1], steps[1:] - expected).max()
    assert float(distance) < math.sqrt(math.log(2 / ALPHA) / (2 * size))


@pytest.mark.parametrize("handling", get_args(BoundHandling))
def test_all_candidates_and_means_are_inside(handling):
    for options in (
        {"std": 0.0},
        {"std": 5.0, "covariance": "full", "dtype": torch.float64},
        {"std": 1e4, "backend": "torch"},
    ):
        search = make(
            START, population_size=500, low=LOW, high=HIGH, handling=handling, **options
        )
        for _ in range(8):
            candidates = search.ask()
            search.tell(candidates, (candidates - 3.0).square().sum(-1))
            record = search.snapshot().record()
            for x in (candidates, search.mean, search.averaged_mean, search.best, record.mean):
                assert_inside(x)
            assert search.std.isfinite().all()


def test_a_mean_that_rounding_has_put_outside_is_read_as_the_bound():
    search = make([0.5, 0.5], 0.1, 8, 0.0, 1.0, "clamp")
    search.tell(-torch.ones(8, 2), torch.zeros(8))
    assert search.mean.tolist() == search.averaged_mean.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("face", [0.0, 1.0])
def test_after_repaired_candidates_far_outside_resampling_stays_at_the_nearest_face(face):
    search = make([0.5, 0.5], 0.1, 20, 0.0, 1.0, "resample")
    for _ in range(5):
        search.tell(7.0 * face - 3.0 + 0.01 * search.ask(), torch.arange(20))
    assert ((search.ask() - face).abs() < 4 * search.std).all()


@pytest.mark.parametrize("handling", get_args(BoundHandling))
def test_problems_of_a_batch_have_bounds_of_their_own_and_find_optima_on_a_face_and_inside(
    handling,
):
    low, high = torch.tensor([[-2.0, -2.0], [2.0, 2.0]]), torch.tensor([[1.0, 4.0], [3.0, 3.5]])
    search = make((low + high) / 2, 1.0, 100, low, high, handling, dtype=torch.float64)
    for _ in range(80):
        x = search.ask()
        assert_inside(x, low[:, None], high[:, None])
        search.tell(x, (x[..., 0] - 9.0).square() + (x[..., 1] - 3.0).square())
    assert search.best.flatten().tolist() == pytest.approx([1.0, 3.0, 3.0, 3.0], abs=1e-2)


@pytest.mark.parametrize(
    ("mean", "std", "low", "high"), [(0.0, 1.0, 0.0, 0.1), (1.0, 3.0, -INF, 1.5)]
)
def test_candidates_are_distributed_as_the_handling_says(mean, std, low, high):
    resampled, clamped = (
        make([mean], std, 20_000, low, high, handling, dtype=torch.float64).ask()[:, 0]
        for handling in ("resample", "clamp")
    )
    normal = NormalDist(mean, std)
    below, above = normal.cdf(low), 1 - normal.cdf(high)
    assert_distributed(resampled, lambda x: (normal.cdf(x) - below) / (1 - below - above))
    for face, share in ((low, below), (high, above)):
        # Hoeffding's inequality, of two sides.
        most = math.sqrt(math.log(2 / ALPHA) / (2 * len(clamped)))
        on_face = float((clamped == face).double().mean())
        assert abs(on_face - share) < most if 0 < share < 1 else on_face == 0


class TestTransform:
    def test_candidates_are_the_map_of_a_normal(self):
        low, high, mean = (torch.tensor([x], dtype=torch.float64) for x in (-1.0, 2.0, 0.3))
        y = out_of_box(make(mean, 1.0, 20_000, low, high, "transform").ask(), low, high)
        start = float(out_of_box(mean, low, high))
        assert_distributed(y[:, 0], NormalDist(start, 1.0).cdf)

    def test_it_is_increasing_takes_everything_inside_and_has_an_inverse(self):
        low, high = torch.tensor(LOW), torch.tensor(HIGH)
        far = torch.full((1, 6), 1e30)
        y = torch.linspace(-50.0, 50.0, 2001)[:, None].expand(-1, 6)
        x = into_box(torch.cat([-far, y, far]), low, high)
        assert_inside(x)
        assert bool((x.diff(dim=0) >= 0).all())
        floor, ceiling = (
            torch.where(low.isfinite(), low, -30.0),
            torch.where(high.isfinite(), high, 30.0),
        )
        x = floor + torch.linspace(0.0, 1.0, 1001)[:, None] * (ceiling - floor)
        there = out_of_box(x, low, high)
        assert there.isfinite().all()
        width = (ceiling - floor).clamp(1.0, 1e3)
        assert bool(((into_box(there, low, high) - x).abs() <= 2e-6 * width).all())

    @pytest.mark.parametrize(
        ("low", "high", "mean"),
        [(0.0, 1e3, 999.0), (0.0, 1e3, 500.0), (0.0, INF, 0.0), (-INF, 0.0, -2.0)],
    )
    def test_a_start_is_as_wide_in_the_box_as_its_std_says(self, low, high, mean):
        # The middle half of a generation; near a face the map bends, so no more than the order
        # is asked for.
        x = make([mean], 1.0, 4000, low, high, "transform").ask()[:, 0].double()
        quartiles = torch.quantile(x, torch.tensor([0.25, 0.75], dtype=torch.float64))
        assert 0.5 < float(quartiles[1] - quartiles[0]) < 2.5  # 1.35 of a normal
        assert float((x.median() - mean).abs()) < 0.7

    @pytest.mark.parametrize(("optimum", "high"), [(20.0, 1000.0), (500.0, INF)])
    def test_an_optimum_far_from_a_start_on_a_face_is_found(self, optimum, high):
        options = {
            "bounds": (0.0, high),
            "config": CEMConfig.cma(bound_handling="transform"),
            "seed": 1,
        }
        found = minimize(
            lambda x: (x - optimum).square().sum(-1), torch.zeros(3), 1.0, **options
        )
        assert bool(((found.x - optimum).abs() < 1e-3).all())


def test_a_mean_may_lie_on_a_bound_and_not_beyond():
    for mean in ([-1.0, 0.5], [0.0, 2.0], [-1.0, 2.0]):
        assert make(mean, 1.0, 10, -1.0, [0.5, 2.0], "clamp").mean.tolist() == mean
    for mean in ([-1.01, 0.0], [0.0, 2.01]):
        with pytest.raises(ValueError, match="expected a mean within the bounds"):
            make(mean, 1.0, 10, -1.0, [0.5, 2.0], "clamp")


def test_by_transform_a_start_on_a_face_begins_half_a_standard_deviation_inside():
    for start, std, expected in ((0.0, 1.0, 0.5), (100.0, 4.0, 98.0), (30.0, 1.0, 30.0)):
        assert float(make([start], std, 10, 0.0, 100.0, "transform").mean) == pytest.approx(
            expected, rel=1e-5
        )
    assert (
        float(make([50.0], 999.0, 10, 0.0, 100.0, "transform").std) == 50.0
    )  # it fills the box
