"""cem/optuna.py: Optuna's own tests of samplers, and how a search goes on."""

import math
from functools import partial

import pytest

reason = 'needs optuna: pip install -e ".[optuna]"'
suite = pytest.importorskip("optuna.testing.pytest_samplers", reason=reason)

import optuna  # noqa: E402

from cem.optuna import CemSampler  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)


class TestOfOptuna(
    suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase, suite.SingleOnlySamplerTestCase
):
    @pytest.fixture
    def sampler(self):
        return partial(CemSampler, seed=1)


def loss(trial):
    rate = trial.suggest_float("rate", 1e-6, 1.0, log=True)
    share = trial.suggest_float("share", 0.0, 1.0, step=0.05)
    layers = trial.suggest_int("layers", 1, 15, step=2)
    width = trial.suggest_int("width", 8, 512, log=True)
    kind = trial.suggest_categorical("kind", ["a", None, 3])
    bias = trial.suggest_categorical("bias", [False, True])
    numbers = (math.log10(rate) + 3) ** 2 + 10 * (share - 0.7) ** 2 + 0.2 * (layers - 5) ** 2
    return numbers + math.log2(width / 64) ** 2 + (kind is not None) + bias


def hard_loss(trial):
    """Report the loss; every seventh trial is then pruned, and every eleventh fails."""
    trial.report(value := loss(trial), 0)
    if trial.number % 7 == 3:
        raise optuna.TrialPruned
    return math.nan if trial.number % 11 == 5 else value


def study_of(seed=1, sampler=CemSampler, **options):
    return optuna.create_study(sampler=sampler(seed=seed), **options)


def params(study):
    return [trial.params for trial in study.trials]


@pytest.mark.parametrize("kind", ["in memory", "sqlite"])
def test_another_sampler_goes_on_with_the_search_of_the_storage(kind, tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db" if kind == "sqlite" else optuna.storages.InMemoryStorage()
    of_four = partial(CemSampler, population_size=4)
    whole, parts = study_of(sampler=of_four), study_of(sampler=of_four, storage=storage, study_name="parts")
    whole.optimize(hard_loss, n_trials=22)
    parts.optimize(hard_loss, n_trials=13)
    again = optuna.load_study(study_name="parts", storage=storage, sampler=of_four(seed=1))
    again.optimize(hard_loss, n_trials=9)
    assert params(again) == params(whole)
    lengths = [len(str(each)) for trial in again.trials for each in trial.system_attrs.values()]
    assert max(lengths) < 2_045


def test_trials_depend_on_the_seed_and_the_direction_turns_the_search():
    first, other, turned = study_of(), study_of(seed=2), study_of(direction="maximize")
    first.optimize(loss, n_trials=40)
    other.optimize(loss, n_trials=40)
    turned.optimize(lambda trial: -loss(trial), n_trials=40)
    assert params(first) == params(turned)
    assert all(one != two for one, two in zip(params(first), params(other), strict=True))


def test_a_mixed_function_takes_fewer_trials_than_at_random():
    """Of three seeds every search of 120 trials beats the best of 360 random ones; margins are wide."""
    for seed in range(3):
        found, at_random = study_of(seed), study_of(seed, optuna.samplers.RandomSampler)
        found.optimize(loss, n_trials=200)
        at_random.optimize(loss, n_trials=400)
        print(found.best_value, at_random.best_value)
        assert found.best_value < 0.25 * at_random.best_value


def test_workers_share_a_search_and_trials_that_end_late_count():
    study = study_of(0)
    study.optimize(loss, n_trials=150, n_jobs=4)
    drawn = [trial for trial in study.trials if any(name.startswith("cem:") for name in trial.system_attrs)]
    (key,) = {name for trial in drawn for name in trial.system_attrs if name.count(":") == 1}
    assert max(trial.system_attrs[key][0] for trial in drawn) >= 7
    assert study.best_value < 1.0
