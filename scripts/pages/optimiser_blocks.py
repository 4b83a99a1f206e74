"""Blocks of README and docs/optimiser.md: how well and how fast the optimiser searches."""

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from pages.result_files import (
    Result,
    each_machine,
    figures,
    load_all,
    make_table,
    with_provenance,
)
from pages.wording import markdown

_SUITES = {
    "bbob": "24 functions of {link}, the same start for all: {targets}.",
    "bbob-few": """With few evaluations, other instances of {link}: the default has a model if \
the function takes one candidate; SciPy restarts at random points.""",
    "bbob-noisy": """30 functions of {link}, with normal, uniform and Cauchy noise: \
the same targets, reached by a candidate's value without the noise.""",
    "bbob-constrained": """54 functions of {link}, with 1 to 9 + 9 dim / 2 constraints: \
the same targets, reached by feasible candidates.""",
    "bbob-mixint-few": "With few evaluations, other instances.",
    "bbob-mixint": """24 functions of {link}, \
with equally many parameters of 2, 4, 8, 16 and any values: {targets}.""",
}
"""The description of each suite, with a link to the suite and the definition of the targets."""

_TARGETS = "the share of 51 targets, from 100 down to 1e-8 above the optimum"
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
}
_MODELS = {"cart_pole": "cart and pole", "push": "pushed disc", "acrobot": "acrobot"}
_BUDGETS = ("300x30", "64x3")


def plans_in_models() -> str:
    """Return a Markdown table of the costs of plans in learned models.

    A column is a solver. A row is a model with a budget of samples and iterations, such as
    "300x30". The defaults of our solver were not chosen on these models. Our cost is bold if it
    is lower than the costs of all other solvers.
    """
    result = load_all("plans")[0]  # One machine has measured it.
    costs = figures(result, "plans.")  # By a name such as "push.300x30.cem".
    other_solvers = [name for name in _SOLVERS if not name.startswith("ours")]

    def cell(row: str, solver: str) -> str:
        """Return the text of a cell, from the keys of its row and its column."""
        cost = costs[f"{row}.{solver}"]
        best_other_cost = min(costs[f"{row}.{name}"] for name in other_solvers)
        is_ahead = solver.startswith("ours") and cost < best_other_cost
        return f"**{cost:.4f}**" if is_ahead else f"{cost:.4f}"

    rows = {
        f"{name}.{budget}": f"{label}, {budget}"
        for name, label in _MODELS.items()
        for budget in _BUDGETS
    }
    return make_table(
        "model, samples x iterations", result, columns=_SOLVERS, rows=rows, cell=cell
    )


_CONTROLLERS = {
    "ours": "`Planner`",
    "ours_icem": '`Planner(method="icem")`',
    "ours_mppi": '`Planner(method="mppi")`',
    "cem": "CEM",
    "icem": "iCEM",
    "mppi": "MPPI",
}
_SIMULATORS = {
    "pendulum": "Pendulum-v1",
    "reacher": "Reacher-v5",
    "half_cheetah": "HalfCheetah-v5",
    "swimmer": "Swimmer-v5",
}


def returns_in_simulators() -> str:
    """Return a Markdown table of the mean returns of planners that know the simulator.

    A row is a planner, a column is a task.
    """
    result = load_all("control")[0]  # One machine has measured it.
    returns = figures(result, "control.")

    def cell(planner: str, task: str) -> str:
        return f"{returns[f'{task}.{planner}.return']:.3g}"

    return make_table("mean return", result, columns=_SIMULATORS, rows=_CONTROLLERS, cell=cell)


_STAGES = {
    "random": "random play",
    "round_1": "planned",
    "round_2": "planned again",
    "true": "true equations",
}


def returns_by_learned_models() -> str:
    """Return a Markdown table of the mean returns of planning with learned models.

    A row is an environment, with the number of random steps from which the first model learned.
    A column is a stage of the learning. Returns have their standard deviations.
    """
    result = load_all("learned_control")[0]  # One machine has measured it.
    returns = result.data["returns"]

    def cell(task: str, stage: str) -> str | None:
        figure = f"learned_control.{task}.{stage}"
        if figure not in returns:  # The stage was not measured, so the cell has a dash.
            return None
        # The mean, and the standard deviation of the episodes' returns.
        return f"{result.figures[figure]:.0f}±{statistics.stdev(returns[figure]):.0f}"

    rows = {}
    for task in ("Pendulum-v1", "Acrobot-v1", "CartPole-v1"):
        steps = result.data["steps"][f"learned_control.{task}.random"]
        rows[task] = f"{task}, {steps:,} steps"
    return make_table("return", result, columns=_STAGES, rows=rows, cell=cell)


_COLUMNS = {
    "`cem`": ("cem", "cem_model"),
    "SciPy": ("slsqp", "bfgs", "dual_annealing", "differential_evolution"),
    "pycma": ("pycma", "pycma_bipop", "pycma_lq", "slsqp_lq"),
}
"""The measured searches of each column of README's table."""


def _load_searches(suite: str) -> list[Result]:
    """Return the results of a suite, and those of searches that were measured later.

    All have the same instances.
    """
    return load_all(suite) + load_all(f"{suite}-later")


def find_shares(suite: str, budget: str) -> list[str]:
    """Return the largest share of targets of each column of README's table, as a percentage.

    Args:
        suite: The name of the result files.
        budget: A key such as "d5.20": five parameters and 20 evaluations per parameter.
    """
    shares = []
    for searches in _COLUMNS.values():
        # The name of a figure is that of the suite of COCO, the search and the budget.
        names = [f"{suite.removesuffix('-few')}.{name}.{budget}.solved" for name in searches]
        values = [
            result.figures.get(name, 0) for result in _load_searches(suite) for name in names
        ]
        shares.append(f"{max(values):.0%}")
    return shares


def optimiser_claim() -> str:
    """Return README's table of the shares of targets that our optimiser and others reach.

    A target is a value that is close to the optimum of a benchmark function. The first rows are
    of functions that are called one candidate at a time, with few evaluations. The largest
    share of a row is bold.
    """
    shares = {
        "100, 5 parameters": find_shares("bbob-few", "d5.20"),
        "1,000, 5 parameters": find_shares("bbob-few", "d5.200"),
        "4,000, 20 parameters": find_shares("bbob-few", "d20.200"),
        "1,000, 5 parameters, constraints": find_shares("bbob-constrained", "d5.200"),
        "10,000, 5 parameters": find_shares("bbob", "d5.2000"),
        "40,000, 20 parameters": find_shares("bbob", "d20.2000"),
    }
    rows = []
    for label, texts in shares.items():
        best = max(texts)  # All texts have two digits.
        rows.append([label, *(f"**{text}**" if text == best else text for text in texts)])
    return f"""BBOB has test functions with 51 targets each, from 100 down to 1e-8 \
above the optimum. Share that a search reaches:

{markdown(["evaluations", *_COLUMNS], rows)}

A row has the default of `cem`, and the best measured method of SciPy and of pycma, alone or \
after SLSQP: [which ones](docs/optimiser.md#beside-its-peers)."""


def coco(*suites: str) -> str:
    """Return a table for each suite of COCO, with the shares of targets that searches reach."""
    blocks = (each_machine(suite, _coco_block) for suite in suites)
    return "\n\n".join(filter(None, blocks))


_OMITTED_DIMS = {"bbob": ("d3", "d10"), "bbob-few": ("d3", "d10")}
"""Numbers of parameters whose shares lie between those of their neighbours, by suite."""
_OMITTED_SEARCHES = {
    "bbob": ("cmaes_cma", "differential_evolution", "optuna_tpe"),
    "bbob-few": ("cem", "dual_annealing", "pycma_bipop"),
    "bbob-noisy": ("pycma_noise",),
    "bbob-mixint-few": ("cem",),
}
"""Searches that are far behind, or that another table has, by suite."""


def _coco_block(result: Result) -> str:
    """Return the description of a COCO suite, and a Markdown table of its searches.

    There is a row for each search and a column for each number of parameters. A cell has
    several shares of the targets, one for each budget of evaluations that the upper left corner
    lists. The rows are sorted by the sum of their shares, the best search first.
    """
    suite = result.name.partition("/")[2]  # The name is "machine/suite".
    page = suite.removesuffix("-few")
    link = f"[{page}](https://numbbo.github.io/coco/testsuites/{page})"
    description = _SUITES[suite].format(link=link, targets=_TARGETS)
    return f"{description}\n\n{_coco_table(suite, result)}"


def _coco_table(suite: str, result: Result) -> str:
    """Return a Markdown table of the searches of a COCO suite, the best search first.

    There is a row for each search and a column for each number of parameters. A cell has the
    shares of targets that the search reached within several budgets of evaluations. The upper
    left corner has these budgets and the largest standard error of a share.
    """
    data = result.data.get("quality", result.data)  # One file nests its data in "quality".
    searches = data["searches"]  # By the name of the search.
    later = load_all(f"{suite}-later")
    for other in later:
        searches = searches | other.data["searches"]
    shares = _Shares(searches, data["evaluations_per_dimension"])
    # A search has a label, and results by the number of parameters: "d2", "d5", and so on.
    dims = [key for key in searches["cem"] if key != "label"]
    # Searches are ranked by the sum of all their shares, including columns that are not shown.
    totals = {name: shares.total(name, dims) for name in searches}
    best_first = sorted(searches, key=lambda name: -totals[name])
    errors = []
    for name in searches:
        for dim in dims:
            errors += shares.values(name, dim, "standard_error")
    budgets = " / ".join(f"{count:,}" for count in shares.checkpoints)
    # Some searches and numbers of parameters are left out to keep the table short.
    omitted_dims = _OMITTED_DIMS.get(suite, ())
    columns = {}
    for dim in dims:
        if dim not in omitted_dims:
            columns[dim] = f"{dim.removeprefix('d')} parameters"
    omitted_searches = _OMITTED_SEARCHES.get(suite, ())
    rows = {}
    for name in best_first:
        if name not in omitted_searches:
            rows[name] = searches[name]["label"]
    corner = f"share of targets: {budgets} evaluations per parameter (±{max(errors):.2f})"
    return make_table(corner, result, *later, columns=columns, rows=rows, cell=shares.cell)


class _Shares(NamedTuple):
    """The shares of targets that searches of COCO reach.

    Attributes:
        searches: ``searches[name][dim]`` maps a checkpoint, such as "200", to the share of
            reached targets ("solved") and its standard error. A dim is a text such as "d5".
        checkpoints: Numbers of evaluations per parameter, such as 200.
    """

    searches: Any
    checkpoints: Sequence[int]

    def values(self, name: str, dim: str, key: str) -> list[float]:
        """Return the values of a key, one for each checkpoint that the search has reached."""
        cell = self.searches[name].get(dim, {})
        return [cell[str(count)][key] for count in self.checkpoints if str(count) in cell]

    def total(self, name: str, dims: Sequence[str]) -> float:
        """Return the sum of the shares of a search."""
        return sum(sum(self.values(name, dim, "solved")) for dim in dims)

    def cell(self, name: str, dim: str) -> str | None:
        """Return the text of a cell such as "0.58 / 0.91".

        It is None if the search was not run with this number of parameters.
        """
        return " / ".join(f"{x:.2f}" for x in self.values(name, dim, "solved")) or None


def practice() -> str:
    """Return a table of the evaluations that searches need for problems of practice."""
    return each_machine("practice", _practice_block)


def _practice_block(result: Result) -> str:
    """Return a Markdown table of the evaluations that searches need to solve problems.

    A sentence before it says for how many problems `cem` needs the fewest.

    A row is a problem, a column is a search. A cell is the median of the evaluations. If most
    runs have not solved the problem, the cell is ">" and the fewest evaluations of these runs,
    which the median exceeds. A median is bold if no number of the row is smaller.
    """
    cell = partial(_practice_cell, result)
    rows = {name: name for name in result.data["problems"]}
    columns = result.data["labels"]
    table = make_table("evaluations", result, columns=columns, rows=rows, cell=cell)
    wins, problems = count_wins(result)
    return f"""Evaluations until a value is within 1% of the best known: medians of nine \
starts. `cem`, called candidate by candidate, needs the fewest for {wins} of {problems} \
problems. {_compare_least_squares(result)}\n\n{table}"""


def _compare_least_squares(result: Result) -> str:
    """Return a sentence on the evaluations of SciPy's `least_squares`, which sees residuals."""
    searches_by_problem = result.data["problems"].items()
    fits = [name for name, searches in searches_by_problem if "least_squares" in searches]
    counts = [f"{_least_evaluations(result, name, 'least_squares'):,.0f}" for name in fits]
    return f"""Of the fits {", ".join(fits)}, `scipy.optimize.least_squares`, given residuals, \
needs {", ".join(counts)}; `curve_fit` adds standard errors."""


def _practice_cell(result: Result, problem: str, search: str) -> str:
    """Return the cell of a problem and a search in the table of `_practice_block`."""
    least = _least_evaluations(result, problem, search)
    if not _is_solved(result, problem, search):
        return f">{least:,}"
    is_first = _solves_first(result, problem, search)
    return f"**{least:,.0f}**" if is_first else f"{least:,.0f}"


def _is_solved(result: Result, problem: str, search: str) -> bool:
    """Return whether most runs of a search have solved a problem. They have a median then."""
    return f"practice.{problem}.{search}.evaluations" in result.figures


def _least_evaluations(result: Result, problem: str, search: str) -> float:
    """Return the median, or if there is none, the fewest evaluations of unsolved runs."""
    if _is_solved(result, problem, search):
        median: float = result.figures[f"practice.{problem}.{search}.evaluations"]
        return median
    runs = result.data["problems"][problem][search]
    counts: list[float] = [run["evaluations"] for run in runs if not run["is_solved"]]
    return min(counts)


def _solves_first(result: Result, problem: str, search: str) -> bool:
    """Return whether a search solves a problem, and no other needs fewer evaluations."""
    searches = result.data["labels"]
    least = min(_least_evaluations(result, problem, name) for name in searches)
    is_least = _least_evaluations(result, problem, search) == least
    return is_least and _is_solved(result, problem, search)


def count_wins(result: Result) -> tuple[int, int]:
    """Return for how many problems `cem` needs the fewest evaluations, and of how many."""
    problems = result.data["problems"]
    wins = [problem for problem in problems if _solves_first(result, problem, "cem")]
    return len(wins), len(problems)


def asynchronous() -> str:
    """Return a sentence for each machine on the quality of asynchronous searches."""
    return each_machine("asynchronous", _asynchronous_block)


def _asynchronous_block(result: Result) -> str:
    """Return a sentence on the targets that synchronous and asynchronous searches reach.

    It has the shares of targets, as means over the numbers of parameters.
    """
    checkpoints = result.data["evaluations_per_dimension"]

    def shares(search: str) -> str:
        """Return a share for each checkpoint, such as "0.58 / 0.91"."""
        details = result.data["searches"][search].items()
        # A cell for each number of parameters. The label of the search is no cell.
        cells = [cell for name, cell in details if name != "label"]
        means = [statistics.mean(cell[str(n)]["solved"] for cell in cells) for n in checkpoints]
        return " / ".join(f"{mean:.2f}" for mean in means)

    budgets = " / ".join(f"{n:,}" for n in checkpoints)
    words = f"""Targets of bbob reached in {budgets} evaluations per parameter: synchronous \
{shares("cem")} ({shares("cem_population_16")} in populations of 16), asynchronous \
{shares("cem_asynchronous_8")} with 8 workers, {shares("cem_asynchronous_16")} with 16."""
    return with_provenance(words, result)


def discrete() -> str:
    """Return tables of searches of discrete parameters, one for each measured machine."""
    return each_machine("discrete", _discrete_block)


def _discrete_block(result: Result) -> str:
    """Return a Markdown table of searches over discrete parameters on one machine.

    If the machine has a GPU, the table has the time of a generation for each family of
    parameters. Otherwise it has the number of evaluations until the optimum was found.
    """

    def time(search: str, family: str) -> str | None:
        return result.us("discrete", search, family)

    if "gpu" in result.machine:
        return make_table(
            "us per generation", result, columns=_FAMILIES, rows=_DISCRETE, cell=time
        )

    # The headings of the columns, by the format of their cells. A format has the names of
    # figures: in the row of "cem", {solved} is the figure "discrete.cem.solved".
    columns = {
        "{solved:.0f} of {runs:.0f}": "found the optimum",
        "{median:,.0f} ({least:,.0f}-{most:,.0f})": "evaluations for it, median (range)",
        "{early:.2f}": f"cost after {result.data['early']:,}, mean",
    }

    def cell(search: str, cell_format: str) -> str | None:
        try:
            return cell_format.format(**figures(result, f"discrete.{search}."))
        except KeyError:
            # A figure is missing: no run found the optimum, or the search was not measured.
            return None

    return make_table(
        "40 parameters of 10 values", result, columns=columns, rows=_DISCRETE, cell=cell
    )
