"""The CUDA kernels of both updates on emulated threads: what they compute, not when; they need
no GPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from contract import assert_same
from test_cem_update import options, problem
from test_cma_update import SHAPES as CMA_SHAPES
from test_cma_update import options as cma_options
from test_cma_update import start

import kernels.ops
from kernels import Extension, cem_update, cma_update, draw_correlated
from kernels.ops import library
from kernels.ops.schemas import FAMILIES

pytestmark = pytest.mark.slow

HERE, KERNELS = Path(__file__).parent, Path(kernels.ops.__file__).parent
FAILURES = ((0.1, 0), (0.05, 7), (1.0, 0))
# batch, N, K, d: one kernel with 1, 4 and 16 candidates a thread; ranks in a block, and by one
# pass over tiles and by two; narrow and wide tiles; the search.
SHAPES = [
    ((), 1, 1, 1),
    ((5,), 33, 7, 3),
    ((2, 3), 100, 100, 70),
    ((), 2000, 600, 9),
    ((), 9, 2, 200),
    ((), 17000, 1100, 136),
    ((2,), 17000, 1100, 9),
]


@functools.cache
def emulated() -> dict[str, Any]:
    operators = ("cem_update", "cma_update", "discrete", "normal")
    folders = (HERE.parent / "tetris", KERNELS, *(KERNELS / name for name in operators))
    sources = (HERE / "emulated_cem_update.cpp",)
    Extension("emulated_cem_update", sources, folders, cflags=("-O1",), reason="test").load()
    for family in ("cem_update", "cma_update", "discrete"):
        for schema in FAMILIES[family].schemas:
            name = schema.partition("(")[0]
            if not hasattr(
                torch.ops.emulated, name
            ):  # another test imports this module a second time
                torch.library.define(f"emulated::{name}", schema[len(name) :])
    names = ("cem_update", "cma_update", "draw_correlated", "set_multiprocessors")
    names += ("sample_discrete", "update_tables")
    return {name: getattr(torch.ops.emulated, name) for name in names}


def check(
    f: Callable[..., Any], *inputs: Any, multiprocessors: int = 132, **given: Any
) -> None:
    """Compares a call, bit for bit, with that of the emulated kernels."""
    expected = f(*inputs, **given)
    emulated()["set_multiprocessors"](inputs[0], multiprocessors)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("cem_update", "cma_update", "discrete"):
            patch.setattr(library.LIBRARIES[name], "direct", emulated())
        assert_same(f(*inputs, **given), expected)


@pytest.mark.parametrize(
    ("multiprocessors", "dtype"), [(1, torch.float64), (132, torch.float32)]
)
@pytest.mark.parametrize(("batch", "population", "elites", "width"), SHAPES)
def test_they_give_the_bits_of_the_cpu(
    batch: tuple[int, ...],
    population: int,
    elites: int,
    width: int,
    dtype: torch.dtype,
    multiprocessors: int,
) -> None:
    for run, (failed, ties) in enumerate(FAILURES):
        inputs = problem(
            batch, population, width, dtype=dtype, fitness=dtype, failed=failed, ties=ties
        )
        given = ({"ranked": False}, {}, options(elites, width, dtype))
        for extra in given if population < 5000 else given[run : run + 1]:
            extra = {"maximize": run > 0, "multiprocessors": multiprocessors} | extra
            check(cem_update, *inputs, elites, **extra)


@pytest.mark.parametrize(
    ("fitness", "population"), [(torch.bfloat16, 300), (torch.int64, 17000), (torch.bool, 300)]
)
def test_they_rank_every_type_as_the_cpu(fitness: torch.dtype, population: int) -> None:
    inputs = problem((), population, 1, fitness=fitness, ties=20)
    for maximize in (False, True):
        check(cem_update, *inputs, 60, maximize=maximize)


def test_no_problems_count_too() -> None:
    check(cem_update, *problem((0,), 4), 2, maximize=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "population", "width"), [*CMA_SHAPES, ((), 700, 33)])
def test_those_of_cma_es_do(
    batch: tuple[int, ...], population: int, width: int, dtype: torch.dtype
) -> None:
    for failed, ties in FAILURES:
        inputs, given = start(batch, population, width, dtype=dtype, failed=failed, ties=ties)
        for more in ({}, cma_options(width, dtype)):
            check(cma_update, *inputs, **given | more)
    _, _, distribution, _, generation, factor, _ = inputs
    noise = {"seed": torch.arange(math.prod(batch)).reshape(batch), "generation": generation}
    bounds = distribution[..., 0, :] - 1.0, distribution[..., 0, :] + 0.5
    check(draw_correlated, distribution, factor, population, **noise, bounds=bounds)
