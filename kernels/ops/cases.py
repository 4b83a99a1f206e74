"""What ``python -m kernels check`` compares: of each operator its reference, its inputs and their sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from kernels.ops import cem_update, cma_update, lltm
from kernels.ops.discrete import op, tables
from kernels.ops.discrete import reference as draws
from kernels.ops.elementwise import op as elementwise
from kernels.ops.normal import sample_normal, sample_normal_reference
from kernels.ops.philox import WORD, philox4x32, split64
from kernels.support.names import unknown_name

Tensors = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """What the walk has to know of an operator."""

    reference: Callable[..., Any]  # in plain PyTorch: tensors to a tensor or a tuple of them
    operator: Callable[..., Any]  # the public function; the same arguments and results
    inputs: Callable[..., Tensors]  # of a generator and a size: float64, on the CPU
    small: tuple[int, ...]  # the size for finite differences and for Numba's simulator, which is slow
    large: tuple[int, ...]  # the size for C++ and CUDA
    arguments: Mapping[str, Any] = field(default_factory=dict)  # by name, for the prototype too
    gradients: bool = True  # without a derivative, results alone are compared
    prototype: str = ""  # the module that has one in Numba
    folder: str = "normal"  # of this package


def _case(
    name: str,
    modules: Sequence[Any],
    inputs: Callable[..., Tensors],
    small: tuple[int, ...],
    large: tuple[int, ...],
    call: Callable[..., Any] | None = None,
    prototype: str = "",
    **arguments: Any,
) -> Case:
    """Return a case of a function; as ``call(function, *inputs, **arguments)`` it has no derivative."""
    both = getattr(modules[0], f"{name}_reference"), getattr(modules[-1], name)
    reference, operator = both if call is None else (partial(call, function) for function in both)
    folder = modules[-1].__name__.split(".")[2]
    return Case(reference, operator, inputs, small, large, arguments, call is None, prototype, folder)


def _randn(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _elements(count: int, generator: Generator, size: int) -> Tensors:
    """Values up to about 40, where exp(40) + 1 is exp(40) in both types."""
    return tuple(10.0 * _randn(generator, count, size))


def _cell(generator: Generator, batch: int, inputs: int, states: int) -> Tensors:
    """Input, weights, bias, old_h and old_cell; the gates' sums are of size 1 or so."""
    columns = states + inputs
    shapes = [(batch, inputs), (3 * states, columns), (3 * states,), (batch, states), (batch, states)]
    x, weights, *rest = (_randn(generator, *shape) for shape in shapes)
    return x, weights / columns**0.5, *rest


def noise(dimensions: Tensor, samples: Tensor, seed: int, generation: int, dtype: torch.dtype) -> Tensor:
    """Return z, (dimensions, samples), of the sampler: the noise of float64, or that of all other types.

    Two samples in a row share a pair of uniform numbers, from which the Box-Muller transform makes them.
    """
    d, block, half = dimensions.unsqueeze(-1), samples // 4, samples % 4 // 2
    upper = generation >> 32 << 24 | d >> 32 << 12 | block >> 32
    upper = upper | 1 << 31 | half << 30 if dtype is torch.float64 else upper
    key = split64(seed ^ int.from_bytes(b"normal z", "big"))  # unlike those of other users of Philox
    w = philox4x32((block & WORD, d & WORD, generation & WORD, upper), key)
    if dtype is torch.float64:  # 53 bits each for radius and angle
        u, turn = (w[i].double() * 2.0**-32 + (w[i + 1] >> 11).double() * 2.0**-53 + 2.0**-54 for i in (0, 2))
    else:  # a word each; that of the radius is rounded as in box_muller.h
        of_radius, of_angle = (torch.where(half == 0, w[i], w[i + 2]) for i in (0, 1))
        u = (of_radius.float().double() * (1.0 - 2.0**-23) * 2.0**-32 + 2.0**-33).float().double()
        u = torch.where(u > 0.5, 2.0 - (2.0 - u).float().double(), u)
        turn = (of_angle.double() + 0.5) * 2.0**-32
    radius, angle = (-2.0 * u.log()).clamp(min=0.0).sqrt(), 2.0 * math.pi * turn
    z: Tensor = radius * torch.where(samples % 2 == 0, angle.cos(), angle.sin())
    return z


def _drawn(mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int) -> Any:
    """What ``sample_normal`` promises, on the CPU."""
    z = noise(torch.arange(len(mean)), torch.arange(num_samples), seed, generation, mean.dtype)
    return sample_normal_reference(mean, std, z.to(mean.dtype))


def _parameters(generator: Generator, dimensions: int) -> Tensors:
    """Means and standard deviations."""
    mean, log_std = _randn(generator, 2, dimensions)
    return mean, log_std.exp()


def _search(generator: Generator, population: int, dimensions: int) -> Tensors:
    """Fitness, of which a fifth has ties, candidates and distribution."""
    candidates = _randn(generator, population, dimensions)
    fitness = candidates.square().sum(dim=1)
    fitness[: population // 5] = fitness[0]
    return fitness, candidates, torch.ones(4, dimensions, dtype=torch.float64)


def _update(update: Any, fitness: Tensor, *inputs: Tensor, num_elites: int) -> Any:
    """Return an update by the first record, and the number of the first generation."""
    record = torch.tensor([math.nan] * 4 + [0.0], dtype=torch.float64, device=fitness.device)
    state = *inputs[:2], record, record[-1].long(), *inputs[2:]
    return update(fitness, *state, num_elites, maximize=False)


def _adapt(update: Any, fitness: Tensor, candidates: Tensor, distribution: Tensor, num_elites: int) -> Any:
    """The same with a factor and paths; weights fall from 0.2 to -0.4."""
    weights = torch.linspace(0.2, -0.4, len(fitness), dtype=torch.float64, device=fitness.device)
    update = partial(update, weights=weights, rates=(5.0, 0.3, 1.5, 0.2, 0.02, 0.1, 2.0))
    state = torch.diag_embed(distribution[1]), 0 * distribution[:2]
    return _update(update, fitness, candidates, distribution, *state, num_elites=num_elites)


def _table(*shape: int) -> Callable[..., Tensors]:
    """Return what makes a table of probabilities, some of them 0."""
    return lambda generator, *_: (_some_zero(torch.rand(shape, generator=generator, dtype=torch.float64)),)


def _some_zero(table: Tensor) -> Tensor:
    return torch.where(table < 0.3, 0.0, table.double())


def _draw(sample: Any, table: Tensor, **given: Any) -> Any:
    seed, generation = (torch.tensor(x, device=table.device) for x in (-(2**62), 2**40 + 7))
    return sample(table.double(), **given, num_samples=33, seed=seed, generation=generation)


def _ranked(generator: Generator, size: int) -> Tensors:
    shapes = (size,), (size, 14), (139,), (5,)
    return tuple(torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes)


def _move(update: Any, fitness: Tensor, x: Tensor, table: Tensor, record: Tensor) -> Any:
    state = _some_zero(table), record.double(), record[0].long()
    return update(
        fitness, x.mul(7).long().double(), state, 3, [(5, 5, 7, None), (9, 10, 9, None)], maximize=False
    )


_NUMBA = "kernels.ops.elementwise.prototype"
_NOISE = {"num_samples": 13, "seed": 2**63 + 12345, "generation": 2**32 + 7}  # uses all of their words

# Sizes are no multiples of the kernels' tiles; those of lltm are the tutorial's that it comes from.
CASES = {
    name: _case(name, [elementwise], partial(_elements, count), (37,), (10_007,), prototype=_NUMBA)
    for name, count in (("sigmoid", 1), ("vector_add", 2), ("elementwise_mult", 2))
} | {
    "lltm": _case("lltm", [lltm], _cell, (2, 3, 5), (16, 32, 128)),
    "normal": Case(_drawn, sample_normal, _parameters, (5,), (301,), _NOISE),
    "cem_update": _case("cem_update", [cem_update], _search, (10, 3), (5000, 301), _update, num_elites=4),
    "cma_update": _case("cma_update", [cma_update], _search, (10, 3), (300, 20), _adapt, num_elites=3),
    "categorical": _case("sample_categorical", [draws, op], _table(15, 300), (), (), _draw),
    "permutation": _case("sample_permutation", [draws, op], _table(71, 70), (), (), _draw),
    "update_tables": _case("update_tables", [tables], _ranked, (9,), (300,), _move),
}


def choose(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return those of the known that some names mean: an operator, or a folder and what is in it."""
    homes = {name: case.folder for name, case in CASES.items()}
    synonyms = {
        name: {name, homes.get(name, name), *(each for each, folder in homes.items() if folder == name)}
        for name in known
    }
    every = sorted(set[str]().union(*synonyms.values()))
    for name in names:
        if name not in every:
            raise unknown_name("operator", name, every)
    return [name for name in known if not names or synonyms[name] & {*names}]
