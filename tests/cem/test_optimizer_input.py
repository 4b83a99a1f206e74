import math

import pytest
import torch

from cem import CrossEntropyMethod

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": []}, r"expected mean of shape \(dim,\) or \(..., dim\) with dim >= 1, got \(0,\)"),
        ({"mean": [NAN, 0.0]}, "expected a finite mean"),
        ({"std": [1.0, 2.0, 3.0]}, r"expected std of shape \(2,\), got \(3,\)"),
        ({"std": -1.0}, "expected a finite std >= 0"),
        ({"population_size": 1}, "expected population_size from 2 to 2147483647, got 1"),
        ({"num_elites": 11}, r"expected num_elites from 2 to 10, got 11"),
        ({"elite_fraction": 0.0}, "expected elite_fraction finite and > 0 and <= 1, got 0.0"),
        ({"elite_fraction": 0.5, "num_elites": 5}, "expected elite_fraction or num_elites, got both"),
        (
            {"extra_variance": "constant:1", "noise": "constant:1"},
            "expected extra_variance or its alias noise, got both",
        ),
        ({"smoothing": 0.0}, "expected smoothing finite and > 0 and <= 1, got 0.0"),
        ({"bounds": (1.0, -1.0)}, "expected bounds with low <= high"),
        ({"bounds": (0.5, 1.0)}, "expected a mean within the bounds"),
        ({"bounds": ([0.0] * 3, 1.0)}, r"expected bounds\[0\] of shape \(2,\), got \(3,\)"),
        ({"std_floor": -0.1}, "expected std_floor finite and >= 0"),
        ({"mean_averaging": 1.5}, "expected mean_averaging finite and >= 0 and <= 1, got 1.5"),
        ({"backend": "abacus"}, "expected a backend among auto, cpu, cuda, torch; got 'abacus'"),
        ({"backend": "cuda"}, "expected a CUDA device for backend 'cuda', got 'cpu': take device 'cuda', or"),
        ({"covariance": "sparse"}, "expected a value for covariance among diagonal, full; got 'sparse'"),
        (
            {"bound_handling": "wrap"},
            "expected a value for bound_handling among clamp, reflect, resample, transform",
        ),
        ({"relative_std_floor": -1.0}, "expected relative_std_floor finite and >= 0"),
        ({"extra_variance": lambda t: -1.0}, "expected the extra variance of generation 0 finite and >= 0"),
        ({"mean": torch.zeros(3, 2), "seed": [1, 2]}, r"expected one seed, or seeds of shape \(3,\), got"),
        ({"device": "quantum"}, "expected a device such as 'cpu' or 'cuda', got 'quantum'"),
        (
            {"dtype": torch.float16},
            "expected torch.float32 or torch.float64 for dtype, got torch.float16",
        ),
        ({"seed": -1}, "expected seed from 0 to 18446744073709551615, got -1"),
    ],
)
def test_values_out_of_range_are_refused_with_what_was_expected_and_got(options, message):
    with pytest.raises(ValueError, match=message):
        CrossEntropyMethod(
            **{"mean": [0.0, 0.0], "std": 1.0, "population_size": 10, "maximize": True, **options}
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": "weights"}, "expected numbers for mean, got str"),
        ({"population_size": 10.0}, "expected population_size to be an int, got 10.0"),
        ({"num_elites": True}, "expected num_elites to be an int, got True"),
        ({"extra_variance": 4.0}, "expected None, a text or a callable for extra_variance, got float"),
        ({"bounds": 1.0}, r"expected \(low, high\) for bounds, got 1.0"),
        ({"maximize": 1}, "expected maximize to be a bool, got 1"),
        ({"seed": 1.5}, "expected seed to be an int, got 1.5"),
        ({"sampler": "normal"}, "expected a function for sampler, got str"),
    ],
)
def test_values_of_the_wrong_type_are_refused_with_what_was_expected_and_got(options, message):
    with pytest.raises(TypeError, match=message):
        CrossEntropyMethod(
            **{"mean": [0.0, 0.0], "std": 1.0, "population_size": 10, "maximize": True, **options}
        )


def test_the_direction_must_be_said():
    with pytest.raises(TypeError, match="maximize"):
        CrossEntropyMethod([0.0], 1.0, 10)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_cuda_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"torch finds no CUDA device; .*or use device 'cpu'"):
        CrossEntropyMethod([0.0], 1.0, 10, maximize=True, device="cuda")
