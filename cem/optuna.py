"""``CemSampler``: a search of named parameters as a sampler of the package optuna."""

import hashlib
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
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

_PART = 2_000  # characters per attribute; some storages accept at most 2,045


class CemSampler(BaseSampler):
    """Samples parameters like ``cem.minimize``, without restarts.

    The search covers the parameters that all completed trials have. As soon as a population of
    trials has ended, in any order, the next trial updates the distribution. The value of a
    pruned trial is its last intermediate value. A trial without a value has failed. A trial
    that ended before it had all its parameters does not count. A candidate is a function of the
    distribution, the seed and the number of the trial.

    The search is stored in attributes of the trials. So workers share it, and a process that
    loads the study continues it. With other parameters, ranges, direction or population size a
    new search begins.
    """

    def __init__(
        self,
        *,
        n_startup_trials: int = 1,
        independent_sampler: BaseSampler | None = None,
        population_size: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Make a sampler.

        Args:
            n_startup_trials: The number of completed trials before the search begins.
            independent_sampler: The sampler for these trials, and for parameters that not all
                trials have. None: a ``RandomSampler``.
            population_size: The number of trials per update of the distribution, ``>= 2``.
                None: the default of ``cem.minimize``.
            seed: ``0 <= seed < 2**32``. None: a random seed.
        """
        self._n_startup_trials = n_startup_trials
        self._population_size = population_size
        self._independent_sampler = independent_sampler or RandomSampler(seed=seed)
        self._seed = secrets.randbits(64) if seed is None else seed
        self._shared = IntersectionSearchSpace()

    def reseed_rng(self) -> None:
        """Reseed the independent sampler. The search has a different seed in every trial."""
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
        """Return the parameters that all completed trials have, and that can vary."""
        shared = self._shared.calculate(study)
        return {name: kind for name, kind in shared.items() if not kind.single()}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a value for a parameter that is not searched."""
        self._raise_error_if_multi_objective(study)
        sampler = self._independent_sampler
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self,
        study: Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Return the values of the parameters for a new trial.

        First the search is updated by the trials that have ended since the last update, one
        population at a time. The new trial stores the updated search. Before the search begins
        the result is empty; then Optuna samples the parameters independently.

        Args:
            study: The study, with all trials so far.
            trial: The new trial.
            search_space: Optuna's distributions of the parameters that are searched.
        """
        self._raise_error_if_multi_objective(study)
        trials = study.get_trials(deepcopy=False)
        kinds: dict[str, Any] = dict(sorted(search_space.items()))
        num_completed = sum(other.state is TrialState.COMPLETE for other in trials)
        if not kinds or num_completed < self._n_startup_trials:
            return {}
        space = Space({name: _parameter(kind) for name, kind in kinds.items()})
        search = CrossEntropyMethod(
            **space.settings(),
            population_size=self._population_size,
            maximize=study.direction is StudyDirection.MAXIMIZE,
            seed=mix_seed(self._seed, trial.number),
        )
        # The new search is replaced by the latest one that a trial has stored.
        key = _storage_key(search, kinds)
        pending, num_known = _load(search, key, trials)
        # The stored search does not include these trials yet.
        new_trials = [trials[number] for number in pending] + trials[num_known:]
        ended: list[FrozenTrial] = []
        running: list[int] = []
        for other in new_trials:
            if not other.state.is_finished():
                running.append(other.number)
            # Only a trial that this search has sampled has the attribute ``key``.
            elif key in other.system_attrs and other.params.keys() >= kinds.keys():
                ended.append(other)
        # The updated search as JSON; empty if it is not updated.
        text = ""
        size = search.population_size
        while len(ended) >= size:
            _tell(search, space, kinds, ended[:size])
            ended = ended[size:]
            pending = running + [other.number for other in ended]
            state = {**search.state_dict(), "settings": None}
            text = json.dumps([state, pending, len(trials)], default=Tensor.tolist)
        _store(study, trial, key, search.generation, text)
        values = space.decode(search.ask(1)[0])
        return {name: _to_optuna(kind, values[name]) for name, kind in kinds.items()}


def _storage_key(search: CrossEntropyMethod, kinds: Mapping[str, Any]) -> str:
    """Return the name of the trials' attribute that stores a search.

    The name is a digest of the search's settings, without the seed and the backend: every trial
    has another seed, and workers with different backends share the search.
    """
    settings = {**search.state_dict()["settings"], "seed": None, "backend": None}
    identity = repr((kinds, search.population_size, settings))
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return f"cem:{digest[:16]}"


def _tell(
    search: CrossEntropyMethod,
    space: Space,
    kinds: Mapping[str, Any],
    trials: Sequence[FrozenTrial],
) -> None:
    """Update a search by a population of trials that have ended.

    Args:
        search: The search.
        space: The parameters of the search, by name.
        kinds: Optuna's distributions of the same parameters.
        trials: As many trials as a population has candidates. A trial without a value has
            failed.
    """
    candidates = []
    for trial in trials:
        values = {name: _from_optuna(kind, trial.params[name]) for name, kind in kinds.items()}
        candidates.append(space.encode(values).tolist())
    fitness = [math.nan if trial.value is None else trial.value for trial in trials]
    search.tell(candidates, fitness)


def _store(study: Study, trial: FrozenTrial, key: str, generation: int, text: str) -> None:
    """Store a search in attributes of a trial.

    The attribute ``key`` is [generation, number of parts]. The parts of the text are in the
    attributes ``key:0``, ``key:1`` and so on, and each is short enough for every storage. An
    empty text has no parts.
    """
    set_attribute: Any = partial(study._storage.set_trial_system_attr, trial._trial_id)
    parts = [text[first : first + _PART] for first in range(0, len(text), _PART)]
    for number, part in enumerate(parts):
        set_attribute(f"{key}:{number}", part)
    set_attribute(key, [generation, len(parts)])


def _load(
    search: CrossEntropyMethod,
    key: str,
    trials: Sequence[FrozenTrial],
) -> tuple[list[int], int]:
    """Load the latest state of a search that trials have stored, if there is one.

    ``_store`` describes the attributes. A trial that has not updated the search has 0 parts.

    Returns:
        pending: The numbers of the trials that existed when the state was stored, but that it
            does not include yet.
        num_known: The number of trials when the state was stored.
    """
    stored: list[dict[str, Any]] = []
    for trial in trials:
        _, num_parts = trial.system_attrs.get(key, (0, 0))
        if num_parts > 0:
            stored.append(trial.system_attrs)
    if not stored:
        return [], 0
    # The attribute begins with the generation, so the latest state has the greatest one.
    latest = max(stored, key=lambda attributes: attributes[key])
    _, num_parts = latest[key]
    text = "".join(latest[f"{key}:{number}"] for number in range(num_parts))
    saved, pending, num_known = json.loads(text)
    # JSON has lists in place of tensors; the new search knows their dtypes.
    state = search.state_dict()
    for name, value in state.items():
        if isinstance(value, Tensor):
            state[name] = torch.tensor(saved[name], dtype=value.dtype)
    search.load_state_dict({**state, "generation": saved["generation"]})
    return pending, num_known


def _parameter(kind: Any) -> Float | Int | Choice:
    """Return the parameter of a space for a distribution of Optuna.

    The parameter is an index for categorical distributions, and the number of steps for
    distributions with steps.
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
    """Convert the value of a parameter of the space to Optuna's value."""
    if isinstance(kind, CategoricalDistribution):
        return kind.choices[value]
    if _has_steps(kind):
        return min(kind.low + value * kind.step, kind.high)
    return value


def _from_optuna(kind: Any, value: Any) -> Any:
    """Convert Optuna's value, clamped to its range, to the value of the space's parameter."""
    if isinstance(kind, CategoricalDistribution):
        return kind.to_internal_repr(value)
    value = min(max(value, kind.low), kind.high)
    if _has_steps(kind):
        return round((value - kind.low) / kind.step)
    return value
