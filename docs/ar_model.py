"""The AR(1) model of CEoptim's article, which changes on two days: see docs/spaces.md."""

import numpy as np

from cem import Float, Int, minimize

rng, x = np.random.default_rng(7), np.zeros(301)
for day in range(1, 301):
    x[day] = (0.3, 0.9, -0.9)[(day > 100) + (day > 200)] * x[day - 1] + rng.normal(0, 0.1)
slopes = {name: Float(-1, 1) for name in "abc"}
space = {**slopes, "first": Int(1, 298), "second": Int(1, 298)}


def squared_errors(p):
    """Map columns, shape (N,), to the sum of squares of each model, shape (N,)."""
    day = np.arange(1, 301)[:, None]
    slope = np.where(day <= p["first"], p["a"], np.where(day <= p["second"], p["b"], p["c"]))
    return np.square(x[1:, None] - slope * x[:-1, None]).sum(0)


options = {"vectorize": False, "constraints": lambda p: p["first"] + 1 - p["second"]}
result = minimize(squared_errors, space, **options, budget=10_000, seed=1)
print(result.x)
