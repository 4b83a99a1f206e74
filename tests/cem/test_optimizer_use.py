"""How an optimizer is used: NumPy, seeds, starting again, saving, copies, threads."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from searches import bits
from searches import step as steps

from cem import Bounds, CEMConfig, Choice, CrossEntropyMethod, Float, Int, Permutation, minimize

SEARCHES = {
    "default": {
        "config": CEMConfig(
            variance_schedule="hyperbolic:0.1", smoothing=0.9, mean_averaging=0.4
        )
    },
    "torch": {"config": CEMConfig(), "backend": "torch", "bounds": (-math.inf, 4.0)},
    "double": {"config": CEMConfig.classic("linear:1,5"), "dtype": torch.float64, "seed": None},
    "batch": {"mean": torch.ones(2, 3), "seed": None},
    "cma": {},
    "full paths": {"config": CEMConfig.cma(bound_handling="transform"), "bounds": (-9.0, 9.0)},
}


def make(mean=(1.0, 2.0, 3.0), std=1.0, population_size=12, **options):
    return CrossEntropyMethod(
        mean, std, population_size, **{"maximize": False, "seed": 1, **options}
    )


def step(search, generations=1):
    steps(search, lambda x: (x**2).sum(-1), generations)


def test_arrays_come_out_where_an_array_went_in_and_the_search_is_that_of_a_tensor():
    array, tensor = make(np.ones(3, dtype=np.float32)), make(torch.ones(3))
    for _ in range(3):
        candidates = array.ask()
        assert isinstance(candidates, np.ndarray)
        assert (torch.from_numpy(candidates) == tensor.ask()).all()
        for search in (array, tensor):
            search.tell(candidates, (candidates**2).sum(axis=1))
    assert bits(array) == bits(tensor)
    for name in ("mean", "std", "averaged_mean", "best", "covariance"):
        assert isinstance(getattr(array, name), np.ndarray)
        assert getattr(array, name).dtype == np.float32
    assert isinstance(array.best_fitness, float)


def test_a_search_can_be_read():
    search = make(np.ones(3), population_size=None, backend="cpu")
    assert repr(search) == (
        "CrossEntropyMethod(dim=3, batch_shape=(), population_size=7, full covariance, "
        "evolution paths, generation=0, backend='cpu', device='cpu', seed=1)"
    )


def test_nothing_passed_in_is_changed_and_what_is_handed_out_is_a_copy():
    mean, std = torch.zeros(2), torch.ones(2)
    low, high = torch.full((2,), -1.0), torch.full((2,), 1.0)
    config = CEMConfig(variance_schedule="constant:1", std_floor=2.0)
    search = make(mean, std, 6, bounds=Bounds(low, high), config=config)
    fitness, candidates = torch.arange(6.0), search.ask().clone()
    arguments = (mean, std, low, high, fitness, candidates)
    copies = [argument.clone() for argument in arguments]
    search.tell(candidates, fitness)
    step(search)
    assert all(map(torch.equal, arguments, copies))
    before = bits(search)
    for name in ("mean", "std", "averaged_mean", "best", "covariance"):
        getattr(search, name).fill_(99.0)
    search.state_dict()["distribution"].fill_(99.0)
    assert bits(search) == before


def test_a_search_has_the_same_bits_on_any_number_of_threads():
    states = []
    for count in (1, 2):  # a fixture sets it back
        torch.set_num_threads(count)
        search = make(torch.ones(700), 1.0, 400, config=CEMConfig())
        steps(search, lambda x: x[:, 0] ** 2, 3)
        states.append(bits(search))
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


class TestState:
    @pytest.mark.parametrize("options", SEARCHES)
    def test_a_search_that_is_loaded_or_copied_goes_on_on_its_own_bit_for_bit(self, options):
        search = make(**SEARCHES[options])
        loaded = make(**{**SEARCHES[options], "mean": torch.zeros_like(search.mean)})
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
        small, large = (
            make(population_size=size, config=CEMConfig.classic()) for size in (12, 40)
        )
        step(small, 3)
        large.load_state_dict(small.state_dict())
        assert torch.equal(large.mean, small.mean)
        assert large.statistics() == small.statistics()
        step(large)
        assert large.generation == 4

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("dim", {"mean": [0.0]}),
            ("variance_schedule", {"config": CEMConfig.cma(variance_schedule="constant:1")}),
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
            ("distribution", torch.full((4, 3), math.nan), "expected a finite mean"),
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


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("settings", None),
        ("told_fitness", None),
        ("told_fitness", torch.zeros(2, 1)),
        ("told_candidates", torch.zeros(2, 4)),
        ("asked", -1),
    ],
)
def test_a_search_without_a_seed_refuses_a_damaged_state_and_keeps_its_own(part, value):
    search = CrossEntropyMethod(torch.zeros(3), 1.0, 6, maximize=False)
    candidates = search.ask(2)
    search.tell(candidates, candidates.square().sum(-1))
    state = {**search.state_dict(), part: value}
    if value is None:
        del state[part]
    resumed = CrossEntropyMethod(torch.zeros(3), 1.0, 6, maximize=False)
    before = resumed.seed, bits(resumed)
    with pytest.raises(ValueError, match=f"expected .*{part}"):
        resumed.load_state_dict(state)
    assert (resumed.seed, bits(resumed)) == before


def test_candidates_asked_one_by_one_begin_with_the_first_of_each_generation():
    options = {"maximize": False, "backend": "cpu", "seed": 1}
    search = CrossEntropyMethod(torch.zeros(3), 1.0, 6, **options)
    for _ in range(3):
        whole, parts = search.ask(), [search.ask(count) for count in (1, 2, 3, 2)]
        assert torch.equal(torch.cat(parts)[:6], whole)
        for part in parts[:3]:
            search.tell(part, part.square().sum(-1))
    assert search.generation == 3


def test_candidates_told_beyond_a_population_belong_to_the_next():
    by_part, at_once = (
        CrossEntropyMethod(torch.zeros(2), 1.0, 6, maximize=False, seed=1) for _ in range(2)
    )
    x = torch.cat([by_part.ask(), 2 * by_part.ask()])
    for part in x.split((4, 5, 3)):
        by_part.tell(part, part.square().sum(-1))
    for part in x.split(6):
        at_once.tell(part, part.square().sum(-1))
    assert by_part.generation == 2
    assert torch.equal(by_part.mean, at_once.mean)


@pytest.mark.parametrize(("maximize", "best"), [(False, 1.0), (True, 8.0)])
def test_statistics_are_of_the_last_generation_and_of_a_batch_the_best_and_the_means(
    maximize, best
):
    options = {"maximize": maximize, "seed": 1, "config": CEMConfig(num_elites=2)}
    search = CrossEntropyMethod(torch.zeros(2, 3), 1.0, 4, **options)
    fitness = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    elites = [1.5, 5.5] if not maximize else [3.5, 7.5]
    for added in (0.0, 10.0 if not maximize else -10.0):
        search.tell(search.ask(), fitness + added)
        found = search.statistics()
        assert found["best_fitness"] == best  # of both generations
        assert found["elite_mean"] == sum(elites) / 2 + added


def test_a_problem_that_failed_does_not_hide_the_statistics_of_the_others():
    search = CrossEntropyMethod(torch.zeros(3, 2), 1.0, 4, maximize=True, seed=1)
    nan = math.nan
    fitness = torch.tensor([[1.0, 2.0, 3.0, 4.0], [nan] * 4, [5.0, 6.0, 7.0, nan]])
    search.tell(search.ask(), fitness)
    found = search.statistics()
    assert (found["best_fitness"], found["generation_best"]) == (7.0, 5.5)


def test_a_snapshot_is_copied_to_the_host_whatever_torch_s_default_device():
    snapshot = CrossEntropyMethod([1.0, 2.0], 1.0, maximize=True, seed=1).snapshot()
    snapshot._host = None
    with torch.device("meta"):
        assert snapshot.record().mean.tolist() == [1.0, 2.0]


def test_a_search_is_the_same_whatever_torch_s_default_device():
    space = {"n": Int(0, 9), "x": Float(-1, 2), "kind": Choice("ab"), "order": Permutation(3)}
    start = np.ones(2)

    def search():
        limited = {"constraints": lambda x: 0.5 - x[0], "budget": 60, "seed": 1}
        real = minimize(lambda x: float(x @ x), start, 1.0, **limited)
        mixed = minimize(
            lambda p: p["n"] + p["x"] ** 2 + p["order"][0], space, budget=60, seed=1
        )
        return real.fun, mixed.fun

    usual = search()
    with torch.device("meta"):
        assert search() == usual
