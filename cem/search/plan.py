"""The plan of a call of ``minimize``: its arguments, and choices for those that are None."""

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
from cem.core.start import dtype_of
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
"""A default population is small enough for so many generations within the budget.

With fewer generations the distribution would hardly move.
"""
GENERATIONS = 150
"""A population that is enlarged, for a GPU or for noise, leaves so many generations."""

_FLAGS = ("progress", "graph", "distributed", "asynchronous")
_WITHOUT_CONSTRAINTS = _FLAGS[1:]
# With any of these options, an objective takes populations unless ``vectorize`` is set.
_DECIDED = ("asynchronous", "checkpoint", "distributed", "graph")
_Options = Mapping[str, Any]
_EVALUATIONS_PER_DIMENSION = 10_000
_DESCENT_PER_DIM = 150  # the budget of the descent, in evaluations per parameter
_MOST_FOR_A_MODEL = 40  # parameters; the time of a fit grows with the sixth power
_MOST_FOR_A_DESCENT = 1_000  # parameters; the time of a step grows with the third power
_TIMES_ON_A_GPU = 16  # A GPU evaluates 16 times as many candidates in about the same time.
_AGREEING = 3  # large searches that have to agree to end a call that has a budget


class Start(NamedTuple):
    """Where a search begins: the first mean and standard deviation of its distribution.

    Attributes:
        mean: The first mean, shape (d,).
        std: The first standard deviations, shape (d,), or one number.
        factor: A lower triangular factor of the first covariance, shape (d, d), whose rows have
            the lengths ``std``. None: the parameters are independent.
    """

    mean: Any
    std: Any
    factor: Any = None


class Known(NamedTuple):
    """A candidate whose value is known before a search.

    Attributes:
        point: Its point in the search space, shape (d,).
        value: Its value to minimise.
        candidate: The candidate, shape (d,).
        is_exact: Whether the point is exact. It is not if the candidate is at a bound.
    """

    point: Any
    value: float
    candidate: Any
    is_exact: bool


@dataclass(frozen=True)
class Plan:
    """The arguments of a call of ``minimize``, with choices for those that are None.

    Attributes:
        objective: The objective in the form that ``Evaluator`` expects.
        name: A text that identifies the objective.
        maximize: Whether a greater fitness is better.
        space: The named parameters; None: the parameters are a vector.
        start: The start of the next search; the mean is a tensor or an array.
        start_of_restarts: The start of restarts.
        known: Evaluations from before the call; None: there are none.
        first_candidate: The first candidate, shape (dim,).
        constraints: The constraints; None: there are none.
        steepness: The factor by which the penalty of constraints is larger than usual.
        config: The method of the search.
        population_size: The number of candidates per generation in the first search.
        budget: The maximum number of evaluations.
        seed: The seed; None: the first search draws it.
        policy: The policy that chooses the restarts.
        most_restarts: The maximum number of restarts; None: the budget alone limits them.
        agreeing: The number of searches with the same best value that ends the call; infinity:
            no number does.
        declares_noise: Whether the objective has a true attribute ``is_noisy``.
        is_noisy: Whether noise was detected, and the method is one for noisy objectives.
        adapts_to_noise: Whether the method may change when noise is detected. It may not if the
            caller chose it.
        descends: Whether a descent precedes the first search.
        descent_budget: The maximum number of its evaluations after that of the start. It is
            negative if the budget of the call does not suffice for the start.
        in_batches: Whether candidates are evaluated in batches, for workers, if there is a
            model.
        path: The candidates that are known before the first search.
        misses: The number of searches so far without a success; 0 after the first success.
        code: A digest of the code of the objective and constraints; None: nothing is saved.
        termination_options: Arguments of ``Termination``: ``target``, ``xtol`` and ``ftol``.
        options: All options of the call.
    """

    objective: Callable[..., Any]
    name: str
    maximize: bool
    space: Space | None
    start: Start
    start_of_restarts: Start
    known: Evaluations | None
    first_candidate: Tensor
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
    termination_options: _Options
    options: _Options
    is_noisy: bool = False
    steepness: float = 1.0
    misses: int = 0
    descends: bool = False
    descent_budget: int = 0
    in_batches: bool = False
    path: Sequence[Known] = ()

    @property
    def uses_model(self) -> bool:
        """Whether a surrogate model chooses the candidates that are evaluated."""
        is_small = len(self.first_candidate) <= _MOST_FOR_A_MODEL
        may_use_model = is_small or self.options["model"] == "quadratic"
        return self.descends and self.constraints is None and may_use_model

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of ``CrossEntropyMethod`` that all searches share."""
        shared = {name: self.options[name] for name in ("bounds", "backend", "device", "dtype")}
        return {"maximize": self.maximize, "config": self.config, **shared}

    def build_optimizer(
        self, start: Start, population_size: int, seed: int | None
    ) -> CrossEntropyMethod:
        """Return a new optimizer with the settings of the call.

        With constraints, the optimizer ranks candidates by their fitness and their violation.
        The better of the start, if a descent has evaluated it, and of the best known candidate
        is then the best candidate of the optimizer.

        Args:
            start: The first mean and standard deviation.
            population_size: The number of candidates per generation.
            seed: The seed. None: the optimizer draws it.
        """
        if self.constraints is None:
            optimizer = CrossEntropyMethod(
                start.mean, start.std, population_size, **self.settings, seed=seed
            )
            if start.factor is not None:
                optimizer.correlate(start.factor)
            return optimizer
        constrained = Constrained(
            start.mean,
            start.std,
            population_size,
            constraints=self.constraints,
            first=self.first_candidate,
            steepness=self.steepness,
            **self.settings,
            seed=seed,
        )
        # With constraints, the path is empty or one point, the fittest one of the descent. The
        # first search starts there.
        for known in self.path:
            constrained.start_from(start.mean, known.value)
        if self.known is not None:
            index = self.known.best(self.maximize)
            fitness = self.known.fitness[index]
            value = -fitness if self.maximize else fitness
            constrained.start_from(self.known.candidates[index], value)
        return constrained

    def describe(self, optimizer: CrossEntropyMethod) -> dict[str, Any]:
        """Return what identifies a search in its folder, a dict for JSON.

        Every file of a folder has this description, so that none of them can be used for
        another search. The seed is that of the whole folder.

        Args:
            optimizer: The optimizer of the search before its first generation.
        """
        state = optimizer.state
        ends = [state.low, state.high, state.integers]
        settings = {**optimizer.state_dict()["settings"], "seed": None, "backend": None}
        return {
            **settings,
            "bounds": str([None if end is None else end.tolist() for end in ends]),
            "objective": self.name,
            "code": self.code,
            # The first candidate of the call contains its first mean.
            "mean": self.first_candidate.to(optimizer.dtype).tolist(),
            "std": optimizer.std.tolist(),
            "constraints": None if self.constraints is None else self.constraints.described,
        }

    def adapted_to_noise(self, remaining: int) -> "Plan":
        """Return the plan of a search for a noisy objective.

        Its population has at least the textbook size, if the ``remaining`` evaluations are
        enough for 150 generations. The mean is averaged over generations.
        """
        textbook_size = CEMConfig().population_of(len(self.first_candidate))
        size = max(self.population_size, min(textbook_size, remaining // GENERATIONS))
        config = replace(self.config, mean_averaging=0.2)
        return replace(self, is_noisy=True, population_size=size, config=config)


def choose_plan(
    objective: Any, mean: Any, std: Any, maximize: bool, options: dict[str, Any]
) -> Plan:
    """Check the arguments of a call, choose those that are None, and return the plan.

    Args:
        objective: The objective, as for ``minimize``.
        mean: The first mean, or the named parameters.
        std: The first standard deviation, or None.
        maximize: Whether a greater fitness is better.
        options: All options of the call, including defaults.
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
    mean = _as_array_unless_tensor(mean, options)
    with_generation = options["with_generation"]
    if with_generation is None:
        with_generation = getattr(objective, "with_generation", False) is True
    options = {
        **options,
        "vectorize": _choose_vectorize(objective, options),
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
        # The default mean is an array of float64.
        dtype = torch.float64 if mean is None else dtype_of(mean)
        known = read_evaluated(
            options["evaluated"],
            space,
            options["bounds"],
            options["integers"],
            maximize,
            options["dtype"] or dtype,
        )
        if constraints is not None:
            known = known.if_feasible(constraints, mean)
    start, start_of_restarts = _choose_starts(mean, std, space, known, maximize, options)
    first = _first_candidate(start.mean, space, options)
    if known is not None:
        _check_known(known, first)
        if space is not None and options["x0"] is None:
            # Start with the choices and permutations of the best known point.
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
    budget = check_integer("budget", budget, population_size)
    return Plan(
        objective=function,
        name=name,
        maximize=maximize,
        space=space,
        start=start,
        start_of_restarts=start_of_restarts,
        known=known,
        first_candidate=first,
        constraints=constraints,
        config=config,
        population_size=population_size,
        budget=budget,
        seed=None if options["seed"] is None else draw_seed(options["seed"]),
        policy=policy,
        most_restarts=most_restarts,
        agreeing=agreeing if most_restarts is None else math.inf,
        adapts_to_noise=adapts_to_noise,
        declares_noise=declares_noise,
        code=code,
        termination_options=termination_options,
        options=options,
        descends=_descends(config, len(first), constraints, declares_noise, options),
        descent_budget=min(
            _DESCENT_PER_DIM * len(first),
            # The search after a descent with constraints evaluates at least a population,
            # because it has no model. Such a descent may exceed its budget by one evaluation.
            budget - 1 if constraints is None else budget - population_size - 2,
        ),
        in_batches=options["workers"] is not None,
    )


def _descends(
    config: CEMConfig,
    dim: int,
    constraints: Constraints | None,
    declares_noise: bool,
    options: _Options,
) -> bool:
    """Return whether a descent precedes the search.

    Without constraints, the search then uses a surrogate model. The result depends on the
    option ``model``:

    * "quadratic": True.
    * "auto": True if the call meets all requirements of a model, and evaluates candidates one
      by one, by workers or not. With more than 40 parameters there is no model, so by default
      up to 1,000 no full covariance is needed.
    * None: False.

    Args:
        config: The method of the search.
        dim: The number of parameters.
        constraints: The constraints of the call, or None.
        declares_noise: Whether the objective declares itself noisy.
        options: All options of the call.

    Raises:
        ValueError: If ``model`` is another string, or if it is "quadratic" and the call does
            not meet a requirement.
    """
    model = options["model"]
    if model not in ("auto", "quadratic", None):
        raise ValueError(f"expected 'auto', 'quadratic' or None for model, got {model!r}")
    by_one = _is_called_by_one(options)
    is_full = config.paths and config.covariance == "full"
    needs_no_model = model == "auto" and options["config"] is None
    # Each requirement of a model, as a text for an error message, and whether it is met.
    requirements = {
        "a full covariance with evolution paths": is_full
        or (needs_no_model and dim <= _MOST_FOR_A_DESCENT),
        "numbers alone": not config.families,
        # With constraints, only a descent is possible.
        "no constraints": constraints is None or model == "auto",
        "an objective that is not noisy": not declares_noise,
        "the CPU": torch.device(options["device"] or "cpu").type == "cpu",
        # The descent before the search resumes from a journal. There is no journal if the
        # objective is called with whole populations.
        "no checkpoint of a function of populations": by_one or options["checkpoint"] is None,
        **{f"no {name}": not options[name] for name in _WITHOUT_CONSTRAINTS},
    }
    unmet = [name for name, is_met in requirements.items() if not is_met]
    if model == "quadratic" and unmet:
        raise ValueError(f"expected {', '.join(unmet)} for model='quadratic'")
    return model == "quadratic" or (model == "auto" and by_one and not unmet)


def _choose_vectorize(objective: Callable[..., Any], options: _Options) -> bool | str | None:
    """Return the option ``vectorize``: None if the first call of the objective decides.

    If that call fails, ``minimize`` begins again. With ``_DECIDED`` options it must not: they
    write to a folder, run on several processes or in a graph, or expect failures. An objective
    with a state takes populations: each call changes its state, also one that only decides.
    """
    vectorize: bool | str | None = options["vectorize"]
    has_state = getattr(objective, "has_state", False)
    is_decided = has_state or any(options[name] for name in _DECIDED)
    return False if vectorize is None and is_decided else vectorize


def _is_called_by_one(options: _Options) -> bool:
    """Return whether each call of the objective evaluates a single candidate."""
    return options["vectorize"] == "loop" or options["workers"] is not None


def _bind_arguments(objective: Any, arguments: Any) -> tuple[Any, str]:
    """Return the objective with the additional arguments of the option ``args``, and a name."""
    name = describe_callable(objective)
    if arguments is None:
        return objective, name
    if not isinstance(arguments, tuple):
        arguments = (arguments,)
    return WithArguments(objective, arguments), f"{name} with {arguments!r}"


def _build_constraints(options: _Options, space: Space | None) -> Constraints | None:
    """Return the constraints of a call; None if it has none.

    Args:
        options: All options of the call.
        space: The named parameters; None: candidates are vectors.

    Raises:
        ValueError: If an option is set that does not work with constraints.
    """
    constraints = options["constraints"]
    if constraints is None or (isinstance(constraints, (list, tuple)) and not constraints):
        return None
    clashing = [name for name in _WITHOUT_CONSTRAINTS if options[name]]
    if clashing:
        names = " and ".join(clashing)
        raise ValueError(f"expected no constraints with {names}=True, got some")
    # Constraints are called like the objective: with single candidates or whole populations.
    by_one = _is_called_by_one(options)
    from_named = None
    if space is not None:
        # ``from_named(function)`` is a function of candidates that calls a function of named
        # parameters.
        from_named = partial(Named, space=space, by_column=not by_one)
    return Constraints(
        constraints,
        vectorize="loop" if by_one else options["vectorize"],
        from_named=from_named,
        tolerance=options["tolerance"],
        catch=options["catch"],
    )


def _choose_starts(
    mean: Any,
    std: Any,
    space: Space | None,
    known: Evaluations | None,
    maximize: bool,
    options: _Options,
) -> tuple[Start, Start]:
    """Return the start of the first search, and the start of restarts.

    If the caller chose a mean, all searches start there. Otherwise restarts start in the middle
    of the bounds. The first search starts near the best known evaluations, if there are any,
    and otherwise also in the middle.

    Args:
        mean: The first mean of the call or of the space. None: this function chooses it.
        std: The first standard deviation of the call or of the space. None: this function
            chooses it.
        space: The named parameters, or None.
        known: Evaluations from before the call, or None.
        maximize: Whether a greater fitness is better.
        options: All options. With a space, ``x0`` is the mean that the caller chose.
    """
    mean_of_call = mean if space is None else options["x0"]
    if known is None or mean_of_call is not None:
        start = _start_within(options["bounds"], mean, std)
        return start, start
    try:
        restart = _start_within(options["bounds"], mean, std)
    except (TypeError, ValueError):
        # The mean is None, and the bounds do not determine it. Restarts then begin where the
        # first search does.
        restart = Start(mean, std)
    # A mean has no values for choices and permutations, which are the last columns of a
    # candidate.
    config = options["config"]
    num_discrete = 0 if config is None else config.num_discrete
    known = known.numbers(known.candidates.shape[1] - num_discrete)
    first_mean, first_std = known.mean_and_std(maximize, restart.std)
    if isinstance(mean, Tensor):
        first_mean = torch.from_numpy(first_mean).to(mean)
    # With a space, ``std`` is a default of the space. Otherwise the caller chose it.
    if space is None and std is not None:
        first_std = std
    first = Start(first_mean, first_std)
    if restart.mean is None:
        restart = first
    return first, restart


def _check_known(known: Evaluations, first: Tensor) -> None:
    """Raise ValueError if the known points do not have as many parameters as the search."""
    size = known.candidates.shape[1]
    if size != len(first):
        raise ValueError(
            f"expected evaluated points of {len(first)} parameters, got points of {size}"
        )


def _start_within(bounds: Any, mean: Any, std: Any) -> Start:
    """Return the start with a mean and a standard deviation, with defaults if they are None.

    The default mean is the middle of the bounds. The default standard deviation is a quarter of
    their width: the ends are two standard deviations from the middle. If neither of the two is
    None, the bounds are not used.

    Raises:
        TypeError: If a default is needed, and there are no bounds.
        ValueError: If a default depends on an infinite bound. Also if ``mean`` is None and the
            bounds are two numbers for all parameters, because the number of parameters is then
            unknown.
    """
    if mean is not None and std is not None:
        return Start(mean, std)
    if bounds is None:
        raise TypeError(
            "expected mean and std, or bounds: their middle is the default mean, "
            "and a quarter of their width is the default std"
        )
    low, high = (np.asarray(end, dtype=np.float64) for end in ends_of(bounds))
    if not (low <= high).all():
        raise ValueError(f"expected bounds with low <= high, got {bounds!r}")
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


def _as_array_unless_tensor(mean: Any, options: _Options) -> Any:
    """Return a list or another sequence as an array, as SciPy does; a tensor as it is.

    An array of integers becomes one of float64. The candidates of a search have the type of its
    mean. A sequence is not converted, which means tensors, if an option asks for tensors:
    ``vectorize=True``, ``device`` or ``dtype``.
    """
    wants_tensors = options["vectorize"] is True or options["device"] or options["dtype"]
    if not (mean is None or isinstance(mean, (Tensor, np.ndarray)) or wants_tensors):
        mean = as_real("mean", mean).numpy()
    if isinstance(mean, np.ndarray) and mean.dtype.kind in "iu":
        # NumPy and SciPy compute with them in float64, the search would in float32.
        mean = mean.astype(np.float64)
    return mean


def _first_candidate(mean: Any, space: Space | None, options: _Options) -> Tensor:
    """Return the first candidate, shape (dim,).

    Its numbers are the mean. Its choices and permutations are those of ``x0``, or the most
    probable ones.
    """
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


def _choose_config(dim: int, options: _Options) -> CEMConfig:
    """Return the option ``config``, or the default for ``dim`` parameters, with integers."""
    integers: dict[str, Any] = {}
    if options["integers"] is not None:
        integers["integers"] = options["integers"]
    config: CEMConfig | None = options["config"]
    if config is None:
        return CEMConfig.chosen(dim, options["bounds"] is not None, **integers)
    return replace(config, **integers)


def _choose_restarts(restarts: Any, config: CEMConfig) -> tuple[RestartPolicy, int | None]:
    """Return the restart policy, and the maximum number of restarts; None: any number."""
    if restarts is None:
        return Bipop(), None if config.paths else 0
    if hasattr(restarts, "next_attempt"):
        return restarts, None
    return Bipop(), check_integer("restarts", restarts, 0)


def _choose_population(dim: int, config: CEMConfig, options: _Options) -> int:
    """Return the number of candidates per generation in the first search.

    The default is that of the config, with two exceptions: a small budget makes it smaller, so
    that 20 generations fit; a GPU makes it up to 16 times as large, if 150 generations fit.
    """
    size = options["population_size"]
    budget = options["budget"]
    if size is None:
        size = config.population_of(dim)
        if config.paths and budget is not None:
            size = max(4, min(size, check_integer("budget", budget, 1) // LEAST_GENERATIONS))
        if torch.device(options["device"] or "cpu").type == "cuda":
            evaluations = _EVALUATIONS_PER_DIMENSION * dim if budget is None else int(budget)
            size = max(size, min(_TIMES_ON_A_GPU * size, evaluations // GENERATIONS))
        if size == dim and size != budget:
            size += 1  # ``population_of`` says why.
    return check_integer("population_size", size, 2)
