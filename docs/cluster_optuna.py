"""A study of Optuna: each of its processes runs this script, see docs/cluster.md."""

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from cem.optuna import CemSampler


def loss(trial):
    """Return the squared distance from (3, ..., 3)."""
    x = [trial.suggest_float(name, -10.0, 10.0) for name in "abcde"]
    return sum((value - 3.0) ** 2 for value in x)


study = optuna.create_study(
    study_name="design",
    storage=JournalStorage(JournalFileBackend("study.log")),  # on a disk that all nodes see
    load_if_exists=True,
    sampler=CemSampler(seed=1),
)
study.optimize(loss, n_trials=100)
print(len(study.trials), study.best_value)
