"""What ``python -m kernels check`` compares: operators, their references, inputs and sizes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """What the check has to know of an operator."""

    reference: Callable[..., Any]  # in plain PyTorch: tensors to a tensor or a tuple of them
    operator: Callable[..., Any]  # the public function; the same arguments and results
    inputs: Callable[..., Tensors]  # of a generator and a size: float64, on the CPU
    small: tuple[int, ...]  # the size for finite differences and Numba's slow simulator
    large: tuple[int, ...]  # the size for C++ and CUDA
    arguments: Mapping[str, Any]  # by name, for the prototype too
    gradients: bool = True  # without a derivative, results alone are compared
    prototype: str = ""  # the module that has one in Numba
    folder: str = "normal"  # of this package


def _make_case(
    name: str,
    modules: Sequence[Any],
    inputs: Callable[..., Tensors],
    small: tuple[int, ...],
    large: tuple[int, ...],
    call: Callable[..., Any] | None = None,
    prototype: str = "",
    **arguments: Any,
) -> Case:
    """Return the case of an operator in the last module, whose reference is in the first one.

    With ``call``, both are called as ``call(function, *inputs, **arguments)``, and have no
    derivative.
    """
    reference = getattr(modules[0], f"{name}_reference")
    operator = getattr(modules[-1], name)
    if call is not None:
        reference = partial(call, reference)
        operator = partial(call, operator)
    folder = modules[-1].__name__.split(".")[2]
    return Case(
        reference, operator, inputs, small, large, arguments, call is None, prototype, folder
    )


def _randn(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _make_elements(count: int, generator: Generator, size: int) -> Tensors:
    """Return values up to about 40, where exp(40) + 1 is exp(40) in both types."""
    return tuple(10.0 * _randn(generator, count, size))


def _make_cell(generator: Generator, batch: int, inputs: int, states: int) -> Tensors:
    """Return input, weights, bias, old_h and old_cell, with sums of about 1 in the gates."""
    columns = states + inputs
    shapes = [
        (batch, inputs),
        (3 * states, columns),
        (3 * states,),
        (batch, states),
        (batch, states),
    ]
    x, weights, *rest = (_randn(generator, *shape) for shape in shapes)
    return x, weights / columns**0.5, *rest


def _to_open_unit(upper: Tensor, lower: Tensor) -> Tensor:
    """Return (n + 1/2) 2^-53 with the upper 53 bits of two words as n."""
    return upper.double() * 2.0**-32 + (lower >> 11).double() * 2.0**-53 + 2.0**-54


def noise(
    dimensions: Tensor, samples: Tensor, seed: int, generation: int, dtype: torch.dtype
) -> Tensor:
    """Return the noise z of the sampler, shape (dimensions, samples).

    float64 has a noise of its own; all other types share one. Two samples in a row share a pair
    of uniform numbers, from which the Box-Muller transform makes them.
    """
    d = dimensions.unsqueeze(-1)
    block = samples // 4
    half = samples % 4 // 2
    upper = generation >> 32 << 24 | d >> 32 << 12 | block >> 32
    if dtype is torch.float64:
        upper = upper | 1 << 31 | half << 30
    domain = int.from_bytes(b"normal z", "big")  # other users of Philox have other keys
    key = split64(seed ^ domain)
    w = philox4x32((block & WORD, d & WORD, generation & WORD, upper), key)
    if dtype is torch.float64:
        u = _to_open_unit(w[0], w[1])
        turn = _to_open_unit(w[2], w[3])
    else:
        radius_word = torch.where(half == 0, w[0], w[2])
        angle_word = torch.where(half == 0, w[1], w[3])
        # Rounded as in box_muller.h.
        u = radius_word.float().double() * (1.0 - 2.0**-23) * 2.0**-32 + 2.0**-33
        u = u.float().double()
        u = torch.where(u > 0.5, 2.0 - (2.0 - u).float().double(), u)
        turn = (angle_word.double() + 0.5) * 2.0**-32
    radius = (-2.0 * u.log()).clamp(min=0.0).sqrt()
    angle = 2.0 * math.pi * turn
    z: Tensor = radius * torch.where(samples % 2 == 0, angle.cos(), angle.sin())
    return z


def _sample_reference(
    mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int
) -> Any:
    """Return what ``sample_normal`` promises, on the CPU."""
    z = noise(torch.arange(len(mean)), torch.arange(num_samples), seed, generation, mean.dtype)
    return sample_normal_reference(mean, std, z.to(mean.dtype))


def _make_parameters(generator: Generator, dimensions: int) -> Tensors:
    """Return means and standard deviations."""
    mean, log_std = _randn(generator, 2, dimensions)
    return mean, log_std.exp()


def _make_search(generator: Generator, population: int, dimensions: int) -> Tensors:
    """Return a fitness, a fifth of it with ties, candidates and a distribution."""
    candidates = _randn(generator, population, dimensions)
    fitness = candidates.square().sum(dim=1)
    fitness[: population // 5] = fitness[0]
    return fitness, candidates, torch.ones(4, dimensions, dtype=torch.float64)


def _call_update(update: Any, fitness: Tensor, *inputs: Tensor, num_elites: int) -> Any:
    """Call an update with the record and the generation with which a search begins.

    The inputs are candidates and distribution, and what the update takes behind the generation.
    """
    record = torch.tensor([math.nan] * 4 + [0.0], dtype=torch.float64, device=fitness.device)
    generation = record[-1].long()
    candidates, distribution, *others = inputs
    return update(
        fitness,
        candidates,
        distribution,
        record,
        generation,
        *others,
        num_elites,
        maximize=False,
    )


def _call_cma_update(
    update: Any, fitness: Tensor, candidates: Tensor, distribution: Tensor, num_elites: int
) -> Any:
    """Call ``cma_update`` with a diagonal factor and paths of 0.

    The weights fall from 0.2 to -0.4.
    """
    weights = torch.linspace(
        0.2, -0.4, len(fitness), dtype=torch.float64, device=fitness.device
    )
    update = partial(update, weights=weights, rates=(5.0, 0.3, 1.5, 0.2, 0.02, 0.1, 2.0))
    factor = torch.diag_embed(distribution[1])
    paths = 0 * distribution[:2]
    return _call_update(
        update, fitness, candidates, distribution, factor, paths, num_elites=num_elites
    )


def _make_table(rows: int, values: int, generator: Generator) -> Tensors:
    """Return a table of probabilities, some of them 0."""
    return (_clear_some(torch.rand(rows, values, generator=generator, dtype=torch.float64)),)


def _clear_some(table: Tensor) -> Tensor:
    """Return a table in float64 whose numbers below 0.3 are 0."""
    return torch.where(table < 0.3, 0.0, table.double())


def _call_sampler(sample: Any, table: Tensor) -> Any:
    """Call a sampler with a seed and a generation that have more than 32 bits."""
    seed = torch.tensor(-(2**62), device=table.device)
    generation = torch.tensor(2**40 + 7, device=table.device)
    return sample(table.double(), num_samples=33, seed=seed, generation=generation)


# 5 variables of 7 values, and permutations of 9 items.
_FAMILIES = [(5, 5, 7, None), (9, 10, 9, None)]


def _make_generation(generator: Generator, size: int) -> Tensors:
    """Return a fitness, candidates in [0, 1], tables with a best candidate, and a record."""
    shapes = (size,), (size, 14), (139,), (5,)
    return tuple(
        torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )


def _call_update_tables(
    update: Any, fitness: Tensor, x: Tensor, table: Tensor, record: Tensor
) -> Any:
    state = _clear_some(table), record.double(), record[0].long()
    candidates = x.mul(7).long().double()
    return update(fitness, candidates, state, 3, _FAMILIES, maximize=False)


_NUMBA = "kernels.ops.elementwise.prototype"
# Seed and generation are so large that all of their words count.
_NOISE = {"num_samples": 13, "seed": 2**63 + 12345, "generation": 2**32 + 7}

# Sizes are no multiples of the kernels' tiles. Those of lltm are the sizes of its tutorial.
CASES = {
    name: _make_case(
        name, [elementwise], partial(_make_elements, count), (37,), (10_007,), prototype=_NUMBA
    )
    for name, count in (("sigmoid", 1), ("vector_add", 2), ("elementwise_mult", 2))
} | {
    "lltm": _make_case("lltm", [lltm], _make_cell, (2, 3, 5), (16, 32, 128)),
    "normal": Case(_sample_reference, sample_normal, _make_parameters, (5,), (301,), _NOISE),
    "cem_update": _make_case(
        "cem_update",
        [cem_update],
        _make_search,
        (10, 3),
        (5000, 301),
        _call_update,
        num_elites=4,
    ),
    "cma_update": _make_case(
        "cma_update",
        [cma_update],
        _make_search,
        (10, 3),
        (300, 20),
        _call_cma_update,
        num_elites=3,
    ),
    "categorical": _make_case(
        "sample_categorical", [draws, op], partial(_make_table, 15, 300), (), (), _call_sampler
    ),
    "permutation": _make_case(
        "sample_permutation", [draws, op], partial(_make_table, 71, 70), (), (), _call_sampler
    ),
    "update_tables": _make_case(
        "update_tables", [tables], _make_generation, (9,), (300,), _call_update_tables
    ),
}


def choose(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the known operators or folders that names mean; all of them without names.

    An operator also means its folder, and a folder its operators.
    """
    synonyms = {name: {name} for name in known}
    for operator, case in CASES.items():
        if operator in synonyms:
            synonyms[operator].add(case.folder)
        if case.folder in synonyms:
            synonyms[case.folder].add(operator)
    all_names = sorted(set[str]().union(*synonyms.values()))
    for name in names:
        if name not in all_names:
            raise unknown_name("operator", name, all_names)
    return [name for name in known if not names or synonyms[name] & {*names}]
