"""The CUDA kernels of the update on emulated threads: what they compute, not when; they need no GPU."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from contract import assert_same
from test_cem_update import options, problem
from torch import Tensor

import kernels.ops
from kernels import Extension
from kernels.ops.cem_update import cem_update
from kernels.ops.cem_update.reference import VARIANCES

pytestmark = pytest.mark.slow

HERE, KERNELS = Path(__file__).parent, Path(kernels.ops.__file__).parent
# batch, N, K, d: one kernel with 1, 4 and 16 candidates a thread; ranks in a block, and by one pass
# over tiles and by two; narrow and wide tiles; the search.
SHAPES = [
    ((), 1, 1, 1),
    ((5,), 33, 7, 3),
    ((2, 3), 100, 100, 70),
    ((), 2000, 600, 9),
    ((), 9, 2, 200),
    ((), 17000, 1100, 136),
]


@functools.cache
def emulated() -> Any:
    operators = ("cem_update", "cma_update", "normal")
    folders = (HERE.parent / "tetris", KERNELS, *(KERNELS / name for name in operators))
    sources = (HERE / "emulated_cem_update.cpp",)
    Extension("emulated_cem_update", sources, folders, flags=("-O1",), reason="test").load()
    return torch.ops.emulated


def update(multiprocessors: int, inputs: tuple[Tensor, ...], elites: int, **given: Any) -> tuple[Tensor, ...]:
    tensors = [given.get(name) for name in ("extra_variance", "weights", "std_floor")]
    about = VARIANCES[given.get("variance_about", "new_mean")]
    numbers = (given.get(name, 1.0) for name in ("smoothing", "std_smoothing"))
    emulated().set_multiprocessors(inputs[0], multiprocessors)
    return emulated().cem_update(  # type: ignore[no-any-return]
        *(*inputs, *tensors, elites, given["maximize"], about, *numbers),
        *(given.get("mean_averaging", 0.0), given.get("ranked", True)),
    )


@pytest.mark.parametrize(("multiprocessors", "dtype"), [(1, torch.float64), (132, torch.float32)])
@pytest.mark.parametrize(("batch", "population", "elites", "width"), SHAPES)
def test_they_give_the_bits_of_the_cpu(
    batch: tuple[int, ...], population: int, elites: int, width: int, dtype: torch.dtype, multiprocessors: int
) -> None:
    for run, (failed, ties) in enumerate(((0.1, 0), (0.05, 7), (1.0, 0))):
        inputs = problem(batch, population, width, dtype=dtype, fitness=dtype, failed=failed, ties=ties)
        given = ({"ranked": False}, {}, options(elites, width, dtype))
        for extra in given if population < 5000 else given[run : run + 1]:
            maximize = run % 2 == 1
            expected = cem_update(*inputs, elites, maximize=maximize, **extra)
            assert_same(update(multiprocessors, inputs, elites, maximize=maximize, **extra), expected)


@pytest.mark.parametrize(
    ("fitness", "population"),
    [
        (torch.bfloat16, 300),
        (torch.int64, 17000),
        (torch.bool, 300),
    ],
)
def test_they_rank_every_type_as_the_cpu(fitness: torch.dtype, population: int) -> None:
    inputs = problem((), population, 1, fitness=fitness, ties=20)
    for maximize in (False, True):
        expected = cem_update(*inputs, 60, maximize=maximize)
        assert_same(update(132, inputs, 60, maximize=maximize), expected)


def test_no_problems_count_too() -> None:
    inputs = problem((0,), 4)
    assert_same(update(132, inputs, 2, maximize=False), cem_update(*inputs, 2, maximize=False))
