"""Snapshots of a search. That each has the state of its generation is in test_deferred_sync.py."""

import math

import pytest
import torch
from searches import bits
from torch.utils._python_dispatch import TorchDispatchMode

from cem import CrossEntropyMethod


def make(*, like_a_gpu=False, dim=3, **options):
    optimizer = CrossEntropyMethod(
        torch.zeros(dim), 1.0, 12, maximize=True, num_elites=4, **{"smoothing": 0.8, "seed": 0, **options}
    )
    if like_a_gpu:  # tell() looks at nothing it has computed
        optimizer._refuses_at_once = False
    return optimizer


def step(optimizer, fitness=None):
    candidates = optimizer.ask()
    optimizer.tell(candidates.sum(dim=1) if fitness is None else torch.full((12,), fitness))


class NothingRead(TorchDispatchMode):
    """Fails where a tensor is turned into a number, which on a GPU waits for the device."""

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        assert "_local_scalar_dense" not in str(function), "a tensor was read"
        return function(*arguments, **(options or {}))


def test_a_generation_reads_nothing_from_the_device():
    optimizer = make(like_a_gpu=True, extra_variance="linear", bounds=(-3.0, 3.0), std_floor=0.1)
    with NothingRead():
        for _ in range(3):
            step(optimizer)
            snapshot = optimizer.snapshot()
        optimizer.rewind(snapshot)
    assert snapshot.statistics()["best_fitness"] > 0


@pytest.mark.parametrize("look", ["check", "statistics", "state_dict"])
def test_a_refused_generation_is_said_once_at_any_look_at_a_snapshot_or_the_search(look):
    for of_the_search in (False, True):
        optimizer = make(like_a_gpu=True)
        step(optimizer, math.nan)
        looked_at = optimizer if of_the_search else optimizer.snapshot()
        with pytest.raises(ValueError, match="usable fitness, got none in generation 1, counted from 1"):
            getattr(looked_at, look)()
        getattr(looked_at, look)()
        getattr(optimizer, look)()


class TestRewind:
    @pytest.mark.parametrize("like_a_gpu", [False, True])
    def test_goes_on_as_if_nothing_had_been_told_since(self, like_a_gpu):
        expected, rewound = make(like_a_gpu=like_a_gpu), make(like_a_gpu=like_a_gpu)
        for optimizer in (expected, rewound):
            step(optimizer)
            step(optimizer)
        snapshot = rewound.snapshot()
        step(rewound, math.nan if like_a_gpu else None)  # a refused one is forgotten, too
        rewound.ask()
        rewound.rewind(snapshot)
        assert rewound.generation == 2
        assert bits(rewound) == bits(expected)
        with pytest.raises(RuntimeError, match="expected ask"):
            rewound.tell(torch.ones(12))
        for optimizer in (expected, rewound):
            step(optimizer)
        assert bits(rewound) == bits(expected)

    @pytest.mark.parametrize("options", [{"seed": 1}, {"dim": 2}])
    def test_a_snapshot_of_another_search_is_refused(self, options):
        with pytest.raises(ValueError, match="expected a snapshot of this search, got"):
            make().rewind(make(**options).snapshot())
