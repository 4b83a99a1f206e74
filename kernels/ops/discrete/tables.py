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

from kernels.ops.cem_update import cem_update_reference
from kernels.ops.discrete.op import _LIBRARY

Families = Sequence[tuple[int, int, int, float | None]]
"""Columns, rows, values and beta (None: by the rule above) of each family.

Transitions have one row more than columns.
"""

_ONE = 1 << 40
_MOST = 16384  # candidates: CUDA compares each with all others

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
    """Move tables of probabilities, and the best candidate that is stored after them.

    The results have no gradients. Leading dimensions ``...`` are problems side by side. With a
    row for each column, column v counts in row v; of transitions, with one more, the first
    column in row 0 and others in row 1 + value before. Errors are those of
    ``sample_categorical``.

    Args:
        fitness: shape (..., N), N >= 2, a dtype of ``cem_update``.
        candidates: shape (..., N, C), float32 or float64: the columns of one family after the
            other, whole numbers from 0 to values - 1.
        state: tables, shape (..., T + C), float64: row after row of each family, then the best
            candidate so far; record, shape (..., 5), float64, and generation, shape (), int64,
            of ``cem_update``.
        num_elites: those of the record, from 1 to N.
        families: of each the columns, C in all, the rows, the values of a row, T cells in all,
            and beta.
        maximize: True if a greater fitness is better.

    Returns:
        The state after this generation, new tensors.
    """
    size = index(fitness.shape[-1])  # index: a number for Dynamo, where it has a symbol
    if fitness.is_cuda and size > _MOST:
        return update_tables_reference(
            fitness, candidates, state, num_elites, families, maximize=maximize
        )
    moves = []
    for columns, rows, values, beta in families:
        steps = _choose_rate_and_floor(
            (size, index(rows), index(values)), rows != columns, beta
        )
        moves.append((columns, rows, values, *steps))
    columns_of_moves = [list(column) for column in zip(*moves, strict=True)]
    sums = _sum_weights(size, fitness.device)
    result: State = _LIBRARY.call(
        "update_tables",
        fitness,
        candidates,
        *state,
        sums,
        num_elites,
        *columns_of_moves,  # columns, rows, values, rates and floors
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
    """Return what ``update_tables`` returns, in plain PyTorch; nothing is checked.

    ``fixed_order`` is that of ``cem_update_reference``.
    """
    moves: list[Move] = []
    for columns, rows, values, beta in families:
        rule = partial(
            move_table, rows=(rows, values), is_transition=rows != columns, beta=beta
        )
        moves.append((columns, rows * values, rule))
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
    """Return the state after a generation; each family has a function that moves its table.

    The other arguments are those of ``update_tables_reference``.
    """
    tables, old_record, old_generation = state
    _, record, generation, _ = cem_update_reference(
        fitness,
        candidates[..., :0],  # of no dimensions: for the record alone
        tables.new_empty((*tables.shape[:-1], 4, 0)),
        old_record,
        old_generation,
        num_elites,
        maximize=maximize,
        fixed_order=fixed_order,
    )
    integer_weights, best = _weigh_candidates(fitness, old_record[..., 0], maximize)
    weights = integer_weights.double() / _ONE
    width = candidates.shape[-1]
    *before, old_best = tables.split([*(cells for _, cells, _ in moves), width], dim=-1)
    parts = candidates.split([columns for columns, *_ in moves], dim=-1)
    after = []
    for (_, _, move), table, x in zip(moves, before, parts, strict=True):
        after.append(move(table, x, weights))
    place = best.clamp(min=0)[..., None, None].expand(*old_best.shape[:-1], 1, width)
    newest = candidates.gather(-2, place).squeeze(-2).to(old_best)
    new_best = torch.where(best.unsqueeze(-1) < 0, old_best, newest)
    return torch.cat([*after, new_best], dim=-1), record, generation


def move_table(
    table: Tensor,
    candidates: Tensor,
    weights: Tensor,
    *,
    rows: tuple[int, int],
    is_transition: bool,
    beta: float | None = None,
) -> Tensor:
    """Move the table of one family by the equation above.

    Args:
        table: shape (..., rows * values), float64.
        candidates: shape (..., N, columns); a number that is no value counts as 0.
        weights: w_k of each candidate, shape (..., N), float64.
        rows: the rows of the table, and the values in each.
        is_transition: whether a column counts in row 1 + the value before, the first one in row
            0; otherwise column v counts in row v.
        beta: None: by the rule above.
    """
    values = rows[1]
    x = torch.where((candidates >= 0) & (candidates < values), candidates, 0).long()
    if is_transition:
        values_before = x[..., :-1]
        row = pad(values_before + 1, (1, 0))
    else:
        row = torch.arange(rows[0], device=x.device)
    cells = (row * values + x).flatten(-2)
    cell_weights = (weights * _ONE).long().unsqueeze(-1).expand(x.shape).flatten(-2)
    sums = torch.zeros_like(table, dtype=torch.int64)
    sums = sums.scatter_add(-1, cells, cell_weights)
    rate, floor = _choose_rate_and_floor((index(x.shape[-2]), *rows), is_transition, beta)
    p = table + (sums.double() * rate).round() / _ONE
    p = torch.where(table > 0, p.clamp(min=floor), 0.0).unflatten(-1, rows)
    p = p / p.sum(-1, keepdim=True).clamp(min=1 / _ONE)  # 0 where nothing is possible
    result: Tensor = (p * _ONE).round().flatten(-2) / _ONE
    return result


def _weigh_candidates(fitness: Tensor, known: Tensor, maximize: bool) -> tuple[Tensor, Tensor]:
    """Return the weights of candidates, and which one is better than the best known.

    The weights are 2^40 w, shape (..., N), int64. The index is -1 where none is better.
    """
    size = index(fitness.shape[-1])
    worst = -math.inf if maximize else math.inf
    exact = fitness.double() if fitness.is_floating_point() else fitness.long()
    exact = exact.nan_to_num(worst, math.inf, -math.inf)
    known = known.nan_to_num(worst, math.inf, -math.inf)
    # Equal candidates share the ranks from `first` to `last` - 1.
    ordered = exact.sort(dim=-1).values
    first = torch.searchsorted(ordered, exact, right=False)
    last = torch.searchsorted(ordered, exact, right=True)
    if maximize:
        first, last = size - last, size - first
    sums = _sum_weights(size, fitness.device).expand(*fitness.shape[:-1], -1)
    weights = (sums.gather(-1, last) - sums.gather(-1, first)) // (last - first)
    best = exact.argmax(-1) if maximize else exact.argmin(-1)
    value = exact.gather(-1, best.unsqueeze(-1)).squeeze(-1).double()
    is_better = value > known if maximize else value < known
    return weights, torch.where(is_better, best, -1)


@lru_cache(maxsize=64)
def _weigh_ranks(size: int, device: torch.device) -> tuple[Tensor, float]:
    """Return the sums of the weights of the best 0 .. N candidates, and mu.

    The sums are those of 2^40 w, shape (N + 1,), int64.
    """
    half = [math.log(size / 2 + 0.5) - math.log(rank) for rank in range(1, size // 2 + 1)]
    total = math.fsum(half)
    weights = [round(weight / total * _ONE) for weight in half]
    weights += [0] * (size % 2) + [-weight for weight in reversed(weights)]
    sums = torch.tensor([0, *weights]).cumsum(0).to(device)
    return sums, total**2 / math.fsum(weight * weight for weight in half)


def _sum_weights(size: int, device: torch.device) -> Tensor:
    return _weigh_ranks(size, device)[0]


def _choose_rate_and_floor(
    shape: tuple[int, ...], is_transition: bool, beta: float | None
) -> tuple[float, float]:
    """Return beta and the floor of candidates, rows and values."""
    size, rows, values = shape
    mu = _weigh_ranks(size, torch.device("cpu"))[1]
    floor = (1 - 0.73 ** (1 / rows)) / max(1, values - 1)
    slow = rows * values / 2 if is_transition else 2 * math.sqrt(rows * (values - 1))
    rate = min(0.7, mu / (mu + slow)) if beta is None else beta
    return rate, round(floor * _ONE) / _ONE


# Dynamo runs both, like `_load` of kernels.ops.library, and does not trace into the cache.
_sum_weights._dynamo_marked_constant = True  # type: ignore[attr-defined]
_choose_rate_and_floor._dynamo_marked_constant = True  # type: ignore[attr-defined]
