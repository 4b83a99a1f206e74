"""Updates tables of probabilities by the ranks of candidates.

CPU, CUDA and plain PyTorch return the same bits. A row of a table contains the probabilities of
the values of a variable or, in a table of transitions, of the item after a given item. After a
generation of N candidates the probability p of a value becomes

    p' = max(p + beta sum of w_k [x_k = value], floor) / sum of its row

where the sum is over all candidates by rank k, and

    w_k  = log(N / 2 + 1/2) - log k for the better half, scaled to sum 1; the worse half has
           the same weights with a negative sign
    mu   = 1 / sum of w_k^2 over w_k > 0
    beta = mu / (mu + 2 sqrt(rows (values - 1))), at most 0.7
           mu / (mu + rows values / 2) for transitions, because a candidate has few of them

The positive part is the smoothed maximum likelihood of weighted elites (P.-T. de Boer, D.
Kroese, S. Mannor and R. Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of
Operations Research 134, 2005, sections 4 and 5). The negative part is as in CMA-ES:
probabilities move away from worse candidates. Candidates of equal fitness share the mean of
their weights. NaN and an infinitely bad fitness are equal, and rank last. A probability of 0
remains 0. Others do not fall below a floor. With it, some row is expected to draw another value
than its likeliest one in about a quarter of the candidates (R. Hamano et al., CatCMA:
Stochastic Optimization for Mixed-Category Problems, GECCO 2024).

Probabilities are rounded to multiples of 2^-40, also those of the first table, and weights are
integers, so that sums are exact in any order.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import index as to_int
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.ops.cem_update.reference import cem_update_reference, replace_nan, select_rows
from kernels.ops.discrete.op import _LIBRARY
from kernels.ops.library import needs_dispatch

Families = Sequence[tuple[int, int, int, float | None]]
"""Columns, rows, values and beta of each family; if beta is None, the rule above applies.

A table of transitions has one row more than the family has columns.
"""

_SCALE = 1 << 40  # of integers that represent weights and probabilities
_LARGEST_CUDA_POPULATION = 16384

State = tuple[Tensor, Tensor, Tensor]


class Move(NamedTuple):
    """How a generation changes the table of one family."""

    columns: int  # of the candidates that belong to the family
    cells: int  # of the table
    # Returns the new table from the old table, the family's columns and the weights.
    update: Callable[[Tensor, Tensor, Tensor], Tensor]


def update_tables(
    fitness: Tensor,
    candidates: Tensor,
    state: State,
    num_elites: int,
    families: Families,
    *,
    maximize: bool,
) -> State:
    """Return the state of a discrete search after one generation, as new tensors.

    The state contains tables of probabilities and the best candidate so far. A family is a
    group of columns of the candidates that share a table. A row of the table is a distribution
    over the values 0 .. values - 1. There are two kinds of tables:

    - If a table has as many rows as columns, row v is the distribution of column v.
    - If it has one row more, it is a table of transitions: row 0 is the distribution of the
      first column, and row 1 + i is the distribution of a column if the column before it has
      the value i.

    Leading dimensions ``...`` are independent problems. The results have no gradients. The
    errors are those of ``sample_categorical``.

    Args:
        fitness: shape (..., N), N >= 2, of a dtype that ``cem_update`` accepts.
        candidates: shape (..., N, C), float32 or float64, integers from 0 to values - 1. The
            columns of the first family come first.
        state: (tables, record, generation). The tables, shape (..., T + C), float64, are the T
            cells of all tables row by row, followed by the best candidate so far. The record,
            shape (..., 5), float64, and the generation, shape (), int64, are those of
            ``cem_update``.
        num_elites: the number of elites that the record describes, from 1 to N.
        families: (columns, rows, values, beta) of each family: the number of its columns, the
            number of rows of its table, the number of values in a row, and the learning rate.
            If beta is None, the rate is computed from the sizes.
        maximize: True if a greater fitness is better.
    """
    # Under torch.compile a size may be symbolic; `to_int` converts it to an int.
    population_size = to_int(fitness.shape[-1])
    # The CUDA kernel compares every candidate with all others, which is slow for many.
    if fitness.is_cuda and population_size > _LARGEST_CUDA_POPULATION:
        return update_tables_reference(
            fitness, candidates, state, num_elites, families, maximize=maximize
        )

    tables, record, generation = state
    rates, floors = _choose_rates_and_floors(population_size, families)
    # The arguments are in the order of the operator's schema.
    result: State = _LIBRARY.call(
        "update_tables",
        fitness,
        candidates,
        tables,
        record,
        generation,
        _sum_weights(population_size, fitness.device),
        num_elites,
        [columns for columns, _, _, _ in families],
        [rows for _, rows, _, _ in families],
        [values for _, _, values, _ in families],
        rates,
        floors,
        maximize,
    )
    return result


def _choose_rates_and_floors(
    population_size: int, families: Families
) -> tuple[list[float], list[float]]:
    """Return the learning rate of each family, and its lowest probability that is not 0."""
    rates = []
    floors = []
    for columns, rows, values, beta in families:
        # Under torch.compile a size may be symbolic; `to_int` converts it to an int.
        sizes = (population_size, to_int(rows), to_int(values))
        # Only a table of transitions has more rows than the family has columns.
        is_transition = rows != columns
        rate, floor = _choose_rate_and_floor(sizes, is_transition, beta)
        rates.append(rate)
        floors.append(floor)
    return rates, floors


def update_tables_reference(
    fitness: Tensor,
    candidates: Tensor,
    state: State,
    num_elites: int,
    families: Families,
    *,
    maximize: bool,
    fixed_order: bool = True,
) -> State:
    """Return what the operator ``update_tables`` returns, computed in plain PyTorch.

    The arguments are those of ``update_tables``, but they are not checked. A family is
    (columns, rows, values, beta): the number of its columns, the number of rows of its table,
    the number of values in a row, and its learning rate or None. Without ``fixed_order``
    floating-point sums are computed in any order, which is faster but may change the last bits.
    """
    moves = []
    for columns, rows, values, beta in families:
        # Only a table of transitions has more rows than the family has columns.
        update = partial(
            move_table, rows=(rows, values), is_transition=rows != columns, beta=beta
        )
        moves.append(Move(columns, cells=rows * values, update=update))
    return update_tables_by(
        fitness,
        candidates,
        state,
        num_elites,
        moves,
        maximize=maximize,
        fixed_order=fixed_order,
    )


def update_tables_by(
    fitness: Tensor,
    candidates: Tensor,
    state: State,
    num_elites: int,
    moves: Sequence[Move],
    *,
    maximize: bool,
    fixed_order: bool = True,
) -> State:
    """Return the state of a discrete search after a generation.

    A family is a group of columns of the candidates with one table of probabilities.

    Args:
        fitness: shape (..., N).
        candidates: shape (..., N, C). The columns of the first family come first.
        state: (tables, record, generation). The last dimension of tables contains the cells of
            every family's table, followed by the C numbers of the best candidate so far. The
            first number of the record is the best fitness so far.
        num_elites: the number of elites that the record describes.
        moves: for each family the number of its columns, the number of cells of its table, and
            a function that returns the new table.
        maximize: True if a greater fitness is better.
        fixed_order: False if sums may be computed in any order, which is faster.
    """
    tables, old_record, old_generation = state
    # This call only computes the record and the generation. Its candidates and its distribution
    # have no columns, because the tables are updated below.
    _, record, generation, _ = cem_update_reference(
        fitness,
        candidates[..., :0],
        tables.new_empty((*tables.shape[:-1], 4, 0)),
        old_record,
        old_generation,
        num_elites,
        maximize=maximize,
        fixed_order=fixed_order,
    )
    num_cells = sum(move.cells for move in moves)
    old_cells, old_best = tables.split([num_cells, candidates.shape[-1]], dim=-1)

    numbers = fitness.double() if fitness.is_floating_point() else fitness.long()
    scores = replace_nan(numbers, maximize)
    weights = _weigh_candidates(scores, maximize)
    new_tables = _move_tables(old_cells, candidates, weights, moves)

    # The best of these candidates replaces the best one so far, if it is better.
    best_index = scores.argmax(-1, True) if maximize else scores.argmin(-1, True)
    best_score = scores.gather(-1, best_index).double()
    best_so_far = replace_nan(old_record[..., :1], maximize)
    is_better = best_score > best_so_far if maximize else best_score < best_so_far
    new_best = select_rows(candidates, best_index).squeeze(-2)
    best = torch.where(is_better, new_best.to(old_best), old_best)
    return torch.cat([*new_tables, best], dim=-1), record, generation


def _move_tables(
    cells: Tensor, candidates: Tensor, weights: Tensor, moves: Sequence[Move]
) -> list[Tensor]:
    """Return the new table of every family, from the cells of all old tables.

    Each family updates its table from its own columns of the candidates.
    """
    tables = cells.split([move.cells for move in moves], dim=-1)
    family_candidates = candidates.split([move.columns for move in moves], dim=-1)
    new_tables = []
    for move, table, x in zip(moves, tables, family_candidates, strict=True):
        new_tables.append(move.update(table, x, weights))
    return new_tables


def move_table(
    table: Tensor,
    candidates: Tensor,
    weights: Tensor,
    *,
    rows: tuple[int, int],
    is_transition: bool,
    beta: float | None = None,
) -> Tensor:
    """Return the table of one family after a generation, shape (..., rows * values), float64.

    A row of the table is a distribution over the values 0 .. values - 1. Every candidate adds
    beta times its weight to the probabilities of its own values. Then probabilities below a
    floor are raised to it unless they were 0, and every row is divided by its sum. The
    results are rounded to multiples of 2^-40, so that they have the same bits on all devices.

    Args:
        table: shape (..., rows * values), float64.
        candidates: shape (..., N, columns). A number that is not one of the values is replaced
            by the value 0.
        weights: w_k of the candidates, shape (..., N), float64; negative for bad candidates.
        rows: the number of rows, and the number of values in a row.
        is_transition: if True, row 0 is the distribution of the first column, and row 1 + i is
            the distribution of a column if the column before it has the value i. If False, row
            v is the distribution of column v.
        beta: the learning rate; None computes it from the sizes.
    """
    cells = _find_cells(candidates, rows, is_transition)
    # The weights are converted to integers, which count multiples of 2^-40 = 1 / _SCALE. Sums
    # of integers do not depend on the order.
    integer_weights = (weights * _SCALE).long()
    # Every cell of a candidate gets the candidate's weight.
    cell_weights = integer_weights.unsqueeze(-1).expand(cells.shape)
    sums = torch.zeros_like(table, dtype=torch.int64)
    sums = sums.scatter_add(-1, cells.flatten(-2), cell_weights.flatten(-2))

    sizes = (to_int(candidates.shape[-2]), *rows)
    rate, floor = _choose_rate_and_floor(sizes, is_transition, beta)
    # The probabilities of a first table, such as 1/50, need not be multiples of 2^-40 yet.
    moved = ((table * _SCALE).round() + (sums.double() * rate).round()) / _SCALE
    # Shape (..., rows, values). A probability that was 0 remains 0.
    raised = torch.where(table > 0, moved.clamp(min=floor), 0.0).unflatten(-1, rows)
    # The lower limit of the sums avoids 0 / 0 = NaN in a row of zeros.
    row_sums = raised.sum(-1, keepdim=True).clamp(min=1 / _SCALE)
    probabilities = (raised / row_sums).flatten(-2)
    result: Tensor = (probabilities * _SCALE).round() / _SCALE
    return result


def _find_cells(candidates: Tensor, rows: tuple[int, int], is_transition: bool) -> Tensor:
    """Return the cell of the table to which each number of a candidate belongs.

    The column of the cell is the number, and the row depends on the kind of the table. The
    arguments are those of `move_table`.
    """
    num_rows, num_values = rows
    is_value = (candidates >= 0) & (candidates < num_values)
    x = torch.where(is_value, candidates, 0).long()
    if is_transition:
        # The row is 0 for the first column. For the others it is 1 + the value before.
        previous_values = x[..., :-1]
        row_index = pad(previous_values + 1, (1, 0))
    else:
        row_index = torch.arange(num_rows, device=x.device)
    return row_index * num_values + x


def _weigh_candidates(scores: Tensor, maximize: bool) -> Tensor:
    """Return the weights of candidates, whose fitness is ``scores``, as float64.

    The weights depend on the ranks alone. They are positive for the better half and negative
    for the worse half. Candidates of equal fitness share the mean weight of their ranks.
    """
    # Under torch.compile a size may be symbolic; `to_int` converts it to an int.
    population_size = to_int(scores.shape[-1])
    ascending = scores.sort(dim=-1).values
    num_less = torch.searchsorted(ascending, scores, right=False)
    num_less_or_equal = torch.searchsorted(ascending, scores, right=True)
    # Rank 0 is the best. All candidates with the same fitness share the ranks from `begin` to
    # `end` - 1.
    if maximize:
        begin = population_size - num_less_or_equal
        end = population_size - num_less
    else:
        begin = num_less
        end = num_less_or_equal
    # Entry n of `sums` is the sum of the weights of the ranks below n, as an integer.
    sums = _sum_weights(population_size, scores.device).expand(*scores.shape[:-1], -1)
    shared_weight = sums.gather(-1, end) - sums.gather(-1, begin)
    return (shared_weight // (end - begin)).double() / _SCALE


def _weigh_ranks(size: int, device: torch.device) -> tuple[Tensor, float]:
    """Return the cumulative sums of the weights by rank, and the effective number of elites.

    The better half of ``size`` candidates has positive weights, which add up to 1 and decrease
    with the logarithm of the rank. The worse half has the same weights with a minus sign, the
    largest one for the last rank. Entry n of the sums, shape (size + 1,), int64, is 2^40 times
    the sum of the n best weights.
    """
    logs = [math.log(size / 2 + 0.5) - math.log(rank) for rank in range(1, size // 2 + 1)]
    total = math.fsum(logs)
    positive = [round(log / total * _SCALE) for log in logs]
    negative = [-weight for weight in reversed(positive)]
    # If the number of candidates is odd, the middle one has the weight 0.
    middle = [0] * (size % 2)
    sums = torch.tensor([0, *positive, *middle, *negative], device="cpu").cumsum(0).to(device)
    return sums, total**2 / math.fsum(log * log for log in logs)


# Nothing is ever dropped: CUDA graphs go on reading the tensors.
_remember_weights = cache(_weigh_ranks)


def _recall_weights(size: int, device: torch.device) -> tuple[Tensor, float]:
    """Return what `_weigh_ranks` returns, from an earlier call if there was one."""
    # The tensors of a traced call may be fake, and must not come back in a real one.
    recall = _weigh_ranks if needs_dispatch() else _remember_weights
    return recall(size, device)


def _sum_weights(size: int, device: torch.device) -> Tensor:
    """Return the cumulative sums of `_weigh_ranks`, which Dynamo must not trace."""
    return _recall_weights(size, device)[0]


def _choose_rate_and_floor(
    sizes: tuple[int, int, int], is_transition: bool, beta: float | None
) -> tuple[float, float]:
    """Return the learning rate of a table, and the lowest probability that is not 0.

    ``sizes`` are the numbers of candidates, of rows, and of values in a row. If ``beta`` is not
    None, it is the rate.
    """
    population, rows, values = sizes
    if population < 2 or rows < 1 or values < 1:
        raise ValueError(
            "expected at least 2 candidates, 1 row and 1 value, "
            f"got {population}, {rows} and {values}"
        )
    _, mu = _recall_weights(population, torch.device("cpu"))  # The effective number of elites.
    # If all rows are at the floor, the probability is 0.27 that a candidate has, in some row,
    # another value than the likeliest one (R. Hamano et al., CatCMA, GECCO 2024).
    floor = (1 - 0.73 ** (1 / rows)) / max(1, values - 1)
    slow = rows * values / 2 if is_transition else 2 * math.sqrt(rows * (values - 1))
    rate = min(0.7, mu / (mu + slow)) if beta is None else beta
    return rate, round(floor * _SCALE) / _SCALE


# Dynamo calls both and does not trace into the cache; see `_load` in kernels.ops.library.
_sum_weights._dynamo_marked_constant = True  # type: ignore[attr-defined]
_choose_rate_and_floor._dynamo_marked_constant = True  # type: ignore[attr-defined]
