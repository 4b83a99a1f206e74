"""docs/poster.html, "How it learns": a page for teachers to print."""

import re
from pathlib import Path

from jinja2 import Environment, StrictUndefined

import cem.optimizer
from pages.score_blocks import results

_MEANINGS = (
    "Draw candidates from a normal distribution with the mean mu and the covariance Sigma.",
    "The elites are the best candidates; m is their weighted mean, v their variance about the "
    "old mean, and Z an extra variance that keeps the search wide.",
    "Move the mean towards the elites.",
    "Move the standard deviation towards their spread, but not below a floor.",
    "Where scores are noisy, average the means: the average is the answer.",
)


def poster_page() -> str:
    """Return the poster as HTML: equations, boards, and controllers with their scores."""
    # A line with an equation in the docstring ends with its number, and with "ask" or "tell".
    equations = re.findall(r"^    (\S.*?) +\(\d\) \w+$", cem.optimizer.__doc__ or "", re.M)
    rows = [line.strip("| ").split(" | ") for line in results().splitlines()]
    # Remove Markdown's links, code marks and emphasis from the cells.
    plain = [[re.sub(r"\[(.*?)\]\(.*?\)|[`*]", r"\1", cell) for cell in row] for row in rows]
    ladder = [row for row in plain if row[0] != "---"]  # Skip the line below the header.
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    return environment.from_string(template).render(
        equations=list(zip(equations, _MEANINGS, strict=True)), ladder=ladder
    )
