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
    """The functions, inputs and sizes with which ``check`` tests an operator."""

    reference: Callable[..., Any]  # plain PyTorch; returns a tensor or a tuple of tensors
    operator: Callable[..., Any]  # the public function, with the same arguments and results
    inputs: Callable[..., Tensors]  # makes float64 inputs from a generator and a size
    small: tuple[int, ...]  # the size for finite differences and Numba's slow simulator
    large: tuple[int, ...]  # the size for C++ and CUDA
    arguments: Mapping[str, Any] = field(
        default_factory=dict
    )  # keyword arguments, also of Numba
    gradients: bool = True  # False if the operator has no derivative
    prototype: str = ""  # the module of the Numba prototype, if there is one
    folder: str = ""  # the folder of this package, if its name is not the operator's


def _randn(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _make_elements(count: int, generator: Generator, size: int) -> Tensors:
    """Return values up to about 40. exp(40) + 1 rounds to exp(40) in float32 and float64."""
    return tuple(10.0 * _randn(generator, count, size))


def _make_cell(generator: Generator, batch: int, inputs: int, states: int) -> Tensors:
    """Return input, weights, bias, old_h and old_cell, scaled for gates of about 1."""
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
    """Return (n + 1/2) 2^-53, where n is the 53-bit integer at the top of two 32-bit words."""
    return upper.double() * 2.0**-32 + (lower >> 11).double() * 2.0**-53 + 2.0**-54


def _to_rounded_unit(word: Tensor) -> Tensor:
    """Return about (word + 1/2) 2^-32, rounded to float32 as box_muller.h does."""
    u = word.float().double() * (1.0 - 2.0**-23) * 2.0**-32 + 2.0**-33
    u = u.float().double()
    # Near 1 the kernel computes the logarithm from 2 - u, which is rounded as well.
    return torch.where(u > 0.5, 2.0 - (2.0 - u).float().double(), u)


def _counter_of(
    dimension: Tensor, samples: Tensor, generation: int, is_double: bool
) -> tuple[Tensor, Tensor, int, Tensor]:
    """Return the counter of Philox4x32: four words of 32 bits.

    Four successive samples form a block. The first three words are the lower 32 bits of block,
    dimension and generation. The fourth word has these bits, from the lowest one:

        0 to 11     the upper bits of the block
        12 to 23    the upper bits of the dimension
        24 to 29    the upper bits of the generation
        30          in float64, which half of the block: 0 for its first two samples
        31          1 in float64
    """
    block = samples // 4
    upper_bits = (generation >> 32 << 24) | (dimension >> 32 << 12) | (block >> 32)
    if is_double:
        half = samples % 4 // 2
        upper_bits = upper_bits | (half << 30) | (1 << 31)
    return block & WORD, dimension & WORD, generation & WORD, upper_bits


def noise(
    dimensions: Tensor, samples: Tensor, seed: int, generation: int, dtype: torch.dtype
) -> Tensor:
    """Return the standard normal noise z of ``sample_normal``, shape (dimensions, samples).

    z is a function of seed, generation, dimension and sample index alone. These numbers are
    packed into the key and the counter of Philox4x32, which returns four random words of 32
    bits. The words become uniform numbers. The Box-Muller transform turns two uniform numbers
    into two normal numbers, those of the samples 2 k and 2 k + 1.

    For float64 samples, two words become one uniform number, so the four words give the noise
    of two samples. For all other dtypes, each word becomes a uniform number, so the four words
    give the noise of four samples.

    Args:
        dimensions: indices of dimensions, int64, one-dimensional.
        samples: indices of samples, int64, one-dimensional.
        seed: from 0 to 2**64 - 1.
        generation: from 0 to 2**38 - 1.
        dtype: the dtype of the samples, which the caller computes from the noise. The noise
            itself is always returned as float64.
    """
    is_double = dtype is torch.float64
    counter = _counter_of(dimensions.unsqueeze(-1), samples, generation, is_double)
    # Every function that uses Philox combines the seed with a constant of its own. So two
    # functions with the same seed get different random numbers.
    constant = int.from_bytes(b"normal z", "big")
    words = philox4x32(counter, split64(seed ^ constant))
    # Box-Muller: one uniform number determines the radius, and another one the angle. For
    # float64 they are made of all four words. Otherwise they are made of the first two words
    # for the samples 4 k and 4 k + 1, and of the last two words for 4 k + 2 and 4 k + 3.
    radius_uniform, angle_uniform = _to_uniforms(words, samples, is_double)
    radius = (-2.0 * radius_uniform.log()).clamp(min=0.0).sqrt()
    angle = 2.0 * math.pi * angle_uniform
    # Samples with an even index take the cosine, samples with an odd one the sine.
    z: Tensor = radius * torch.where(samples % 2 == 0, angle.cos(), angle.sin())
    return z


def _to_uniforms(words: Tensors, samples: Tensor, is_double: bool) -> tuple[Tensor, Tensor]:
    """Return two uniform numbers for each sample, from the four words of its block."""
    if is_double:
        return _to_open_unit(words[0], words[1]), _to_open_unit(words[2], words[3])
    is_first_half = samples % 4 < 2
    first_word = torch.where(is_first_half, words[0], words[2])
    second_word = torch.where(is_first_half, words[1], words[3])
    return _to_rounded_unit(first_word), (second_word.double() + 0.5) * 2.0**-32


def _sample_reference(
    mean: Tensor, std: Tensor, num_samples: int, seed: int, generation: int
) -> Any:
    """Return the samples that ``sample_normal`` must return, computed on the CPU."""
    z = noise(torch.arange(len(mean)), torch.arange(num_samples), seed, generation, mean.dtype)
    return sample_normal_reference(mean, std, z.to(mean.dtype))


def _make_parameters(generator: Generator, dimensions: int) -> Tensors:
    """Return means and standard deviations."""
    mean, log_std = _randn(generator, 2, dimensions)
    return mean, log_std.exp()


def _make_search(generator: Generator, population: int, dimensions: int) -> Tensors:
    """Return a fitness (a fifth of it equal), candidates and a distribution."""
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
    """Call ``cem_update``, ``cma_update`` or a reference with the state of generation 0.

    ``factor_and_paths`` are two tensors that only ``cma_update`` takes.
    """
    # A record has four numbers about the fitness, which are NaN before the first generation,
    # and the last generation that failed, which is 0 if there is none.
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

    The weights decrease from 0.2 to -0.4.
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
    """Return a table of probabilities, some of which are 0."""
    return (_clear_some(torch.rand(rows, values, generator=generator, dtype=torch.float64)),)


def _clear_some(table: Tensor) -> Tensor:
    """Return a table in float64, with 0 in place of numbers below 0.3."""
    return torch.where(table < 0.3, 0.0, table.double())


def _call_sampler(sample: Any, table: Tensor) -> Any:
    """Call a sampler with a seed and a generation that need more than 32 bits."""
    seed = torch.tensor(-(2**62), device=table.device)
    generation = torch.tensor(2**40 + 7, device=table.device)
    return sample(table.double(), num_samples=33, seed=seed, generation=generation)


# 5 variables of 7 values, and permutations of 9 items.
_FAMILIES = [(5, 5, 7, None), (9, 10, 9, None)]


def _make_generation(generator: Generator, size: int) -> Tensors:
    """Return a fitness, candidates in [0, 1], tables with a best candidate, and a record."""
    # The families `_FAMILIES` have 5 + 9 columns. Their tables have 5 * 7 + 10 * 9 cells, and
    # the best candidate follows them.
    shapes = (size,), (size, 14), (139,), (5,)
    return tuple(
        torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )


def _call_update_tables(
    update: Any, fitness: Tensor, x: Tensor, table: Tensor, record: Tensor
) -> Any:
    """Call ``update_tables`` or its reference for three elites of the families `_FAMILIES`."""
    state = _clear_some(table), record.double(), record[0].long()
    # Numbers in [0, 1) become the integers 0 to 6, which are values of both families.
    candidates = x.mul(7).long().double()
    return update(fitness, candidates, state, 3, _FAMILIES, maximize=False)


# Seed and generation are so large that every 32-bit word of them matters.
_NOISE = {"num_samples": 13, "seed": 2**63 + 12345, "generation": 2**32 + 7}

# Sizes are not multiples of the kernels' tiles. The sizes of lltm are those of its tutorial.
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
    """Return the entries of ``known`` that the names select, or all if there are no names.

    ``known`` lists operators or folders of operators. The name of an operator also selects its
    folder, and the name of a folder all its operators.

    Raises:
        ValueError: a name is neither an operator nor a folder.
    """
    # Every entry of `known`, with the names that select it.
    selectors = {name: {name} for name in known}
    for operator, case in CASES.items():
        # A case without a folder has the folder of its own name.
        folder = case.folder or operator
        if operator in selectors:
            selectors[operator].add(folder)
        if folder in selectors:
            selectors[folder].add(operator)
    valid_names = sorted(set[str]().union(*selectors.values()))
    for name in names:
        if name not in valid_names:
            raise unknown_name("operator", name, valid_names)
    if not names:
        return list(known)
    return [name for name in known if selectors[name].intersection(names)]
