"""Max-cut assigns vertices to two sides so that most edges go across: see docs/spaces.md."""

import torch

from cem import CEMConfig, Evaluation, maximize
from cem.families import Bernoulli

device = "cpu"  # or "cuda"
noise = torch.rand(800, 800, generator=torch.Generator().manual_seed(1)).triu(1)
graph = (noise >= noise.flatten().topk(19_176).values[-1]).float()
graph = (graph + graph.T).to(device)


def improved(x):
    """Flip the vertex that gains most, none twice in 20 flips; return the best of 1,000."""
    side, until = 2 * x - 1, torch.zeros_like(x)  # (N, 800)
    inside = side @ graph  # neighbours on side 1 less those on side -1
    cut = (graph.sum() - (side * inside).sum(-1, keepdim=True)) / 4
    best, best_side = cut, side
    for step in range(1000):
        gain, vertex = torch.where(until > step, -1e9, side * inside).max(-1, keepdim=True)
        own = side.gather(1, vertex)
        inside.addcmul_(graph[vertex[:, 0]], own, value=-2)
        side = side.scatter(1, vertex, -own)
        until.scatter_(1, vertex, step + 21)
        cut = cut + gain
        best_side = torch.where(cut > best, side, best_side)
        best = torch.maximum(best, cut)
    best_side = best_side * best_side[:, :1]  # vertex 0 stays on side 1
    return Evaluation(best[:, 0], candidates=(best_side + 1) / 2)


config = CEMConfig.cma(families=[Bernoulli(800)])
options = {
    "population_size": 64,
    "budget": 640,
    "seed": 1,
    "device": device,
    "graph": device == "cuda",
}
result = maximize(improved, torch.zeros(0), 1.0, config=config, **options)
print(result.fun)  # 11618.0
