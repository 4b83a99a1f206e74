"""The backend that draws with the fused kernel: what it refuses anywhere, and how it searches on a GPU."""

import math

import pytest
import torch

import cem.sampling
from cem import CrossEntropyMethod, available_backends
from cem.sampling import choose_backend, make_sampler
from kernels import BuildError, CompilerMissingError

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def optimizer(backend="cuda", seed=0, dim=10, **options):
    settings = {"device": "cuda", "maximize": False, **options}
    return CrossEntropyMethod(
        torch.full((dim,), 2.0), 3.0, 100, backend=backend, seed=seed, num_elites=10, **settings
    )


def sphere(candidates):
    return (candidates - 1.0).square().sum(dim=1)


def distance(backend, seed, generations=15):
    """How far from the optimum a search ends, as the logarithm of the distance."""
    search = optimizer(backend, seed)
    for _ in range(generations):
        search.tell(sphere(search.ask()))
    return math.log(float((search.mean - 1.0).norm()))


def bits(search):
    state = search.state_dict()
    return {
        name: value.numpy().tobytes() if torch.is_tensor(value) else value for name, value in state.items()
    }


def test_it_is_known_by_name():
    assert available_backends() == ("cuda", "torch")


def test_it_is_refused_on_the_cpu_with_the_remedy():
    with pytest.raises(
        ValueError, match=r"expected a CUDA device .* got 'cpu': take device 'cuda', or backend"
    ):
        CrossEntropyMethod([0.0], 1.0, 10, maximize=True, backend="cuda")


def without_kernel(monkeypatch, error):
    """Let the operator fail as it does where it cannot be built, on whatever machine the test runs."""

    def refuse(*arguments, **options):
        raise error

    monkeypatch.setattr("kernels.normal.sample_normal", refuse)
    monkeypatch.setattr(cem.sampling.torch, "zeros", lambda *shape, device: None)


def test_without_nvcc_it_is_refused_with_the_remedy_in_one_line(monkeypatch):
    without_kernel(monkeypatch, CompilerMissingError("no nvcc found", "install the CUDA toolkit"))
    with pytest.raises(
        ValueError, match=r"no nvcc found.*install the CUDA toolkit.*or use backend 'torch'$"
    ) as e:
        make_sampler("cuda", CUDA)
    assert "\n" not in str(e.value)


def test_auto_takes_torch_where_there_is_no_nvcc(monkeypatch):
    without_kernel(monkeypatch, CompilerMissingError("no nvcc found", "install the CUDA toolkit"))
    assert choose_backend("auto", CUDA) == "torch"


def test_auto_takes_torch_and_warns_where_the_kernel_does_not_compile(monkeypatch):
    without_kernel(monkeypatch, BuildError("nvcc failed", "see the log"))
    with pytest.warns(RuntimeWarning, match="drawing with backend 'torch': .*nvcc failed"):
        assert choose_backend("auto", CUDA) == "torch"


def test_auto_takes_torch_on_the_cpu_and_is_settled_from_then_on():
    search = CrossEntropyMethod([0.0], 1.0, 10, maximize=True, backend="auto")
    assert search.backend == "torch"
    assert search.state_dict()["settings"]["backend"] == "torch"


def test_a_backend_asked_for_by_name_stays():
    assert [choose_backend(name, CPU) for name in ("torch", "cuda", "mine")] == ["torch", "cuda", "mine"]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnAGpu:
    """What needs the kernel."""

    def test_auto_takes_it(self):
        assert optimizer("auto").backend == "cuda"

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_candidates_are_the_operators(self, dtype):
        from kernels.normal import sample_normal

        search = optimizer(seed=7, dtype=dtype)
        expected = sample_normal(search.mean, search.std, 100, seed=7, generation=0, dim_first=False)
        candidates = search.ask()
        assert (candidates.shape, candidates.dtype) == ((100, 10), dtype)
        assert torch.equal(candidates, expected)

    def test_asking_again_draws_the_same_and_the_next_generation_others(self):
        search = optimizer()
        first, again = search.ask(), search.ask()
        assert torch.equal(first, again)
        assert first.data_ptr() != again.data_ptr()
        search.tell(sphere(first), first)
        z = (search.ask() - search.mean) / search.std
        assert (z - (first - 2.0) / 3.0).abs().min() > 0

    def test_a_search_is_reproducible(self):
        runs = [optimizer(seed=3) for _ in range(2)]
        for search in runs:
            for _ in range(5):
                search.tell(sphere(search.ask()))
        assert bits(runs[0]) == bits(runs[1])

    def test_a_resumed_search_goes_on_bit_for_bit(self):
        whole, other = optimizer(seed=3, bounds=(-4.0, 4.0)), optimizer(seed=3, bounds=(-4.0, 4.0))
        for _ in range(3):
            whole.tell(sphere(whole.ask()))
        other.load_state_dict(whole.state_dict())
        for search in (whole, other):
            search.tell(sphere(search.ask()))
        assert bits(whole) == bits(other)

    def test_a_state_of_the_other_backend_is_refused(self):
        with pytest.raises(ValueError, match="saved with backend = 'cuda', got 'torch'"):
            optimizer().load_state_dict(optimizer("torch").state_dict())

    def test_it_does_not_wait_for_the_device(self):
        search = optimizer()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(3):
                search.tell(sphere(search.ask()))
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_both_backends_learn_equally_well(self):
        # Welch's t over 40 seeds each, on the logarithm of the final distance, which is close to normal.
        # Equal backends differ by more than 4.5 standard errors with a probability below 3e-5.
        ends = {
            name: torch.tensor([distance(name, seed) for seed in range(40)]) for name in ("torch", "cuda")
        }
        start = math.log(math.sqrt(10))
        assert all(end.mean() < start - 3 for end in ends.values())
        error = math.sqrt(sum(float(end.var()) / len(end) for end in ends.values()))
        assert abs(float(ends["torch"].mean() - ends["cuda"].mean())) < 4.5 * error
