"""What ``python -m kernels check`` compares of `op.py`: draws by tables of which some entries are 0."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from kernels.ops.check import Case
from kernels.ops.discrete import op, reference, tables

SIZES = [2, 1, 7, 40, 300] * 3


def _inputs(generator: Generator, *shape: int) -> tuple[Tensor]:
    table = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (torch.where(table < 0.3, 0.0, table),)


def _draw(sample: Any, table: Tensor, **given: Any) -> Tensor:
    seed, generation = (torch.tensor(x, device=table.device) for x in (-(2**62), 2**40 + 7))
    drawn: Tensor = sample(table.double(), **given, seed=seed, generation=generation)
    return drawn


def _case(name: str, *shape: int, **given: Any) -> Case:
    expected, actual = (
        getattr(module, f"{name}{end}") for module, end in ((reference, "_reference"), (op, ""))
    )
    expected, actual = partial(_draw, expected), partial(_draw, actual)
    return Case(expected, actual, _inputs, shape, shape, given, gradients=False)


def _move(update: Any, fitness: Tensor, x: Tensor, table: Tensor, record: Tensor) -> Tensor:
    given = x.mul(7).long().double(), torch.where(table < 0.3, 0.0, table.double()), record.double()
    moved: Tensor = update(fitness, *given, [(5, 5, 7, None), (9, 10, 9, None)], maximize=False)
    return moved


def _ranked(generator: Generator, size: int) -> tuple[Tensor, ...]:
    shapes = (size,), (size, 14), (139,), (5,)
    return tuple(torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes)


_MOVES = partial(_move, tables.update_tables_reference), partial(_move, tables.update_tables)
CASES = {
    "update_tables": Case(*_MOVES, _ranked, small=(9,), large=(300,), gradients=False),
    "categorical": _case("sample_categorical", sum(SIZES), sizes=SIZES, num_samples=33),
    "permutation": _case("sample_permutation", 71, 70, num_samples=33),
}
