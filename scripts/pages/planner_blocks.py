"""What planning comes to on simulators, and how long a plan takes: blocks of docs/planner.md."""

from __future__ import annotations

from collections.abc import Mapping

from pages.result_files import load, load_all, table_block
from pages.wording import digits

PROCESSOR = "epyc-2core"
LABELS: Mapping[str, str] = {
    "ours": "`Planner`, defaults",
    "ours.keep0": "`Planner(keep=0)`",
    "ours.beta2": "`Planner(beta=2)`",
    "pytorch_icem.beta3.elites10": "pytorch-icem: beta 3, 10 elites (its defaults)",
    "pytorch_icem.beta3.elites_tenth": "pytorch-icem: beta 3, a tenth",
    "pytorch_icem.beta0.elites10": "pytorch-icem: beta 0, 10 elites",
    "pytorch_icem.beta0.elites_tenth": "pytorch-icem: beta 0, a tenth",
    "plain": "plain: no memory, the same noise in every step",
}
_KINDS = {
    "compiled": "CUDA graph, compiled cost",
    "graph": "CUDA graph",
    "eager": "single launches",
}


def planner_returns() -> str:
    """Return the median return of every method at every budget; for how many starts it is ahead of plain."""
    result = load(f"{PROCESSOR}/planner")
    returns = result.data["returns"]
    rows = []
    for name, label in LABELS.items():
        row = [label]
        for budget, by_method in returns.items():
            if name in by_method:
                key = f"planner.pendulum.{budget}.{name}"
                ahead = result.figures.get(f"{key}.ahead_of_plain")
                text = f"{result.figures[f'{key}.median_return']:.2f}"
                row.append(text if ahead is None else f"{text} ({ahead:.0f})")
        if len(row) == len(returns) + 1:
            rows.append(row)
    header = ["Pendulum-v1, median return (starts of 10 ahead of plain)"]
    return table_block([*header, *map(budget_text, returns)], rows, result)


def budget_text(budget: str) -> str:
    """Return a budget such as ``30x3.h15`` in words."""
    size, _, horizon = budget.partition(".h")
    return f"{size}, horizon {horizon}"


def planner_times() -> str:
    """Return the time of a plan on a processor and on GPUs."""
    blocks = []
    for result in load_all("planner"):
        if "gpu" not in result.machine:
            names = {name: each["median"] / 1e3 for name, each in result.data["wall"].items()}
            rows = [[LABELS[name], digits(time)] for name, time in names.items()]
            blocks.append(
                table_block(
                    ["plans of 100 x 5, horizon 30, for ten environments, on one core", "ms"], rows, result
                )
            )
        else:
            rows = []
            for envs in (1, 64, 1024):
                for kind, label in _KINDS.items():
                    key = f"planner.plan.1024x5.h30.envs{envs}.{kind}"
                    if f"{key}.latency_ms" in result.figures:
                        times = (result.figures[f"{key}.{clock}_ms"] for clock in ("latency", "host"))
                        count = f"{envs:,} environment{'' if envs == 1 else 's'}"
                        rows.append([f"{count}, {label}", *map(digits, times)])
            header = ["a plan of 1,024 x 5, horizon 30", "ms", "of the host"]
            blocks.append(table_block(header, rows, result))
    return "\n\n".join(blocks)
