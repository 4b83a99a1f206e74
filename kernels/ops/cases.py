"""What ``python -m kernels check`` compares: operators, their references, inputs and sizes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from kernels.ops.cem_update import cem_update, cem_update_reference
from kernels.ops.cma_update import cma_update, cma_update_reference
from kernels.ops.discrete.op import sample_categorical, sample_permutation
from kernels.ops.discrete.reference import (
    sample_categorical_reference,
    sample_permutation_reference,
)
from kernels.ops.discrete.tables import update_tables, update_tables_reference
from kernels.ops.elementwise import op as elementwise
from kernels.ops.lltm import lltm, lltm_reference
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
    arguments: Mapping[str, Any] = field(default_factory=dict)  # by name, also for Numba
    gradients: bool = True  # without a derivative, results alone are compared
    prototype: str = ""  # the module that has one in Numba
    folder: str = ""  # of this package, if its name is not that of the operator


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


def _to_rounded_unit(word: Tensor) -> Tensor:
    """Return about (word + 1/2) 2^-32, rounded to float32 as box_muller.h does."""
    u = word.float().double() * (1.0 - 2.0**-23) * 2.0**-32 + 2.0**-33
    u = u.float().double()
    # Near 1 the kernel computes the logarithm from 2 - u, which is rounded as well.
    return torch.where(u > 0.5, 2.0 - (2.0 - u).float().double(), u)


def noise(
    dimensions: Tensor, samples: Tensor, seed: int, generation: int, dtype: torch.dtype
) -> Tensor:
    """Return the normal noise z of the sampler, shape (dimensions, samples), float64.

    z is a function of seed, generation, dimension and index of the sample, which are packed
    into the key and the counter of Philox4x32. From its four random words of 32 bits the
    Box-Muller transform makes normal numbers in pairs, for samples 2 k and 2 k + 1.

    A counter serves a block of four samples: two words make a pair. In float64 two words make
    one uniform number, so each half of a block has a counter of its own. float32, float16 and
    bfloat16 have the same noise.

    Args:
        dimensions: indices of dimensions, int64, one-dimensional.
        samples: indices of samples, int64, one-dimensional.
        seed: from 0 to 2**64 - 1.
        generation: from 0 to 2**38 - 1.
        dtype: the dtype of the samples.
    """
    dimension = dimensions.unsqueeze(-1)
    block = samples // 4
    half = samples % 4 // 2
    # The first three words of the counter are the lower 32 bits of three numbers. The fourth
    # one has their upper bits: 12 of the block, 12 of the dimension and 6 of the generation.
    upper_bits = generation >> 32 << 24 | dimension >> 32 << 12 | block >> 32
    if dtype is torch.float64:
        # Bit 31 marks float64, and bit 30 the half of the block.
        upper_bits = upper_bits | 1 << 31 | half << 30
    counter = (block & WORD, dimension & WORD, generation & WORD, upper_bits)
    domain = int.from_bytes(b"normal z", "big")  # other users of Philox have other keys
    words = philox4x32(counter, split64(seed ^ domain))

    # Box-Muller: a uniform number gives the radius, and another one the angle.
    if dtype is torch.float64:
        uniform = _to_open_unit(words[0], words[1])
        turn = _to_open_unit(words[2], words[3])
    else:
        radius_word = torch.where(half == 0, words[0], words[2])
        angle_word = torch.where(half == 0, words[1], words[3])
        uniform = _to_rounded_unit(radius_word)
        turn = (angle_word.double() + 0.5) * 2.0**-32
    radius = (-2.0 * uniform.log()).clamp(min=0.0).sqrt()
    angle = 2.0 * math.pi * turn
    # The first sample of a pair has the cosine, and the second one the sine.
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


def _call_update(
    update: Any,
    fitness: Tensor,
    candidates: Tensor,
    distribution: Tensor,
    *factor_and_paths: Tensor,
    num_elites: int,
) -> Any:
    """Call an update of CEM or CMA-ES, or its reference, as in the first generation.

    ``factor_and_paths`` are the two tensors that only ``cma_update`` takes. The record begins
    with the best fitness, which is not known yet, and ends with the last generation that
    failed, 0 for none.
    """
    record = torch.tensor([math.nan] * 4 + [0.0], dtype=torch.float64, device=fitness.device)
    generation = torch.tensor(0, device=fitness.device)
    return update(
        fitness,
        candidates,
        distribution,
        record,
        generation,
        *factor_and_paths,
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


def _make_table(generator: Generator, rows: int, values: int) -> Tensors:
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


# Seed and generation are so large that all of their words count.
_NOISE = {"num_samples": 13, "seed": 2**63 + 12345, "generation": 2**32 + 7}

# Sizes are no multiples of the kernels' tiles. Those of lltm are the sizes of its tutorial.
CASES = {
    "lltm": Case(
        lltm_reference,
        lltm,
        _make_cell,
        (2, 3, 5),
        (16, 32, 128),
    ),
    "normal": Case(
        _sample_reference,
        sample_normal,
        _make_parameters,
        (5,),
        (301,),
        _NOISE,
    ),
    "cem_update": Case(
        partial(_call_update, cem_update_reference),
        partial(_call_update, cem_update),
        _make_search,
        (10, 3),
        (5000, 301),
        {"num_elites": 4},
        gradients=False,
    ),
    "cma_update": Case(
        partial(_call_cma_update, cma_update_reference),
        partial(_call_cma_update, cma_update),
        _make_search,
        (10, 3),
        (300, 20),
        {"num_elites": 3},
        gradients=False,
    ),
    "categorical": Case(
        partial(_call_sampler, sample_categorical_reference),
        partial(_call_sampler, sample_categorical),
        _make_table,
        (),
        (15, 300),
        gradients=False,
        folder="discrete",
    ),
    "permutation": Case(
        partial(_call_sampler, sample_permutation_reference),
        partial(_call_sampler, sample_permutation),
        _make_table,
        (),
        (71, 70),
        gradients=False,
        folder="discrete",
    ),
    "update_tables": Case(
        partial(_call_update_tables, update_tables_reference),
        partial(_call_update_tables, update_tables),
        _make_generation,
        (9,),
        (300,),
        gradients=False,
        folder="discrete",
    ),
}
for _name, _operands in ("sigmoid", 1), ("vector_add", 2), ("elementwise_mult", 2):
    CASES[_name] = Case(
        elementwise.REFERENCES[_name],
        getattr(elementwise, _name),
        partial(_make_elements, _operands),
        (37,),
        (10_007,),
        prototype="kernels.ops.elementwise.prototype",
        folder="elementwise",
    )


def choose(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the known operators or folders that names mean; all of them without names.

    An operator also means its folder, and a folder its operators.
    """
    synonyms = {name: {name} for name in known}
    for operator, case in CASES.items():
        folder = case.folder or operator
        if operator in synonyms:
            synonyms[operator].add(folder)
        if folder in synonyms:
            synonyms[folder].add(operator)
    all_names = sorted(set[str]().union(*synonyms.values()))
    for name in names:
        if name not in all_names:
            raise unknown_name("operator", name, all_names)
    return [name for name in known if not names or synonyms[name] & {*names}]
