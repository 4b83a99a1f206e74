"""``CemSampler``: the search of a dict of parameters as a sampler of Optuna; needs the package optuna."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import torch
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from torch import Tensor

from cem.core.backend import mix_seed
from cem.optimizer import CrossEntropyMethod
from cem.space import Choice, Float, Int, Space

_PART = 2_000  # characters of an attribute, of which some storages take 2,045


class CemSampler(BaseSampler):
    """Samples the parameters that all completed trials have as ``cem.minimize`` does, without restarts.

    As soon as a population of trials has ended, in any order, the next trial moves the distribution. A pruned
    one counts by its last intermediate value; one without a value has failed. One that ended before it had
    all its parameters does not count. A candidate is a function of distribution, seed and the trial's number.

    The search is in attributes of the trials: workers share it, and a process that loads the study goes on
    with it. Other parameters, ranges, direction or population are another search.
    """

    def __init__(
        self,
        *,
        n_startup_trials: int = 1,
        independent_sampler: BaseSampler | None = None,
        population_size: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Set up.

        Args:
            n_startup_trials: The trials to be completed before the search begins.
            independent_sampler: Of these, and of parameters that not all trials have. None: at random.
            population_size: The trials from one move to the next, ``>= 2``. None: as ``cem.minimize``.
            seed: ``0 <= seed < 2**32``. None: another one for each sampler.
        """
        self._n_startup_trials, self._population_size = n_startup_trials, population_size
        self._independent_sampler = independent_sampler or RandomSampler(seed=seed)
        self._seed = secrets.randbits(64) if seed is None else seed
        self._shared = IntersectionSearchSpace()

    def reseed_rng(self) -> None:
        """Reseed the independent sampler: those of the search differ by the numbers of their trials."""
        self._independent_sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the independent sampler."""
        self._independent_sampler.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tell the independent sampler."""
        self._independent_sampler.after_trial(study, trial, state, values)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that all completed trials have, but for those of one value."""
        return {name: each for name, each in self._shared.calculate(study).items() if not each.single()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return a value of a parameter that is not searched."""
        self._raise_error_if_multi_objective(study)
        return self._independent_sampler.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a candidate of the search, which trials that have ended move before; at the start none."""
        self._raise_error_if_multi_objective(study)
        trials, kinds = study.get_trials(deepcopy=False), dict(sorted(search_space.items()))
        completed = sum(each.state is TrialState.COMPLETE for each in trials)
        if not kinds or completed < self._n_startup_trials:
            return {}
        space = Space({name: _parameter(kind) for name, kind in kinds.items()})
        search = CrossEntropyMethod(
            **space.settings(),
            population_size=self._population_size,
            maximize=study.direction is StudyDirection.MAXIMIZE,
            seed=mix_seed(self._seed, trial.number),
        )
        size = search.population_size
        identity = repr((kinds, size, {**search.state_dict()["settings"], "seed": None, "backend": None}))
        key = f"cem:{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        left, told = _load(search, key, trials)
        done, running = [], []  # of those that the search was not told
        for each in (*(trials[number] for number in left), *trials[told:]):
            if not each.state.is_finished():
                running.append(each.number)
            elif key in each.system_attrs and each.params.keys() >= kinds.keys():
                done.append(each)
        parts: list[str] = []
        while len(done) >= size:
            values = [math.nan if each.value is None else each.value for each in done[:size]]
            inner = ({n: _inner(kind, each.params[n]) for n, kind in kinds.items()} for each in done[:size])
            search.tell([space.encode(each).tolist() for each in inner], values)
            done = done[size:]
            left = [*running, *(each.number for each in done)]
            saved = [{**search.state_dict(), "settings": None}, left, len(trials)]
            text = json.dumps(saved, default=Tensor.tolist)
            parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
        for number, part in enumerate(parts):
            study._storage.set_trial_system_attr(trial._trial_id, f"{key}:{number}", part)
        study._storage.set_trial_system_attr(trial._trial_id, key, [search.generation, len(parts)])
        found = space.decode(search.ask(1)[0])
        return {name: _outer(kind, found[name]) for name, kind in kinds.items()}


def _load(search: CrossEntropyMethod, key: str, trials: Sequence[FrozenTrial]) -> tuple[list[int], int]:
    """Take the latest state in the trials; return those it was not told: some, and all from a number on."""
    holders = [each.system_attrs for each in trials if each.system_attrs.get(key, (0, 0))[1]]
    if not holders:
        return [], 0
    latest = max(holders, key=itemgetter(key))
    saved, left, told = json.loads("".join(latest[f"{key}:{part}"] for part in range(latest[key][1])))
    like = search.state_dict()
    tensors = {n: torch.tensor(saved[n], dtype=x.dtype) for n, x in like.items() if isinstance(x, Tensor)}
    search.load_state_dict({**like, **tensors, "generation": saved["generation"]})
    return left, told


def _parameter(kind: Any) -> Float | Int | Choice:
    """Return the parameter of a space for a distribution: the number of its choice, or of its step."""
    if isinstance(kind, CategoricalDistribution):
        return Choice(*range(len(kind.choices)))
    if kind.step is None or kind.log:
        return (Float if isinstance(kind, FloatDistribution) else Int)(kind.low, kind.high, kind.log)
    return Int(0, round((kind.high - kind.low) / kind.step))


def _outer(kind: Any, value: Any) -> Any:
    """Return the value of a distribution for one of its parameter."""
    if isinstance(kind, CategoricalDistribution):
        return kind.choices[value]
    return value if kind.step is None or kind.log else min(kind.low + value * kind.step, kind.high)


def _inner(kind: Any, value: Any) -> Any:
    """Return the value of a parameter for one of its distribution; of one out of its range the nearest."""
    if isinstance(kind, CategoricalDistribution):
        return kind.to_internal_repr(value)
    value = min(max(value, kind.low), kind.high)
    return value if kind.step is None or kind.log else round((value - kind.low) / kind.step)
