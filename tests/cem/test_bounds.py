"""Bounds: every candidate is inside, and distributed as ``cem.bounds`` says."""

import math

import pytest
import torch

from cem import CrossEntropyMethod, minimize
from cem.bounds import BOUND_HANDLING, into_box, out_of_box

stats = pytest.importorskip("scipy.stats")  # of the extra "dev"

INF = math.inf
ALPHA = 1e-6
"""The error probability of each statistical test; the seeds are fixed."""
LOW = [-1.0, -INF, 0.5, -INF, 2.0, -3.0]
HIGH = [2.0, 1.0, INF, INF, 2.0, 1e3]
START = [0.0, 0.5, 0.5, 0.0, 2.0, 999.0]
"""An interval, an upper bound, a lower bound, none, a single point, a wide interval near its end."""


def make(handling, population_size=500, std=5.0, **options):
    return CrossEntropyMethod(
        START,
        std,
        population_size,
        **{"maximize": False, "seed": 1, "bounds": (LOW, HIGH), "bound_handling": handling, **options},
    )


def assert_inside(x):
    low, high = torch.tensor(LOW, dtype=x.dtype), torch.tensor(HIGH, dtype=x.dtype)
    assert bool(((x >= low) & (x <= high)).all())


@pytest.mark.parametrize(
    "options",
    [
        {"std": 0.0},
        {"std": 5.0, "covariance": "full", "dtype": torch.float64},
        {"std": 1e4, "backend": "torch"},
    ],
)
@pytest.mark.parametrize("handling", BOUND_HANDLING)
def test_all_candidates_and_means_are_inside(handling, options):
    search = make(handling, **options)
    for _ in range(8):
        candidates = search.ask()
        assert_inside(candidates)
        search.tell((candidates - 3.0).square().sum(-1))
        for x in (search.mean, search.averaged_mean, search.best):
            assert_inside(x)
        assert search.std.isfinite().all()


@pytest.mark.parametrize("handling", BOUND_HANDLING)
def test_bounds_of_a_batch_are_those_of_each_problem(handling):
    low, high = torch.tensor([[-1.0, -1.0], [2.0, 2.0]]), torch.tensor([[1.0, 1.0], [3.0, 5.0]])
    search = CrossEntropyMethod(
        (low + high) / 2, 4.0, 200, maximize=True, bounds=(low, high), bound_handling=handling, seed=1
    )
    for _ in range(3):
        candidates = search.ask()
        assert bool(((candidates >= low[:, None]) & (candidates <= high[:, None])).all())
        search.tell(candidates.sum(-1))


@pytest.mark.parametrize("handling", BOUND_HANDLING)
def test_finds_an_optimum_on_a_face_and_one_inside(handling):
    search = CrossEntropyMethod(
        [0.0, 0.0],
        1.0,
        100,
        maximize=False,
        bounds=(-2.0, [1.0, 4.0]),
        bound_handling=handling,
        dtype=torch.float64,
        seed=1,
    )
    for _ in range(80):
        x = search.ask()
        search.tell((x[:, 0] - 9.0).square() + (x[:, 1] - 3.0).square())
    assert search.best.tolist() == pytest.approx([1.0, 3.0], abs=1e-2)


def draws(handling, mean, std, low, high, count=20_000):
    search = CrossEntropyMethod(
        [mean], std, count, maximize=True, bounds=(low, high), bound_handling=handling, seed=4,
        dtype=torch.float64,
    )  # fmt: skip
    return search.ask()[:, 0].numpy()


def reflected(mean, std, low, high):
    """The distribution function of a normal variable that is folded back at the faces."""

    def cdf(x):
        normal, width = stats.norm(mean, std), high - low
        images = range(-20, 21) if math.isfinite(width) else [0]
        if not math.isfinite(width):
            return normal.cdf(x) + normal.sf(2 * high - x)
        return sum(
            normal.cdf(low + 2 * k * width + (x - low)) - normal.cdf(low + 2 * k * width - (x - low))
            for k in images
        )

    return cdf


BOXES = [(0.0, 1.0, 0.0, 0.1), (1.0, 3.0, -INF, 1.5)]


@pytest.mark.parametrize(("mean", "std", "low", "high"), BOXES)
def test_resampled_candidates_are_truncated_normal(mean, std, low, high):
    expected = stats.truncnorm((low - mean) / std, (high - mean) / std, loc=mean, scale=std)
    assert stats.kstest(draws("resample", mean, std, low, high), expected.cdf).pvalue > ALPHA


@pytest.mark.parametrize(("mean", "std", "low", "high"), BOXES)
def test_reflected_candidates_are_folded_normal(mean, std, low, high):
    expected = reflected(mean, std, low, high)
    assert stats.kstest(draws("reflect", mean, std, low, high), expected).pvalue > ALPHA


@pytest.mark.parametrize(("mean", "std", "low", "high"), BOXES)
def test_clamped_candidates_gather_on_the_faces(mean, std, low, high):
    x, normal = draws("clamp", mean, std, low, high), stats.norm(mean, std)
    for face, share in ((low, normal.cdf(low)), (high, normal.sf(high))):
        on_it = int((x == face).sum())
        assert stats.binomtest(on_it, len(x), share).pvalue > ALPHA if 0 < share < 1 else on_it == 0


def test_transformed_candidates_are_the_map_of_a_normal():
    low, high, mean, std = -1.0, 2.0, 0.3, 1.0
    box = [torch.tensor([x], dtype=torch.float64) for x in (low, high)]
    start = out_of_box(torch.tensor([mean], dtype=torch.float64), *box)
    y = out_of_box(torch.from_numpy(draws("transform", mean, std, low, high))[:, None], *box)
    assert stats.kstest(y[:, 0].numpy(), stats.norm(float(start), std).cdf).pvalue > ALPHA


class TestTransform:
    def box(self):
        return torch.tensor(LOW), torch.tensor(HIGH)

    def test_it_is_increasing_and_takes_everything_inside(self):
        y = torch.linspace(-50.0, 50.0, 2001)[:, None].expand(-1, 6)
        x = into_box(y, *self.box())
        assert_inside(x)
        assert bool((x.diff(dim=0) >= 0).all())
        assert_inside(into_box(torch.full((6,), 1e30), *self.box()))
        assert_inside(into_box(torch.full((6,), -1e30), *self.box()))

    def test_there_and_back(self):
        low, high = self.box()
        floor, ceiling = torch.where(low.isfinite(), low, -30.0), torch.where(high.isfinite(), high, 30.0)
        share = torch.linspace(0.0, 1.0, 1001)[:, None]
        x = floor + share * (ceiling - floor)
        there = out_of_box(x, low, high)
        assert there.isfinite().all()
        width = (ceiling - floor).clamp(max=1e3)
        assert bool(((into_box(there, low, high) - x).abs() <= 2e-6 * width.clamp(min=1.0)).all())

    def test_near_one_bound_all_scales_are_alike(self):
        scale = 1e-30

        def distance(x):
            return (x / scale - 1.0).square().sum(-1)

        start = torch.full((2,), 0.5 * scale)
        found = minimize(distance, start, scale, bounds=(0.0, INF), bound_handling="transform", seed=1)
        torch.testing.assert_close(found.x / scale, torch.ones_like(start), rtol=1e-3, atol=0.0)

    def test_a_dimension_without_width_stays_where_it_is(self):
        start, std = torch.tensor([0.1, 0.7]), torch.tensor([0.2, 0.0])
        options = {"bounds": (0.0, 1.0), "bound_handling": "transform", "paths": True, "seed": 1}
        found = minimize(lambda x: (x - 0.3).square().sum(-1), start, std, relative_std_floor=1e-3, **options)
        torch.testing.assert_close(found.x[1], start[1])
        assert (float(found.std[1]), found.reason) == (0.0, "std")
        assert found.evaluations < 2000

    def test_no_candidate_is_on_a_face_however_wide_the_start(self):
        start = torch.full((5,), 0.5)
        for high in (1.0, INF):
            x = CrossEntropyMethod(
                start, 10.0, 4000, maximize=False, seed=1, bounds=(0.0, high), bound_handling="transform"
            ).ask()
            assert bool(((x > 0.0) & (x < high)).all())

    def test_a_start_is_as_wide_in_the_box_as_its_std_says(self):
        # The middle half of a generation; near a face the map bends, so no more than the order is asked for.
        for low, high, mean in [
            (0.0, 1e3, 999.0),
            (0.0, 1e3, 500.0),
            (0.0, INF, 0.0),
            (-INF, 0.0, -2.0),
        ]:
            search = CrossEntropyMethod(
                [mean],
                1.0,
                4000,
                maximize=False,
                seed=1,
                bounds=(low, high),
                bound_handling="transform",
            )
            for again in (False, True):
                if again:
                    search.reset(mean=[mean], std=1.0)
                x = search.ask()[:, 0].double()
                quartiles = torch.quantile(x, torch.tensor([0.25, 0.75], dtype=torch.float64))
                assert 0.5 < float(quartiles[1] - quartiles[0]) < 2.5  # 1.35 of a normal
                assert float((x.median() - mean).abs()) < 0.7

    @pytest.mark.parametrize(("optimum", "high"), [(20.0, 1000.0), (500.0, INF)])
    def test_an_optimum_far_from_a_start_on_a_face_is_found(self, optimum, high):
        result = minimize(
            lambda x: (x - optimum).square().sum(-1),
            torch.zeros(3),
            1.0,
            bounds=(0.0, high),
            bound_handling="transform",
            seed=1,
        )
        assert bool(((result.x - optimum).abs() < 1e-3).all())
