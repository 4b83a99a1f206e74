"""Moves tables of probabilities by the ranks of candidates.

CPU, CUDA and plain PyTorch give the same bits. A table has a row for each variable, or for what
comes before an item, and in it the probabilities of the values x. A generation of N candidates
moves them by

    p' = max(p + beta sum of w_k [x_k = value], floor) / sum of its row

summed over all candidates by rank k, with

    w_k  = log(N / 2 + 1/2) - log k for the better half, scaled to sum 1, and mirrored for
           the worse half
    mu   = 1 / sum of w_k^2 over w_k > 0
    beta = mu / (mu + 2 sqrt(rows (values - 1))), at most 0.7
           mu / (mu + rows values / 2) for transitions, because a candidate has few of them

The positive part is the smoothed maximum likelihood of weighted elites (P.-T. de Boer, D.
Kroese, S. Mannor and R. Rubinstein, A Tutorial on the Cross-Entropy Method, Annals of
Operations Research 134, 2005, sections 4 and 5); as in CMA-ES worse candidates push away.
Candidates of equal fitness have the mean of their weights; NaN and the infinity on the bad side
are equal, and worst. A probability of 0 stays 0. Others stay above a floor, by which one row in
three generations is expected to have another than its likeliest value: R. Hamano et al.,
CatCMA: Stochastic Optimization for Mixed-Category Problems, GECCO 2024.

Probabilities are multiples of 2^-40 and weights integers: sums are exact in any order.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import index

import torch
from torch import Tensor
from torch.nn.functional import pad

from kernels.ops.cem_update.reference import cem_update_reference, select_rows
from kernels.ops.discrete.op import _LIBRARY

Families = Sequence[tuple[int, int, int, float | None]]
"""Columns, rows, values and beta (None: by the rule above) of each family.

Transitions have one row more than columns.
"""

_SCALE = 1 << 40  # of integers that represent weights and probabilities
_LARGEST_CUDA_POPULATION = 16384  # because the kernel compares every candidate with all others

State = tuple[Tensor, Tensor, Tensor]
Move = tuple[int, int, Callable[[Tensor, Tensor, Tensor], Tensor]]
"""The columns of a family, the cells of its table, and the function that moves the table.

The function takes the table, the candidates and their weights.
"""


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

    The state has the families' tables of probabilities and the best candidate so far. A family
    is a group of columns of the candidates with one table: a row is a distribution over the
    values 0 .. values - 1. If a table has as many rows as columns, row v is the distribution of
    column v. If it has one row more, it is a table of transitions: row 0 is the distribution of
    the first column, and row 1 + i that of a column after a column with the value i.

    The results have no gradients. Leading dimensions ``...`` are problems side by side. Errors
    are those of ``sample_categorical``.

    Args:
        fitness: shape (..., N), N >= 2, a dtype of ``cem_update``.
        candidates: shape (..., N, C), float32 or float64: the columns of one family after the
            other, integers from 0 to values - 1.
        state: (tables, record, generation). tables: shape (..., T + C), float64, the T cells of
            all tables row by row, then the best candidate so far. record: shape (..., 5),
            float64, and generation: shape (), int64, as in ``cem_update``.
        num_elites: the number of elites that the record describes, from 1 to N.
        families: (columns, rows, values, beta) of each family: the number of its columns, the
            number of its table's rows, the number of values in a row, and the learning rate;
            if beta is None it is chosen from the sizes.
        maximize: True if a greater fitness is better.
    """
    # Under torch.compile a size may be a symbol; `index` makes it a number.
    population = index(fitness.shape[-1])
    if fitness.is_cuda and population > _LARGEST_CUDA_POPULATION:
        return update_tables_reference(
            fitness, candidates, state, num_elites, families, maximize=maximize
        )
    rates = []
    floors = []
    for columns, rows, values, beta in families:
        sizes = (population, index(rows), index(values))
        rate, floor = _choose_rate_and_floor(sizes, rows != columns, beta)
        rates.append(rate)
        floors.append(floor)
    tables, record, generation = state
    result: State = _LIBRARY.call(
        "update_tables",
        fitness,
        candidates,
        tables,
        record,
        generation,
        _sum_weights(population, fitness.device),
        num_elites,
        [columns for columns, _, _, _ in families],
        [rows for _, rows, _, _ in families],
        [values for _, _, values, _ in families],
        rates,
        floors,
        maximize,
    )
    return result


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

    Nothing is checked. A family is (columns, rows, values, beta): the number of its columns,
    the rows and the values per row of its table, and its learning rate or None. A table with
    more rows than columns is one of transitions.

    Without ``fixed_order`` floating-point sums are computed in any order, which is faster, but
    the last bits may differ.
    """
    moves: list[Move] = []
    for columns, rows, values, beta in families:
        move = partial(
            move_table, rows=(rows, values), is_transition=rows != columns, beta=beta
        )
        num_cells = rows * values
        moves.append((columns, num_cells, move))
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
    """Return the state after a generation, with a table function for each family.

    Args:
        fitness: shape (..., N).
        candidates: shape (..., N, C): the columns of one family after the other.
        state: (tables, record, generation). The last dimension of tables has the cells of one
            family's table after the other, then the C numbers of the best candidate so far. The
            first number of the record is the best fitness so far.
        num_elites: the number of elites that the record describes.
        moves: (columns, cells, move) of each family: the number of its columns, the number of
            its table's cells, and a function that returns the new table from the old one, the
            family's columns of the candidates and the candidates' weights.
        maximize: True if a greater fitness is better.
        fixed_order: False if sums may be computed in any order, which is faster.
    """
    tables, old_record, old_generation = state
    # Record and generation change as in an update of a normal distribution of no dimensions.
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
    fixed_point_weights, improved_index = _weigh_candidates(
        fitness, old_record[..., 0], maximize
    )
    weights = fixed_point_weights.double() / _SCALE

    # Move the table of every family by its own columns of the candidates.
    column_counts = [columns for columns, _, _ in moves]
    cell_counts = [cells for _, cells, _ in moves]
    all_cells, old_best = tables.split([sum(cell_counts), candidates.shape[-1]], dim=-1)
    old_tables = all_cells.split(cell_counts, dim=-1)
    family_candidates = candidates.split(column_counts, dim=-1)
    new_tables = []
    for (_, _, move), table, x in zip(moves, old_tables, family_candidates, strict=True):
        new_tables.append(move(table, x, weights))

    # The index is -1 if no candidate is better than the best one so far.
    has_improved = improved_index.unsqueeze(-1) >= 0
    newest = select_rows(candidates, improved_index.clamp(min=0).unsqueeze(-1)).squeeze(-2)
    new_best = torch.where(has_improved, newest.to(old_best), old_best)
    return torch.cat([*new_tables, new_best], dim=-1), record, generation


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
    rate * weight to the probabilities of its own values. Then probabilities are raised to a
    floor, but those of 0 stay 0, and rows are scaled to sum 1. Results are rounded to multiples
    of 2^-40, so that all devices give the same bits.

    Args:
        table: shape (..., rows * values), float64.
        candidates: shape (..., N, columns); what is not one of the values counts as 0.
        weights: w_k of the candidates, shape (..., N), float64; those of bad ones are negative.
        rows: the number of rows, and the number of values in a row.
        is_transition: if True, row 0 is the distribution of the first column, and row 1 + i
            that of a column after a column with the value i; otherwise row v is the
            distribution of column v.
        beta: the rate; if None, it is chosen from the sizes.
    """
    num_rows, num_values = rows
    is_value = (candidates >= 0) & (candidates < num_values)
    x = torch.where(is_value, candidates, 0).long()
    if is_transition:
        previous_values = x[..., :-1]
        row = pad(previous_values + 1, (1, 0))
    else:
        row = torch.arange(num_rows, device=x.device)
    cells = (row * num_values + x).flatten(-2)

    # Weights are added as integers, because such sums are the same in any order.
    integer_weights = (weights * _SCALE).long()
    cell_weights = integer_weights.unsqueeze(-1).expand(x.shape).flatten(-2)
    sums = torch.zeros_like(table, dtype=torch.int64)
    sums = sums.scatter_add(-1, cells, cell_weights)

    sizes = (index(x.shape[-2]), num_rows, num_values)
    rate, floor = _choose_rate_and_floor(sizes, is_transition, beta)
    moved = table + (sums.double() * rate).round() / _SCALE
    p = torch.where(table > 0, moved.clamp(min=floor), 0.0).unflatten(-1, rows)
    # The minimum keeps a row of zeros as it is, where 0 / 0 would be NaN.
    row_sums = p.sum(-1, keepdim=True).clamp(min=1 / _SCALE)
    p = p / row_sums
    result: Tensor = (p * _SCALE).round().flatten(-2) / _SCALE
    return result


def _weigh_candidates(
    fitness: Tensor, best_so_far: Tensor, maximize: bool
) -> tuple[Tensor, Tensor]:
    """Return the candidates' weights, and the index of the best one if it beats all before it.

    The weights depend on the ranks alone: positive for the better half, negative for the worse
    one. They are integers, 2^40 w, shape (..., N), int64; candidates of equal fitness share the
    mean weight of their ranks. The index has shape (...), and is -1 if no candidate is better
    than ``best_so_far``, which is NaN before the first generation.
    """
    population = index(fitness.shape[-1])
    # NaN is as bad as the infinity on the bad side.
    worst = -math.inf if maximize else math.inf
    fitness = fitness.double() if fitness.is_floating_point() else fitness.long()
    fitness = fitness.nan_to_num(worst, math.inf, -math.inf)
    best_so_far = best_so_far.nan_to_num(worst, math.inf, -math.inf)

    # A candidate shares the ranks from `first` to `last` - 1 with its equals; rank 0 is best.
    ascending = fitness.sort(dim=-1).values
    first = torch.searchsorted(ascending, fitness, right=False)
    last = torch.searchsorted(ascending, fitness, right=True)
    if maximize:
        # The order is ascending, so ranks count from its end.
        first, last = population - last, population - first
    # Entry n of `sums` is the sum of the weights of the ranks before n.
    sums = _sum_weights(population, fitness.device).expand(*fitness.shape[:-1], -1)
    shared_weight = sums.gather(-1, last) - sums.gather(-1, first)
    weights = shared_weight // (last - first)

    best_index = fitness.argmax(-1) if maximize else fitness.argmin(-1)
    best_fitness = fitness.gather(-1, best_index.unsqueeze(-1)).squeeze(-1).double()
    if maximize:
        is_better = best_fitness > best_so_far
    else:
        is_better = best_fitness < best_so_far
    return weights, torch.where(is_better, best_index, -1)


@lru_cache(maxsize=64)
def _weigh_ranks(size: int, device: torch.device) -> tuple[Tensor, float]:
    """Return the sums of the weights of the best 0 .. N candidates, and mu.

    The sums are those of 2^40 w, shape (N + 1,), int64.
    """
    half = [math.log(size / 2 + 0.5) - math.log(rank) for rank in range(1, size // 2 + 1)]
    total = math.fsum(half)
    weights = [round(weight / total * _SCALE) for weight in half]
    weights += [0] * (size % 2) + [-weight for weight in reversed(weights)]
    sums = torch.tensor([0, *weights]).cumsum(0).to(device)
    return sums, total**2 / math.fsum(weight * weight for weight in half)


def _sum_weights(size: int, device: torch.device) -> Tensor:
    return _weigh_ranks(size, device)[0]


def _choose_rate_and_floor(
    sizes: tuple[int, int, int], is_transition: bool, beta: float | None
) -> tuple[float, float]:
    """Return the learning rate of a table, and the lowest probability of a possible value.

    ``sizes`` are the numbers of candidates, of rows and of values in a row. The rate is
    ``beta``, if that is not None.
    """
    population, rows, values = sizes
    mu = _weigh_ranks(population, torch.device("cpu"))[1]
    floor = (1 - 0.73 ** (1 / rows)) / max(1, values - 1)
    slow = rows * values / 2 if is_transition else 2 * math.sqrt(rows * (values - 1))
    rate = min(0.7, mu / (mu + slow)) if beta is None else beta
    return rate, round(floor * _SCALE) / _SCALE


# Dynamo runs both, like `_load` of kernels.ops.library, and does not trace into the cache.
_sum_weights._dynamo_marked_constant = True  # type: ignore[attr-defined]
_choose_rate_and_floor._dynamo_marked_constant = True  # type: ignore[attr-defined]
