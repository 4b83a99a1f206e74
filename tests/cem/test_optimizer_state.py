"""Manners and state of an optimizer: copies, generators, threads, saving and loading."""

import math

import pytest
import torch
from searches import CLASSIC, bits

from cem import CrossEntropyMethod

NAN, INF = math.nan, math.inf


def make(dim=2, population_size=6, *, maximize=True, num_elites=3, **options):
    options = {"num_elites": num_elites, "seed": 0, **CLASSIC, **options}
    return CrossEntropyMethod(torch.zeros(dim), 1.0, population_size, maximize=maximize, **options)


class TestManners:
    def test_nothing_passed_in_is_changed(self):
        mean, std = torch.zeros(2), torch.ones(2)
        low, high = torch.full((2,), -1.0), torch.full((2,), 1.0)
        optimizer = CrossEntropyMethod(
            mean, std, 6, maximize=True, bounds=(low, high), extra_variance="constant:1", std_floor=2.0
        )
        fitness, candidates = torch.arange(6.0), optimizer.ask().clone()
        arguments = (mean, std, low, high, fitness, candidates)
        copies = [argument.clone() for argument in arguments]
        optimizer.tell(fitness, candidates)
        optimizer.tell(optimizer.ask().sum(dim=1))
        assert all(torch.equal(a, b) for a, b in zip(arguments, copies, strict=True))

    @pytest.mark.parametrize("name", ["mean", "elite_fitness"])
    def test_what_is_handed_out_is_a_copy(self, name):
        optimizer = make()
        optimizer.tell(optimizer.ask().sum(dim=1))
        before = bits(optimizer)
        getattr(optimizer, name).fill_(99.0)
        optimizer.state_dict()[name].fill_(99.0)
        assert bits(optimizer) == before

    def test_a_search_has_the_same_bits_on_any_number_of_threads(self):
        threads = torch.get_num_threads()
        states = []
        try:
            for count in (1, 2):
                torch.set_num_threads(count)
                optimizer = CrossEntropyMethod(torch.ones(700), 1.0, 400, maximize=False, seed=0)
                for _ in range(3):
                    optimizer.tell(optimizer.ask().square()[:, 0])
                states.append(bits(optimizer))
        finally:
            torch.set_num_threads(threads)
        assert states[0] == states[1]


class TestState:
    def test_a_loaded_search_goes_on_bit_for_bit(self):
        def objective(x):
            return (x - 0.3).square().sum(dim=1)

        options = {
            "maximize": False,
            "extra_variance": "hyperbolic:0.1",
            "smoothing": 0.9,
            "seed": 7,
        }
        options["mean_averaging"] = 0.4
        options["bounds"] = (-INF, 4.0)
        whole = CrossEntropyMethod(torch.zeros(30), 1.0, 50, **options)
        for _ in range(4):
            whole.tell(objective(whole.ask()))
        whole.ask()  # asked, not told: no part of the state
        state = whole.state_dict()
        other = CrossEntropyMethod(torch.ones(30), 5.0, 50, **options)
        other.tell(-objective(other.ask()))
        other.load_state_dict(state)
        assert other.generation == 4
        for optimizer in (whole, other):
            for _ in range(4):
                optimizer.tell(objective(optimizer.ask()))
        assert bits(whole) == bits(other)

    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("dim", {"dim": 3}),
            ("maximize", {"maximize": False}),
            ("noise", {"extra_variance": "constant:1"}),
            ("dtype", {"dtype": torch.float64}),
            ("seed", {"seed": 1}),
        ],
    )
    def test_a_state_saved_under_other_settings_is_refused_by_name(self, name, options):
        optimizer = make(**options)
        before = bits(optimizer)
        with pytest.raises(ValueError, match=f"expected a state saved with {name} = .*, got"):
            optimizer.load_state_dict(make().state_dict())
        assert bits(optimizer) == before

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"mean": torch.zeros(3)}, "expected mean as a torch.float32 tensor of shape \\(2,\\)"),
            ({"mean": torch.tensor([1.0, NAN])}, "expected a finite mean"),
            ({"generation": -1}, "expected generation >= 0, got -1"),
        ],
    )
    def test_a_damaged_state_is_refused_and_changes_nothing(self, changes, message):
        optimizer = make()
        optimizer.tell(optimizer.ask().sum(dim=1))
        before = bits(optimizer)
        with pytest.raises(ValueError, match=message):
            optimizer.load_state_dict({**make().state_dict(), **changes})
        assert bits(optimizer) == before

    def test_a_state_with_a_part_missing_is_refused(self):
        state = make().state_dict()
        del state["std"]
        with pytest.raises(ValueError, match="expected an optimizer state with std, got"):
            make().load_state_dict(state)
