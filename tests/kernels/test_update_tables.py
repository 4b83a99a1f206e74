"""Tables of probabilities that move by ranks: bits of the reference, and what an update is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from contract import DEVICES, assert_same, check_device, check_graph_replay, cuda
from test_cem_update_emulated import check as check_emulated
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from kernels import update_tables, update_tables_reference
from kernels.ops.discrete import tables as rules

NAN, INF, CPU = math.nan, math.inf, torch.device("cpu")
VARIABLES, TRANSITIONS, LARGE = (9, 9, 3, None), (20, 21, 20, 0.1), (3, 3, 70, None)
# batch, families, N: odd and even N, partial groups of columns, sums of a thread and of all,
# more elites than a sum takes at once.
CASES = [
    ((), [VARIABLES], 33),
    ((2, 3), [VARIABLES, TRANSITIONS, (1, 1, 1, None)], 20),
    ((3,), [TRANSITIONS], 7),
    ((), [LARGE, VARIABLES], 1300),
    ((), [(1, 2, 1, None)], 2),
]
FITNESS = [torch.float64, torch.bfloat16, torch.int64, torch.bool]


def problem(
    batch: tuple[int, ...],
    families: rules.Families,
    size: int,
    kind: torch.dtype = torch.float32,
    dtype: torch.dtype = torch.float32,
) -> tuple[Any, ...]:
    """Return arguments: candidates inside wider ones, ties, failures, and a problem where all
    have failed."""
    generator = torch.Generator().manual_seed(size)
    fitness = torch.randn(*batch, size, generator=generator).mul(4).round().to(kind)
    if fitness.is_floating_point():
        fitness[..., ::5], fitness[..., 3::11], fitness[..., 4::7] = NAN, INF, -INF
        if batch:
            fitness[0] = NAN
    parts = [torch.zeros(*batch, size, 2)]
    parts += [
        torch.randint(k, (*batch, size, columns), generator=generator)
        for columns, _, k, _ in families
    ]
    whole = torch.cat([part.to(dtype) for part in parts], dim=-1)
    cells = sum(rows * values for _, rows, values, _ in families)
    tables = torch.rand(*batch, cells, generator=generator).mul(2**36).round().double() / 2**40
    tables[..., ::6] = 0.0
    best = torch.full((*batch, whole.shape[-1] - 2), NAN, dtype=torch.float64)
    record = torch.full((*batch, 5), NAN, dtype=torch.float64)
    record.view(-1, 5)[1::2, 0] = 0.5
    state = torch.cat([tables, best], dim=-1), record, torch.tensor(2)
    return fitness, whole[..., 2:], state, max(1, size * 2 // 3), families


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", FITNESS)
@pytest.mark.parametrize("case", CASES)
def test_the_reference_gives_the_same_bits(case: Any, kind: torch.dtype, device: str) -> None:
    for dtype in (torch.float32, torch.float64):
        given = tree_map_only(Tensor, lambda x: x.to(device), problem(*case, kind, dtype))
        for maximize in (False, True):
            found = update_tables(*given, maximize=maximize)
            assert_same(found, update_tables_reference(*given, maximize=maximize))


@pytest.mark.parametrize("device", DEVICES)
def test_any_first_table_gives_the_same_bits(device: str) -> None:
    given = problem((), [(40, 40, 50, None)], 16)
    given[2][0][:2000] = 1 / 50
    given = tree_map_only(Tensor, lambda x: x.to(device), given)
    found = update_tables(*given, maximize=True)
    assert_same(found, update_tables_reference(*given, maximize=True))


def test_the_weights_are_real_and_stay() -> None:
    given = problem((), [VARIABLES], 35)
    with FakeTensorMode(allow_non_fake_inputs=True):
        update_tables(*given, maximize=True)
    found = update_tables(*given, maximize=True)
    assert_same(found, update_tables_reference(*given, maximize=True))
    kept, *_, again = (rules._sum_weights(n, CPU) for n in (35, *range(100, 200), 35))
    assert again is kept


@cuda
def test_cuda_gives_the_bits_of_the_cpu() -> None:
    for case in [
        *CASES,
        ((), [(50, 50, 10, None)], 1024),
        ((), [VARIABLES], rules._LARGEST_CUDA_POPULATION + 1),
    ]:
        check_device(update_tables, *problem(*case), maximize=True)


@cuda
def test_a_graph_replays_it() -> None:
    fitness, x, state, *rest = tree_map_only(Tensor, lambda x: x.cuda(), problem(*CASES[1]))
    move = lambda f, x, *state: update_tables(f, x, state, *rest, maximize=True)  # noqa: E731
    check_graph_replay(move, fitness, x, *state)


@pytest.mark.slow
def test_emulated_cuda_gives_the_bits_of_the_cpu() -> None:
    for case in CASES:
        for kind in FITNESS:
            check_emulated(update_tables, *problem(*case, kind), maximize=True)


def test_better_values_become_likelier_and_what_is_impossible_stays_so() -> None:
    fitness, x = torch.tensor([3.0, NAN, 1.0, 2.0]), torch.tensor([[1.0], [2.0], [0.0], [0.0]])
    table = torch.tensor([0.25, 0.25, 0.5, 0.0, NAN], dtype=torch.float64)
    state = table, torch.full((5,), NAN, dtype=torch.float64), torch.tensor(0)
    moved, record, _ = update_tables(fitness, x, state, 2, [(1, 1, 4, None)], maximize=False)
    *p, best = moved.tolist()
    assert record[:4].tolist() == [1.0, 1.0, 1.5, 2.0]
    assert p[0] > 0.25 > p[1]
    assert p[2] < 0.5
    assert p[3] == best == 0.0
    assert math.isclose(sum(p), 1.0, abs_tol=2**-38)


def test_without_a_difference_nothing_moves_and_no_candidate_is_better_than_the_record() -> (
    None
):
    table = torch.tensor([0.375, 0.625, 7.0], dtype=torch.float64)
    record = torch.full((5,), 1.0, dtype=torch.float64)
    for value in (1.0, NAN):
        given = torch.full((7,), value), (torch.arange(7.0) % 2).unsqueeze(-1)
        state = table, record, torch.tensor(0)
        moved, *_ = update_tables(*given, state, 3, [(1, 1, 2, None)], maximize=True)
        assert_same(moved, table)


@pytest.mark.parametrize(
    ("size", "family"),
    # Values that select a row after the last one; too few candidates; no value.
    [(4, (2, 3, 1000, None)), (1, (2, 2, 3, None)), (4, (2, 2, 0, None))],
)
def test_sizes_without_a_meaning_are_refused(size: int, family: Any) -> None:
    columns, rows, values, _ = family
    state = (
        torch.full((rows * values + columns,), 0.5, dtype=torch.float64),
        torch.full((5,), NAN, dtype=torch.float64),
        torch.tensor(0),
    )
    x = torch.full((size, columns), values - 1.0)
    with pytest.raises(ValueError, match=r"expected .* row"):
        update_tables(torch.rand(size), x, state, 1, [family], maximize=False)
