"""Calls of every operator on the CPU, with work for several threads: what tests run under
sanitizers."""

from __future__ import annotations

import torch

from kernels.ops.cem_update import cem_update
from kernels.ops.cma_update import cma_update, draw_correlated
from kernels.ops.discrete.op import sample_categorical, sample_permutation
from kernels.ops.discrete.tables import update_tables
from kernels.ops.elementwise.op import elementwise_mult, sigmoid, vector_add
from kernels.ops.lltm import lltm
from kernels.ops.normal import sample_normal
from tetris import Policy, Rules, Streams, rollout
from tetris.envs import TetrisVectorEnv


def call_operators() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for shape in ((3,), (37, 301), (1 << 18,)):
            a, b = (torch.rand(shape).to(dtype).requires_grad_() for _ in range(2))
            (sigmoid(a) + elementwise_mult(a, b)).sum().backward()
            vector_add(a.detach().T.contiguous().T, b.detach())
        for d, n in ((1, 1), (37, 301), (1000, 1024)):
            for dim_first in (False, True):
                mean, std = (torch.rand(d).to(dtype).requires_grad_() for _ in range(2))
                x = sample_normal(
                    mean,
                    std,
                    n,
                    seed=7,
                    dim_first=dim_first,
                    bounds=(-1.0, 1.0),
                    antithetic=True,
                )
                x.sum().backward()
        sample_normal(torch.zeros(5, 33).to(dtype), torch.ones(5, 33).to(dtype), 65)
    for batch, population, d, elites in (
        ((), 33, 5, 3),
        ((), 5000, 300, 500),
        ((40,), 100, 20, 10),
    ):
        for weights in (None, torch.ones(elites, dtype=torch.float64) / elites):
            cem_update(
                *(
                    torch.rand(*batch, population),
                    torch.rand(*batch, population, d),
                    torch.rand(*batch, 4, d),
                ),
                *(torch.zeros(*batch, 5, dtype=torch.float64), torch.tensor(1), elites),
                maximize=True,
                weights=weights,
            )
    for batch, population, d in (((), 12, 5), ((40,), 200, 20), ((3,), 40, 64)):
        distribution, factor = (
            torch.rand(*batch, 4, d),
            torch.rand(*batch, d, d).tril() + torch.eye(d),
        )
        generation, seed = torch.tensor(1), torch.zeros(batch, dtype=torch.int64)
        x = draw_correlated(distribution, factor, population, seed=seed, generation=generation)
        cma_update(
            *(
                x.square().sum(-1),
                x,
                distribution,
                torch.zeros(*batch, 5, dtype=torch.float64),
                generation,
            ),
            *(factor, torch.zeros(*batch, 2, d), population // 2),
            maximize=True,
            rates=(4.0, 0.3, 1.5, 0.2, 0.02, 0.1, 2.0),
            weights=torch.linspace(0.2, -0.2, population, dtype=torch.float64),
        )
    seeds, generation = torch.arange(3), torch.tensor(1)
    for n in (1, 33, 150):
        sample_categorical(torch.rand(3, 5, n).double(), 200, seed=seeds, generation=generation)
        sample_permutation(
            torch.rand(3, n + 1, n).double(), 50, seed=seeds, generation=generation
        )
        for rows in (n, n + 1):
            x, tables = (
                torch.rand(3, 200, n).mul(n).floor(),
                torch.rand(3, rows * n + n).double(),
            )
            record = torch.zeros(3, 5, dtype=torch.float64)
            state = tables, record, generation
            update_tables(x.sum(-1), x, state, 20, [(n, rows, n, None)], maximize=True)
    for batch, features, states in ((1, 3, 5), (64, 128, 256), (300, 32, 64)):
        shapes = (
            (batch, features),
            (3 * states, features + states),
            (3 * states,),
            (batch, states),
            (batch, states),
        )
        h, c = lltm(*(torch.rand(shape).requires_grad_() for shape in shapes))
        (h.sum() + c.sum()).backward()


def play() -> None:
    for rules in (Rules(10, 20), Rules(4, 4, True), Rules(7, 24, pieces="bag")):
        weights = [[-1.0, -2.0], [1.0, 1.0], [0.0, 0.0]]
        rollout(Policy(weights, "holes,column_height_0"), Streams(rules, 50, games=20), 100)
    for mode in ("NextStep", "SameStep", "Disabled"):
        envs = TetrisVectorEnv(3000, 6, 6, autoreset_mode=mode, max_episode_steps=9)
        envs.reset(seed=1)
        for _ in range(12):
            envs.step(torch.randint(24, (3000,)))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(4)
    call_operators()
    play()
    print("done")
