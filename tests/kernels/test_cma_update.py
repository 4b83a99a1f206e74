"""CMA-ES's generation: against the reference and the noise, what failed, CUDA's bits against
the CPU's.

What it learns: tests/cem/test_adaptation.py.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

import pytest
import torch
from contract import DEVICES, assert_same, check_device, cuda
from test_cem_update import problem
from torch import Tensor

from cem.core.adaptation import all_weights, rank_weights, rates
from kernels import (
    cem_update,
    cma_update,
    cma_update_reference,
    draw_correlated,
    sample_normal_rows,
)

Given = dict[str, Any]
# batch, N, d: one tile and many; slices of one and of several rows; more candidates than a
# chunk, than are ranked by counting.
SHAPES = [
    ((), 1, 1),
    ((3,), 8, 5),
    ((2, 2), 12, 20),
    ((), 128, 20),
    ((), 40, 64),
    ((2,), 300, 2),
]
FAILURES = [(0.0, 0), (0.1, 3), (1.0, 0)]


def start(
    batch: tuple[int, ...] = (),
    population: int = 30,
    width: int = 4,
    *,
    dtype: torch.dtype = torch.float64,
    failed: float = 0.0,
    ties: int = 0,
) -> tuple[list[Tensor], Given]:
    """Return the tensors of an update up to the paths and K, and the rest by name."""
    inputs = problem(
        batch, population, width, dtype=dtype, fitness=dtype, failed=failed, ties=ties
    )
    generator = torch.Generator().manual_seed(3)
    mixed = torch.randn(*batch, width, width, generator=generator, dtype=torch.float64)
    factor = torch.linalg.cholesky(mixed @ mixed.mT / width + 0.1 * torch.eye(width)).to(dtype)
    inputs[2][..., 1, :] = factor.square().sum(-1).sqrt()
    paths = torch.randn(*batch, 2, width, generator=generator, dtype=torch.float64).to(dtype)
    elites = max(1, population // 2)
    ranked = rank_weights(elites, "log")
    learned = rates(width, ranked, diagonal=False)
    weights = torch.tensor(all_weights(width, population, ranked, learned), dtype=torch.float64)
    given = {"weights": weights, "rates": learned, "maximize": False, "num_elites": elites}
    return [*inputs, factor, paths], given


def options(width: int, dtype: torch.dtype) -> Given:
    """Return all else that an update can be asked for."""
    extra = torch.tensor([0.0, 0.0, 0.0, 0.3, 0.7], dtype=torch.float64)
    tensors = {
        "extra_variance": extra,
        "std_floor": torch.linspace(0.1, 2.0, width, dtype=dtype),
    }
    return {**tensors, "smoothing": 0.75, "mean_averaging": 0.5, "maximize": True}


def close(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    tolerance = 1e-5 if actual[0].dtype is torch.float32 else 1e-10
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "population", "width"), SHAPES)
def test_it_is_the_reference(
    batch: tuple[int, ...], population: int, width: int, dtype: torch.dtype
) -> None:
    for failed, ties in FAILURES:
        inputs, given = start(batch, population, width, dtype=dtype, failed=failed, ties=ties)
        for more in ({}, options(width, dtype)):
            close(
                cma_update(*inputs, **given | more),
                cma_update_reference(*inputs, **given | more),
            )


def test_the_mean_and_the_record_are_those_of_cem_update() -> None:
    inputs, given = start((3,), 40, 5, failed=0.1)
    (moved, record, generation, *_, elites), num = (
        cma_update(*inputs, **given),
        given["num_elites"],
    )
    expected = cem_update(
        *inputs[:5], num, maximize=False, weights=given["weights"][:num].clone()
    )
    kept = [0, 2, 3]
    close((moved[..., kept, :], record), (expected[0][..., kept, :], expected[1]))
    assert_same((generation, elites), expected[2:])


def test_a_generation_without_success_keeps_everything_and_counts() -> None:
    inputs, given = start(failed=1.0)
    inputs[0][:] = math.nan
    distribution, record, generation, factor, paths, _ = cma_update(*inputs, **given)
    assert_same((distribution, factor, paths), (inputs[2], inputs[5], inputs[6]))
    assert (generation, record[4]) == (4, 4)


def test_what_failed_has_no_weight() -> None:
    inputs, given = start(population=12)
    moved = cma_update(*inputs, **given)[3]
    inputs[1][inputs[0].argmax()] += 9.0
    assert not torch.equal(cma_update(*inputs, **given)[3], moved)
    inputs[0][inputs[0].argmax()] = math.nan
    fewer = cma_update(*inputs, **given)[3]
    inputs[1][inputs[0].isnan()] = math.inf
    assert_same(cma_update(*inputs, **given)[3], fewer)


def test_where_there_is_no_covariance_the_factor_stays() -> None:
    inputs, given = start(population=12)
    inputs[1][inputs[0].argmax(), 1] = math.inf
    distribution, *_, factor, paths, _ = cma_update(*inputs, **given)
    assert_same(factor, inputs[5])
    assert distribution.isfinite().all()
    assert not torch.equal(paths, inputs[6])


def test_a_dimension_of_no_width_keeps_it() -> None:
    inputs, given = start(population=12)
    inputs[5][1] = inputs[5][:, 1] = inputs[6][:, 1] = 0.0
    inputs[1][:, 1] = inputs[2][0, 1]
    distribution, *_, factor, _, _ = cma_update(*inputs, **given)
    assert not factor[1].any()
    assert distribution[1, 1] == 0.0
    assert (factor.diagonal()[[0, 2, 3]] > 0).all()
    close((factor,), (cma_update_reference(*inputs, **given)[3],))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "width"), [((), 1), ((3,), 5), ((2, 2), 20), ((), 64)])
def test_draws_are_noise_times_the_factor(
    batch: tuple[int, ...], width: int, dtype: torch.dtype, device: str
) -> None:
    inputs = [x.to(device) for x in start(batch, 4, width, dtype=dtype)[0]]
    _, _, distribution, _, generation, factor, _ = inputs
    seed = torch.arange(math.prod(batch), device=device).reshape(batch) - 1
    noise, mean = {"seed": seed, "generation": generation}, distribution[..., 0, :]
    low, high = mean - 1.0, mean + 0.5
    z = sample_normal_rows(torch.stack([0 * mean, 0 * mean + 1], dim=-2), 71, **noise)
    expected = mean.unsqueeze(-2) + z @ factor.mT
    drawn = draw_correlated(distribution, factor, 71, **noise)
    close((drawn,), (expected,))
    assert_same(draw_correlated(distribution, factor, 33, **noise), drawn[..., :33, :])
    clamped = torch.maximum(torch.minimum(drawn, high.unsqueeze(-2)), low.unsqueeze(-2))
    assert_same(draw_correlated(distribution, factor, 71, **noise, bounds=(low, high)), clamped)


def test_the_bits_are_the_same_on_every_processor() -> None:
    numbers = (torch.arange(2 * 150 * 9).view(2, 150, 9) * 7919 % 100_003).double() / 1000
    inputs, given = start((2,), 150, 9)
    inputs[:3] = [(numbers[..., 0] * 101).remainder(13), numbers, numbers[:, :4].contiguous()]
    inputs[5] = torch.diag_embed(numbers[:, 5] + 1) + numbers[:, :9].tril(-1) / 100
    inputs[6] = numbers[:, 6:8] / 100
    given["rates"] = (40.0, 0.3, 1.5, 0.2, 0.02, 0.1, 2.9)
    given["weights"] = (60 - torch.arange(150).double()) / 4000
    drawn = draw_correlated(
        inputs[2], inputs[5], 40, seed=torch.tensor([1, 2]), generation=torch.tensor(5)
    )
    results = (*cma_update(*inputs, **given | {"num_elites": 60}), drawn)
    whole = b"".join(tensor.numpy().tobytes() for tensor in results)
    assert hashlib.sha256(whole).hexdigest()[:16] == "3c0c4ccbc76112fe"


@cuda
def test_cuda_gives_the_bits_of_the_cpu() -> None:
    shapes = [*SHAPES, ((5,), 700, 33), ((), 2048, 64), ((2000,), 24, 20)]
    for (batch, population, width), dtype in itertools.product(
        shapes, (torch.float32, torch.float64)
    ):
        for failed, ties in FAILURES:
            inputs, given = start(
                batch, population, width, dtype=dtype, failed=failed, ties=ties
            )
            for more in ({}, options(width, dtype)):
                check_device(cma_update, *inputs, **given | more)
        noise = {"seed": torch.arange(math.prod(batch)).reshape(batch), "generation": inputs[4]}
        if dtype == torch.float64:  # in float32 each has its own noise
            check_device(draw_correlated, inputs[2], inputs[5], 77, **noise)


def test_each_problem_of_a_batch_has_its_own_floor() -> None:
    inputs, given = start((3,), 12)
    given["std_floor"] = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    found = cma_update(*inputs, **given)
    close(found, cma_update_reference(*inputs, **given))
    assert bool((found[0][:, 1] >= given["std_floor"]).all())


def test_bounds_and_generations_of_a_draw_are_of_each_problem_and_modulo_2_to_the_38() -> None:
    distribution = torch.zeros(2, 4, 3, dtype=torch.float64)
    factor = torch.eye(3, dtype=torch.float64).expand(2, 3, 3).contiguous()
    high = torch.tensor([[0.1, 0.2, 0.3], [-0.3, -0.2, -0.1]], dtype=torch.float64)
    seed = torch.tensor([1, 2])
    drawn, again = (
        draw_correlated(
            distribution, factor, 50, seed=seed, generation=generation, bounds=(high - 1, high)
        )
        for generation in (torch.tensor(5), torch.tensor(2**38 + 5))
    )
    assert torch.equal(drawn.amax(1), high)
    assert torch.equal(drawn.amin(1), high - 1)
    assert torch.equal(drawn, again)


def test_the_covariance_stalls_where_the_path_is_longer_than_the_bound_of_the_tutorial() -> (
    None
):
    inputs, given = start(population=12, width=4)
    inputs[1][:] = inputs[2][0]  # all candidates are the mean, and the path but shrinks
    inputs[4] = torch.tensor(0)
    c_s = given["rates"].c_s
    longest = math.sqrt((2 + 4 / 5) * 4 * (1 - (1 - c_s) ** 2)) / (1 - c_s)
    factors = []
    for share in (0.999, 1.001):
        inputs[6][0] = longest * share * torch.tensor([0.5, 0.5, 0.5, 0.5], dtype=torch.float64)
        found = cma_update(*inputs, **given)
        close(found, cma_update_reference(*inputs, **given))
        factors.append(found[3])
    assert float((factors[1] - factors[0]).abs().max()) > 0.01
