"""Ray Tune with the sampler of this project: see docs/cluster.md."""

from ray import tune
from ray.tune.search.optuna import OptunaSearch

from cem.optuna import CemSampler


def train(config):
    """Return the squared distance from (3, ..., 3)."""
    return {"loss": sum((value - 3.0) ** 2 for value in config.values())}


space = {name: tune.uniform(-10.0, 10.0) for name in "abcde"}
search = OptunaSearch(metric="loss", mode="min", sampler=CemSampler(seed=1))
settings = tune.TuneConfig(search_alg=search, num_samples=100)
results = tune.Tuner(train, param_space=space, tune_config=settings).fit()
print(results.get_best_result("loss", "min").metrics["loss"])
