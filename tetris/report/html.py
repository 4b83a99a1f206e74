"""The elements of a report in HTML; all text is escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

from kernels.support.printable import printable


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: object) -> str:
    """Return `printable` text escaped for HTML; `Markup` unchanged."""
    return text if isinstance(text, Markup) else html.escape(printable(text))


def html_table(
    header: Sequence[object], rows: Sequence[Sequence[object]], caption: str = "", *, label: str = ""
) -> Markup:
    """Return a table that scrolls if it is too wide; the first cell of a row is its header."""
    head = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in header)
    body = "\n".join(
        f'<tr><th scope="row">{escaped(row[0])}</th>'
        + "".join(f"<td>{escaped(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    # No caption element: it would scroll with a wide table.
    above = f"<h3>{escaped(caption)}</h3>\n" if caption else ""
    name = escaped(label or caption)
    return Markup(
        f'{above}<div class="wide" role="region" tabindex="0" aria-label="{name}"><table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
    )


def section(title: str, *parts: str, name: str) -> Markup:
    """Return a section with a heading; ``name`` is its anchor."""
    return Markup(f'<section id="{name}">\n<h2>{escaped(title)}</h2>\n{"".join(parts)}</section>\n')


def paragraph(text: object) -> Markup:
    """Return a paragraph."""
    return Markup(f"<p>{escaped(text)}</p>\n")


def details(summary: str, content: str) -> Markup:
    """Return content that is folded at first."""
    return Markup(f"<details><summary>{escaped(summary)}</summary>\n{content}</details>\n")
