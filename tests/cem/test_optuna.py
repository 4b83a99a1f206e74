"""cem/optuna.py: Optuna's own tests of samplers, and how a search goes on."""

import math
from functools import partial

import numpy as np
import pytest

optuna = pytest.importorskip("optuna", reason='needs optuna: pip install -e ".[optuna]"')

from optuna.testing import pytest_samplers as suite  # noqa: E402

from cem.optuna import CemSampler  # noqa: E402


class TestOptuna(
    suite.BasicSamplerTestCase, suite.RelativeSamplerTestCase, suite.SingleOnlySamplerTestCase
):
    @pytest.fixture
    def sampler(self):
        return partial(CemSampler, seed=1)


def loss(trial):
    off = [
        math.log10(trial.suggest_float("rate", 1e-6, 1.0, log=True)) + 3,
        3 * (trial.suggest_float("share", 0.0, 1.0, step=0.05) - 0.7),
        (trial.suggest_int("layers", 1, 15, step=2) - 5) / 2,
        math.log2(trial.suggest_int("width", 8, 512, log=True) / 64),
        trial.suggest_categorical("kind", ["a", None, 3]) is not None,
        trial.suggest_categorical("bias", [False, True]),
    ]
    return sum(each**2 for each in off)


def hard_loss(trial):
    trial.report(value := loss(trial), 0)
    if trial.number % 7 == 3:
        raise optuna.TrialPruned
    return math.nan if trial.number % 11 == 5 else value


def study_of(seed=1, sampler=CemSampler, **options):
    return optuna.create_study(sampler=sampler(seed=seed), **options)


def trials_of(study, objective, number):
    study.optimize(objective, n_trials=number)
    return [trial.params for trial in study.trials]


@pytest.mark.parametrize("kind", ["in memory", "sqlite"])
def test_another_sampler_goes_on_with_the_search_of_the_storage(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("cem.optuna._PART", 300)  # the state in several
    storage = (
        f"sqlite:///{tmp_path}/study.db"
        if kind == "sqlite"
        else optuna.storages.InMemoryStorage()
    )
    sampler = partial(CemSampler, population_size=4)
    whole = trials_of(study_of(sampler=sampler), hard_loss, 22)
    trials_of(study_of(sampler=sampler, storage=storage, study_name="parts"), hard_loss, 13)
    again = optuna.load_study(study_name="parts", storage=storage, sampler=sampler(seed=1))
    assert trials_of(again, hard_loss, 9) == whole


def test_trials_depend_on_the_seed_and_the_direction_turns_the_search():
    first, other = trials_of(study_of(), loss, 40), trials_of(study_of(seed=2), loss, 40)
    assert first == trials_of(study_of(direction="maximize"), lambda trial: -loss(trial), 40)
    assert all(one != two for one, two in zip(first, other, strict=True))
    assert first[:9] == trials_of(study_of(seed=np.int64(1)), loss, 9)
    with pytest.raises(ValueError, match="expected seed from 0"):
        CemSampler(seed=-1)


def test_integers_that_a_double_does_not_have_are_sampled_independently():
    study = study_of()
    study.optimize(lambda trial: loss(trial) + trial.suggest_int("many", 0, 2**60), 3)
    assert "many" not in study.ask().relative_params


def test_a_mixed_function_takes_fewer_trials_than_at_random():
    """Of 20 seeds the worst had 0.32 of the loss that twice as many random trials found."""
    for seed in range(3):
        found, at_random = study_of(seed), study_of(seed, optuna.samplers.RandomSampler)
        found.optimize(loss, n_trials=200)
        at_random.optimize(loss, n_trials=400)
        assert found.best_value < 0.5 * at_random.best_value


def test_workers_share_a_search_and_no_trial_is_lost():
    study = study_of(0)
    study.optimize(loss, n_trials=150, n_jobs=4)
    items = [each for trial in study.trials for each in trial.system_attrs.items()]
    assert len({key for key, _ in items if key.count(":") == 1}) == 1
    assert (
        max(value[0] for key, value in items if key.count(":") == 1) >= 7
    )  # moves, by 18 trials each


def test_processes_with_the_same_seed_begin_with_different_trials():
    options = {"storage": optuna.storages.InMemoryStorage(), "study_name": "shared"}
    trials = [study_of(**options, load_if_exists=True).ask() for _ in range(2)]
    assert loss(trials[0]) != loss(trials[1])


def test_trials_beyond_a_population_belong_to_the_next():
    study = study_of(sampler=partial(CemSampler, population_size=4))
    for number in (1, 6, 2, 1):
        trials = [study.ask() for _ in range(number)]
        losses = [loss(trial) for trial in trials]
        for trial, value in zip(trials, losses, strict=True):
            study.tell(trial, value)
    attributes = study.trials[-1].system_attrs.items()
    assert [value[0] for key, value in attributes if key.count(":") == 1] == [2]


def test_a_pruned_trial_counts_by_its_last_value_as_a_completed_one_does():
    def pruned(trial):
        value = loss(trial)
        trial.report(value + 9.0, 0)
        trial.report(value, 1)
        if trial.number % 3 == 1:
            raise optuna.TrialPruned
        return value

    sampler = partial(CemSampler, population_size=4)
    assert trials_of(study_of(sampler=sampler), pruned, 14) == trials_of(
        study_of(sampler=sampler), loss, 14
    )


def test_the_search_begins_after_the_startup_trials():
    study = study_of(sampler=partial(CemSampler, n_startup_trials=3))
    study.optimize(loss, n_trials=5)
    searched = [
        any(key.startswith("cem:") for key in trial.system_attrs) for trial in study.trials
    ]
    assert searched == [False] * 3 + [True] * 2
    assert study.ask().relative_params["layers"] in range(1, 16, 2)
