"""``CemSampler``: a sampler for the package optuna."""

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
from cem.core.checks import draw_seed
from cem.optimizer import CrossEntropyMethod
from cem.space import Choice, Float, Int, Space
from kernels.support.checks import check_integer

_PART = 2_000  # the length of an attribute; some storages accept at most 2,045 characters


class CemSampler(BaseSampler):
    """Samples parameters by the method of ``cem.minimize``, without restarts.

    The search has the parameters that all completed trials share. As soon as a population of
    trials has ended, in any order, the next trial moves the distribution. The value of a pruned
    trial is its last intermediate value. A trial without a value has failed. A trial that ended
    before all its parameters were sampled does not count. A candidate is a function of the
    distribution, the seed and the number of the trial.

    The attributes of the trials store the search. Workers therefore share it, and a process
    that loads the study continues it. A change of the parameters, their ranges, the direction
    or the population starts another search.
    """

    def __init__(
        self,
        *,
        n_startup_trials: int = 1,
        independent_sampler: BaseSampler | None = None,
        population_size: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Create a sampler.

        Args:
            n_startup_trials: The number of completed trials before the search starts.
            independent_sampler: The sampler for these trials, for parameters that some trials
                do not have, and for integers with more than 2**52 values. None: a
                ``RandomSampler``.
            population_size: The number of trials per generation of the search, ``>= 2``. None:
                the default of ``cem.minimize``.
            seed: The seed, ``0 <= seed < 2**32``. None: a random seed.
        """
        if seed is not None:
            seed = check_integer("seed", draw_seed(seed), 0, 2**32 - 1)
        self._n_startup_trials = n_startup_trials
        self._population_size = population_size
        self._independent_sampler = independent_sampler or RandomSampler(seed=seed)
        # Whether the first trial of this process determines what it samples independently.
        self._shifts_seed = independent_sampler is None and seed is not None
        self._seed = secrets.randbits(64) if seed is None else seed
        self._shared = IntersectionSearchSpace()

    def reseed_rng(self) -> None:
        """Reseed the independent sampler; the seed of the search depends on the trial."""
        self._independent_sampler.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Call the same method of the independent sampler."""
        if self._shifts_seed and trial.number > 0:
            # An earlier process has the same seed, and begins with other trials.
            seed = (self._seed + trial.number) % 2**32
            self._independent_sampler = RandomSampler(seed=seed)
        self._shifts_seed = False
        self._independent_sampler.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Call the same method of the independent sampler."""
        self._independent_sampler.after_trial(study, trial, state, values)

    def infer_relative_search_space(
        self,
        study: Study,
        trial: FrozenTrial,
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that all completed trials share and that can be searched."""
        shared = self._shared.calculate(study)
        return {name: kind for name, kind in shared.items() if _can_search(kind)}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a value of a parameter that is not part of the search."""
        self._raise_error_if_multi_objective(study)
        sampler = self._independent_sampler
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self,
        study: Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Return the values of the searched parameters for a new trial.

        First, the trials that have ended since the last call move the search, one population
        after another. The state of the search is then stored in the new trial. As long as too
        few trials are completed, there is no search and the result is empty. Optuna then
        samples all parameters independently.

        Args:
            study: The study, with all trials so far.
            trial: The new trial.
            search_space: Optuna's distributions of the parameters of the search.
        """
        self._raise_error_if_multi_objective(study)
        trials = study.get_trials(deepcopy=False)
        distributions: dict[str, Any] = dict(sorted(search_space.items()))
        num_completed = sum(other.state is TrialState.COMPLETE for other in trials)
        if not distributions or num_completed < self._n_startup_trials:
            return {}
        space = Space({name: _parameter(kind) for name, kind in distributions.items()})
        search = CrossEntropyMethod(
            **space.settings(),
            population_size=self._population_size,
            maximize=study.direction is StudyDirection.MAXIMIZE,
            seed=mix_seed(self._seed, trial.number),
        )
        key = _storage_key(search, distributions)

        # The trials that have not moved the search yet.
        pending = _load_latest(search, key, trials)
        finished = [other for other in pending if other.state.is_finished()]
        running = [other for other in pending if not other.state.is_finished()]
        # Only trials of this search have the attribute ``key``.
        ended = [
            other
            for other in finished
            if key in other.system_attrs and other.params.keys() >= distributions.keys()
        ]
        # The state to store, as JSON. It remains empty if the search does not move.
        text = ""
        size = search.population_size
        while len(ended) >= size:
            _tell(search, space, distributions, ended[:size])
            ended = ended[size:]
            text = _serialise(search, running + ended, len(trials))
        _store(study, trial, key, search.generation, text)
        values = space.decode(search.ask(1)[0])
        return {name: _to_optuna(kind, values[name]) for name, kind in distributions.items()}


def _storage_key(search: CrossEntropyMethod, distributions: Mapping[str, Any]) -> str:
    """Return the name of the attribute that stores a search: a digest of its settings.

    The digest excludes the seed, which differs between trials, and the backend, which may
    differ between workers of the same search.
    """
    settings = {**search.state_dict()["settings"], "seed": None, "backend": None}
    identity = repr((distributions, search.population_size, settings))
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return f"cem:{digest[:16]}"


def _tell(
    search: CrossEntropyMethod,
    space: Space,
    distributions: Mapping[str, Any],
    trials: Sequence[FrozenTrial],
) -> None:
    """Move a search by one population of trials.

    Args:
        search: The search.
        space: The parameters of the search.
        distributions: Optuna's distributions of these parameters, by name.
        trials: The trials that have ended, one per candidate. A trial without a value has
            failed.
    """
    candidates = []
    for trial in trials:
        values = {
            name: _from_optuna(kind, trial.params[name]) for name, kind in distributions.items()
        }
        candidates.append(space.encode(values).tolist())
    fitness = [math.nan if trial.value is None else trial.value for trial in trials]
    search.tell(candidates, fitness)


def _serialise(search: CrossEntropyMethod, pending: list[FrozenTrial], num_known: int) -> str:
    """Return the state of a search as JSON.

    Args:
        search: The search.
        pending: The trials that exist, but have not moved the search yet.
        num_known: The number of trials that exist.
    """
    # The settings need not be stored, because the key is a digest of them.
    state = {**search.state_dict(), "settings": None}
    numbers = [trial.number for trial in pending]
    return json.dumps([state, numbers, num_known], default=Tensor.tolist)


def _store(study: Study, trial: FrozenTrial, key: str, generation: int, text: str) -> None:
    """Store a search in attributes of a trial, in parts that every storage accepts.

    The attribute ``key`` is the pair [generation, number of parts]. The attributes ``key:0``,
    ``key:1`` and so on are the parts of the text. An empty text has no parts.

    Args:
        study: The study.
        trial: The trial.
        key: The name of the attribute.
        generation: The number of generations of the search.
        text: The state as JSON; empty if this trial has not moved the search.
    """
    set_attribute: Any = partial(study._storage.set_trial_system_attr, trial._trial_id)
    parts = [text[first : first + _PART] for first in range(0, len(text), _PART)]
    for number, part in enumerate(parts):
        set_attribute(f"{key}:{number}", part)
    # This attribute comes last: a trial that has it has all parts.
    set_attribute(key, [generation, len(parts)])


def _load_latest(
    search: CrossEntropyMethod,
    key: str,
    trials: list[FrozenTrial],
) -> list[FrozenTrial]:
    """Load the latest state of a search from the attributes of the trials, if there is one.

    A state is stored as a text in several parts. The attribute ``key`` of a trial is the pair
    (generation, number of parts), and ``key:0``, ``key:1`` and so on are the parts. There are 0
    parts if the search did not move at this trial.

    Args:
        search: The search into which the state is loaded.
        key: The name of the attribute, which identifies the search.
        trials: All trials of the study.

    Returns:
        The trials that have not moved the search yet. Without a stored state, these are all.
    """
    stored: list[dict[str, Any]] = []
    for trial in trials:
        _, num_parts = trial.system_attrs.get(key, (0, 0))
        if num_parts > 0:
            stored.append(trial.system_attrs)
    if not stored:
        return trials
    # The pairs (generation, number of parts) are compared. The latest state has the greatest
    # generation.
    latest = max(stored, key=lambda attributes: attributes[key])
    _, num_parts = latest[key]
    text = "".join(latest[f"{key}:{number}"] for number in range(num_parts))
    saved, pending, num_known = json.loads(text)
    state = search.state_dict()
    for name, value in state.items():
        if isinstance(value, Tensor):
            state[name] = torch.tensor(saved[name], dtype=value.dtype)
    search.load_state_dict({**state, "generation": saved["generation"]})
    # When the state was saved, there were `num_known` trials. Those with the numbers `pending`
    # had not moved the search yet. The later trials have not moved it, either.
    return [trials[number] for number in pending] + trials[num_known:]


def _can_search(kind: BaseDistribution) -> bool:
    """Return whether a distribution has several values, and a parameter can represent it."""
    try:
        _parameter(kind)
    except ValueError:  # It has integers that a double does not have.
        return False
    return not kind.single()


def _parameter(kind: Any) -> Float | Int | Choice:
    """Return the parameter of a space that represents a distribution of Optuna.

    A categorical distribution becomes a choice of indices, and one with steps becomes an
    integer, the number of steps.
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
    """Convert a value of a parameter of the space to a value of Optuna's distribution."""
    if isinstance(kind, CategoricalDistribution):
        return kind.choices[value]
    if _has_steps(kind):
        return min(kind.low + value * kind.step, kind.high)
    return value


def _from_optuna(kind: Any, value: Any) -> Any:
    """Convert a value of Optuna's distribution, clamped to its range, to one of the space."""
    if isinstance(kind, CategoricalDistribution):
        return kind.to_internal_repr(value)
    value = min(max(value, kind.low), kind.high)
    if _has_steps(kind):
        return round((value - kind.low) / kind.step)
    return value
