"""``CemSampler``: a search of named parameters as a sampler of the package optuna."""

import hashlib
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
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

_PART = 2_000  # characters of an attribute; some storages accept no more than 2,045


class CemSampler(BaseSampler):
    """Samples parameters like ``cem.minimize``, without restarts.

    The search has the parameters that all completed trials have. As soon as a population of
    trials has ended, in any order, the next trial moves the distribution. A pruned trial counts
    by its last intermediate value; a trial without a value has failed. A trial that ended
    before it had all its parameters does not count. A candidate is a function of the
    distribution, the seed and the number of the trial.

    The search is stored in attributes of the trials: workers share it, and a process that loads
    the study continues it. Other parameters, ranges, direction or population are another
    search.
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
            n_startup_trials: How many trials are completed before the search begins.
            independent_sampler: The sampler of these trials, and of parameters that not all
                trials have. None: at random.
            population_size: The trials from one move to the next, ``>= 2``. None: the default
                of ``cem.minimize``.
            seed: ``0 <= seed < 2**32``. None: every sampler has another one.
        """
        self._n_startup_trials = n_startup_trials
        self._population_size = population_size
        self._independent_sampler = independent_sampler or RandomSampler(seed=seed)
        self._seed = secrets.randbits(64) if seed is None else seed
        self._shared = IntersectionSearchSpace()

    def reseed_rng(self) -> None:
        """Reseed the independent sampler; the search takes the trial's number into its seed."""
        self._independent_sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Inform the independent sampler."""
        self._independent_sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Inform the independent sampler."""
        self._independent_sampler.after_trial(study, trial, state, values)

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,
    ) -> dict[str, BaseDistribution]:
        """Return the parameters of all completed trials, except those of a single value."""
        shared = self._shared.calculate(study)
        return {name: kind for name, kind in shared.items() if not kind.single()}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a value of a parameter that is not searched."""
        self._raise_error_if_multi_objective(study)
        sampler = self._independent_sampler
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self,
        study: Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Return a candidate, after the trials that have ended have moved the search.

        Before the search begins it is empty.
        """
        self._raise_error_if_multi_objective(study)
        trials = study.get_trials(deepcopy=False)
        kinds: dict[str, Any] = dict(sorted(search_space.items()))
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
        settings = {**search.state_dict()["settings"], "seed": None, "backend": None}
        identity = repr((kinds, size, settings))
        key = f"cem:{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        pending, known = _load(search, key, trials)
        ended: list[FrozenTrial] = []
        running: list[int] = []
        # These trials have not moved the stored search yet.
        for new in [*(trials[number] for number in pending), *trials[known:]]:
            if not new.state.is_finished():
                running.append(new.number)
            elif key in new.system_attrs and new.params.keys() >= kinds.keys():
                ended.append(new)
        parts: list[str] = []
        while len(ended) >= size:
            _tell(search, space, kinds, ended[:size])
            ended = ended[size:]
            pending = [*running, *(each.number for each in ended)]
            saved = [{**search.state_dict(), "settings": None}, pending, len(trials)]
            text = json.dumps(saved, default=Tensor.tolist)
            parts = [text[first : first + _PART] for first in range(0, len(text), _PART)]
        save: Any = partial(study._storage.set_trial_system_attr, trial._trial_id)
        for number, part in enumerate(parts):
            save(f"{key}:{number}", part)
        save(key, [search.generation, len(parts)])
        values = space.decode(search.ask(1)[0])
        return {name: _to_optuna(kind, values[name]) for name, kind in kinds.items()}


def _tell(
    search: CrossEntropyMethod,
    space: Space,
    kinds: Mapping[str, Any],
    trials: Sequence[FrozenTrial],
) -> None:
    """Move a search by a population of trials that have ended."""
    candidates = []
    for trial in trials:
        params = {name: _from_optuna(kind, trial.params[name]) for name, kind in kinds.items()}
        candidates.append(space.encode(params).tolist())
    fitness = [math.nan if trial.value is None else trial.value for trial in trials]
    search.tell(candidates, fitness)


def _load(
    search: CrossEntropyMethod,
    key: str,
    trials: Sequence[FrozenTrial],
) -> tuple[list[int], int]:
    """Load the latest state of a search that trials have stored.

    Returns:
        The numbers of the trials before the state that it does not include, and the number of
        trials at that time.
    """
    stored = [each.system_attrs for each in trials if each.system_attrs.get(key, (0, 0))[1]]
    if not stored:
        return [], 0
    latest = max(stored, key=itemgetter(key))
    parts = [latest[f"{key}:{part}"] for part in range(latest[key][1])]
    saved, pending, known = json.loads("".join(parts))
    state = search.state_dict()
    for name, value in state.items():
        if isinstance(value, Tensor):
            state[name] = torch.tensor(saved[name], dtype=value.dtype)
    search.load_state_dict({**state, "generation": saved["generation"]})
    return pending, known


def _parameter(kind: Any) -> Float | Int | Choice:
    """Return the parameter of a space for a distribution of Optuna.

    It is the index of a choice, or the number of steps.
    """
    if isinstance(kind, CategoricalDistribution):
        return Choice(*range(len(kind.choices)))
    if _has_steps(kind):
        return Int(0, round((kind.high - kind.low) / kind.step))
    number = Float if isinstance(kind, FloatDistribution) else Int
    return number(kind.low, kind.high, kind.log)


def _has_steps(kind: Any) -> bool:
    return kind.step is not None and not kind.log


def _to_optuna(kind: Any, value: Any) -> Any:
    """Return the value of Optuna's distribution for the value of a parameter."""
    if isinstance(kind, CategoricalDistribution):
        return kind.choices[value]
    if _has_steps(kind):
        return min(kind.low + value * kind.step, kind.high)
    return value


def _from_optuna(kind: Any, value: Any) -> Any:
    """Return the value of a parameter for the nearest value of Optuna's distribution."""
    if isinstance(kind, CategoricalDistribution):
        return kind.to_internal_repr(value)
    value = min(max(value, kind.low), kind.high)
    if _has_steps(kind):
        return round((value - kind.low) / kind.step)
    return value
