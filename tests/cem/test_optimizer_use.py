"""How an optimizer is used: NumPy, seeds, starting again, copies, other sizes."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from searches import bits

from cem import CrossEntropyMethod
from cem.noise import LinearNoise

SEARCHES = {
    "default": {},
    "torch": {"backend": "torch"},
    "double": {"dtype": torch.float64, "extra_variance": LinearNoise(1.0, 5.0)},
    "full paths": {"covariance": "full", "paths": True, "bounds": (-9.0, 9.0), "bound_handling": "transform"},
}


def make(mean=(1.0, 2.0, 3.0), std=1.0, population_size=12, **options):
    return CrossEntropyMethod(mean, std, population_size, **{"maximize": False, "seed": 1, **options})


def step(search, generations=1):
    for _ in range(generations):
        search.tell((search.ask() ** 2).sum(-1))


class TestNumPy:
    def test_arrays_come_out_where_an_array_went_in(self):
        dtype = np.float32
        search = make(np.ones(3, dtype=dtype))
        candidates = search.ask()
        assert isinstance(candidates, np.ndarray)
        assert (candidates.shape, candidates.dtype) == ((12, 3), dtype)
        search.tell((candidates**2).sum(axis=1))
        for name in ("mean", "std", "averaged_mean", "best", "covariance"):
            assert isinstance(getattr(search, name), np.ndarray)
            assert getattr(search, name).dtype == dtype
        assert search.elite_fitness.dtype == np.float64
        assert isinstance(search.best_fitness, float)
        assert set(search.state_dict()) >= {"mean", "std"}

    def test_an_array_and_a_tensor_search_the_same(self):
        array, tensor = make(np.ones(3, dtype=np.float32)), make(torch.ones(3))
        for _ in range(3):
            candidates = array.ask()
            assert (torch.from_numpy(candidates) == tensor.ask()).all()
            array.tell((candidates**2).sum(axis=1))
            tensor.tell((candidates**2).sum(axis=1))
        assert bits(array) == bits(tensor)

    @pytest.mark.parametrize(
        ("change", "backend", "of_a_tensor", "dim", "size"),
        [
            (lambda array: array.__setitem__((3, 1), 0.0), "cpu", True, 3, 11),
            (lambda array: np.clip(array, 0.0, None, out=array), "torch", False, 4, 11),
            (lambda array: np.negative(array, out=array), "cpu", False, 31, 2003),
            (lambda array: array.sort(axis=0), "torch", True, 32, 2003),
        ],
        ids=["one number", "clipped", "negated", "sorted"],
    )
    def test_candidates_changed_through_a_view_are_noticed(self, change, backend, of_a_tensor, dim, size):
        mean = torch.zeros(dim) if of_a_tensor else np.zeros(dim)
        search = make(mean, population_size=size, backend=backend)
        candidates = search.ask()
        change(candidates.numpy() if of_a_tensor else candidates)
        with pytest.raises(ValueError, match="changed in place: pass what was evaluated"):
            search.tell(np.arange(float(size)))
        search.tell(np.arange(float(size)), candidates)

    def test_candidates_changed_in_inference_mode_are_noticed(self):
        search = make()
        with torch.inference_mode():
            fitness = search.ask().sub_(3.0).square().sum(-1)
            with pytest.raises(ValueError, match="changed in place: pass what was evaluated"):
                search.tell(fitness)
            search.tell(search.ask().square().sum(-1))

    def test_a_view_that_changes_nothing_is_allowed(self):
        for options in SEARCHES.values():
            search, other = make(**options), make(**options)
            assert search.ask().numpy().sum() != 0
            search.tell((search._asked[0] ** 2).sum(-1))
            step(other)
            assert bits(search) == bits(other)


class TestSeed:
    def test_without_a_seed_searches_differ_and_follow_torch(self):
        torch.manual_seed(3)
        one, two = make(seed=None), make(seed=None)
        torch.manual_seed(3)
        again = make(seed=None)
        assert one.seed == again.seed != two.seed
        assert torch.equal(one.ask(), again.ask())
        assert not torch.equal(one.ask(), two.ask())

    @pytest.mark.parametrize("batch", [(), (2,)])
    def test_without_a_seed_a_search_resumes_with_that_of_the_state(self, batch):
        mean = torch.ones(*batch, 3)
        whole, other = make(mean, seed=None), make(mean, seed=None)
        step(whole, 2)
        other.load_state_dict(whole.state_dict())
        assert other.seed == whole.seed
        step(whole, 2)
        step(other, 2)
        assert bits(other) == bits(whole)
        assert torch.equal(other.ask(), whole.ask())

    @pytest.mark.parametrize("backend", ["cpu", "torch"])
    def test_all_64_bits_of_a_seed_count(self, backend):
        seeds = (0, 1, 2**31, 2**32, 2**63, 2**64 - 1)
        first = {bytes(make(seed=seed, backend=backend).ask().numpy()) for seed in seeds}
        assert len(first) == len(seeds)

    @pytest.mark.parametrize("seed", [np.array([1, 2**63], dtype=np.uint64), [1, 2**64 - 1]])
    def test_a_batch_takes_one_seed_a_problem_in_any_form(self, seed):
        batch = make(torch.ones(2, 3), seed=seed)
        alone = make(torch.ones(3), seed=int(seed[1]))
        assert torch.equal(batch.ask()[1], alone.ask())


class TestStartAgain:
    def test_a_reset_goes_back_to_the_start_with_other_noise(self):
        search = make(mean_averaging=0.5)
        first = search.ask()
        step(search, 3)
        search.reset()
        assert torch.equal(search.mean, torch.tensor([1.0, 2.0, 3.0]))
        assert torch.equal(search.averaged_mean, search.mean)
        assert torch.equal(search.std, torch.ones(3))
        assert search.generation == 3
        assert math.isnan(search.best_fitness)
        assert search.best.isnan().all()
        assert search.elite_fitness.isnan().all()
        assert not torch.equal(search.ask(), first)
        step(search)

    def test_a_reset_takes_another_mean_and_std(self):
        search = make()
        step(search)
        search.reset(mean=[4.0, 5.0, 6.0], std=[1.0, 0.0, 2.0])
        assert search.mean.tolist() == [4.0, 5.0, 6.0]
        assert search.std.tolist() == [1.0, 0.0, 2.0]
        assert (search.ask()[:, 1] == 5.0).all()
        search.reset(std=3.0)
        assert search.mean.tolist() == [1.0, 2.0, 3.0]

    @pytest.mark.parametrize(("k", "batch"), [(0, ()), (2, (2,)), (3, ())])
    def test_a_shift_moves_the_plan_forward_and_fills_up_with_the_start(self, k, batch):
        start = torch.arange(3.0).expand(*batch, 3)
        search = make(start, std=2.0)
        step(search, 2)
        mean, std = search.mean, search.std
        search.shift(k)
        assert torch.equal(search.mean, torch.cat([mean[..., k:], start[..., 3 - k :]], -1))
        assert torch.equal(search.std, torch.cat([std[..., k:], torch.full((*batch, k), 2.0)], -1))
        assert search.best.isnan().all()
        assert search.generation == 2
        step(search)

    @pytest.mark.parametrize("k", [-1, 4])
    def test_a_shift_out_of_range_is_refused(self, k):
        with pytest.raises(ValueError, match=f"expected k from 0 to 3, got {k}"):
            make().shift(k)


class TestCopies:
    @pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
    @pytest.mark.parametrize("options", ["double", "full paths"])
    def test_a_copy_goes_on_on_its_own_and_the_same(self, options, duplicate):
        search = make(**SEARCHES[options])
        step(search, 2)
        search.ask()  # asked and not told: no part of the copy
        twin = duplicate(search)
        before = bits(search)
        step(twin, 3)
        assert bits(search) == before
        step(search, 3)
        assert bits(twin) == bits(search)
        assert torch.equal(twin.ask(), search.ask())

    def test_the_elites_are_unknown_where_the_fitness_was_changed_before_the_first_look(self):
        search, same = make(), make()
        fitness = search.ask().square().sum(-1)
        search.tell(fitness)
        fitness.zero_()
        assert search.elite_fitness.isnan().all()
        step(same)
        assert torch.equal(search.mean, same.mean)
        assert search.statistics() == same.statistics()


class TestOtherSizes:
    def test_a_search_resumes_with_another_population_and_other_elites(self):
        small, large = make(population_size=12), make(population_size=40, num_elites=10)
        step(small, 3)
        large.load_state_dict(small.state_dict())
        assert torch.equal(large.mean, small.mean)
        assert large.best_fitness == small.best_fitness
        assert large.elite_fitness.isnan().all()
        assert large.statistics() == small.statistics()
        step(large)
        assert large.generation == 4
        assert large.elite_fitness.shape == (10,)

    @pytest.mark.parametrize("part", ["factor", "paths"])
    def test_a_state_without_a_part_or_with_a_damaged_one_is_refused(self, part):
        search = make(**SEARCHES["full paths"])
        state = search.state_dict()
        damaged = {**state, part: state[part][..., :2]}
        with pytest.raises(ValueError, match=f"expected {part} as a torch.float32 tensor of shape"):
            search.load_state_dict(damaged)
        del state[part]
        with pytest.raises(ValueError, match=f"expected an optimizer state with {part}"):
            search.load_state_dict(state)


class TestRankingOfIntegers:
    @pytest.mark.parametrize(("maximize", "backend"), [(True, "cpu"), (False, "torch")])
    def test_int64_beyond_the_integers_of_float64_is_ranked_exactly(self, maximize, backend):
        # Neighbours above 2**53 are one and the same float64.
        values = 2**62 + torch.tensor([3, 1, 4, 0, 5, 2, 9, 7])
        candidates = torch.arange(8.0).unsqueeze(1)
        search = make([0.0], population_size=8, num_elites=3, maximize=maximize, backend=backend)
        search.tell(values, candidates)
        order = values.argsort(descending=maximize)
        assert search.best.item() == order[0]
        direct = make([0.0], population_size=8, num_elites=3, maximize=maximize, backend=backend)
        direct.tell(values - 2**62, candidates)
        assert torch.equal(search.mean, direct.mean)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8])
    def test_fitness_of_a_small_dtype_is_ranked(self, dtype):
        search = make([0.0], population_size=4, num_elites=2, maximize=True, weights="equal")
        search.tell(torch.tensor([1, 4, 3, 2], dtype=dtype), torch.tensor([[1.0], [4.0], [3.0], [2.0]]))
        assert search.mean.item() == 3.5
        assert search.elite_fitness.tolist() == [4.0, 3.0]


class TestExtraVariance:
    def test_a_schedule_is_called_once_for_each_generation_and_ahead_of_time(self):
        seen = []
        search = make(extra_variance=lambda t: seen.append(t) or 1.0 / (t + 1))
        step(search, 200)
        assert seen == list(range(len(seen)))
        assert len(seen) >= 200

    @pytest.mark.parametrize(
        ("schedule", "covariance"), [("linear:5,10", "diagonal"), ("hyperbolic:3", "full")]
    )
    def test_later_generations_have_their_own_variance(self, schedule, covariance):
        search = make(
            [0.0], population_size=2, num_elites=2, extra_variance=schedule, covariance=covariance,
            weights="equal", variance_about="new_mean", std_smoothing=1.0, dtype=torch.float64,
        )  # fmt: skip
        for t in range(150):
            search.tell([0.0, 0.0], [[-1.0], [1.0]])
            assert search.std.item() == pytest.approx(math.sqrt(1.0 + search.extra_variance(t)), rel=1e-12)
