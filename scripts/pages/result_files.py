"""The result files in benchmarks/results, and the blocks that tell of them, with their origin."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from measure.provenance import RESULTS

from pages.wording import digits, markdown


@dataclass(frozen=True)
class Result:
    """One measurement, as scripts/measure wrote it."""

    name: str  # machine/measurement: its path below benchmarks/results without the suffix
    commit: str
    dirty: bool  # whether the checkout differed from that commit
    date: str  # ISO 8601
    command: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    figures: Mapping[str, float]
    data: Any

    @property
    def hardware(self) -> str:
        """The GPU, or the cores of the processor, in a few words."""
        return str(self.machine.get("gpu", self.cores))

    @property
    def cores(self) -> str:
        """The cores of the processor, with its vector instructions where they are known."""
        name = str(self.machine["processor"]).replace("(R)", "").replace(" Processor", "")
        vectors = f" ({self.machine['vectors']})" if self.machine.get("vectors") else ""
        return f"{self.machine['cores']} cores of {name}{vectors}"

    def us(self, *of: str) -> str | None:
        """Return a figure in microseconds, if there is one."""
        value = self.figures.get(".".join((*of, "us")))
        return None if value is None else digits(value)


def load(name: str) -> Result:
    """Return the result file ``machine/measurement``."""
    return Result(name, **json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))


def load_all(measurement: str) -> list[Result]:
    """Return what was measured under one name, GPUs last, each the oldest first; empty where nothing was."""
    results = [
        load(f"{path.parent.name}/{path.stem}") for path in sorted(RESULTS.glob(f"*/{measurement}.json"))
    ]
    return sorted(results, key=lambda result: ("gpu" in result.machine, result.date))


def with_provenance(text: str, *results: Result) -> str:
    """Return a block's text with the machines that measured it, and links to their results by commit.

    ``{root}`` in a link stands for the way from the page to the root of the repository.
    """
    files: dict[str, list[str]] = {}
    for result in results:
        link = f"[{result.name}@{result.commit[:7]}]({{root}}benchmarks/results/{result.name}.json)"
        files.setdefault(f"{result.hardware}{' (changed sources)' * result.dirty}", []).append(link)
    origins = "; ".join(f"{machine}: {', '.join(links)}" for machine, links in files.items())
    return f"{text}\n\n<sub>{origins}</sub>"


def crossed(
    corner: str,
    header: Mapping[Any, str],
    labels: Mapping[Any, str],
    cell: Callable[[Any, Any], str | None],
    *results: Result,
) -> str:
    """Return a table of what ``cell`` says of a row and a column, None where nothing is known.

    The header has the columns by key, the labels the rows; a row without anything is left out.
    """
    rows = {row: [cell(row, column) for column in header] for row in labels}
    lines = [[labels[row], *(each or "-" for each in cells)] for row, cells in rows.items() if any(cells)]
    return with_provenance(markdown([corner, *header.values()], lines), *results)


def each_machine(name: str, block: Callable[[Result], str]) -> str:
    """Return a block of every machine that measured something, GPUs first; empty where none did."""
    return "\n\n".join(map(block, load_all(name)[::-1]))


def figures(result: Result, prefix: str) -> dict[str, float]:
    """Return the figures whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): x for name, x in result.figures.items() if name.startswith(prefix)}
