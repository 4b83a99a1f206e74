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
    """Return the poster as HTML.

    The template gets the equations of the cross-entropy method, and the table of README with
    the scores of controllers.
    """
    # The equations are in the optimizer's docstring. A line such as
    #     mu_{t+1}    = alpha m + (1 - alpha) mu_t      (3) tell
    # has an equation, its number, and the method that computes it. Keep only the equation.
    equation_line = re.compile(r"^    (\S.*?) +\(\d\) \w+$", re.MULTILINE)
    equations = equation_line.findall(cem.optimizer.__doc__ or "")
    # Replace a Markdown link "[text](target)" by its text, and remove the marks ` and *.
    markup = re.compile(r"\[(.*?)\]\(.*?\)|[`*]")
    score_rows = []
    for line in results().splitlines():  # The rows of the Markdown table.
        cells = line.strip("| ").split(" | ")
        if cells[0] != "---":  # Skip the line below the header.
            score_rows.append([markup.sub(r"\1", cell) for cell in cells])
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, undefined=StrictUndefined)
    return environment.from_string(template).render(
        equations=list(zip(equations, _MEANINGS, strict=True)), score_rows=score_rows
    )
