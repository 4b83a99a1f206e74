"""How an optimizer is used: NumPy, seeds, starting again, saving, copies, threads."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from searches import bits

from cem import CrossEntropyMethod

SEARCHES = {
    "default": {"extra_variance": "hyperbolic:0.1", "smoothing": 0.9, "mean_averaging": 0.4},
    "torch": {"backend": "torch", "bounds": (-math.inf, 4.0)},
    "double": {"dtype": torch.float64, "extra_variance": "linear:1,5", "seed": None},
    "batch": {"mean": torch.ones(2, 3), "seed": None},
    "full paths": {"covariance": "full", "paths": True, "bounds": (-9.0, 9.0), "bound_handling": "transform"},
}


def make(mean=(1.0, 2.0, 3.0), std=1.0, population_size=12, **options):
    return CrossEntropyMethod(mean, std, population_size, **{"maximize": False, "seed": 1, **options})


def step(search, generations=1):
    for _ in range(generations):
        search.tell((search.ask() ** 2).sum(-1))


def test_arrays_come_out_where_an_array_went_in_and_the_search_is_that_of_a_tensor():
    array, tensor = make(np.ones(3, dtype=np.float32)), make(torch.ones(3))
    for _ in range(3):
        candidates = array.ask()
        assert isinstance(candidates, np.ndarray)
        assert (torch.from_numpy(candidates) == tensor.ask()).all()
        for search in (array, tensor):
            search.tell((candidates**2).sum(axis=1))
    assert bits(array) == bits(tensor)
    for name in ("mean", "std", "averaged_mean", "best", "covariance"):
        assert isinstance(getattr(array, name), np.ndarray)
        assert getattr(array, name).dtype == np.float32
    assert array.elite_fitness.dtype == np.float64
    assert isinstance(array.best_fitness, float)


def test_nothing_passed_in_is_changed_and_what_is_handed_out_is_a_copy():
    mean, std = torch.zeros(2), torch.ones(2)
    low, high = torch.full((2,), -1.0), torch.full((2,), 1.0)
    search = make(mean, std, 6, bounds=(low, high), extra_variance="constant:1", std_floor=2.0)
    fitness, candidates = torch.arange(6.0), search.ask().clone()
    arguments = (mean, std, low, high, fitness, candidates)
    copies = [argument.clone() for argument in arguments]
    search.tell(fitness, candidates)
    step(search)
    assert all(map(torch.equal, arguments, copies))
    before = bits(search)
    for name in ("mean", "std", "averaged_mean", "best", "elite_fitness"):
        getattr(search, name).fill_(99.0)
        search.state_dict()[name].fill_(99.0)
    assert bits(search) == before


def test_a_search_has_the_same_bits_on_any_number_of_threads():
    threads, states = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            search = make(torch.ones(700), 1.0, 400)
            for _ in range(3):
                search.tell(search.ask().square()[:, 0])
            states.append(bits(search))
    finally:
        torch.set_num_threads(threads)
    assert states[0] == states[1]


class TestSeed:
    def test_without_a_seed_searches_differ_and_follow_torch(self):
        torch.manual_seed(3)
        one, two = make(seed=None), make(seed=None)
        torch.manual_seed(3)
        again = make(seed=None)
        assert one.seed == again.seed != two.seed
        assert torch.equal(one.ask(), again.ask())
        assert not torch.equal(one.ask(), two.ask())

    @pytest.mark.parametrize("backend", ["cpu", "torch"])
    def test_all_64_bits_of_a_seed_count(self, backend):
        seeds = (0, 1, 2**31, 2**32, 2**63, 2**64 - 1)
        first = {bytes(make(seed=seed, backend=backend).ask().numpy()) for seed in seeds}
        assert len(first) == len(seeds)

    def test_a_batch_takes_one_seed_a_problem(self):
        batch, alone = make(torch.ones(2, 3), seed=[1, 2**64 - 1]), make(torch.ones(3), seed=2**64 - 1)
        assert torch.equal(batch.ask()[1], alone.ask())


class TestStartAgain:
    def test_a_reset_goes_back_to_the_start_with_other_noise_or_elsewhere(self):
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
        with pytest.raises(ValueError, match="expected k from 0 to 3, got 4"):
            search.shift(4)


class TestState:
    @pytest.mark.parametrize("options", SEARCHES)
    def test_a_search_that_is_loaded_or_copied_goes_on_on_its_own_bit_for_bit(self, options):
        # A floor relative to the first std is no part of a state, and that of `loaded` is another one.
        options = {"relative_std_floor": 0.0, **SEARCHES[options]}
        search = make(**options)
        loaded = make(**{**options, "mean": torch.zeros_like(search.mean), "std": 3.0})
        for each in (search, loaded):
            step(each, 4)
        search.ask()  # asked, not told: no part of the state
        loaded.load_state_dict(search.state_dict())
        others = [loaded, copy.deepcopy(search), pickle.loads(pickle.dumps(search))]
        before = bits(search)
        for other in others:
            assert (other.seed, other.generation) == (search.seed, 4)
            assert bits(other) == before
            step(other, 4)
            assert bits(search) == before
        step(search, 4)
        for other in others:
            assert bits(other) == bits(search)
            assert torch.equal(other.ask(), search.ask())

    def test_the_population_and_the_elites_may_be_others(self):
        small, large = make(population_size=12), make(population_size=40, num_elites=10)
        step(small, 3)
        large.load_state_dict(small.state_dict())
        assert torch.equal(large.mean, small.mean)
        assert large.elite_fitness.isnan().all()
        assert large.statistics() == small.statistics()
        step(large)
        assert large.generation == 4
        assert large.elite_fitness.shape == (10,)

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("dim", {"mean": [0.0]}),
            ("noise", {"extra_variance": "constant:1"}),
            ("seed", {"seed": 2}),
        ],
    )
    def test_a_state_saved_under_other_settings_is_refused_by_name(self, name, options):
        search = make(**options)
        before = bits(search)
        with pytest.raises(ValueError, match=f"expected a state saved with {name} = .*, got"):
            search.load_state_dict(make().state_dict())
        assert bits(search) == before

    @pytest.mark.parametrize(
        ("part", "value", "message"),
        [
            ("mean", torch.tensor([1.0, 2.0, math.nan]), "expected a finite mean"),
            ("factor", torch.ones(3, 2), "expected factor as a torch.float32 tensor of shape"),
            ("paths", None, "expected an optimizer state with paths, got"),
        ],
    )
    def test_a_damaged_state_is_refused_and_changes_nothing(self, part, value, message):
        search = make(**SEARCHES["full paths"])
        step(search)
        before, state = bits(search), {**search.state_dict(), part: value}
        if value is None:
            del state[part]
        with pytest.raises(ValueError, match=message):
            search.load_state_dict(state)
        assert bits(search) == before
