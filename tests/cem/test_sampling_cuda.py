"""The backend of operators on a GPU."""

import math

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


def distance(backend, seed, generations=40):
    """How far from the optimum a search ends, as the logarithm of the distance."""
    search = optimizer(backend, seed)
    for _ in range(generations):
        search.tell(sphere(search.ask()))
    return math.log(float((search.mean - 1.0).norm()))


def test_auto_takes_it():
    assert optimizer("auto").backend == "cuda"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_candidates_are_the_operators(dtype):
    from kernels.ops.normal import sample_normal

    search = optimizer(seed=7, dtype=dtype)
    expected = sample_normal(search.mean, search.std, 100, seed=7, generation=0, dim_first=False)
    candidates = search.ask()
    assert (candidates.shape, candidates.dtype) == ((100, 10), dtype)
    assert torch.equal(candidates, expected)


def test_asking_again_draws_the_same_and_the_next_generation_others():
    search = optimizer()
    first, again = search.ask(), search.ask()
    assert torch.equal(first, again)
    assert first.data_ptr() != again.data_ptr()
    search.tell(sphere(first), first)
    z = (search.ask() - search.mean) / search.std
    assert (z - (first - 2.0) / 3.0).abs().min() > 0


def test_a_search_is_reproducible():
    runs = [optimizer(seed=3) for _ in range(2)]
    for search in runs:
        for _ in range(5):
            search.tell(sphere(search.ask()))
    assert bits(runs[0]) == bits(runs[1])


def test_a_resumed_search_goes_on_bit_for_bit():
    whole, other = optimizer(seed=3, bounds=(-4.0, 4.0)), optimizer(seed=3, bounds=(-4.0, 4.0))
    for _ in range(3):
        whole.tell(sphere(whole.ask()))
    other.load_state_dict(whole.state_dict())
    for search in (whole, other):
        search.tell(sphere(search.ask()))
    assert bits(whole) == bits(other)


def test_a_state_of_the_other_backend_is_refused():
    with pytest.raises(ValueError, match="saved with backend = 'cuda', got 'torch'"):
        optimizer().load_state_dict(optimizer("torch").state_dict())


def test_it_does_not_wait_for_the_device():
    search = optimizer()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            search.tell(sphere(search.ask()))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.heavy  # thousands of launches of torch
def test_both_backends_learn_equally_well():
    # Welch's t over 40 seeds each, on the logarithm of the final distance, which is close to normal.
    # Equal backends differ by more than 4.5 standard errors with a probability below 3e-5.
    ends = {name: torch.tensor([distance(name, seed) for seed in range(40)]) for name in ("torch", "cuda")}
    start = math.log(math.sqrt(10))
    assert all(end.mean() < start - 3 for end in ends.values())
    error = math.sqrt(sum(float(end.var()) / len(end) for end in ends.values()))
    assert abs(float(ends["torch"].mean() - ends["cuda"].mean())) < 4.5 * error
