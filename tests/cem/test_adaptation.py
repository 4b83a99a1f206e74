"""Full covariance and evolution paths: what they learn, and the formulas."""

import math

import numpy as np
import pytest
import torch
from searches import CLASSIC

from cem import CrossEntropyMethod
from cem.adaptation import factorised

KINDS = {
    "diagonal": {},
    "full": {"covariance": "full"},
    "paths": {"paths": True},
    "full paths": {"covariance": "full", "paths": True},
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
    options = {"maximize": False, "seed": 1, "dtype": torch.float64, **KINDS[kind], **options}
    return CrossEntropyMethod(torch.full((dim,), mean), std, population_size, **options)


def minimised(search, objective, generations):
    for _ in range(generations):
        search.tell(objective(search.ask()))
    return search


@pytest.mark.parametrize("about", ["old_mean", "new_mean", "new_mean_unbiased"])
def test_the_full_covariance_is_that_of_the_elites_as_numpy_computes_it(about):
    search = make("full", num_elites=12, **{**CLASSIC, "variance_about": about})
    candidates = search.ask()
    fitness = ellipsoid(candidates, 10.0, rotation(5))
    search.tell(fitness)
    order = np.argsort(fitness.numpy(), kind="stable")[:12]
    elites = candidates.numpy()[order]
    if about == "old_mean":
        expected = (elites - 1.0).T @ (elites - 1.0) / 12
    else:
        expected = np.cov(elites.T, ddof=int(about == "new_mean_unbiased"))
    np.testing.assert_allclose(search.covariance.numpy(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(search.std.numpy(), np.sqrt(np.diag(expected)), rtol=1e-9)
    np.testing.assert_allclose(search.mean.numpy(), elites.mean(axis=0), rtol=1e-12, atol=1e-14)


def test_covariance_is_smoothed_floored_and_gets_extra_variance():
    options = {**CLASSIC, "std_smoothing": 0.3, "extra_variance": "constant:0.25", "std_floor": 0.9}
    search = make("full", num_elites=12, **options)
    candidates = search.ask()
    fitness = ellipsoid(candidates, 1e6)
    search.tell(fitness)
    elites = candidates.numpy()[np.argsort(fitness.numpy())[:12]]
    expected = 0.7 * np.eye(5) + 0.3 * np.cov(elites.T, ddof=0)
    expected += np.diag(np.maximum(0.25, 0.9**2 - np.diag(expected)))
    np.testing.assert_allclose(search.covariance.numpy(), expected, rtol=1e-9, atol=1e-12)
    assert (search.std >= 0.9 - 1e-12).all()


def test_candidates_have_the_covariance_of_the_search():
    # An entry of a sample covariance of n draws has a standard error below sqrt(2 / n) of the variances:
    # one of 9 is beyond 5 of them with a probability below 6e-6.
    search = make("full", dim=3, population_size=50)
    minimised(search, lambda x: ellipsoid(x, 10.0, rotation(3)), 3)
    expected, std = search.covariance.double(), search.std.double()
    drawn = CrossEntropyMethod(search.mean, 1.0, 40_000, maximize=False, covariance="full", seed=5)
    drawn._state = drawn.state._replace(factor=search.state.factor)
    found = torch.cov(drawn.ask().double().T)
    assert bool(((found - expected).abs() < 5 * math.sqrt(2 / 40_000) * std[:, None] * std).all())


@pytest.mark.parametrize("kind", ["full", "full paths"])
def test_a_rotated_ellipsoid_needs_the_full_covariance(kind):
    turned = rotation(6)
    found = {
        name: minimised(make(name, 6, std=2.0), lambda x: ellipsoid(x, 1e3, turned), 150).best_fitness
        for name in ("diagonal", kind)
    }
    assert found[kind] < 1e-8
    assert found[kind] < 1e-3 * found["diagonal"]


@pytest.mark.parametrize("kind", ["paths", "full paths"])
def test_paths_solve_the_ellipsoid(kind):
    search = make(kind, 8, 24, std=0.5)
    minimised(search, lambda x: ellipsoid(x, 1e6), 400)
    assert search.best_fitness < 1e-9
    assert (search.mean.abs() < 1e-3).all()


def test_the_step_size_grows_on_a_linear_slope():
    search = make("full paths", 5, 20, mean=0.0, std=1e-3)
    minimised(search, lambda x: x[:, 0], 60)
    assert search.mean[0] < -1.0
    assert search.std.max() > 1.0


@pytest.mark.parametrize("kind", ["paths", "full paths"])
def test_the_step_size_stays_where_nothing_is_better(kind):
    # Elites picked at random. The mean over 100 problems has a standard error of about 0.05.
    search = CrossEntropyMethod(torch.zeros(100, 5), 1.0, 20, maximize=False, seed=1, **KINDS[kind])
    noise = torch.Generator().manual_seed(1)
    for _ in range(30):
        search.ask()
        search.tell(torch.rand(100, 20, generator=noise))
    assert abs(float(search.std.amax(-1).log().mean())) < 0.5


@pytest.mark.parametrize(("kind", "maximize"), [("paths", True), ("full paths", False)])
def test_failures_are_no_elites(kind, maximize):
    # A sphere of which one half fails: failed candidates move nothing, whatever the direction.
    search = make(kind, 4, 40, mean=2.0, maximize=maximize)

    def half(x):
        fitness = x.square().sum(-1) * (-1.0 if maximize else 1.0)
        return torch.where(x[:, 0] > 0.5, fitness, math.nan)

    minimised(search, half, 150)
    assert search.mean.tolist() == pytest.approx([0.5, 0.0, 0.0, 0.0], abs=1e-2)


@pytest.mark.parametrize("kind", ["diagonal", "full paths"])
def test_one_success_and_a_refused_generation_leave_a_search_that_goes_on(kind):
    search = make(kind, population_size=20)
    minimised(search, lambda x: ellipsoid(x, 1.0), 3)
    candidates = search.ask()
    fitness = torch.full((20,), math.nan)
    before = [search.mean, search.std, search.covariance]
    with pytest.raises(ValueError, match="usable fitness"):
        search.tell(fitness)
    for found, kept in zip([search.mean, search.std, search.covariance], before, strict=True):
        assert torch.equal(found, kept)
    fitness[7] = 1.0
    search.tell(fitness)
    assert torch.allclose(search.mean, candidates[7])
    assert search.covariance.isfinite().all()
    minimised(search, lambda x: ellipsoid(x, 1.0), 100)
    assert search.best_fitness < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_dimension_of_std_0_stays_where_it_is(kind):
    search = make(kind, 3, std=torch.tensor([1.0, 0.0, 1.0]), mean=0.5)
    for _ in range(25):
        candidates = search.ask()
        assert (candidates[:, 1] == 0.5).all()
        search.tell(candidates.square().sum(-1))
    assert search.best_fitness == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("kind", ["diagonal", "full paths"])
def test_maximising_is_minimising_the_negative(kind):
    one, other = make(kind), make(kind, maximize=True)
    for _ in range(10):
        one.tell(ellipsoid(one.ask(), 10.0))
        other.tell(-ellipsoid(other.ask(), 10.0))
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.covariance, other.covariance)


def test_a_singular_covariance_has_a_factor():
    y = torch.randn(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = y.T @ y
    factor = factorised(covariance, torch.zeros(6, 6, dtype=torch.float64))
    torch.testing.assert_close(factor @ factor.T, covariance, rtol=1e-6, atol=1e-6)
    assert torch.equal(factor, factor.tril())


def test_what_has_no_factor_keeps_the_old_one():
    old = 2.0 * torch.eye(3, dtype=torch.float64)
    bad = torch.full((3, 3), math.nan, dtype=torch.float64)
    good = torch.eye(3, dtype=torch.float64)
    both = factorised(torch.stack([bad, good]), torch.stack([old, old]))
    assert torch.equal(both[0], old)
    torch.testing.assert_close(both[1], good)


@pytest.mark.parametrize("kind", ["diagonal", "full paths"])
def test_a_search_that_runs_off_to_infinity_stays_finite(kind):
    search = make(kind, 3, 20, dtype=torch.float32)
    minimised(search, lambda x: x[:, 0], 1000)
    assert search.mean.isfinite().all()
    assert search.std.isfinite().all()
    assert search.mean[0] < -1e30


@pytest.mark.parametrize("kind", ["diagonal", "full paths"])
def test_a_search_without_width_stays_where_it_is(kind):
    search = make(kind, 3, std=0.0)
    minimised(search, lambda x: ellipsoid(x - 3.0, 1.0), 20)
    assert search.mean.tolist() == [1.0] * 3
    assert search.std.tolist() == [0.0] * 3
