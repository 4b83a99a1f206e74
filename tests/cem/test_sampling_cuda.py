"""The backend of operators on a GPU."""

import pytest
import torch
from searches import bits

from cem import CrossEntropyMethod

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def optimizer(backend="cuda", seed=0, dim=10, **options):
    settings = {"device": "cuda", "maximize": False, **options}
    return CrossEntropyMethod(
        torch.full((dim,), 2.0), 3.0, 100, backend=backend, seed=seed, num_elites=10, **settings
    )


def sphere(candidates):
    return (candidates - 1.0).square().sum(dim=1)


def test_auto_takes_it():
    assert optimizer("auto").backend == "cuda"


def test_candidates_are_the_operators():
    from kernels.ops.normal import sample_normal

    search = optimizer(seed=7)
    expected = sample_normal(search.mean, search.std, 100, seed=7, generation=0, dim_first=False)
    candidates = search.ask()
    assert (candidates.shape, candidates.dtype) == ((100, 10), torch.float32)
    assert torch.equal(candidates, expected)


def test_asking_again_draws_the_same_and_the_next_generation_others():
    search = optimizer()
    first, again = search.ask(), search.ask()
    assert torch.equal(first, again)
    assert first.data_ptr() != again.data_ptr()
    search.tell(sphere(first), first)
    z = (search.ask() - search.mean) / search.std
    assert (z - (first - 2.0) / 3.0).abs().min() > 0


def test_a_resumed_search_goes_on_bit_for_bit():
    whole, other = optimizer(seed=3, bounds=(-4.0, 4.0)), optimizer(seed=3, bounds=(-4.0, 4.0))
    for _ in range(3):
        whole.tell(sphere(whole.ask()))
    other.load_state_dict(whole.state_dict())
    for search in (whole, other):
        search.tell(sphere(search.ask()))
    assert bits(whole) == bits(other)
