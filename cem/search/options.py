"""The names, types and defaults of the options of ``minimize`` and ``maximize``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_type_hints

import torch

from cem.core.checks import Seed
from cem.core.config import CEMConfig
from cem.core.snapshot import GenerationRecord
from cem.run.callbacks import Callback
from cem.search.restarts import RestartPolicy
from kernels.support.names import did_you_mean

# Names of options in other libraries, with ours. Ours are capitalised, because
# ``did_you_mean`` never suggests a text that is equal.
_SYNONYMS = {
    "sigma0": "Std",
    "rng": "Seed",
    "random_state": "Seed",
    "n_jobs": "Workers",
    **dict.fromkeys(("maxfun", "maxfev", "maxfevals", "maxiter", "n_trials"), "Budget"),
}


class Options(TypedDict, total=False):
    """The options of a call; ``Annotated`` adds a default that is not None."""

    bounds: Any
    integers: Any
    x0: Any
    evaluated: Any
    args: Any
    constraints: Any
    tolerance: float | None
    budget: float | None
    target: float | None
    xtol: Annotated[float, 0.0]
    ftol: Annotated[float, 0.0]
    time_limit_s: float | None
    config: CEMConfig | None
    population_size: float | None
    model: Annotated[str | None, "auto"]
    restarts: float | RestartPolicy | None
    vectorize: bool | str | None
    with_generation: bool | None
    workers: int | str | Executor | Callable[..., Any] | None
    running: int | None
    asynchronous: Annotated[bool, False]
    timeout_s: float | None
    retries: Annotated[int, 1]
    drain_s: Annotated[float, 0.0]
    catch: Annotated[type[BaseException] | tuple[type[BaseException], ...], ()]
    callbacks: Annotated[Sequence[Callback | Callable[[GenerationRecord], Any]], ()]
    progress: Annotated[bool, False]
    checkpoint: str | Path | None
    record_every: Annotated[int, 1]
    graph: Annotated[bool, False]
    distributed: Annotated[bool, False]
    backend: Annotated[str, "auto"]
    device: str | torch.device | None
    dtype: torch.dtype | None
    seed: Seed


_TYPES = get_type_hints(Options)
_DEFAULTS = {
    name: getattr(annotation, "__metadata__", (None,))[0]
    for name, annotation in get_type_hints(Options, include_extras=True).items()
}


def complete_options(function: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call, and the defaults of all options that it does not set.

    Args:
        function: The name of the function that was called, for the error.
        options: The options of the call by name.

    Raises:
        TypeError: If there is no option of some name. The message suggests a similar one.
    """
    for name in options:
        if name not in _DEFAULTS:
            # Suggest our name of an option of another library, or else a similar name.
            hint = did_you_mean(_SYNONYMS.get(name, name), [*_DEFAULTS, "mean", "std"])
            if name in CEMConfig.__dataclass_fields__:
                hint = f": give it as config=CEMConfig({name}=...) or CEMConfig.cma({name}=...)"
            raise TypeError(f"{function}() got an unexpected option {name!r}{hint}")
    return {**_DEFAULTS, **options}


def show_options(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature with every option in place of ``**options``, for help()."""
    # The last parameter is ``**options``.
    *arguments, _ = inspect.signature(function).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [
        inspect.Parameter(name, keyword, default=default, annotation=_TYPES[name])
        for name, default in _DEFAULTS.items()
    ]
    return inspect.signature(function).replace(parameters=[*arguments, *options])
