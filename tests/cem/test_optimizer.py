import math

import numpy as np
import pytest
import torch
from searches import CLASSIC, bits

from cem import CrossEntropyMethod
from cem.noise import LinearNoise

NAN, INF = math.nan, math.inf


def make(dim=2, population_size=6, *, maximize=True, num_elites=3, **options):
    options = {"num_elites": num_elites, "seed": 0, **CLASSIC, **options}
    return CrossEntropyMethod(torch.zeros(dim), 1.0, population_size, maximize=maximize, **options)


def tell_rows(optimizer, rows, fitness):
    optimizer.tell(torch.as_tensor(fitness), torch.as_tensor(rows, dtype=torch.float64))


class TestUpdate:
    @pytest.mark.parametrize(("dtype", "maximize"), [(torch.float32, True), (torch.float64, False)])
    def test_mean_and_std_are_those_of_the_elites_as_numpy_computes_them(self, dtype, maximize):
        optimizer = make(5, 40, maximize=maximize, num_elites=7, dtype=dtype)
        candidates = optimizer.ask()
        fitness = candidates.sin().sum(dim=1)
        optimizer.tell(fitness)
        order = np.argsort(-fitness.numpy() if maximize else fitness.numpy(), kind="stable")[:7]
        elites = candidates.double().numpy()[order]
        tolerance = 1e-6 if dtype == torch.float32 else 1e-14
        np.testing.assert_allclose(
            optimizer.mean.numpy(), elites.mean(axis=0), rtol=tolerance, atol=tolerance
        )
        np.testing.assert_allclose(optimizer.std.numpy(), elites.std(axis=0, ddof=0), rtol=tolerance)

    def test_noise_adds_to_the_variance_with_the_generation_counted_from_0(self):
        optimizer = make(1, 2, num_elites=2, extra_variance=LinearNoise(5.0, 10.0), dtype=torch.float64)
        for t in range(3):
            tell_rows(optimizer, [[0.0], [2.0]], [1.0, 1.0])
            assert optimizer.std.item() == pytest.approx(math.sqrt(1.0 + 5.0 - t / 10.0), rel=1e-15)

    @pytest.mark.parametrize("variance", [-1.0, NAN])
    def test_noise_that_is_no_variance_is_refused_and_changes_nothing(self, variance):
        with pytest.raises(ValueError, match="expected the extra variance of generation 0 finite and >= 0"):
            make(extra_variance=lambda t: variance)
        optimizer = make(extra_variance=lambda t: variance if t == 2 else 1.0)
        for _ in range(2):
            optimizer.tell(torch.arange(6.0), optimizer.ask())
        before = bits(optimizer)
        with pytest.raises(ValueError, match="expected the extra variance of generation 2 finite and >= 0"):
            optimizer.tell(torch.arange(6.0), optimizer.ask())
        assert bits(optimizer) == before

    def test_smoothing_mixes_mean_and_std_with_the_old_ones(self):
        optimizer = CrossEntropyMethod(
            [10.0],
            3.0,
            2,
            maximize=True,
            num_elites=2,
            smoothing=0.25,
            extra_variance="constant:3",
            dtype=torch.float64,
            **{**CLASSIC, "std_smoothing": 0.25},
        )
        tell_rows(optimizer, [[0.0], [2.0]], [1.0, 1.0])
        assert optimizer.mean.item() == pytest.approx(0.25 * 1.0 + 0.75 * 10.0)
        assert optimizer.std.item() == pytest.approx(0.25 * math.sqrt(1.0 + 3.0) + 0.75 * 3.0)

    @pytest.mark.parametrize(
        ("averaging", "expected"), [(0.0, 40.0), (0.5, (10 / 3 + 2 * 20 / 3 + 40) / 2), (1.0, 70 / 3)]
    )
    def test_averaging_leaves_the_search_alone_and_weighs_late_means_more(self, averaging, expected):
        # Shares of the newest mean: 1, 1 / (1 + averaging), 1 / (1 + 2 averaging).
        optimizer = make(1, 2, num_elites=2, mean_averaging=averaging, dtype=torch.float64)
        assert optimizer.averaged_mean.tolist() == optimizer.mean.tolist()
        for centre in (10.0, 20.0, 40.0):
            tell_rows(optimizer, [[centre - 1.0], [centre + 1.0]], [1.0, 1.0])
            assert (optimizer.mean.item(), optimizer.std.item()) == (centre, 1.0)
        assert optimizer.averaged_mean.item() == pytest.approx(expected)

    def test_std_never_falls_below_the_floor(self):
        optimizer = make(2, 2, num_elites=2, std_floor=0.5)
        tell_rows(optimizer, [[1.0, 0.0], [1.0, 4.0]], [1.0, 1.0])
        assert optimizer.std.tolist() == [0.5, 2.0]


class TestElites:
    @pytest.mark.parametrize(
        ("population", "fraction", "expected"),
        [
            (100, 0.071, 8),
            (10, 0.01, 2),
            (15, None, 3),
        ],
    )
    def test_a_fraction_is_rounded_up_to_at_least_two(self, population, fraction, expected):
        optimizer = CrossEntropyMethod([0.0], 1.0, population, maximize=True, elite_fraction=fraction)
        assert optimizer.num_elites == expected

    def test_of_equal_fitness_the_lower_index_is_elite(self):
        optimizer = make(1, 6, num_elites=3)
        tell_rows(optimizer, [[1.0], [10.0], [100.0], [1e3], [1e4], [1e5]], [5.0, 7.0, 5.0, 5.0, 7.0, 5.0])
        assert optimizer.mean.item() == pytest.approx((10 + 1e4 + 1) / 3)

    @pytest.mark.parametrize("maximize", [True, False])
    def test_nan_and_infinity_on_the_bad_side_are_no_elites(self, maximize):
        bad = -INF if maximize else INF
        optimizer = make(1, 4, maximize=maximize, num_elites=3)
        tell_rows(optimizer, [[1.0], [10.0], [100.0], [1000.0]], [NAN, bad, 3.0, 2.0])
        assert optimizer.mean.item() == (100 + 1000) / 2
        assert optimizer.best_fitness == (3.0 if maximize else 2.0)

    def test_of_fewer_successes_than_elites_the_successes_alone_count(self):
        optimizer = make(1, 4, num_elites=3)
        tell_rows(optimizer, [[1.0], [10.0], [100.0], [1000.0]], [NAN, 2.0, -INF, 1.0])
        assert optimizer.mean.item() == (10 + 1000) / 2
        assert optimizer.std.item() == (1000 - 10) / 2
        assert optimizer.elite_fitness[:2].tolist() == [2.0, 1.0]

    @pytest.mark.parametrize(
        ("variance_about", "std"), [("new_mean", 0.0), ("new_mean_unbiased", 1.0), ("old_mean", 1000.0)]
    )
    def test_one_good_candidate_among_failures_is_not_averaged_away(self, variance_about, std):
        optimizer = make(1, 4, num_elites=3, variance_about=variance_about)
        tell_rows(optimizer, [[1.0], [10.0], [100.0], [1000.0]], [NAN, NAN, NAN, 1.0])
        assert (optimizer.mean.item(), optimizer.std.item()) == (1000.0, std)
        assert (optimizer.best.item(), optimizer.best_fitness) == (1000.0, 1.0)

    @pytest.mark.parametrize("fitness", [[NAN, NAN, NAN], [-INF, NAN, -INF]])
    def test_a_generation_of_failures_is_refused_and_changes_nothing(self, fitness):
        optimizer = make(2, 3, num_elites=2)
        tell_rows(optimizer, [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], [1.0, 2.0, 3.0])
        before, candidates = bits(optimizer), optimizer.ask()
        with pytest.raises(
            ValueError, match=r"expected at least one candidate with a usable fitness, .* infinite of 3"
        ):
            optimizer.tell(fitness)
        assert bits(optimizer) == before
        optimizer.tell(candidates[:, 0])  # and the generation can still be told

    @pytest.mark.parametrize(("coordinate", "fitness"), [(NAN, [3.0, 2.0, 1.0]), (-INF, [3, 2, 1])])
    def test_a_candidate_that_is_not_finite_has_failed(self, coordinate, fitness):
        optimizer = make(2, 3, num_elites=2)
        tell_rows(optimizer, [[0.0, coordinate], [0.0, 1.0], [0.0, 2.0]], fitness)
        assert optimizer.mean.tolist() == [0.0, 1.5]
        assert (optimizer.best.tolist(), optimizer.best_fitness) == ([0.0, 1.0], 2.0)
        with pytest.raises(ValueError, match="expected at least one candidate with a usable fitness"):
            tell_rows(optimizer, torch.full((3, 2), coordinate), fitness)

    def test_elite_fitness_is_best_first(self):
        optimizer = make(1, 4, maximize=False, num_elites=3)
        assert optimizer.elite_fitness.isnan().all()
        optimizer.tell([4.0, 1.0, 3.0, 2.0], optimizer.ask())
        assert optimizer.elite_fitness.tolist() == [1.0, 2.0, 3.0]


class TestBest:
    def test_best_is_the_first_of_the_best_over_all_generations(self):
        optimizer = make(1, 2, num_elites=2)
        assert optimizer.best.isnan().all()
        assert math.isnan(optimizer.best_fitness)
        for rows, fitness in (
            ([[1.0], [2.0]], [-5.0, -4.0]),
            ([[3.0], [4.0]], [-9.0, -3.0]),
            ([[5.0], [6.0]], [-3.0, -3.0]),
        ):
            tell_rows(optimizer, rows, fitness)
        assert optimizer.best.item() == 4.0
        assert optimizer.best_fitness == -3.0

    def test_fitness_is_ranked_in_its_own_precision(self):
        optimizer = make(1, 3, num_elites=2, dtype=torch.float32)
        tell_rows(
            optimizer,
            [[1.0], [2.0], [3.0]],
            torch.tensor([1.0, 1.0 + 1e-12, 1.0 + 2e-12], dtype=torch.float64),
        )
        assert optimizer.best.item() == 3.0
        assert optimizer.best_fitness == 1.0 + 2e-12

    def test_statistics_read_the_last_generation(self):
        optimizer = make(1, 4, num_elites=2)
        assert all(math.isnan(optimizer.statistics()[name]) for name in ("best_fitness", "elite_mean"))
        tell_rows(optimizer, [[0.0], [2.0], [0.0], [0.0]], [9.0, 7.0, 1.0, 1.0])
        tell_rows(optimizer, [[0.0], [2.0], [0.0], [0.0]], [5.0, 4.0, 1.0, 1.0])
        assert optimizer.statistics() == {
            "best_fitness": 9.0,
            "generation_best": 5.0,
            "elite_mean": 4.5,
            "elite_threshold": 4.0,
            "std_mean": 1.0,
        }


class TestAsk:
    def test_autocast_changes_no_candidate(self):
        search = CrossEntropyMethod(torch.zeros(4), 1.0, 20, maximize=False, seed=1, covariance="full")
        expected = search.ask()
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(search.ask(), expected)

    def test_asking_twice_gives_the_same_values_in_two_tensors(self):
        optimizer = make(3, 7)
        first = optimizer.ask()
        second = optimizer.ask()
        assert torch.equal(first, second)
        assert first.data_ptr() != second.data_ptr()

    def test_candidates_of_earlier_generations_stay_as_they_were(self):
        optimizer = make(3, 7)
        kept = []
        for _ in range(5):
            candidates = optimizer.ask()
            kept.append((candidates, candidates.clone()))
            optimizer.tell(candidates.sum(dim=1))
        assert all(torch.equal(candidates, copy) for candidates, copy in kept)


class TestTell:
    def test_candidates_that_were_repaired_count_instead_of_those_asked(self):
        optimizer = make(2, 4, num_elites=2)
        candidates = optimizer.ask()
        lengths = candidates.norm(dim=1, keepdim=True)
        optimizer.tell(candidates[:, 0] / lengths[:, 0], candidates / lengths)
        assert optimizer.best.norm().item() == pytest.approx(1.0)

    def test_candidates_changed_in_place_must_be_passed_back(self):
        optimizer = make(2, 4, num_elites=2)
        candidates = optimizer.ask()
        candidates.clamp_(min=0)
        with pytest.raises(
            ValueError, match=r"changed in place: pass what was evaluated as tell\(fitness, cand"
        ):
            optimizer.tell(torch.arange(4.0))
        optimizer.tell(torch.arange(4.0), candidates)
        assert (optimizer.mean >= 0).all()

    def test_telling_without_asking_is_refused(self):
        optimizer = make(2, 4)
        with pytest.raises(RuntimeError, match=r"expected ask\(\) before tell"):
            optimizer.tell(torch.arange(4.0))
        optimizer.tell(optimizer.ask().sum(dim=1))
        with pytest.raises(RuntimeError, match=r"expected ask\(\) before tell"):
            optimizer.tell(torch.arange(4.0))

    def test_fitness_may_be_a_list_an_array_or_a_tensor_in_any_layout(self):
        values = [3.0, 1.0, 2.0, 5.0, 4.0, 0.0]
        strided = torch.tensor(values).repeat_interleave(2)[::2]
        assert not strided.is_contiguous()
        states = []
        for fitness in (values, np.array(values, dtype=np.float32), torch.tensor(values).double(), strided):
            optimizer = make(seed=4)
            optimizer.ask()
            optimizer.tell(fitness)
            states.append(bits(optimizer))
        assert all(state == states[0] for state in states)

    def test_gradients_are_left_behind(self):
        mean = torch.zeros(2, requires_grad=True)
        optimizer = CrossEntropyMethod(mean, 1.0, 5, maximize=True)
        scale = torch.ones(2, requires_grad=True)
        candidates = optimizer.ask() * scale
        optimizer.tell(candidates.sum(dim=1), candidates)
        assert not any(
            x.requires_grad for x in (optimizer.mean, optimizer.std, optimizer.best, optimizer.ask())
        )

    @pytest.mark.parametrize("shape", [(5,), (6, 1)])
    def test_fitness_of_another_shape_is_refused(self, shape):
        optimizer = make()
        optimizer.ask()
        with pytest.raises(ValueError, match=r"expected fitness of shape \(6,\), got"):
            optimizer.tell(torch.zeros(shape))

    @pytest.mark.parametrize("shape", [(6, 3), (5, 2)])
    def test_candidates_of_another_shape_are_refused(self, shape):
        with pytest.raises(ValueError, match=r"expected candidates of shape \(6, 2\), got"):
            make().tell(torch.arange(6.0), torch.zeros(shape))

    @pytest.mark.parametrize("dtype", [torch.complex64, torch.bool])
    def test_fitness_that_cannot_be_ranked_is_refused(self, dtype):
        optimizer = make()
        optimizer.ask()
        with pytest.raises(TypeError, match=r"expected real numbers for fitness of .*, got torch"):
            optimizer.tell(torch.zeros(6, dtype=dtype))


class TestSearch:
    def test_maximising_f_is_minimising_minus_f(self):
        up, down = make(3, 50), make(3, 50, maximize=False)
        for _ in range(5):
            up.tell(up.ask().cos().sum(dim=1))
            down.tell(-down.ask().cos().sum(dim=1))
        assert torch.equal(up.mean, down.mean)
        assert torch.equal(up.best, down.best)
        assert up.best_fitness == -down.best_fitness
