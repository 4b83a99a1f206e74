"""The tables of a report, scores with their intervals, weights, settings, generations, as escaped HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import asdict

from kernels.support.printable import printable
from tetris.evaluation.comparison import LEARNED, PUBLISHED_SCORES, Score, counted
from tetris.game.policy import Lookahead
from tetris.record.numbers import format_lines
from tetris.report.data import shown_places
from tetris.training.run_folder import RunRecord, board, stages_of

_WIDTH, _HEIGHT, _MARGIN = 150, 16, 4  # width of an interval's picture, in pixels


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


def paragraph(text: object) -> Markup:
    """Return a paragraph."""
    return Markup(f"<p>{escaped(text)}</p>\n")


def details(summary: str, content: str) -> Markup:
    """Return content that is folded at first."""
    return Markup(f"<details><summary>{escaped(summary)}</summary>\n{content}</details>\n")


def lines_text(value: float) -> str:
    """Return lines per game, or another number, with three or four digits."""
    return format_lines(value) if value >= 100 else f"{value:.3g}"


def interval_text(score: Score) -> str:
    """Return the 95 % interval of a score, or its lower end where it has no other."""
    low, high = score["ci95"]
    return f"> {lines_text(low)}" if high is None else f"{lines_text(low)} – {lines_text(high)}"


def score_tables(scored: Sequence[tuple[str, Score]]) -> Markup:
    """Return a table for each board: labels and scores with intervals, in numbers and as pictures."""
    kinds: dict[tuple[str, str, str, str], list[tuple[str, Score]]] = {}
    for label, score in scored:
        kind = (score["board"], score["rule"], score["pieces"], Lookahead.from_dict(score).phrase)
        kinds.setdefault(kind, []).append((label, score))
    return Markup("".join(_score_table(*kind, rows) for kind, rows in kinds.items()))


def _score_table(on: str, rule: str, pieces: str, more: str, scored: Sequence[tuple[str, Score]]) -> Markup:
    papers = {}
    if (rule, pieces, more) == ("published", "uniform", ""):
        papers = {name: str(figures[on]) for name, figures in PUBLISHED_SCORES.items() if on in figures}
    scale, pictures = _interval_pictures([score for _, score in scored])
    header = ["controller", "lines a game", "95 % interval", scale, "from", "decisions"]
    header += ["literature, about"] * bool(papers)
    rows = []
    for (label, score), picture in zip(scored, pictures, strict=True):
        name = Markup(f"<strong>{escaped(label)}</strong>") if score["controller"] == LEARNED else label
        value = "–" if score["lines_per_game"] is None else lines_text(score["lines_per_game"])
        row = [name, value, interval_text(score), picture, counted(score), f"{score['decisions']:,}"]
        rows.append([*row, *[papers.get(score["controller"], "–")] * bool(papers)])
    return html_table(header, rows, f"Board {on}, {rule} rule, pieces {pieces}{more}")


def _interval_pictures(scores: Sequence[Score]) -> tuple[Markup, list[Markup]]:
    """The log scale of a table's intervals, and each as a picture: a line with ends, a dot in it."""
    ends = [end for score in scores for end in score["ci95"] if end]
    first, last = min(ends, default=1.0), max(ends, default=1.0)
    if any(score["ci95"][1] is None for score in scores):
        last *= 2  # room for the arrow

    def at(value: float) -> float:
        share = math.log(max(value, first) / first) / math.log(last / first)
        return _MARGIN + share * (_WIDTH - 2 * _MARGIN)

    def picture(score: Score) -> Markup:
        (low, high), estimate = score["ci95"], score["lines_per_game"]
        middle, left = _HEIGHT / 2, at(low)
        right = _WIDTH - 1.0 if high is None else at(high)
        tip = f"M{right - 5:.1f} {middle - 4}l5 4l-5 4" if high is None else f"M{right:.1f} {middle - 4}v8"
        dot = "" if estimate is None else f'<circle cx="{at(estimate):.1f}" cy="{middle}" r="3.5"/>'
        return Markup(
            f'<svg class="interval" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{escaped(interval_text(score))}">'
            f'<path d="M{left:.1f} {middle - 4}v8M{left:.1f} {middle}H{right:.1f}{tip}"/>{dot}</svg>'
        )

    shown = "".join(f"<span>{text}</span>" for text in (lines_text(first), "log", lines_text(last)))
    return Markup(f'<span class="ends">{shown}</span>'), [picture(score) for score in scores]


def weight_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    """Return the learned weights of runs, scaled to length 1; with one run the standard deviations, too."""
    features = dict.fromkeys(feature for run in runs for feature in run.feature_names)
    columns = [dict(zip(run.feature_names, run.controller.weights, strict=True)) for run in runs]
    header = ["feature", *(names if len(runs) > 1 else ["weight"])]
    if len(runs) == 1:
        header.append("standard deviation")
        columns.append(dict(zip(runs[0].feature_names, runs[0].spread, strict=True)))
    rows = [
        [feature, *(f"{column[feature]:.4f}" if feature in column else "–" for column in columns)]
        for feature in features
    ]
    return html_table(header, rows, label="Learned weights")


def cost_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    """Return the cost and the speed of runs."""
    header = ["run", "engine", "generations", "wall time [s]", "decisions", "decisions/s", "lines/s"]
    rows = []
    for name, run in zip(names, runs, strict=True):
        seconds = max(run.seconds, 1e-9)
        done = f"{run.generations} of {run.recipe.total_generations}"
        speeds = [f"{count / seconds:,.0f}" for count in (run.decisions, run.lines)]
        rows.append([name, run.recipe.device, done, f"{seconds:,.1f}", f"{run.decisions:,}", *speeds])
    return html_table(header, rows, label="What the runs cost")


def settings_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    """Return the settings and versions of runs; of several runs only the differences are unfolded."""
    columns = [asdict(run.recipe) | {f"version of {k}": v for k, v in run.versions.items()} for run in runs]
    settings = list(dict.fromkeys(name for column in columns for name in column))
    rows = [[name, *(_setting(column.get(name)) for column in columns)] for name in settings]
    if len(runs) == 1:
        return html_table(["setting", "value"], rows, label="Settings and versions")
    different = [row for row in rows if len(set(row[1:])) > 1]
    same = [row[:2] for row in rows if len(set(row[1:])) == 1]
    if different:
        table = html_table(["setting", *names], different, "What differs")
    else:
        table = paragraph("All runs have the same settings and versions.")
    alike = html_table(["setting", "value"], same, label="What is the same")
    return Markup(table + details("What is the same", alike))


def start_table(runs: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    """Return when, where and how runs were started or resumed; nothing of runs that recorded none."""
    keys = ("date", "hardware", "commit", "command")
    rows = [
        [name, *(str(start.get(key) or "–") for key in keys)]
        for name, run in zip(names, runs, strict=True)
        for start in run.starts
    ]
    return html_table(["run", *keys], rows, "Starts of the run") if rows else Markup("")


def _setting(value: object) -> str:
    if value in ("", None):
        return "–"
    return str(value).replace(",", ", ") if isinstance(value, str) else str(value)


def stage_table(run: RunRecord) -> Markup:
    """Return the stages of the curriculum and the progress of the run."""
    played = {number: last - first + 1 for number, (_, first, last) in enumerate(stages_of(run.metrics))}
    rows = [
        [
            number + 1,
            stage.rules.board,
            f"{played.get(number, 0)} of {stage.generations}",
            f"{stage.decisions:,}",
            f"{run.recipe.population * run.recipe.streams:,}",
        ]
        for number, stage in enumerate(run.recipe.stages)
    ]
    header = ["stage", "board", "generations", "decisions a stream", "streams of games side by side"]
    return html_table(header, rows, label="Stages")


def generation_table(run: RunRecord) -> Markup:
    """Return the numbers of the charts as a table."""
    header = ["generation", "board", "best", "elites' mean", "worst elite", "learned mean"]
    header += ["mean deviation", "seconds", "decisions", "decisions/s"]
    rows = []
    for record in (run.metrics[place] for place in shown_places(run)):
        figures = [_figure(record.get(name)) for name in ("generation_best", "elite_mean", "elite_threshold")]
        figures += [_figure(record["learned_mean_fitness"]), _figure(record["std_mean"])]
        speed = record["decisions"] / record["seconds"] if record["seconds"] else None
        spent = [f"{record['seconds']:.3g}", f"{record['decisions']:,}", _figure(speed)]
        rows.append([record["generation"], board(record), *figures, *spent])
    return html_table(header, rows, label=f"Generations of {run.name}")


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
