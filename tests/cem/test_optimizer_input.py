import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cem import Bounds, CEMConfig, CrossEntropyMethod, minimize
from cem.families import Categorical

NAN = math.nan


BAD_VALUES = [
    ({"mean": [NAN, 0.0]}, "expected a finite mean"),
    ({"std": [1.0, 2.0, 3.0]}, r"expected std of shape \(2,\), got \(3,\)"),
    ({"config": CEMConfig(num_elites=11)}, r"expected num_elites from 2 to 10, got 11"),
    ({"bounds": (1.0, -1.0)}, "expected bounds with low <= high"),
    ({"bounds": (0.5, 1.0)}, "expected a mean within the bounds"),
    (
        {"backend": "cuda"},
        "expected a CUDA device for backend 'cuda', got 'cpu': take device 'cuda', or",
    ),
    (
        {"config": CEMConfig(variance_schedule=lambda t: -1.0)},
        "expected the extra variance of generation 0 ",
    ),
    (
        {"mean": torch.zeros(3, 2), "seed": [1, 2]},
        r"expected one seed, or seeds of shape \(3,\), got",
    ),
    (
        {"dtype": torch.float16},
        "expected torch.float32 or torch.float64 for dtype, got torch.float16",
    ),
    ({"seed": -1}, "expected seed from 0 to 18446744073709551615, got -1"),
]
BAD_TYPES = [
    ({"std": "wide"}, "expected numbers for std, got str"),
    ({"maximize": 1}, "expected maximize to be a bool, got 1"),
    (
        {"bounds": ([0.0] * 3, [1.0] * 3)},
        r"expected a pair \(low, high\) for each of 2 parameters",
    ),
]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        *((options, ValueError, message) for options, message in BAD_VALUES),
        *((options, TypeError, message) for options, message in BAD_TYPES),
    ],
)
def test_bad_arguments_are_refused_with_what_was_expected_and_got(options, error, message):
    with pytest.raises(error, match=message):
        CrossEntropyMethod(
            **{
                "mean": [0.0, 0.0],
                "std": 1.0,
                "population_size": 10,
                "maximize": True,
                **options,
            }
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"elite_fraction": 0.5, "num_elites": 5},
            "expected elite_fraction or num_elites, got both",
        ),
        ({"smoothing": 0.0}, "expected smoothing finite and > 0 and <= 1, got 0.0"),
        (
            {"covariance": "sparse"},
            "expected a value for covariance among diagonal, full; got 'sparse'",
        ),
    ],
)
def test_bad_values_of_a_config_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CEMConfig(**options)


@pytest.mark.parametrize(
    "bounds",
    [
        [(0, 1), (0, 10)],
        Bounds(0.0, [1.0, 10.0]),
        SimpleNamespace(lb=[0, 0], ub=[1, 10]),  # as scipy.optimize.Bounds has them
    ],
)
def test_bounds_are_pairs_for_each_parameter_as_scipy_s_or_named(bounds):
    state = CrossEntropyMethod([0.5, 5.0], 1.0, maximize=False, bounds=bounds).state
    assert (state.low.tolist(), state.high.tolist()) == ([0.0, 0.0], [1.0, 10.0])


def test_a_side_without_a_bound_is_none_and_two_numbers_are_for_all():
    state = CrossEntropyMethod(
        [0.5, 0.5], 1.0, maximize=False, bounds=[(None, 1), (0, None)]
    ).state
    assert (state.low.tolist(), state.high.tolist()) == ([-math.inf, 0.0], [1.0, math.inf])
    for ends, low, high in (((0, 1), 0.0, 1.0), ((0, None), 0.0, math.inf)):
        state = CrossEntropyMethod([0.5] * 3, 1.0, maximize=False, bounds=ends).state
        assert (state.low.tolist(), state.high.tolist()) == ([low] * 3, [high] * 3)


def test_the_direction_must_be_said():
    with pytest.raises(TypeError, match="maximize"):
        CrossEntropyMethod([0.0], 1.0, 10)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_cuda_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"torch finds no CUDA device; .*or use device 'cpu'"):
        CrossEntropyMethod([0.0], 1.0, 10, maximize=True, device="cuda")


@pytest.mark.parametrize(
    "make",
    [np.random.default_rng, np.random.RandomState, lambda n: torch.Generator().manual_seed(n)],
)
def test_a_seed_may_be_drawn_from_a_generator(make):
    def search(seed):
        return CrossEntropyMethod([0.0, 0.0], 1.0, maximize=False, seed=seed)

    generator = make(1)
    first, second, again = search(generator), search(generator), search(make(1))
    assert first.seed == again.seed != second.seed
    assert first.ask().equal(again.ask())
    results = [
        minimize(lambda x: (x * x).sum(-1), [1.0], 1.0, budget=60, seed=make(n))
        for n in (1, 1, 2)
    ]
    assert results[0].x == results[1].x != results[2].x
    # A call with populations that fails and is repeated draws one seed.
    first, again = (
        minimize(
            lambda x: float(x[0] ** 2), [1.0], 1.0, budget=60, seed=make(1), vectorize=vectorize
        )
        for vectorize in (None, "loop")
    )
    assert first.x == again.x


@pytest.mark.parametrize("backend", ["cpu", "torch"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_candidate_that_is_not_finite_has_failed(backend, value):
    options = {"maximize": False, "config": CEMConfig.cma(), "backend": backend, "seed": 1}
    searches = [CrossEntropyMethod([0.0, 0.0], 1.0, 10, **options) for _ in range(2)]
    x = searches[0].ask()
    fitness = x.square().sum(1)
    best = fitness.argmin()
    told = x.clone()
    told[best, 0] = value
    searches[0].tell(told, fitness)
    fitness[best] = math.nan
    searches[1].tell(x, fitness)
    assert searches[0].mean.equal(searches[1].mean)
    assert searches[0].best.isfinite().all()


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_fitness_may_be_unsigned_masked_or_a_column_of_a_table(dtype):
    fitness = np.array([9, 0, 3, 5, 4, 6], dtype)
    column = SimpleNamespace(dtype=fitness.dtype, to_numpy=lambda: fitness)
    masked = np.ma.masked_equal(fitness, 0)
    for told, best in ((fitness, 0.0), (column, 0.0), (masked, 3.0)):
        search = CrossEntropyMethod(np.zeros(2), 1.0, 6, maximize=False, seed=1)
        search.tell(search.ask(), told)
        assert search.best_fitness == best


def test_candidates_may_be_a_list_of_tensors():
    lists, tensors = (
        CrossEntropyMethod([0.0, 0.0], 1.0, 6, maximize=False, seed=1) for _ in range(2)
    )
    rows = [lists.ask(1)[0] for _ in range(6)]
    lists.tell(rows, [row.sum().requires_grad_() for row in rows])
    tensors.tell(tensors.ask(), tensors.ask().sum(1))
    assert lists.mean.equal(tensors.mean)


def test_fitness_may_be_a_list_of_flags_that_are_tensors():
    search = CrossEntropyMethod([0.0, 0.0], 1.0, 6, maximize=True, seed=1)
    x = search.ask()
    search.tell(x, [*(torch.arange(6) > 4)])
    assert search.best.equal(x[5])


def test_parts_of_a_population_may_have_fitness_of_any_dtype():
    search = CrossEntropyMethod([0.0, 0.0], 1.0, 4, maximize=True, seed=1)
    x = search.ask()
    search.tell(x[:3], torch.tensor([16777216, 16777217, 16777216]))
    search.tell(x[3:], torch.tensor([math.nan], dtype=torch.float16))
    assert search.best.equal(x[1])
    assert search.best_fitness == 16777217


@pytest.mark.parametrize("value", [-1.0, 0.5, 3.0, math.nan])
def test_a_value_that_a_family_does_not_have_is_refused(value):
    config = CEMConfig.cma(families=[Categorical((3, 3))])
    search = CrossEntropyMethod([0.0], 1.0, 10, maximize=False, config=config, seed=1)
    x = search.ask()
    x[4, 2] = value
    with pytest.raises(
        ValueError, match="expected integers from 0 to 2 in the columns of Categorical"
    ):
        search.tell(x, x[:, 0])
    assert search.generation == 0


@pytest.mark.parametrize("config", [CEMConfig(), CEMConfig.cma()])
def test_no_population_is_as_large_as_a_candidate(config):
    assert all(config.population_of(dim) != dim for dim in range(1, 1101))


def test_integers_are_indices_or_flags():
    for integers in ([0, 2], [True, False, True], torch.tensor([True, False, True])):
        assert CEMConfig(integers=integers).integers_of(3) == [0, 2]
    assert CEMConfig(integers=[1, 0, 1]).integers_of(3) == [0, 2]
    with pytest.raises(ValueError, match="flags True or False"):  # or index 0
        CEMConfig(integers=[0]).integers_of(1)


def test_within_bounds_a_search_without_integers_is_by_transform():
    assert CEMConfig.chosen(3, True).bound_handling == "transform"
    assert CEMConfig.chosen(3, True, integers=[0]).bound_handling == "clamp"
    assert CEMConfig.chosen(3).bound_handling == "clamp"
