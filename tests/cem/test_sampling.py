import math

import pytest
import torch

from cem import CrossEntropyMethod, available_backends, register_backend
from cem.sampling import _FACTORIES, make_sampler, mix_seed

CPU = torch.device("cpu")


def draw(dim=4, population=1000, dtype=torch.float32, seed=0, generation=0, mean=0.0, std=1.0):
    vector = torch.ones(dim, dtype=dtype)
    return make_sampler("torch", CPU)(
        vector * mean, vector * std, population, seed=seed, generation=generation
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sample_is_a_function_of_seed_and_generation(dtype):
    sampler = make_sampler("torch", CPU)
    mean, std = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)
    first = sampler(mean, std, 10, seed=1, generation=5).clone()
    other = [
        sampler(mean, std, 10, seed=s, generation=g).clone() for s, g in [(1, 6), (2, 5), (1 + 2**32, 5)]
    ]
    assert torch.equal(sampler(mean, std, 10, seed=1, generation=5), first)
    assert not any(torch.equal(first, sample) for sample in other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entries_are_independent_standard_normal_numbers(dtype):
    # 500 x 400 numbers, seed fixed. Each bound is 5 standard errors, so a right sampler fails one of the five
    # with a probability below 5 * 6e-7.
    z = draw(400, 500, dtype, seed=3).double()
    n = z.numel()
    assert abs(z.mean()) < 5 / math.sqrt(n)
    assert abs(z.square().mean() - 1) < 5 * math.sqrt(2 / n)
    assert abs(z.pow(4).mean() - 3) < 5 * math.sqrt(96 / n)
    # Neighbours along both axes: one noise value shared by a row or a column would give 1.
    assert abs((z[:, 1:] * z[:, :-1]).mean()) < 5 / math.sqrt(n)
    assert abs((z[1:] * z[:-1]).mean()) < 5 / math.sqrt(n)


def test_generations_and_seeds_are_uncorrelated():
    # 5 standard errors: a right sampler fails with a probability below 2 * 6e-7.
    base = draw(100, 1000, seed=0, generation=0)
    for other in (draw(100, 1000, seed=0, generation=1), draw(100, 1000, seed=1, generation=0)):
        assert abs((base * other).mean()) < 5 / math.sqrt(base.numel())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mean_and_std_shift_and_scale_each_dimension(dtype):
    sampler = make_sampler("torch", CPU)
    mean, std = torch.tensor([5.0, -2.0, 0.0], dtype=dtype), torch.tensor([0.1, 3.0, 0.0], dtype=dtype)
    zero, one = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)
    z = sampler(zero, one, 50, seed=0, generation=0)
    torch.testing.assert_close(sampler(mean, std, 50, seed=0, generation=0), mean + std * z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_do_not_depend_on_the_number_of_threads(dtype):
    threads = torch.get_num_threads()
    try:
        samples = []
        for count in (1, 2):
            torch.set_num_threads(count)
            samples.append(draw(300, 400, dtype))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*samples)


def test_memory_is_not_handed_out_again_while_a_view_of_it_lives():
    sampler = make_sampler("torch", CPU)
    mean, std = torch.zeros(6), torch.ones(6)
    rows = [sampler(mean, std, 5, seed=0, generation=g)[2] for g in range(6)]  # only a view of each is kept
    arrays = [sampler(mean, std, 5, seed=0, generation=g).numpy()[2] for g in range(6)]
    for g in range(6):
        fresh = make_sampler("torch", CPU)(mean, std, 5, seed=0, generation=g)[2]
        assert torch.equal(rows[g], fresh)
        assert torch.equal(torch.from_numpy(arrays[g]), fresh)


def test_memory_is_handed_out_again_once_nobody_holds_it():
    sampler = make_sampler("torch", CPU)
    places = set()
    for generation in range(20):
        sample = sampler(torch.zeros(100), torch.ones(100), 100, seed=0, generation=generation)
        places.add(sample.data_ptr())
    assert len(places) == 2  # the last one is still held while the next is drawn


def test_mixed_seeds_are_64_bit_and_differ():
    seeds = {mix_seed(seed, generation) for seed in (0, 1, 2**32, 2**64 - 1) for generation in range(250)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert len({seed & 0xFFFFFFFF for seed in seeds}) == 1000  # the bits that the Mersenne Twister takes


def test_mixed_seed_is_splitmix64_twice():
    # The first outputs of the reference implementation (S. Vigna, prng.di.unimi.it) for two seeds.
    first_of_0, first_of_1234567 = 0xE220A8397B1DCDAF, 6457827717110365317
    assert mix_seed(0, (1234567 - first_of_0) % 2**64) == first_of_1234567


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="expected a backend among auto, cuda, torch; got 'numpy'"):
        make_sampler("numpy", CPU)


def test_a_registered_backend_is_made_for_the_device_and_used():
    devices = []

    def factory(device):
        devices.append(device)
        return lambda mean, std, population_size, *, seed, generation: torch.full(
            (population_size, len(mean)), float(seed + generation)
        )

    register_backend("constant", factory)
    try:
        assert "constant" in available_backends()
        optimizer = CrossEntropyMethod([0.0, 0.0], 1.0, 3, maximize=True, backend="constant", seed=40)
        optimizer.tell([1, 2, 3], optimizer.ask())
        assert torch.equal(optimizer.ask(), torch.full((3, 2), 41.0))
        assert devices == [CPU]
    finally:
        del _FACTORIES["constant"]


@pytest.mark.parametrize("name", ["", "auto"])
def test_a_backend_without_a_name_of_its_own_is_refused(name):
    with pytest.raises(ValueError, match=f"expected a name for the backend, .* got '{name}'"):
        register_backend(name, lambda device: None)
