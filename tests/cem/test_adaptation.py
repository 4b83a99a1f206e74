"""Full covariance and evolution paths: what they learn. Without paths: test_optimizer.py."""

import math

import pytest
import torch
from searches import sphere, step

from cem import CEMConfig, CrossEntropyMethod

KINDS = {
    "diagonal": CEMConfig(),
    "full": CEMConfig(covariance="full"),
    "paths": CEMConfig.cma("diagonal"),
    "full paths": CEMConfig.cma(),
    "slow full paths": CEMConfig.cma(smoothing=0.3),
}


def rotation(dim, seed=3):
    """A random rotation."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))[0]


def ellipsoid(x, condition, turned=None):
    """sum c^(i / (d - 1)) y_i^2, of y = x, or x turned."""
    y = x if turned is None else x.double() @ turned
    scales = condition ** (torch.arange(x.shape[-1], dtype=torch.float64) / (x.shape[-1] - 1))
    return (scales * y.double().square()).sum(-1)


def make(kind, dim=5, population_size=60, *, std=1.0, mean=1.0, **options):
    options = {
        "maximize": False,
        "seed": 1,
        "dtype": torch.float64,
        "config": KINDS[kind],
        **options,
    }
    return CrossEntropyMethod(torch.full((dim,), mean), std, population_size, **options)


def minimised(search, objective, generations):
    step(search, objective, generations)
    return search


def test_candidates_have_the_covariance_of_the_search():
    # An entry of a sample covariance of n draws has a standard error below sqrt(2 / n) of the
    # variances: one of 9 is beyond 5 of them with a probability below 6e-6.
    search = minimised(make("full", 3, 40_000), lambda x: ellipsoid(x, 10.0, rotation(3)), 2)
    expected, std = search.covariance, search.std
    found = torch.cov(search.ask().T)
    assert bool(
        ((found - expected).abs() < 5 * math.sqrt(2 / 40_000) * std[:, None] * std).all()
    )


@pytest.mark.parametrize("kind", ["full", "full paths"])
def test_a_rotated_ellipsoid_needs_the_full_covariance(kind):
    turned = rotation(6)
    found = {
        name: minimised(
            make(name, 6, std=2.0), lambda x: ellipsoid(x, 1e3, turned), 150
        ).best_fitness
        for name in ("diagonal", kind)
    }
    assert found[kind] < 1e-8
    assert found[kind] < 1e-3 * found["diagonal"]


def test_paths_solve_the_ellipsoid():
    search = minimised(make("paths", 8, 24, std=0.5), lambda x: ellipsoid(x, 1e6), 400)
    assert search.best_fitness < 1e-9
    assert (search.mean.abs() < 1e-3).all()


@pytest.mark.parametrize("kind", ["paths", "full paths", "slow full paths"])
def test_the_step_size_stays_where_nothing_is_better(kind):
    # Elites picked at random. The mean over 100 problems has a standard error of about 0.05.
    search = CrossEntropyMethod(
        torch.zeros(100, 5), 1.0, 20, maximize=False, seed=1, config=KINDS[kind]
    )
    noise = torch.Generator().manual_seed(1)
    minimised(search, lambda x: torch.rand(100, 20, generator=noise), 30)
    assert abs(float(search.std.amax(-1).log().mean())) < 0.5


@pytest.mark.parametrize("kind", ["paths", "full paths"])
def test_failures_are_no_elites_and_maximising_is_minimising_the_negative(kind):
    # A sphere of which one half fails: failed candidates move nothing, whatever the direction.
    one, other = (make(kind, 4, 40, mean=2.0, maximize=maximize) for maximize in (False, True))
    minimised(one, lambda x: torch.where(x[:, 0] > 0.5, sphere(x), math.nan), 150)
    minimised(other, lambda x: torch.where(x[:, 0] > 0.5, -sphere(x), math.nan), 150)
    assert one.mean.tolist() == pytest.approx([0.5, 0.0, 0.0, 0.0], abs=1e-2)
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.covariance, other.covariance)


def test_one_success_and_a_failed_generation_leave_a_search_that_goes_on():
    search = minimised(make("full paths", population_size=20), sphere, 3)
    candidates, before = search.ask(), [search.mean, search.std, search.covariance]
    fitness = torch.full((20,), math.nan)
    with pytest.warns(RuntimeWarning, match="all 20 candidates of generation 3 failed"):
        search.tell(candidates, fitness)
    assert all(map(torch.equal, [search.mean, search.std, search.covariance], before))
    fitness[7] = 1.0
    search.tell(candidates, fitness)
    assert torch.allclose(search.mean, candidates[7])
    assert search.covariance.isfinite().all()
    assert minimised(search, sphere, 100).best_fitness < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_dimension_of_std_0_stays_where_it_is(kind):
    search = make(kind, 3, std=torch.tensor([1.0, 0.0, 1.0]), mean=0.5)
    for _ in range(25):
        candidates = search.ask()
        assert (candidates[:, 1] == 0.5).all()
        search.tell(candidates, sphere(candidates))
    assert search.best_fitness == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("kind", ["diagonal", "full paths"])
def test_a_search_that_runs_off_to_infinity_stays_finite(kind):
    search = minimised(make(kind, 3, 20, dtype=torch.float32), lambda x: x[:, 0], 1000)
    assert search.mean.isfinite().all()
    assert search.std.isfinite().all()
    assert search.mean[0] < -1e30


def test_none_of_200_searches_on_the_sphere_collapses():
    # Dimension 10, from mean 1 and std 1, 60 generations of 100: the method as published loses
    # 47 to 75 %.
    search = CrossEntropyMethod(
        torch.ones(200, 10), 1.0, 100, maximize=False, config=CEMConfig(), seed=0
    )
    step(search, sphere, 60)
    missed = search.mean.abs().amax(-1) > 1e-3
    assert int(missed.sum()) == 0


@pytest.mark.parametrize(("dim", "size"), [(1, 4), (2, 6), (10, 10), (40, 16), (3, 200)])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_rates_and_weights_are_those_of_the_tutorial(dim, size, covariance):
    """N. Hansen, arXiv:1604.00772: equations (49) to (58) of its appendix, with mu = lambda /
    2."""
    state = make("paths", dim, size, config=CEMConfig.cma(covariance)).state
    mu = size // 2
    raw = [math.log((size + 1) / 2) - math.log(rank) for rank in range(1, size + 1)]
    good, bad = raw[:mu], raw[mu:]
    mu_eff = sum(good) ** 2 / sum(weight**2 for weight in good)
    mu_eff_of_bad = sum(bad) ** 2 / sum(weight**2 for weight in bad)
    alpha_cov = 2 * ((dim + 2) / 3 if covariance == "diagonal" else 1)  # Ros and Hansen (2008)
    c_1 = min(1, alpha_cov / ((dim + 1.3) ** 2 + mu_eff))
    c_mu = min(
        1 - c_1,
        alpha_cov * (0.25 + mu_eff + 1 / mu_eff - 2) / ((dim + 2) ** 2 + 2 * mu_eff / 2),
    )
    c_sigma = (mu_eff + 2) / (dim + mu_eff + 5)
    expected = {
        "mu_eff": mu_eff,
        "c_s": c_sigma,
        "d_s": 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (dim + 1)) - 1) + c_sigma,
        "c_c": (4 + mu_eff / dim) / (dim + 4 + 2 * mu_eff / dim),
        "c_1": c_1,
        "c_mu": c_mu,
    }
    found = state.settings.rates._asdict()
    # The mean length of a normal vector, of which the tutorial's series is an approximation.
    length = math.sqrt(2) * math.exp(math.lgamma((dim + 1) / 2) - math.lgamma(dim / 2))
    assert found.pop("chi") == pytest.approx(length, rel=1e-3)
    assert found == pytest.approx(expected, rel=1e-9)
    least = min(
        1 + c_1 / c_mu,
        1 + 2 * mu_eff_of_bad / (mu_eff + 2),
        max(0, (1 - c_1 - c_mu) / (dim * c_mu)),
    )
    weights = [each / sum(good) for each in good] + [-least * each / sum(bad) for each in bad]
    assert state.weights.tolist() == pytest.approx(weights, abs=1e-11)
