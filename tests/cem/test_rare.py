"""rare_event_probability and its families against closed forms.

Seeds are fixed. At four standard errors a check fails for one seed in 10,000, if the errors are
right.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from cem import RareEvent, rare_event_probability
from cem.rare import Bernoulli, Exponential, Family, Normal, Poisson, Weibull
from cem.rare.distributions import uniform_noise
from cem.rare.event import _Draw, _estimate, _next_elites
from kernels.ops.philox import philox4x32, split64

MEANS = (0.25, 0.4, 0.1, 0.3, 0.2)


def total(x: Tensor) -> Tensor:
    return x.sum(-1)


def shortest_path(x: Tensor) -> Tensor:
    """The bridge of the tutorial's section 2.2.1: edges of a random length from A to B."""
    a, b, c, d, e = x.unbind(-1)
    return torch.stack([a + d, a + c + e, b + e, b + c + d]).amin(0)


def poisson_tail(rate: float, count: int) -> float:
    return sum(
        math.exp(k * math.log(rate) - rate - math.lgamma(k + 1))
        for k in range(count, count + 200)
    )


def binomial_tail(n: int, p: float, count: int) -> float:
    return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(count, n + 1))


def gamma_tail(shape: int, x: float) -> float:
    """P(sum of exponentials of mean 1 >= x): a Poisson process has fewer than ``shape`` events
    by x."""
    return sum(math.exp(-x + k * math.log(x) - math.lgamma(k + 1)) for k in range(shape))


def normal_tail(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


CLOSED_FORMS = {
    "bridge": (Exponential(MEANS), shortest_path, 2.0, 1.34246e-5),  # by quadrature
    "exponential sum, 1e-9": (Exponential([1.0] * 5), total, 31.4, gamma_tail(5, 31.4)),
    "least exponential": (Exponential([1.0] * 2), lambda x: x.amin(-1), 5.76, math.exp(-11.52)),
    "small exponentials": (
        Exponential([1.0] * 2),
        lambda x: -x.amax(-1),
        -3e-5,
        math.expm1(-3e-5) ** 2,
    ),
    "normal mean": (Normal([0.0] * 9, 1.0), lambda x: 3 * x.mean(-1), 4.27, normal_tail(4.27)),
    "normal mean, 1e-9": (
        Normal([0.0] * 9, 1.0),
        lambda x: 3 * x.mean(-1),
        6.0,
        normal_tail(6.0),
    ),
    "both sides": (
        Normal([0.0], 1.0, fit_std=True),
        lambda x: x[:, 0].abs(),
        6.0,
        2 * normal_tail(6.0),
    ),
    "Weibull": (Weibull([0.5], 2.0), total, 860.0, math.exp(-math.sqrt(430.0))),
    "least Weibull": (Weibull([2.0] * 2, 1.0), lambda x: x.amin(-1), 2.4, math.exp(-11.52)),
    "Poisson sum": (Poisson([2.0] * 5), total, 25, poisson_tail(10.0, 25)),
    "Poisson sum, 1e-9": (Poisson([2.0] * 5), total, 34, poisson_tail(10.0, 34)),
    "binomial": (Bernoulli([0.1] * 20), total, 10, binomial_tail(20, 0.1, 10)),
    "binomial, 1e-9": (Bernoulli([0.1] * 20), total, 14, binomial_tail(20, 0.1, 14)),
    "nearly all": (Bernoulli([0.5] * 30), total, 29, binomial_tail(30, 0.5, 29)),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_the_estimate_is_the_closed_form(name: str) -> None:
    family, score, level, expected = CLOSED_FORMS[name]
    found = rare_event_probability(family, score, level, seed=1)
    assert found.estimate == pytest.approx(expected, rel=4 * found.relative_error)
    assert found.relative_error < 0.033
    assert found.samples <= 1.2 * 105_000  # those of the tutorial
    assert found.reached
    assert found.levels == tuple(sorted(found.levels))
    assert found.levels[-1] == level


def test_the_levels_and_means_are_those_of_the_tutorial() -> None:
    """Its table 1: levels 0.575, 1.032, 1.502, 1.917, 2 and means 1.692, 1.901, 0.129, 0.712,
    0.564."""
    found = rare_event_probability(Exponential(MEANS), shortest_path, 2.0, seed=0)
    assert found.levels == pytest.approx((0.575, 1.032, 1.502, 1.917, 2.0), abs=0.1)
    assert found.parameters.mean.tolist() == pytest.approx(
        [1.692, 1.901, 0.129, 0.712, 0.564], abs=0.1
    )
    assert repr(found).startswith(f"estimate: {found.estimate:.4g}, 95 % interval ")


def test_the_interval_covers() -> None:
    """Of 100 intervals of 95 % between 89 and 99 cover, but for a probability of 0.01."""
    expected, covered = gamma_tail(5, 20.7), 0
    for seed in range(100):
        found = rare_event_probability(
            Exponential([1.0] * 5), total, 20.7, final_samples=2000, seed=seed
        )
        covered += found.interval[0] <= expected <= found.interval[1]
    assert 89 <= covered <= 99


def same(one: RareEvent[Family], other: RareEvent[Family]) -> bool:
    return (one.estimate, one.levels, one.samples) == (
        other.estimate,
        other.levels,
        other.samples,
    )


def test_the_result_is_a_function_of_the_seed() -> None:
    first, again, other = (
        rare_event_probability(
            Exponential(MEANS), shortest_path, 1.0, final_samples=5000, seed=seed
        )
        for seed in (3, 3, 4)
    )
    assert same(first, again)
    assert not same(first, other)
    options = {"vectorize": True, "final_samples": 5000, "seed": 3}
    by_one = rare_event_probability(
        Exponential(MEANS), lambda x: shortest_path(x.unsqueeze(0))[0], 1.0, **options
    )
    assert same(by_one, first)


@pytest.mark.parametrize(
    ("family", "score", "level", "why"),
    [
        (Bernoulli([0.1] * 4), total, 9, "the last one is 4, none of 10,000 is above"),
        (Normal([0.0], 1.0, fit_std=True), lambda x: -total(x * x), 1.0, "50 levels"),
        (Normal([0.0], 1.0, fit_std=True), total, 6.0, "50 levels"),
        (
            Normal([0.0], 1.0),
            lambda x: total(x) * math.nan,
            1.0,
            "none of 10,000 is above; 20,000 scores were",
        ),
    ],
)
def test_a_level_out_of_reach_ends_with_what_was_found(
    family: Family, score: object, level: float, why: str
) -> None:
    with pytest.warns(RuntimeWarning, match="the level is not reached") as warned:
        found = rare_event_probability(family, score, level, final_samples=10_000, seed=1)  # type: ignore[arg-type]
    assert (found.estimate, found.relative_error, found.reached) == (0.0, math.inf, False)
    assert why in found.message == str(warned[0].message)
    assert warned[0].filename == __file__
    if isinstance(family, Bernoulli):
        assert found.interval[0] == 0.0
        assert 1e-4 < found.interval[1] < 1.1e-4  # above P(score >= 4)
    if score is total and level == 6.0:  # degenerate weights bound nothing
        assert found.interval == (0.0, 1.0)


def test_a_tenth_of_the_scores_and_the_level_itself_are_elites() -> None:
    scores = torch.arange(1.0, 1001.0)
    draw = _Draw(scores.unsqueeze(1), scores, torch.zeros(1000))
    elites = _next_elites(lambda: draw, -math.inf, 2000.0)
    assert elites is not None
    assert (elites.level, len(elites.x)) == (900.0, 101)


def test_an_infinite_score_reaches_every_level() -> None:
    found = rare_event_probability(
        Normal([0.0], 1.0), lambda x: torch.where(x[:, 0] > 3, math.inf, -math.inf), 5.0, seed=1
    )
    assert found.estimate == pytest.approx(normal_tail(3.0), rel=4 * found.relative_error)


def test_a_discrete_distribution_is_mixed_with_that_of_the_vector() -> None:
    event = rare_event_probability(Bernoulli([0.2] * 9), lambda x: x.sum(-1), 9.0, seed=1)
    # All n elites of the last level are ones: p = 1 - 0.8 / (1 + n).
    elites = 0.8 / (1 - event.parameters.p[0]) - 1
    assert float(elites) == pytest.approx(round(float(elites)), abs=1e-6)


def test_degenerate_weights_are_doubtful() -> None:
    """The greatest of five has five ways to be large; a member of the family has one or all."""
    with pytest.warns(RuntimeWarning, match="tail index"):
        rare_event_probability(Exponential([1.0] * 5), lambda x: x.amax(-1), 22.3, seed=1)


@pytest.mark.parametrize(
    "family",
    [
        Exponential([2.0]),
        Weibull(2.0, [3.0]),
        Normal([1.0], 2.0),
        Poisson([3.0]),
        Poisson([1e6]),
        Bernoulli([0.3]),
    ],
)
def test_samples_have_the_moments_and_a_fit_finds_the_parameters(family: Family) -> None:
    x = family.sample(100_001, seed=1)
    assert x.shape == (100_001, 1)
    assert float((x.mean() - family.law.mean) / family.law.stddev) == pytest.approx(
        0, abs=4 / 316
    )
    weights = torch.full((100_001,), 1 / 100_001, dtype=torch.float64)
    for name, fitted in family.fit(x, weights).parameters.items():
        assert torch.allclose(fitted, family.parameters[name], rtol=0.03)


def test_far_quantiles_of_poisson_distributions_are_exact() -> None:
    u = torch.tensor([1 - 1e-9], dtype=torch.float64)
    assert Poisson([2.0, 50.0, 1000.0]).quantile(u[:, None].expand(1, 3)).tolist() == [
        [15, 98, 1195]  # SciPy's poisson.ppf
    ]


def test_noise_is_philox_and_depends_on_neither_size_nor_dimension() -> None:
    noise = uniform_noise(5, 3, seed=2**64 - 1, generation=7, device=torch.device("cpu"))
    key = split64((2**64 - 1) ^ int.from_bytes(b"uniform ", "big"))
    words = philox4x32((2, 1, 7, 0), key)
    assert noise[4, 1] == ((words[0] << 20 | words[1] >> 12) + 0.5) / 2**52
    assert torch.equal(
        noise[:4, :2], uniform_noise(4, 2, seed=2**64 - 1, generation=7, device=noise.device)
    )


def test_what_is_no_distribution_is_refused() -> None:
    for family, parameter in ((Exponential, -1.0), (Bernoulli, 1.5), (Poisson, math.inf)):
        with pytest.raises(ValueError, match=r"[Ee]xpected (finite|parameter)"):
            family([0.5, parameter])


def test_the_interval_is_of_95_percent_and_every_population_has_its_own_noise() -> None:
    drawn: list[Tensor] = []

    def score(x: Tensor) -> Tensor:
        drawn.append(x)
        return total(x)

    found = rare_event_probability(
        Normal([0.0] * 2, 1.0), score, 4.0, population_size=200, final_samples=4000, seed=1
    )
    half = 1.959964 * math.sqrt(math.log1p(found.relative_error**2))
    ends = [found.estimate * math.exp(sign * half) for sign in (-1, 1)]
    assert found.interval == pytest.approx(ends, rel=1e-6)
    # A member of the family shifts the noise: differences of candidates are those of the noise.
    assert len(drawn) > 2
    noise = [(x[1:100] - x[:99])[:, 0] for x in drawn]
    for number, one in enumerate(noise):
        assert all(float((one - other).abs().mean()) > 0.5 for other in noise[:number])


def test_fits_are_the_greatest_likelihood_worked_out_by_hand() -> None:
    x, weights = torch.tensor([[1.0], [3.0]]).double(), torch.tensor([0.25, 0.75]).double()
    fitted = Weibull(2.0, [1.0]).fit(x, weights)
    assert (float(fitted.shape), float(fitted.scale)) == (
        2.0,
        pytest.approx(math.sqrt(0.25 + 0.75 * 9)),
    )
    normal = Normal([0.0], 1.0, fit_std=True).fit(x, weights)
    assert (float(normal.mean), float(normal.std)) == pytest.approx((2.5, math.sqrt(0.75)))


@pytest.mark.parametrize(
    ("log_weight", "log_mean"), [(710.0, 710.0 - math.log(10)), (800.0, math.inf)]
)
def test_the_mean_of_huge_weights_is_the_number_or_infinite(
    log_weight: float, log_mean: float
) -> None:
    """exp(710) overflows. A tenth of it does not."""
    log_weights = torch.tensor([log_weight] + [0.0] * 9, dtype=torch.float64)
    mean = _estimate(log_weights, is_hit=log_weights > 1.0).mean
    assert math.log(mean) == pytest.approx(log_mean)
