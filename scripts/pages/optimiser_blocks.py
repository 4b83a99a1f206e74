"""How well and how fast the optimiser searches, beside its peers: blocks of README and docs/optimiser.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pages.result_files import Result, load_all, table_block, with_provenance
from pages.wording import digits

DIMENSIONS = ("d5", "d20")
METHODS: Mapping[str, str] = {
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
"""What tables call the ways to compute a generation, by the beginning of their figures' names."""
PEERS: Mapping[str, str] = {
    "cem": "`cem`",
    "numpy": "ten lines of NumPy",
    "evotorch": "evotorch CEM",
    "cmaes": "cmaes SepCMA",
    "pycma": "pycma",
}
CASES: Mapping[str, str] = {
    "nan": "NaN where x_0 < 0: error",
    "inf": "infinite there: error",
    "failed": "one generation of NaN alone: error",
    "integer": "int64 above 2^60: error",
    "bounds": "optimum outside the bounds: error",
    "plateau": "constant: standard deviation left",
    "resume": "a pickled copy goes on the same",
}
"""What tables call the cases of scripts/measure/behaviour.py."""


def optimiser_claim() -> str:
    """Return quality and speed of the optimiser in two sentences; empty where nothing was measured."""
    results, words = [], []
    for result in load_all("optimizers")[:1]:
        best, default = (_solved(result, name) for name in ("cem_full_restarts", "cem"))
        peers = {"pycma's CMA-ES with restarts": "pycma_ipop", "evotorch's CEM": "evotorch_cem"}
        compared = (f"{name} {_solved(result, peer)}" for name, peer in peers.items() if _has(result, peer))
        words.append(
            "On the 24 BBOB functions with 5 and 20 parameters `cem` reaches "
            f"{best} of the targets with full covariance and restarts and {default} with its defaults; "
            f"{', '.join(compared)}."
        )
        results.append(result)
    for result in load_all("generation")[-1:]:
        times = [_microseconds(result, name, "1024x100") for name in _CLAIMED]
        if all(times):
            words.append(
                "A generation of 1,024 candidates with 100 parameters takes {} us and in a CUDA graph {} us; "
                "ten lines of PyTorch take {} and {} us.".format(*times)
            )
            results.append(result)
    return with_provenance(" ".join(words), *results) if results else ""


_EAGER = "cem.generation.eager"
_CLAIMED = tuple(f"{name}.generation.{mode}" for name in ("cem", "torch") for mode in ("eager", "graph"))


def bbob() -> str:
    """Return the share of targets that each search reaches on BBOB; empty where it was not measured."""
    blocks = []
    for result in load_all("optimizers"):
        searches = result.data["quality"]["searches"]
        rows = []
        for name, search in sorted(searches.items(), key=lambda item: -_sum(item[1])):
            label = (
                f"**{search['label']}**" if name.startswith("cem") and "_" not in name else search["label"]
            )
            cells = [_share(search.get(dim)) for dim in DIMENSIONS]
            rows.append([label, *cells, _collapsed(search)])
        header = ["share of targets reached ± standard error", "5 parameters", "20 parameters"]
        blocks.append(table_block([*header, "collapsed: 5 / 20"], rows, result))
    return "\n\n".join(blocks)


def behaviour() -> str:
    """Return what optimisers make of awkward fitness; empty where it was not measured."""
    blocks = []
    for result in load_all("optimizers"):
        found = result.data["behaviour"]
        names = [name for name in PEERS if name in found]
        rows = [[label, *(_outcome(found[name][case]) for name in names)] for case, label in CASES.items()]
        blocks.append(table_block(["fitness", *(PEERS[name] for name in names)], rows, result))
    return "\n\n".join(blocks)


def generations() -> str:
    """Return the microseconds of a generation on GPUs and processors; empty where they were not measured."""
    blocks = []
    for result in load_all("generation")[::-1]:  # GPUs first
        shapes = [name for name in result.data["shapes"] if _microseconds(result, _EAGER, name)]
        rows = []
        for name, label in METHODS.items():
            cells = [_microseconds(result, name, shape) or "-" for shape in shapes]
            if any(cell != "-" for cell in cells):
                rows.append([label, *cells])
        blocks.append(table_block(["us a generation", *map(_shape_text, shapes)], rows, result))
    return "\n\n".join(blocks)


def large_generation() -> str:
    """Return the time of the largest population against that of writing it; empty where not measured."""
    key, blocks = "cem.generation.1000000x1024", []
    for result in load_all("large_generation"):
        of = {name: result.figures[f"{key}.over_{name}"] for name in ("ask", "fill")}
        words = (
            f"With 1,000,000 candidates of 1,024 parameters ask and tell take {of['ask']:.2f} times as long "
            f"as ask, which writes the samples, and {of['fill']:.2f} times as long as `fill_` takes to write "
            "as many numbers."
        )
        blocks.append(with_provenance(words, result))
    return "\n\n".join(blocks)


def _outcome(outcome: Mapping[str, Any]) -> str:
    value = next((outcome[key] for key in ("error", "std_ratio", "same") if key in outcome), None)
    if value is None:
        return "no" if outcome["message"] else "-"
    if "same" in outcome:
        return "yes" if value else "no"
    text = value if isinstance(value, str) else f"{value:.1g}"
    return f"{text}, an error is raised" if outcome["refused_generations"] else text


def _microseconds(result: Result, name: str, shape: str) -> str | None:
    value = result.figures.get(f"{name}.{shape}.us")
    return None if value is None else digits(value)


def _shape_text(shape: str) -> str:
    *problems, population, dim = (f"{int(part):,}" for part in shape.split("x"))
    text = f"{population} x {dim}"
    return f"{problems[0]} problems of {text}" if problems else text


def _has(result: Result, name: str) -> bool:
    return all(f"bbob.{name}.{dim}.solved" in result.figures for dim in DIMENSIONS)


def _solved(result: Result, name: str) -> str:
    return " and ".join(f"{result.figures[f'bbob.{name}.{dim}.solved']:.0%}" for dim in DIMENSIONS)


def _sum(search: Mapping[str, Mapping[str, float]]) -> float:
    return sum(search[dim]["solved"] for dim in DIMENSIONS if dim in search)


def _share(summary: Mapping[str, float | None] | None) -> str:
    if summary is None:
        return "-"
    error = summary["standard_error"]
    return f"{summary['solved']:.3f}" + ("" if error is None else f" ± {error:.3f}")


def _collapsed(search: Mapping[str, Mapping[str, float | None]]) -> str:
    shares = [search.get(dim, {}).get("collapsed") for dim in DIMENSIONS]
    return " / ".join("-" if share is None else f"{share:.0%}" for share in shares)
