"""Read the result files in benchmarks/results, and add their provenance to blocks of pages."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from measure.provenance import RESULTS

from pages.wording import digits, markdown


@dataclass(frozen=True)
class Result:
    """The result file of a measurement.

    Attributes:
        name: "machine/measurement", the path in benchmarks/results without the suffix.
        dirty: Whether files of the checkout differed from the commit.
        date: The date in the format of ISO 8601.
    """

    name: str
    commit: str
    dirty: bool
    date: str
    command: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    figures: Mapping[str, float]
    data: Any

    @property
    def hardware(self) -> str:
        """The name of the GPU, or the number and the kind of cores without a GPU."""
        return str(self.machine.get("gpu", self.cores))

    @property
    def cores(self) -> str:
        """The number and the kind of cores, and their vector instructions if they are known."""
        name = str(self.machine["processor"]).replace("(R)", "").replace(" Processor", "")
        text = f"{self.machine['cores']} cores of {name}"
        vectors = self.machine.get("vectors")
        return f"{text} ({vectors})" if vectors else text

    def us(self, *parts: str) -> str | None:
        """Return the text of a figure in microseconds, or None if there is no such figure.

        The name of the figure is ``parts`` joined by dots, followed by ".us".
        """
        value = self.figures.get(".".join((*parts, "us")))
        return None if value is None else digits(value)


def load(name: str) -> Result:
    """Return the result file ``machine/measurement``."""
    return Result(name, **json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))


def load_all(measurement: str) -> list[Result]:
    """Return the results of all machines, sorted by date; those with a GPU come last."""
    paths = sorted(RESULTS.glob(f"*/{measurement}.json"))
    results = [load(f"{path.parent.name}/{path.stem}") for path in paths]
    return sorted(results, key=lambda result: ("gpu" in result.machine, result.date))


def with_provenance(text: str, *results: Result) -> str:
    """Return a text, followed by a line that names the measured machines and links to results.

    ``{root}`` in a link stands for the path from the page to the root of the repository.
    """
    links: dict[str, list[str]] = {}  # By the name of the machine.
    for result in results:
        machine = result.hardware
        if result.dirty:
            machine += " (changed sources)"
        file = f"{{root}}benchmarks/results/{result.name}.json"
        links.setdefault(machine, []).append(f"[{result.name}@{result.commit[:7]}]({file})")
    origins = (f"{machine}: {', '.join(links[machine])}" for machine in links)
    return f"{text}\n\n<sub>{'; '.join(origins)}</sub>"


def make_table(
    corner: str,
    *results: Result,
    columns: Mapping[Any, str],
    rows: Mapping[Any, str],
    cell: Callable[[Any, Any], str | None],
) -> str:
    """Return a Markdown table whose cells are computed from the keys of their row and column.

    Args:
        corner: The text of the cell in the upper left corner.
        results: The results from which the cells are computed. A line below the table links to
            their files.
        columns: The headings of the columns, by the key of the column.
        rows: The headings of the rows, by the key of the row.
        cell: Maps the key of a row and the key of a column to the text of a cell. If it returns
            None, the cell has a dash. A row without any text is left out.
    """
    lines = []
    for row_key, heading in rows.items():
        cells = [cell(row_key, column_key) for column_key in columns]
        if any(cells):
            lines.append([heading, *(text or "-" for text in cells)])
    return with_provenance(markdown([corner, *columns.values()], lines), *results)


def each_machine(name: str, block: Callable[[Result], str]) -> str:
    """Return a block for every machine that has a result of this name, GPUs first."""
    return "\n\n".join(map(block, load_all(name)[::-1]))


def figures(result: Result, prefix: str) -> dict[str, float]:
    """Return the figures whose names begin with a prefix, by their names without the prefix."""
    values = {}
    for name, value in result.figures.items():
        if name.startswith(prefix):
            values[name.removeprefix(prefix)] = value
    return values
