import math

import pytest
import torch

import cem.core.backend
from cem import CEMConfig, CrossEntropyMethod
from cem.core.backend import choose_backend, mix_seed, torch_sampler
from kernels import CompilerMissingError

CPU = torch.device("cpu")


def draw(dim, population, seed, generation=0):
    return torch_sampler(
        torch.zeros(dim), torch.ones(dim), population, seed=seed, generation=generation
    )


def test_a_sample_is_a_function_of_seed_and_generation():
    first = draw(3, 10, 1, 5)
    assert torch.equal(draw(3, 10, 1, 5), first)
    assert not any(
        torch.equal(first, draw(3, 10, *other)) for other in [(1, 6), (2, 5), (1 + 2**32, 5)]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_candidates_do_not_depend_on_how_many_are_drawn_at_a_time(dtype):
    together, alone = (cpu_search("torch", dtype=dtype) for _ in range(2))
    assert torch.equal(together.ask(50), torch.cat([alone.ask(1) for _ in range(50)]))


def test_entries_are_independent_standard_normal_numbers():
    # 500 x 400 numbers, seed fixed. Each bound is 5 standard errors, so a right sampler fails
    # one of the five with a probability below 5 * 6e-7.
    z = draw(400, 500, seed=3).double()
    n = z.numel()
    assert abs(z.mean()) < 5 / math.sqrt(n)
    assert abs(z.square().mean() - 1) < 5 * math.sqrt(2 / n)
    assert abs(z.pow(4).mean() - 3) < 5 * math.sqrt(96 / n)
    # Neighbours along both axes: one noise value shared by a row or a column would give 1.
    assert abs((z[:, 1:] * z[:, :-1]).mean()) < 5 / math.sqrt(n)
    assert abs((z[1:] * z[:-1]).mean()) < 5 / math.sqrt(n)


def test_mixed_seed_is_splitmix64_twice():
    # The first outputs of the reference implementation (S. Vigna, prng.di.unimi.it) for two
    # seeds.
    first_of_0, first_of_1234567 = 0xE220A8397B1DCDAF, 6457827717110365317
    assert mix_seed(0, (1234567 - first_of_0) % 2**64) == first_of_1234567


def cpu_search(backend="auto", **options):
    options |= {"maximize": False, "config": CEMConfig(), "seed": 1}
    return CrossEntropyMethod([2.0, 2.0], 3.0, 20, backend=backend, **options)


def test_candidates_are_the_sampler_s_and_the_operator_s():
    from kernels.ops.normal import sample_normal

    search = cpu_search("torch")
    expected = torch_sampler(search.mean, search.std, 20, seed=1, generation=0)
    assert torch.equal(search.ask(), expected)
    expected = sample_normal(search.mean, search.std, 20, seed=1, generation=0, dim_first=False)
    assert torch.equal(cpu_search("cpu").ask(), expected)


def test_a_fault_of_the_disk_does_not_end_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/cache")

    monkeypatch.setattr("cem.core.backend._build_and_try", full)
    with pytest.warns(
        RuntimeWarning, match="taking backend 'torch', which is slower: .*No space left.*/cache"
    ):
        assert choose_backend("auto", torch.device("cpu")) == "torch"


def test_without_a_compiler_auto_takes_torch_and_a_backend_asked_for_is_refused_with_the_remedy(
    monkeypatch,
):
    def refuse(extensions):
        raise CompilerMissingError("no C++ compiler found", "install g++")

    monkeypatch.setattr("kernels.loader.extension.build_missing", refuse)
    cem.core.backend._build_and_try.cache_clear()
    for device in ("cpu", "cuda:0"):
        with pytest.warns(
            RuntimeWarning, match=r"taking backend 'torch', which is slower: no C\+\+ compiler"
        ):
            assert choose_backend("auto", torch.device(device)) == "torch"
    with pytest.raises(
        ValueError, match=r"no C\+\+ compiler.*install g\+\+.*; or use backend 'torch'$"
    ) as e:
        cpu_search("cpu")
    assert "\n" not in str(e.value)
