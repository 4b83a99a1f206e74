"""Blocks of README and docs/optimiser.md: how well and how fast the optimiser searches."""

from pages.result_files import Result, crossed, each_machine, figures, load_all, with_provenance

_DIMENSIONS = (2, 20, 40)
_SUITES = {
    "bbob": """24 functions of {link}, the same start for all: {targets}. \
The default was chosen on other instances; of the first two \
[ten more](../benchmarks/results/xeon-16core/bbob-again.json) say the same.""",
    "bbob-few": """With few evaluations, other instances of {link}: the default, which has a \
model if the function is called candidate by candidate (`vectorize="loop"`), beside SLSQP from \
random starts and pycma's lq-CMA-ES, alone or after SLSQP.""",
    "bbob-noisy": """30 functions of {link}, with normal, uniform and Cauchy noise: \
the same targets, reached by a candidate's value without the noise.""",
    "bbob-constrained": """54 functions of {link}, with 1 to 9 + 9 dim / 2 constraints: \
the same targets, reached by feasible candidates. \
An evaluation is that of the objective and all constraints.""",
    "bbob-mixint": """24 functions of {link}, \
with equally many parameters of 2, 4, 8, 16 and any values: {targets}.""",
}
"""What a page says of a suite, with a link to the suite and the definition of the targets."""

_TARGETS = "the share of 51 targets, from 100 down to 1e-8 above the optimum"
_FULL = (
    "cem_cma.generation.eager",
    "cmaes_full.generation.eager",
    "cma_full.generation.eager",
)
"""Figures of searches with a full covariance."""

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


_SOLVERS = {
    "ours": "`Planner`",
    "ours_half": "`Planner`, half the samples",
    "cem": "CEM",
    "icem": "iCEM",
    "mppi": "MPPI",
    "predictive_sampling": "predictive sampling",
}
_MODELS = {"cart_pole": "cart and pole", "push": "pushed disc", "acrobot": "acrobot"}
_BUDGETS = ("300x30", "100x10", "64x3")


def plans_in_models() -> str:
    """Return a table of the costs of plans in learned models, with ours in bold if it is best.

    Its lines are the models on which no default was chosen, with samples and iterations.
    """
    result = load_all("plans")[0]
    costs = figures(result, "plans.")

    def cell(row: str, solver: str) -> str:
        cost = costs[f"{row}.{solver}"]
        others = [costs[f"{row}.{name}"] for name in _SOLVERS if not name.startswith("ours")]
        is_ahead = solver.startswith("ours") and cost < min(others)
        return f"**{cost:.4f}**" if is_ahead else f"{cost:.4f}"

    rows = {
        f"{name}.{budget}": f"{label}, {budget}"
        for name, label in _MODELS.items()
        for budget in _BUDGETS
    }
    return crossed("model, samples x iterations", _SOLVERS, rows, cell, result)


def optimiser_claim() -> str:
    """Return README's paragraph on the quality and the speed of our optimiser and of others.

    The numbers come from the result files of "bbob", "bbob-few" and "generation".
    """
    quality = load_all("bbob")[0]
    few = load_all("bbob-few")[0]
    on_cpu = load_all("generation")[0]

    def solved(name: str) -> str:
        """Return the shares of the targets that a search reaches, by number of parameters."""
        shares = [quality.figures[f"bbob.{name}.d{dim}.2000.solved"] for dim in _DIMENSIONS]
        return "{:.0%}, {:.0%} and {:.0%}".format(*shares)

    def solved_early(name: str) -> str:
        """Return the shares in 200 evaluations per parameter, of 5, 10 and 20 parameters."""
        shares = [few.figures[f"bbob.{name}.d{dim}.200.solved"] for dim in (5, 10, 20)]
        return "{:.0%}, {:.0%} and {:.0%}".format(*shares)

    # Microseconds per generation of 12 candidates with 20 parameters.
    times = [on_cpu.us(name, "12x20") for name in _FULL]
    words = f"""On the 24 BBOB functions with 2, 20 and 40 parameters it reaches \
{solved("cem")} of the targets in 2,000 evaluations per parameter; pycma with BIPOP restarts \
{solved("pycma_bipop")}, cmaes {solved("cmaes_cma")}, SciPy's dual annealing \
{solved("dual_annealing")}, which is ahead in a tenth of the evaluations from 5 parameters on. \
With the model, 5, 10 and 20 parameters and 200 evaluations per parameter it reaches \
{solved_early("cem_model")}, SciPy's SLSQP {solved_early("slsqp")}, pycma's lq-CMA-ES after \
SLSQP {solved_early("slsqp_lq")}. A generation of 12 candidates \
with 20 parameters takes {times[0]} us on {on_cpu.hardware}, with cmaes {times[1]} us, with \
pycma {times[2]} us: [more](docs/optimiser.md#beside-its-peers)."""
    return with_provenance(words, quality, few, on_cpu)


def coco(*suites: str) -> str:
    """Return a table for each suite of COCO: the shares of targets that the searches reach."""
    blocks = (each_machine(suite, _coco_block) for suite in suites)
    return "\n\n".join(filter(None, blocks))


_OMITTED = "d3"  # The shares with three parameters lie between those with two and with five.


def _coco_block(result: Result) -> str:
    """Return the description of a COCO suite, and a table of searches by number of parameters.

    A cell has the share of targets that a search reached within the numbers of evaluations in
    the heading. The searches that reach most come first.
    """
    data = result.data.get("quality", result.data)  # Some results have more details.
    searches = data["searches"]
    checkpoints = data["evaluations_per_dimension"]
    dims = [key for key in searches["cem"] if key != "label"]  # "d2", "d5", ...

    def values(name: str, dim: str, key: str) -> list[float]:
        """Return a value of a search at each checkpoint; some searches lack the last one."""
        cell = searches[name].get(dim, {})
        return [cell[str(count)][key] for count in checkpoints if str(count) in cell]

    def solved_shares(name: str, dim: str) -> str | None:
        """Return the text of a cell, or None if the search was not measured."""
        return " / ".join(f"{share:.2f}" for share in values(name, dim, "solved")) or None

    totals = dict.fromkeys(searches, 0.0)
    errors = []
    for name in searches:
        for dim in dims:
            totals[name] += sum(values(name, dim, "solved"))
            errors += values(name, dim, "standard_error")
    best_first = sorted(searches, key=lambda name: -totals[name])
    budgets = " / ".join(f"{count:,}" for count in checkpoints)
    table = crossed(
        f"share of targets: {budgets} evaluations per parameter "
        f"(standard error up to {max(errors):.2f})",
        {dim: f"{dim[1:]} parameters" for dim in dims if dim != _OMITTED},
        {name: searches[name]["label"] for name in best_first},
        solved_shares,
        result,
    )
    suite = result.name.partition("/")[2]
    page = suite.removesuffix("-few")
    link = f"[{page}](https://numbbo.github.io/coco/testsuites/{page})"
    description = _SUITES[suite].format(link=link, targets=_TARGETS)
    return f"{description}\n\n{table}"


def discrete() -> str:
    """Return tables of searches of discrete parameters, one for each measured machine."""
    return each_machine("discrete", _discrete_block)


def _discrete_block(result: Result) -> str:
    """Return a table of searches over discrete parameters, from the result of one machine.

    A result with a GPU has the times of a generation, by family of parameters. One without has
    the evaluations that the searches needed for the optimum of a problem.
    """

    def time(search: str, family: str) -> str | None:
        return result.us("discrete", search, family)

    if "gpu" in result.machine:
        return crossed("us per generation", _FAMILIES, _DISCRETE, time, result)

    # The headings of the columns, by the format of their cells: {solved} is the figure
    # "discrete.NAME.solved" of the search NAME.
    header = {
        "{solved:.0f} of {runs:.0f}": "found the optimum",
        "{median:,.0f} ({least:,.0f}-{most:,.0f})": "evaluations for it, median (range)",
        "{early:.2f}": f"cost after {result.data['early']:,}, mean",
    }

    def cell(search: str, cell_format: str) -> str | None:
        try:
            return cell_format.format(**figures(result, f"discrete.{search}."))
        except KeyError:
            # The search never found the optimum, or was not measured.
            return None

    return crossed("40 parameters of 10 values", header, _DISCRETE, cell, result)
