"""Blocks of README and docs/optimiser.md: how well and how fast the optimiser searches."""

import contextlib

from pages.result_files import Result, crossed, each_machine, figures, load_all, with_provenance

_DIMENSIONS = (2, 10, 20, 40)
_SUITES = {
    "bbob": "24 functions of {}, the same start for all: {}. The default was chosen on other "
    "instances; of "
    "the first two [ten more](../benchmarks/results/xeon-16core/bbob-again.json) say the same.",
    "bbob-noisy": "30 functions of {}, with normal, uniform and Cauchy noise: the same "
    "targets, reached by "
    "a candidate's value without the noise.",
    "bbob-constrained": "54 functions of {}, with 1 to 9 + 9 dim / 2 constraints: the same targets, reached "
    "by feasible candidates. An evaluation is that of the objective and all constraints.",
    "bbob-mixint": "24 functions of {}, with equally many parameters of 2, 4, 8, 16 and any values: {}.",
}
_TARGETS = "the share of 51 targets, from 100 down to 1e-8 above the optimum"
_DIAGONAL = tuple(
    f"{name}.generation.{mode}" for name in ("cem", "torch") for mode in ("eager", "graph")
)
_FULL = tuple(f"{name}.generation.eager" for name in ("cem_cma", "cmaes_full", "cma_full"))

_DISCRETE = {
    "cem": "`cem`",
    "torch": "ten lines of PyTorch",
    "catcma": "cmaes, CatCMAwM",
    "tpe": "Optuna, TPE, up to 1,000 evaluations",
}
_FAMILIES = {
    "bits.200": "200 Bernoulli parameters",
    "categories.50x10": "50 categories of 10 values",
    "orders.100": "a permutation of 100",
}


def optimiser_claim() -> str:
    """Return the quality and the speed of the optimiser and its peers."""
    quality = load_all("bbob")[0]
    on_cpu, *_, on_gpu = load_all("generation")

    def solved(name: str) -> str:
        shares = [quality.figures[f"bbob.{name}.d{dim}.2000.solved"] for dim in _DIMENSIONS]
        return "{:.0%}, {:.0%}, {:.0%} and {:.0%}".format(*shares)

    words = (
        "On the 24 BBOB functions with 2, 10, 20 and 40 parameters `minimize(f, mean, std)` "
        "reaches "
        f"{solved('cem')} of the targets in 2,000 evaluations per parameter; pycma with BIPOP "
        "restarts "
        f"{solved('pycma_bipop')}, cmaes {solved('cmaes_cma')}, SciPy's dual annealing "
        f"{solved('dual_annealing')}. With a tenth of the evaluations dual annealing is ahead from "
        "5 parameters on. A generation of 12 candidates with 20 parameters on "
        f"{on_cpu.hardware} takes "
        "{} us, with cmaes {} us, with pycma {} us. "
        "With the diagonal `CEMConfig()` a generation of 1,024 candidates with 100 parameters on one "
        f"{on_gpu.hardware} takes "
        "{} us, in a CUDA graph {} us; ten lines of PyTorch take {} and {} us."
    )
    full = [on_cpu.us(name, "12x20") for name in _FULL]
    diagonal = [on_gpu.us(name, "1024x100") for name in _DIAGONAL]
    return with_provenance(words.format(*full, *diagonal), quality, on_cpu, on_gpu)


def coco(*suites: str) -> str:
    """Return the share of targets of each search on suites of COCO."""

    def block(result: Result) -> str:
        data = result.data.get("quality", result.data)
        searches = data["searches"]
        checkpoints = data["evaluations_per_dimension"]
        dims = [key for key in searches["cem"] if key != "label"]

        def shares(name: str, dim: str, key: str = "solved") -> list[float]:
            cell = searches[name].get(dim, {})
            return [cell[str(count)][key] for count in checkpoints if str(count) in cell]

        def shares_text(name: str, dim: str) -> str | None:
            return " / ".join(f"{share:.2f}" for share in shares(name, dim)) or None

        totals = {name: sum(sum(shares(name, dim)) for dim in dims) for name in searches}
        best_first = sorted(searches, key=lambda name: -totals[name])
        errors = []
        for name in searches:
            for dim in dims:
                errors += shares(name, dim, "standard_error")
        budgets = " / ".join(f"{count:,}" for count in checkpoints)
        table = crossed(
            f"share of targets: {budgets} evaluations per parameter "
            f"(standard error up to {max(errors):.2f})",
            {dim: f"{dim[1:]} parameters" for dim in dims},
            {name: searches[name]["label"] for name in best_first},
            shares_text,
            result,
        )
        suite = result.name.partition("/")[2]
        link = f"[{suite}](https://numbbo.github.io/coco/testsuites/{suite})"
        return f"{_SUITES[suite].format(link, _TARGETS)}\n\n{table}"

    return "\n\n".join(filter(None, (each_machine(suite, block) for suite in suites)))


def discrete() -> str:
    """Return evaluations to the optimum of discrete parameters, or times on a GPU."""

    def block(result: Result) -> str:
        def time(search: str, family: str) -> str | None:
            return result.us("discrete", search, family)

        if "gpu" in result.machine:
            return crossed("us per generation", _FAMILIES, _DISCRETE, time, result)
        header = {
            "{solved:.0f} of {runs:.0f}": "found the optimum",
            "{median:,.0f} ({least:,.0f}-{most:,.0f})": "evaluations for it, median (range)",
            "{early:.2f}": f"cost after {result.data['early']:,}, mean",
        }

        def cell(name: str, form: str) -> str | None:
            # A search that never found the optimum, or was not measured, has no such figures.
            with contextlib.suppress(KeyError):
                return form.format(**figures(result, f"discrete.{name}."))
            return None

        return crossed("40 parameters of 10 values", header, _DISCRETE, cell, result)

    return each_machine("discrete", block)
