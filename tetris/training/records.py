"""What the files of a run have to hold: keys and types of the records that reports and resumed runs read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tetris.game.policy import Lookahead
from tetris.game.rules import Rules

_LARGEST = 1e300  # sums of as many numbers as a run has stay finite


def whole_number(value: Any) -> bool:
    """Return whether a value of JSON is a count, which True is not."""
    return type(value) is int and 0 <= value < 1 << 62


def finite_number(value: Any) -> bool:
    """Return whether a value is a number, which NaN is not."""
    return type(value) in (int, float) and abs(value) <= _LARGEST


def number_or_null(value: Any) -> bool:
    """Return whether a value is a number, or None."""
    return value is None or finite_number(value)


def text(value: Any) -> bool:
    """Return whether a value is a text."""
    return isinstance(value, str)


def board(value: Any) -> bool:
    """Return whether a value is a board such as ``10x20``, on which games are played."""
    return _accepts(Rules.parse_board, value)


def score_with_a_lookahead(value: Any) -> bool:
    """Return whether a score says what its player knew of the pieces, or nothing of it."""
    return _accepts(Lookahead.from_dict, value)


def _accepts(read: Callable[[Any], object], value: Any) -> bool:
    try:
        read(value)
    except (ValueError, TypeError, AttributeError):
        return False
    return True


_GENERATION = {
    **dict.fromkeys(
        ("generation", "stage", "board_width", "board_height", "lines", "decisions"), whole_number
    ),
    **dict.fromkeys(("seconds", "elapsed_s"), finite_number),
    **dict.fromkeys(
        ("generation_best", "elite_mean", "elite_threshold", "learned_mean_fitness", "std_mean"),
        number_or_null,
    ),
}
_SCORE = {
    **dict.fromkeys(("controller", "rule", "pieces"), text),
    "board": board,
    "lines_per_game": number_or_null,
    "ci95": (finite_number, number_or_null),
    "decisions": whole_number,
}
_SHIPPED = {"measured": dict.fromkeys(("commit", "date", "machine"), text)}


def _check(value: Any, wanted: Any, where: str) -> None:
    """Check a value of JSON; the ValueError begins with ``where``.

    Args:
        value: The value.
        wanted: A function that says whether it fits; a dictionary of what is wanted by key, others being
            allowed; or a tuple, of what each value of a list is.
        where: The file, and the place in it.
    """
    if isinstance(wanted, Mapping):
        _expect(isinstance(value, Mapping), "an object", value, where)
        for key, inner in wanted.items():
            _expect(key in value, f"the key {key!r}", list(value), where)
            _check(value[key], inner, f"{where}: {key}")
    elif isinstance(wanted, tuple):
        _expect(isinstance(value, list), "a list", value, where)
        _expect(len(value) == len(wanted), f"{len(wanted)} values", value, where)
        for place, inner in enumerate(wanted):
            _check(value[place], inner, f"{where}: {place + 1}")
    else:
        _expect(wanted(value), f"a {wanted.__name__.replace('_', ' ')}", value, where)


def _expect(fits: bool, what: str, value: object, where: str) -> None:
    if not fits:
        raise ValueError(f"{where}: expected {what}, got {value!r:.80}")


def check_generations(records: Iterable[Any], features: int, path: object) -> None:
    """Check the records of all generations of a run with so many features; ValueError names file and key."""
    weights = (finite_number,) * features
    for number, record in enumerate(records, start=1):
        where = f"{path}: line {number}"
        _check(record, {**_GENERATION, "mean": weights, "std": weights}, where)
        _check(f"{record['board_width']}x{record['board_height']}", board, where)
        _expect(record["generation"] == number, f"generation {number}", record["generation"], where)


def check_provenance(known: Mapping[str, Any], path: object) -> None:
    """Check what a learned controller tells of its training and its scores."""
    where = f"{path}: provenance"
    _check(known.get("versions", {}), {}, f"{where}: versions")
    for kind in ("score", "estimates"):
        scores = known.get(kind) or []
        _expect(isinstance(scores, list), "a list", scores, f"{where}: {kind}")
        for number, score in enumerate(scores, start=1):
            place = f"{where}: {kind}: {number}"
            _check(score, score_with_a_lookahead, place)
            count = "estimates" if "estimates" in score else "games"
            shipped = _SHIPPED if "measured" in score else {}
            _check(score, {**_SCORE, count: whole_number, **shipped}, place)
