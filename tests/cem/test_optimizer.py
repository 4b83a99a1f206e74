"""A generation against its formulas in NumPy, and what ask() and tell() give and take."""

import math

import numpy as np
import pytest
import torch
from searches import bits, step

from cem import CEMConfig, CrossEntropyMethod

NAN, INF = math.nan, math.inf


def make(
    dim=2, population_size=6, *, maximize=True, backend="auto", seed=0, dtype=None, **config
):
    config = CEMConfig.classic(**{"num_elites": 3, **config})
    options = {"config": config, "backend": backend, "seed": seed, "dtype": dtype}
    return CrossEntropyMethod(
        torch.zeros(dim), 1.0, population_size, maximize=maximize, **options
    )


def tell_rows(optimizer, rows, fitness):
    optimizer.tell(torch.as_tensor(rows, dtype=torch.float64), torch.as_tensor(fitness))


class ByNumPy:
    """Equations (2) to (5) of ``cem.optimizer``, and a full covariance without paths."""

    def __init__(self, mean, std, *, maximize, num_elites, weights, variance_about, covariance):
        self.sign = 1.0 if maximize else -1.0
        self.mean = self.averaged = np.array(mean)
        self.covariance = np.diag(np.square(std))
        self.weights = np.ones(num_elites)
        if weights == "log":
            self.weights = np.log(num_elites + 0.5) - np.log(np.arange(1, num_elites + 1))
        self.about, self.full = variance_about, covariance == "full"
        self.best, self.best_fitness = None, -self.sign * INF

    def tell(self, x, fitness, *, alpha, beta, gamma, t, variance, floor):
        score = np.where(np.isnan(fitness), -INF, self.sign * fitness)
        elites = np.argsort(-score, kind="stable")[: len(self.weights)]
        elites = elites[score[elites] > -INF]
        self.elite_fitness = fitness[elites]
        if score[elites[0]] > self.sign * self.best_fitness:
            self.best, self.best_fitness = x[elites[0]], fitness[elites[0]]
        w = self.weights[: len(elites)]
        w = w / w.sum()
        new = w @ x[elites]
        y = x[elites] - (self.mean if self.about == "old_mean" else new)
        found = (w[:, None] * y).T @ y
        if self.full:
            mixed = beta * found + (1 - beta) * self.covariance
            self.covariance = mixed + np.diag(np.maximum(variance, floor**2 - mixed.diagonal()))
        else:
            std = np.sqrt(found.diagonal() + variance)
            std = beta * std + (1 - beta) * np.sqrt(self.covariance.diagonal())
            self.covariance = np.diag(np.maximum(std, floor) ** 2)
        self.mean = alpha * new + (1 - alpha) * self.mean
        self.averaged = self.averaged + (self.mean - self.averaged) / (1 + gamma * t)


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize(
    ("about", "weights", "maximize"),
    [("old_mean", "log", False), ("new_mean", "equal", True), ("new_mean", "log", True)],
)
def test_generations_are_those_of_the_formulas(about, weights, maximize, covariance, backend):
    kind = {
        "weights": weights,
        "variance_about": about,
        "covariance": covariance,
        "num_elites": 7,
    }
    config = CEMConfig(
        **kind,
        smoothing=0.8,
        std_smoothing=0.7,
        mean_averaging=0.5,
        variance_schedule="linear:0.5,4",
        std_floor=0.3,
        relative_std_floor=0.2,
    )
    start = [1.0, 2.0, 3.0], [1.0, 0.5, 4.0]
    options = {"maximize": maximize, "dtype": torch.float64, "backend": backend, "seed": 1}
    search = CrossEntropyMethod(*start, 40, config=config, **options)
    expected = ByNumPy(*start, maximize=maximize, **kind)
    bad = -INF if maximize else INF
    for t in range(8):
        x = search.ask().numpy().copy()
        fitness = np.square(x - 1.0).sum(axis=1).round(0) * (
            -1.0 if maximize else 1.0
        )  # with equal ones
        if t % 3 == 1:
            fitness[5:] = [NAN, bad] * 17 + [NAN]  # five successes, fewer than elites
        if t == 5:
            fitness[np.arange(40) != 2] = NAN  # one success
        search.tell(x, fitness)
        expected.tell(
            x, fitness, alpha=0.8, beta=0.7, gamma=0.5, t=t, variance=max(0.5 - t / 4, 0.0),
            floor=np.array([0.3, 0.3, 0.8]),
        )  # fmt: skip
        for found, wanted in (
            (search.mean, expected.mean),
            (search.covariance, expected.covariance),
            (search.std, np.sqrt(expected.covariance.diagonal())),
            (search.averaged_mean, expected.averaged),
            (search.best, expected.best),
        ):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-11)
        assert search.statistics() == pytest.approx(
            {
                "best_fitness": expected.best_fitness,
                "generation_best": expected.elite_fitness[0],
                "elite_mean": expected.elite_fitness.mean(),
                "elite_threshold": expected.elite_fitness[-1],
                "std_mean": float(search.std.mean()),
            }
        )


@pytest.mark.parametrize(("maximize", "bad"), [(True, -INF), (False, INF)])
def test_a_generation_of_failures_counts_and_changes_nothing_else(maximize, bad):
    optimizer = make(2, 3, num_elites=2, maximize=maximize)
    assert optimizer.best.isnan().all()
    assert math.isnan(optimizer.statistics()["elite_mean"])
    tell_rows(optimizer, [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], [1.0, 2.0, 3.0])
    before = optimizer.state
    with pytest.warns(
        RuntimeWarning, match="all 3 candidates of generation 1 failed"
    ) as warned:
        optimizer.tell(optimizer.ask(), [bad, NAN, bad])
    assert warned[0].filename == __file__
    assert optimizer.generation == 2
    assert torch.equal(optimizer.state.distribution, before.distribution)
    assert optimizer.best_fitness == float(before.best_fitness)
    step(optimizer, lambda x: x[:, 0])
    assert not torch.equal(optimizer.mean, before.mean)


@pytest.mark.parametrize(
    ("population", "fraction", "expected"), [(100, 0.07, 7), (10, 0.01, 2), (16, None, 4)]
)
def test_a_fraction_of_elites_is_rounded_up_to_at_least_two(population, fraction, expected):
    assert CEMConfig(elite_fraction=fraction).elites_of(population) == expected


class TestExtraVariance:
    def test_every_generation_has_its_own_from_a_schedule_that_is_called_once_for_each(self):
        seen = []
        schedule = lambda t: seen.append(t) or 1.0 / (t + 1)  # noqa: E731
        optimizer = make(1, 2, num_elites=2, dtype=torch.float64, variance_schedule=schedule)
        early = optimizer.snapshot()
        for t in (*range(150), *range(150)):
            if t == 0:
                optimizer.rewind(early)
            tell_rows(optimizer, [[0.0], [2.0]], [1.0, 1.0])
            assert optimizer.std.item() == pytest.approx(
                math.sqrt(1.0 + 1.0 / (t + 1)), rel=1e-12
            )
        assert seen == list(range(len(seen)))

    @pytest.mark.parametrize("variance", [-1.0, NAN])
    def test_what_is_no_variance_is_refused_and_changes_nothing(self, variance):
        optimizer = make(variance_schedule=lambda t: variance if t == 2 else 1.0)
        for _ in range(2):
            optimizer.tell(optimizer.ask(), torch.arange(6.0))
        before = bits(optimizer)
        with pytest.raises(
            ValueError, match="expected the extra variance of generation 2 finite and >= 0"
        ):
            optimizer.tell(optimizer.ask(), torch.arange(6.0))
        assert bits(optimizer) == before


class TestAsk:
    def test_candidates_are_drawn_again_the_same_and_stay_as_they_were(self):
        optimizer = make(3, 7)
        candidates, again = optimizer.ask(), optimizer.ask()
        copy = candidates.clone()
        assert torch.equal(candidates, again)
        assert candidates.data_ptr() != again.data_ptr()
        optimizer.tell(again, again.sum(dim=1))
        optimizer.ask()
        assert torch.equal(candidates, copy)

    def test_autocast_changes_no_candidate(self):
        search = make(4, 20, covariance="full")
        expected = search.ask()
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(search.ask(), expected)


class TestFitness:
    def test_it_may_be_a_list_an_array_or_a_tensor_in_any_layout(self):
        values = [3.0, 1.0, 2.0, 5.0, 4.0, 0.0]
        states = []
        for fitness in (
            *(values, np.array(values, dtype=np.float32), torch.tensor(values).double()),
            torch.tensor(values).repeat_interleave(2)[::2],
        ):
            optimizer = make(seed=4)
            optimizer.tell(optimizer.ask(), fitness)
            states.append(bits(optimizer))
        assert all(state == states[0] for state in states)

    @pytest.mark.parametrize(
        ("backend", "dtype", "base", "step"),
        [
            *((backend, torch.int64, 2**62, 1) for backend in ("cpu", "torch")),
            *(("cpu", torch.float64, 1.0, 1e-12), ("cpu", torch.uint8, 0, 20)),
        ],
    )
    def test_it_is_ranked_in_its_own_precision(self, backend, dtype, base, step):
        # Neighbours are equal as float32, those above 2**53 as float64, too.
        fitness = torch.tensor([base + k * step for k in (3, 1, 4, 0, 5, 2, 9, 7)], dtype=dtype)
        optimizer = make(1, 8, maximize=False, backend=backend)
        tell_rows(optimizer, torch.arange(8.0).unsqueeze(1), fitness)
        assert optimizer.best.item() == 3.0
        assert optimizer.mean.item() == pytest.approx((3 + 1 + 5) / 3)
        assert optimizer.best_fitness == float(fitness[3])

    @pytest.mark.parametrize(
        ("fitness", "error", "message"),
        [
            (torch.zeros(5), ValueError, r"expected fitness of shape \(6,\), got \(5,\)"),
            (torch.zeros(6).bool(), TypeError, "expected real numbers for fitness, got torch"),
        ],
    )
    def test_what_cannot_be_ranked_is_refused(self, fitness, error, message):
        optimizer = make()
        with pytest.raises(error, match=message):
            optimizer.tell(optimizer.ask(), fitness)


class TestCandidates:
    def test_those_that_were_repaired_count_instead_of_those_asked(self):
        optimizer = make(2, 4, num_elites=2)
        candidates = optimizer.ask()
        lengths = candidates.norm(dim=1, keepdim=True)
        optimizer.tell(candidates / lengths, candidates[:, 0] / lengths[:, 0])
        assert optimizer.best.norm().item() == pytest.approx(1.0)
        with pytest.raises(ValueError, match=r"expected candidates of shape \(4, 2\), got"):
            optimizer.tell(torch.zeros(4, 3), torch.arange(4.0))

    def test_they_may_come_one_by_one_in_any_order(self):
        whole, parts = make(2, 6), make(2, 6)
        candidates = whole.ask()
        whole.tell(candidates, candidates[:, 0])
        rows = [parts.ask(1), parts.ask(3), parts.ask(2)]
        assert torch.equal(torch.cat(rows), candidates)
        for each in (rows[0], rows[1], rows[2]):
            assert parts.generation == 0
            parts.tell(each, each[:, 0])
        assert bits(parts) == bits(whole)
        late = parts.ask(8)  # of this generation, and told when it is over
        parts.tell(late[:4], late[:4, 0])
        parts.tell(late[4:], late[4:, 0])
        assert parts.generation == 2
        with pytest.warns(RuntimeWarning, match="2 of 6 candidates are told: .* NaN for those"):
            parts.ask()

    def test_steps_of_outdated_ones_are_measured_from_the_middle_of_their_lag(self):
        optimizer = make(1, 3, num_elites=2, dtype=torch.float64, variance_about="old_mean")
        candidates = torch.tensor([[1.0], [3.0], [0.0]], dtype=torch.float64)
        optimizer.move_back(torch.tensor([2.0]).double())
        optimizer.tell(candidates, candidates[:, 0])
        # The steps of 1 and 3 from -1, a lag of 2 / 2 behind the mean 0, are 2 and 4.
        assert optimizer.mean.item() == 2.0
        assert optimizer.std.item() == pytest.approx(math.sqrt((2**2 + 4**2) / 2))

    def test_gradients_are_left_behind(self):
        optimizer = CrossEntropyMethod(
            torch.zeros(2, requires_grad=True), 1.0, 5, maximize=True
        )
        candidates = optimizer.ask() * torch.ones(2, requires_grad=True)
        optimizer.tell(candidates, candidates.sum(dim=1))
        for found in (optimizer.mean, optimizer.std, optimizer.best, optimizer.ask()):
            assert not found.requires_grad
