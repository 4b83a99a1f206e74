"""How well and how fast the optimiser searches, beside its peers: blocks of README and docs/optimiser.md."""

from __future__ import annotations

from typing import Any

from pages.result_files import Result, columns, crossed, each_machine, load_all, with_provenance
from pages.wording import digits

_DIMENSIONS = ("d5", "d20")
_METHODS = {
    "cem.generation.graph": "`cem`, CUDA graph of 20 generations",
    "cem.generation.graph_of_one": "`cem`, CUDA graph of one",
    "cem.generation.eager": "`cem`",
    "cem_torch.generation.eager": '`cem`, `backend="torch"`',
    "torch.generation.graph": "ten lines of PyTorch, CUDA graph of 20 generations",
    "torch.generation.compile": "ten lines of PyTorch, torch.compile",
    "torch.generation.eager": "ten lines of PyTorch",
    "numpy.generation.eager": "ten lines of NumPy",
    "evotorch.generation.eager": "evotorch, functional CEM",
    "cmaes.generation.eager": "cmaes, SepCMA",
    "pycma.generation.eager": "pycma, diagonal",
}
_CLAIMED = tuple(f"{name}.generation.{mode}" for name in ("cem", "torch") for mode in ("eager", "graph"))


def optimiser_claim() -> str:
    """Return quality and speed of the optimiser in two sentences."""
    quality, speed = load_all("optimizers")[0], load_all("generation")[-1]

    def solved(name: str) -> str:
        return " and ".join(f"{quality.figures[f'bbob.{name}.{dim}.solved']:.0%}" for dim in _DIMENSIONS)

    words = (
        "On the 24 BBOB functions with 5 and 20 parameters `cem` reaches "
        f"{solved('cem_full_restarts')} of the targets with full covariance and restarts and {solved('cem')} "
        f"with its defaults; pycma's CMA-ES with restarts {solved('pycma_ipop')}, evotorch's CEM "
        f"{solved('evotorch_cem')}. "
        "A generation of 1,024 candidates with 100 parameters takes {} us and in a CUDA graph {} us; "
        "ten lines of PyTorch take {} and {} us."
    )
    times = (_microseconds(speed, name, "1024x100") for name in _CLAIMED)
    return with_provenance(words.format(*times), quality, speed)


def bbob() -> str:
    """Return the share of targets that each search reaches on BBOB."""

    def label(item: tuple[str, Any]) -> str:
        return f"**{item[1]['label']}**" if item[0] == "cem" else str(item[1]["label"])

    def share(item: tuple[str, Any], dim: str) -> str:
        found = item[1].get(dim)
        error = "" if not found or found["standard_error"] is None else f" ± {found['standard_error']:.3f}"
        return f"{found['solved']:.3f}{error}" if found else "-"

    def collapsed(item: tuple[str, Any]) -> str:
        shares = [item[1].get(dim, {}).get("collapsed") for dim in _DIMENSIONS]
        return " / ".join("-" if each is None else f"{each:.0%}" for each in shares)

    def block(result: Result) -> str:
        searches = result.data["quality"]["searches"].items()
        best_first = sorted(searches, key=lambda item: -sum(item[1][dim]["solved"] for dim in _DIMENSIONS))
        cells = {
            "share of targets reached ± standard error": label,
            "5 parameters": lambda item: share(item, "d5"),
            "20 parameters": lambda item: share(item, "d20"),
            "collapsed: 5 / 20": collapsed,
        }
        return columns(cells, best_first, result)

    return each_machine("optimizers", block)


def generations() -> str:
    """Return the microseconds of a generation on GPUs and processors."""

    def block(result: Result) -> str:
        shapes = {
            shape: _shape_text(shape)
            for shape in result.data["shapes"]
            if _microseconds(result, "cem.generation.eager", shape)
        }
        return crossed(
            "us a generation", shapes, _METHODS, lambda name, at: _microseconds(result, name, at), result
        )

    return each_machine("generation", block)


def _microseconds(result: Result, name: str, shape: str) -> str | None:
    value = result.figures.get(f"{name}.{shape}.us")
    return None if value is None else digits(value)


def _shape_text(shape: str) -> str:
    *problems, population, dim = (f"{int(part):,}" for part in shape.split("x"))
    text = f"{population} x {dim}"
    return f"{problems[0]} problems of {text}" if problems else text
