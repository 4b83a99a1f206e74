import math

import pytest
import torch
from searches import bits

from cem import CrossEntropyMethod

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def make(dim=2, population_size=6, **options):
    options = {"num_elites": 3, "seed": 0, **options}
    return CrossEntropyMethod(torch.zeros(dim), 1.0, population_size, maximize=True, **options)


def test_ask_and_tell_do_not_wait_for_the_device():
    optimizer = make(
        5,
        100,
        device="cuda",
        extra_variance="linear",
        smoothing=0.8,
        bounds=(-3.0, 3.0),
        std_floor=0.1,
        mean_averaging=0.2,
    )
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            optimizer.tell(optimizer.ask().sum(dim=1))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_tells_what_the_cpu_tells():
    cpu, cuda = make(4, 50, dtype=torch.float64), make(4, 50, dtype=torch.float64, device="cuda")
    for _ in range(4):
        candidates = cpu.ask()
        fitness = candidates.cos().sum(dim=1)
        fitness[3] = math.nan
        cpu.tell(fitness, candidates)
        cuda.tell(fitness.cuda(), candidates.cuda())
    assert torch.equal(cuda.mean.cpu(), cpu.mean)
    assert torch.equal(cuda.std.cpu(), cpu.std)
    assert torch.equal(cuda.best.cpu(), cpu.best)
    assert cuda.best_fitness == cpu.best_fitness


def test_a_refused_generation_changes_nothing_and_rises_at_the_next_look():
    optimizer = make(device="cuda")
    optimizer.tell(optimizer.ask().sum(dim=1))
    before = bits(optimizer)
    optimizer.ask()
    optimizer.tell(torch.full((6,), math.nan, device="cuda"))
    with pytest.raises(ValueError, match="expected at least one candidate with a usable fitness"):
        optimizer.check()
    after = bits(optimizer)
    assert all(after[name] == before[name] for name in ("mean", "std", "best", "best_fitness"))


def test_a_loaded_search_goes_on_bit_for_bit():
    whole, other = make(device="cuda"), make(device="cuda")
    whole.tell(whole.ask().sum(dim=1))
    other.load_state_dict(whole.state_dict())
    for optimizer in (whole, other):
        optimizer.tell(optimizer.ask().sum(dim=1))
    assert bits(whole) == bits(other)
    assert torch.equal(whole.ask(), other.ask())


def test_fitness_on_the_cpu_is_fetched():
    optimizer = make(device="cuda")
    optimizer.tell(optimizer.ask().sum(dim=1).tolist())
    assert optimizer.mean.device.type == "cuda"
