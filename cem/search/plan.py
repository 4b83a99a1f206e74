"""The plan of a call of ``minimize``: its options, and the choices for those left open."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cem.core.bounds import ends_of
from cem.core.checks import as_real, check_real, draw_seed
from cem.core.config import CEMConfig
from cem.core.variance_schedule import describe_callable
from cem.optimizer import CrossEntropyMethod
from cem.run.code_digest import digest_code
from cem.run.constraints import Constrained, Constraints
from cem.run.evaluator import WithArguments
from cem.search.evaluated import Evaluations, read_evaluated
from cem.search.restarts import Bipop, RestartPolicy
from cem.space import Named, Space
from kernels.support.checks import check_flags, check_integer

LEAST_GENERATIONS = 20
"""The least number of generations for which a budget has room: fewer would only sample."""
GENERATIONS = 150
"""The number of generations that a larger population leaves, for a GPU or for noise."""

_FLAGS = ("progress", "graph", "distributed", "asynchronous")
_WITHOUT_CONSTRAINTS = _FLAGS[1:]
_EVALUATIONS_PER_DIMENSION = 10_000
_MOST_FOR_A_MODEL = 40  # parameters: fitting the model takes the time of their sixth power
_TIMES_ON_A_GPU = 16  # A GPU takes about as long for a population that is 16 times as large.
_AGREEING = (
    3  # the searches with a large population that must agree to end a call with a budget
)


class Start(NamedTuple):
    """Where a search begins: the first mean and standard deviation of its distribution."""

    mean: Any
    std: Any


@dataclass(frozen=True)
class Plan:
    """The arguments of a call of ``minimize``, and the choices for those left open.

    Attributes:
        objective: Maps candidates to fitness, as ``Evaluator`` takes it.
        name: A text that tells the objective from others.
        maximize: Whether a greater fitness is better.
        space: The named parameters; None: the parameters are a vector.
        start: Where the next search begins; the mean is a tensor or an array.
        start_of_restarts: Where restarts begin.
        known: Evaluations from before the call; None: there are none.
        first: The first candidate, shape (dim,).
        constraints: The constraints; None: there are none.
        steepness: How much steeper than usual they are.
        config: How the distribution moves.
        population_size: The candidates per generation of the first search.
        budget: The most evaluations.
        seed: The seed; None: it is drawn by the first search.
        policy: How restarts are chosen.
        most_restarts: The most restarts; None: as many as the budget has room for.
        agreeing: How many searches that find the same value end the call; infinity: they do not
            end it.
        declares_noise: Whether the objective says that it is noisy, by an attribute
            ``is_noisy``.
        is_noisy: Whether noise was seen, and the search is made for it.
        adapts_to_noise: Whether the search may change when noise is seen, because nobody chose
            its method.
        uses_model: Whether a model of the function chooses the candidates that are evaluated.
        path: Points of the search space that are known when the first search begins, with
            their values.
        misses: How many searches had no success; 0 again after the first success.
        code: A digest of the objective and constraints; None: nothing is saved.
        termination_options: The arguments of ``Termination`` by name: ``target``, ``xtol`` and
            ``ftol``.
        options: The other options of the call.
    """

    objective: Callable[..., Any]
    name: str
    maximize: bool
    space: Space | None
    start: Start
    start_of_restarts: Start
    known: Evaluations | None
    first: Tensor
    constraints: Constraints | None
    config: CEMConfig
    population_size: int
    budget: int
    seed: int | None
    policy: RestartPolicy
    most_restarts: int | None
    agreeing: float
    adapts_to_noise: bool
    declares_noise: bool
    code: str | None
    termination_options: Mapping[str, Any]
    options: Mapping[str, Any]
    is_noisy: bool = False
    steepness: float = 1.0
    misses: int = 0
    uses_model: bool = False
    path: Sequence[tuple[Any, float]] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of ``CrossEntropyMethod`` that all searches share."""
        shared = {name: self.options[name] for name in ("bounds", "backend", "device", "dtype")}
        return {"maximize": self.maximize, "config": self.config, **shared}

    def build_optimizer(
        self, start: Start, population_size: int, seed: int | None
    ) -> CrossEntropyMethod:
        """Return an optimizer that begins with a mean and a standard deviation.

        With constraints it ranks candidates by their violation, too.
        """
        if self.constraints is None:
            return CrossEntropyMethod(
                start.mean, start.std, population_size, **self.settings, seed=seed
            )
        return Constrained(
            start.mean,
            start.std,
            population_size,
            constraints=self.constraints,
            first=self.first,
            steepness=self.steepness,
            **self.settings,
            seed=seed,
        )

    def adapted_to_noise(self, left: int) -> "Plan":
        """Return the plan of a search for a noisy objective, with ``left`` evaluations left.

        Its population is at least that of the textbook if 150 generations remain, and the mean
        is averaged over generations.
        """
        textbook_size = CEMConfig().population_of(len(self.first))
        size = max(self.population_size, min(textbook_size, left // GENERATIONS))
        config = replace(self.config, mean_averaging=0.2)
        return replace(self, is_noisy=True, population_size=size, config=config)


def choose_plan(
    objective: Any, mean: Any, std: Any, maximize: bool, options: dict[str, Any]
) -> Plan:
    """Return the plan of a call: check its arguments, and choose what they leave open.

    Args:
        objective: As for ``minimize``.
        mean: The first mean, or the named parameters.
        std: The first standard deviation, or None.
        maximize: Whether a greater fitness is better.
        options: The options of the call, completed by defaults.
    """
    check_flags(**{name: options[name] for name in _FLAGS})
    adapts_to_noise = options["config"] is None and options["population_size"] is None
    function, name = _bind_arguments(objective, options["args"])
    space = None
    if isinstance(mean, Mapping):
        space = Space(mean)
        name += f" of {space!r}"
        function, mean, std, options = space.search(function, std, options)
    elif options["x0"] is not None:
        if mean is not None:
            raise TypeError("expected mean or x0, which are the same of a vector, got both")
        mean = options["x0"]
    with_generation = options["with_generation"]
    if with_generation is None:
        with_generation = getattr(objective, "with_generation", False) is True
    options = {
        **options,
        "vectorize": options["vectorize"] or False,
        "with_generation": with_generation,
    }
    constraints = _build_constraints(options, space)
    code = None
    if options["checkpoint"] is not None:
        functions = [] if constraints is None else constraints.functions
        code = digest_code(function, *functions)
    target = options["target"]
    if target is not None:
        target = check_real("target", target)
    termination_options = {
        "target": target,
        "xtol": check_real("xtol", options["xtol"], 0.0),
        "ftol": check_real("ftol", options["ftol"], 0.0),
    }
    known = None
    if options["evaluated"] is not None:
        known = read_evaluated(
            options["evaluated"], space, options["bounds"], options["integers"], maximize
        )
        if constraints is not None:
            known = known.if_feasible(constraints)
    start, start_of_restarts = _choose_starts(mean, std, space, known, maximize, options)
    first = _first_candidate(start.mean, space, options)
    if known is not None:
        _check_known(known, first)
        if space is not None and options["x0"] is None:
            # The choices of the best point that is known.
            best = torch.from_numpy(known.candidates[known.best(maximize)])
            first = torch.cat([first[: len(space.mean)], best[len(space.mean) :]])
    config = _choose_config(len(first), options)
    population_size = _choose_population(len(first), config, options)
    policy, most_restarts = _choose_restarts(options["restarts"], config)
    declares_noise = getattr(objective, "is_noisy", False) is True
    budget = options["budget"]
    agreeing = float(_AGREEING)
    if budget is None:
        budget = max(population_size, _EVALUATIONS_PER_DIMENSION * len(first))
        agreeing = 1.0
    return Plan(
        objective=function,
        name=name,
        maximize=maximize,
        space=space,
        start=start,
        start_of_restarts=start_of_restarts,
        known=known,
        first=first,
        constraints=constraints,
        config=config,
        population_size=population_size,
        budget=check_integer("budget", budget, population_size),
        seed=None if options["seed"] is None else draw_seed(options["seed"]),
        policy=policy,
        most_restarts=most_restarts,
        agreeing=agreeing if most_restarts is None else math.inf,
        adapts_to_noise=adapts_to_noise,
        declares_noise=declares_noise,
        code=code,
        termination_options=termination_options,
        options=options,
        uses_model=_uses_model(config, len(first), constraints, declares_noise, options),
    )


def _uses_model(
    config: CEMConfig,
    dim: int,
    constraints: Constraints | None,
    declares_noise: bool,
    options: Mapping[str, Any],
) -> bool:
    """Return whether a model chooses candidates: the option ``model``, or by the kind of call.

    Raises:
        ValueError: If a model is asked for, and the call has what does not go with it.
    """
    model = options["model"]
    if model not in ("auto", "quadratic", None):
        raise ValueError(f"expected 'auto', 'quadratic' or None for model, got {model!r}")
    if model is None:
        return False
    obstacles = {
        "a full covariance with evolution paths": config.paths and config.covariance == "full",
        "numbers alone": not config.families,
        "no constraints": constraints is None,
        "an objective that is not noisy": not declares_noise,
        "the CPU": torch.device(options["device"] or "cpu").type == "cpu",
    }
    obstacles["no checkpoint of a function of populations"] = (
        _is_called_by_one(options) or options["checkpoint"] is None
    )
    for name in ("graph", "distributed", "asynchronous"):
        obstacles[f"no {name}"] = not options[name]
    missing = [name for name, is_met in obstacles.items() if not is_met]
    if model == "quadratic" and missing:
        raise ValueError(f"expected {', '.join(missing)} for model='quadratic'")
    # Workers would wait for the model, which wants the value of one candidate after another.
    is_serial = options["vectorize"] == "loop" and options["workers"] is None
    is_chosen = model == "quadratic" or (is_serial and dim <= _MOST_FOR_A_MODEL)
    return is_chosen and not missing


def _is_called_by_one(options: Mapping[str, Any]) -> bool:
    """Return whether the objective is called candidate by candidate."""
    return options["vectorize"] == "loop" or options["workers"] is not None


def _bind_arguments(objective: Any, arguments: Any) -> tuple[Any, str]:
    """Return the objective with the additional arguments of ``args``, and its name."""
    name = describe_callable(objective)
    if arguments is None:
        return objective, name
    if not isinstance(arguments, tuple):
        arguments = (arguments,)
    return WithArguments(objective, arguments), f"{name} with {arguments!r}"


def _build_constraints(options: Mapping[str, Any], space: Space | None) -> Constraints | None:
    """Return the constraints of a call of ``minimize``; None if it has none.

    Args:
        options: All options of the call.
        space: The named parameters of the candidates; None: candidates are vectors.

    Raises:
        ValueError: If an option that does not work with constraints is set.
    """
    if options["constraints"] is None:
        return None
    clashing = [name for name in _WITHOUT_CONSTRAINTS if options[name]]
    if clashing:
        names = " and ".join(clashing)
        raise ValueError(f"expected no constraints with {names}=True, got some")
    # Like the objective, constraints get single candidates, or else a population at once.
    by_one = _is_called_by_one(options)
    named = None
    if space is not None:
        # Makes a function of candidates from one of named parameters.
        named = partial(Named, space=space, by_column=not by_one)
    return Constraints(
        options["constraints"],
        by_one=by_one,
        vmap=options["vectorize"] is True,
        named=named,
        tolerance=options["tolerance"],
    )


def _choose_starts(
    mean: Any,
    std: Any,
    space: Space | None,
    known: Evaluations | None,
    maximize: bool,
    options: Mapping[str, Any],
) -> tuple[Start, Start]:
    """Return the starts of the first search and of restarts.

    A mean that is asked for is the start of both. Otherwise the first search begins at the
    points that are known, and restarts begin in the middle of the bounds, if there are any.

    Args:
        mean: The first mean of the call, or that of the space; None: it is chosen.
        std: The first standard deviation in the same way.
        space: The named parameters, whose first candidate is the option ``x0``, or None.
        known: Evaluations from before the call, or None.
        maximize: Whether a greater fitness is better.
        options: The other options of the call.
    """
    has_mean = mean is not None if space is None else options["x0"] is not None
    uses_known = known is not None and not has_mean
    start = Start(mean, std)
    try:
        if mean is None or std is None:
            start = _start_within(options["bounds"], mean, std)
    except (TypeError, ValueError):
        if not uses_known:
            raise
    if known is None or has_mean:
        return start, start
    numbers = known if start.mean is None else known.numbers(len(start.mean))
    known_mean, known_std = numbers.mean_and_std(maximize, start.std)
    if isinstance(mean, Tensor):
        known_mean = torch.from_numpy(known_mean).to(mean)
    has_std = space is None and std is not None
    start_at_known = Start(known_mean, std if has_std else known_std)
    return start_at_known, start_at_known if start.mean is None else start


def _check_known(known: Evaluations, first: Tensor) -> None:
    """Raise ValueError if evaluated points have not as many parameters as the search."""
    size = known.candidates.shape[1]
    if size != len(first):
        raise ValueError(
            f"expected evaluated points of {len(first)} parameters, got points of {size}"
        )


def _start_within(bounds: Any, mean: Any, std: Any) -> Start:
    """Return the first mean and standard deviation; one that is None is chosen by the bounds.

    The mean is then the middle of the bounds, and the standard deviation a quarter of their
    width, so that two standard deviations reach both ends.
    """
    if bounds is None:
        raise TypeError(
            "expected mean and std, or bounds, "
            "whose middle and a quarter of whose width they are"
        )
    low, high = (np.asarray(end, dtype=np.float64) for end in ends_of(bounds))
    if mean is None:
        if low.ndim != 1 or not np.isfinite(low + high).all():
            raise ValueError(
                f"expected mean, or a pair of finite numbers for each parameter, got {bounds!r}"
            )
        mean = (low + high) / 2
    if std is None:
        if not np.isfinite(high - low).all():
            raise ValueError(f"expected std, or finite bounds, got {bounds!r}")
        std = (high - low) / 4
    return Start(mean, std)


def _first_candidate(mean: Any, space: Space | None, options: Mapping[str, Any]) -> Tensor:
    """Return the first candidate: the mean, and the likeliest values of families, (dim,)."""
    if space is not None:
        first = as_real("mean", space.encode(options["x0"] or {}))
    else:
        first = as_real("mean", mean)
        if options["config"] is not None:
            for family in options["config"].families:
                first = torch.cat([first, family.mode(family.start()).to(first)], -1)
    if first.dim() != 1 or len(first) == 0:
        raise ValueError(f"expected mean of shape (dim,), dim >= 1, got {tuple(first.shape)}")
    return first


def _choose_config(dim: int, options: Mapping[str, Any]) -> CEMConfig:
    """Return the config of a search: the option, or the default for ``dim`` parameters."""
    integers: dict[str, Any] = {}
    if options["integers"] is not None:
        integers["integers"] = options["integers"]
    config: CEMConfig | None = options["config"]
    if config is None:
        return CEMConfig.chosen(dim, options["bounds"] is not None, **integers)
    return replace(config, **integers)


def _choose_restarts(restarts: Any, config: CEMConfig) -> tuple[RestartPolicy, int | None]:
    """Return the policy of restarts, and how many it may make; None: any number."""
    if restarts is None:
        return Bipop(), None if config.paths else 0
    if hasattr(restarts, "next_attempt"):
        return restarts, None
    return Bipop(), check_integer("restarts", restarts, 0)


def _choose_population(dim: int, config: CEMConfig, options: Mapping[str, Any]) -> int:
    """Return the candidates per generation of the first search.

    The default is that of the config, fewer for a small budget, and on a GPU more, as long as
    ``GENERATIONS`` generations remain.
    """
    size = options["population_size"]
    budget = options["budget"]
    if size is None:
        size = config.population_of(dim)
        if config.paths and budget is not None:
            size = max(4, min(size, budget // LEAST_GENERATIONS))
        if torch.device(options["device"] or "cpu").type == "cuda":
            evaluations = _EVALUATIONS_PER_DIMENSION * dim if budget is None else int(budget)
            size = max(size, min(_TIMES_ON_A_GPU * size, evaluations // GENERATIONS))
    return check_integer("population_size", size, 2)
