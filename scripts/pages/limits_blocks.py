"""Perfect play on small boards, linear controllers, and what the next piece is worth: docs/limits.md."""

from __future__ import annotations

from typing import Any

from pages.result_files import Result, load, load_all, table_block, with_provenance
from pages.wording import count, score
from tetris import Rules

COLUMNS = {
    ("dt20", "unknown"): "dt20, one piece known",
    ("best", "unknown"): "best, one piece known",
    ("dt20", "looks ahead"): "dt20, looks ahead",
    ("best", "looks ahead"): "best, looks ahead",
    ("dt20", "known"): "dt20, the next piece known",
    ("best", "known"): "best, the next piece known",
}
"""Controllers, and what the next piece is to them, whose lines by height are shown."""

_LONG = 1000  # lines a game
_NEXT_PIECE = "h100/next_piece"
_CLAIMED = ("best", "looks ahead")

Scores = dict[int, dict[str, Any]]
"""Scores by the height of the board."""


def heights() -> str:
    """Return lines a game by the height of boards ten columns wide, estimates in italics."""
    found = lines_by_height()
    every = sorted({height for scores in found.values() for each in scores for height in each})
    rows = []
    for height in every:
        row = [str(height)]
        for played, estimated in found.values():
            cells = [_cell(played[height])] if height in played else []
            cells += [f"*{_cell(estimated[height])}*"] if height in estimated else []
            row.append("<br>".join(cells) or "-")
        rows.append(row)
    return table_block(["rows", *COLUMNS.values()], rows, *_of_heights(), *load_all("lookahead"))


def lines_by_height() -> dict[tuple[str, str], tuple[Scores, Scores]]:
    """Return played scores and estimates on boards ten columns wide, by the keys of `COLUMNS`.

    Of several scores the one of most games.
    """
    played: list[dict[str, Any]] = []
    estimated: list[dict[str, Any]] = []
    for result in _of_heights():
        played += result.data.get("measurements", [])
        if result.name.endswith(("heights", "next_piece", "two_pieces")):
            # Estimates neglect the cells that are left at the end of a game: some percent where it is short.
            estimated += [each for each in result.data["estimates"] if (each["lines_per_game"] or 0) >= _LONG]
        played += [  # `best` is who learned the record
            {**each, "controller": {"learned": "best"}.get(each["controller"], each["controller"])}
            for each in result.data.get("score", [])
        ]
    played += _played_lookahead()
    return {key: (_scores(played, *key), _scores(estimated, *key)) for key in COLUMNS}


def _played_lookahead() -> list[dict[str, Any]]:
    """Return scores on 10x20 over many rounds, of controllers that look ahead and of DT-20 that does not."""
    found = []
    for result in load_all("lookahead"):
        for each in result.data["measurements"]:
            name, way = each["controller"].split(".")
            how = {"board": "10x20", "pieces": "uniform", "lookahead": way == "ahead"}
            found.append({**each, **how, "controller": name})
    return found


def _scores(every: list[dict[str, Any]], name: str, way: str) -> Scores:
    """Return one score for each height."""
    found: Scores = {}
    for each in sorted(every, key=lambda score: (score.get("games", 0), score.get("estimates", 0))):
        width, height = Rules.parse_board(each["board"])
        if (each["controller"], _way(each), each["pieces"], width) == (name, way, "uniform", 10):
            found[height] = each
    return dict(sorted(found.items()))


def _way(found: dict[str, Any]) -> str:
    """Return what the next piece was to a controller."""
    if found.get("lookahead"):
        return "looks ahead"
    return "known" if found.get("pieces_known", 1) > 1 else "unknown"


def _of_heights() -> list[Result]:
    names = ("heights", "next_piece", "two_pieces", "other_rules", "best_scores")
    found = [result for name in names for result in load_all(name)]
    return [*found, load("h200/published"), load("h200/record_score")]


def next_piece() -> str:
    """Return lines a game of controllers by what they think of the next piece."""
    result, rows, unknown = load(_NEXT_PIECE), [], 0.0
    for found in result.data["measurements"]:
        lines, way = found["lines_per_game"], _way(found)
        unknown = lines if way == "unknown" else unknown
        rows.append(
            [
                *(found["board"], found["controller"], way, _with_interval(found)),
                f"{lines / unknown:,.{0 if lines >= 10 * unknown else 1}f}",
            ]
        )
    return table_block(["board", "controller", "next piece", "lines a game", "times"], rows, result)


def next_piece_estimated() -> str:
    """Return what is estimated of controllers that think of the next piece, beside what is played."""
    result, rows = load(_NEXT_PIECE), []
    played = {(each["board"], each["controller"], _way(each)): each for each in result.data["measurements"]}
    for found in result.data["estimates"]:
        of = (found["board"], found["controller"], _way(found))
        here = played.get(of)
        width = Rules.parse_board(found["board"])[0]
        rows.append(
            [
                *of,
                _interval(here, here["decisions"] / here["lines"]) if here else "-",
                _interval(found, width / 4),  # a piece has four cells
                _interval(found),
                str(found["estimates"]),
            ]
        )
    header = [
        *("board", "controller", "next piece"),
        *("decisions a game, played", "estimated", "lines a game, estimated", "estimates"),
    ]
    return table_block(header, rows, result)


def two_pieces() -> str:
    """Return what a controller that was trained with the next piece known has, beside others."""
    result = load("epyc-2core/two_pieces")
    found = result.data["estimates"]
    of_dt20 = {each["board"]: each["lines_per_game"] for each in found if each["controller"] == "dt20"}
    rows = []
    for each in found:
        times = each["lines_per_game"] / of_dt20[each["board"]]
        bounded = each["ci95"][1] is not None
        known = f"{times:.{0 if times >= 10 else 1}f}" if bounded else "-"
        rows.append([each["board"], each["controller"], score(each), known, str(each["estimates"])])
    return table_block(["board", "controller", "lines a game", "times dt20", "estimates"], rows, result)


def lookahead() -> str:
    """Return what was played on 10x20 by controllers that look ahead."""
    rows = [
        [each["controller"], _way(each), score(each), f"{each['games']:,}", count(each["decisions"])]
        for each in _played_lookahead()
    ]
    header = ["controller", "next piece", "lines a game on 10x20", "games", "decisions"]
    return table_block(header, rows, *load_all("lookahead"))


def lookahead_claim() -> str:
    """Return in a sentence what looking ahead is worth to the controller that ships."""
    (played,) = (each for each in _played_lookahead() if (each["controller"], _way(each)) == _CLAIMED)
    result = load(_NEXT_PIECE)
    (estimated,) = (
        each
        for each in result.data["estimates"]
        if (each["board"], each["controller"], _way(each)) == ("10x20", *_CLAIMED)
    )
    ended = f"{played['games']} {'game' if played['games'] == 1 else 'games'}"
    words = (
        "With `--lookahead` it thinks of the seven pieces that may come next, which the published "
        f"controllers do not, and clears {score(played)} lines a game, played: {ended} ended in "
        f"{count(played['decisions'])} decisions. Importance splitting estimates {score(estimated)}."
    )
    return with_provenance(words, *load_all("lookahead"), result)


def other_rules() -> str:
    """Return lines a game of published controllers by the rules that other reports use."""
    results = [*load_all("original_rule"), *load_all("other_rules")]
    rows = [
        [each["board"], each["rule"], each["pieces"], each["controller"], _with_interval(each)]
        for result in results
        for each in result.data["measurements"]
    ]
    return table_block(["board", "rule", "pieces", "controller", "lines a game"], rows, *results)


def _cell(found: dict[str, Any]) -> str:
    return _interval(found) if found["lines_per_game"] < 1000 else score(found)


def _with_interval(score: dict[str, Any]) -> str:
    return f"{_interval(score)}, {score['games']:,} games"


def _interval(score: dict[str, Any], scale: float = 1.0) -> str:
    values = (score["lines_per_game"], *score["ci95"])
    lines, low, high = ("?" if each is None else _four_digits(scale * each) for each in values)
    return f"{lines} ({low} - {high})"


def _four_digits(value: float) -> str:
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:g}"
