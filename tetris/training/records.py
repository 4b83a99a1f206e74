"""What the files of a run have to hold: keys and types of the records that reports and resumed runs read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tetris.game.policy import Lookahead
from tetris.game.rules import Rules

_LARGEST = 1e300
"""Sums of as many numbers as a run has stay finite."""


class _Kind(NamedTuple):
    """A type of a value: what it is called, and whether a value of JSON is one."""

    name: str
    fits: Callable[[Any], bool]

    def or_null(self) -> _Kind:
        return _Kind(f"{self.name} or null", lambda value: value is None or self.fits(value))

    def list_of(self) -> _Kind:
        return _Kind(
            f"a list, each {self.name}", lambda value: _is_list(value) and all(map(self.fits, value))
        )


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= _LARGEST  # NaN is not


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_board(value: Any) -> bool:
    try:
        Rules(*Rules.parse_board(value))
    except (ValueError, TypeError, AttributeError):
        return False
    return True


def _is_interval(value: Any) -> bool:
    return _is_list(value) and len(value) == 2 and _is_number(value[0]) and _OPTIONAL.fits(value[1])


_COUNT = _Kind("a whole number", _is_count)
_POSITIVE = _Kind("a whole number above 0", lambda value: _is_count(value) and value > 0)
_NUMBER = _Kind("a finite number", _is_number)
_OPTIONAL = _NUMBER.or_null()
_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_OBJECT = _Kind("an object", lambda value: isinstance(value, dict))
_TEXTS = _Kind(
    "an object of texts", lambda value: _OBJECT.fits(value) and all(map(_TEXT.fits, value.values()))
)

_GENERATION = {
    **dict.fromkeys(("generation", "stage"), _POSITIVE),
    **dict.fromkeys(("board_width", "board_height", "lines", "decisions"), _COUNT),
    **dict.fromkeys(("seconds", "elapsed_s"), _NUMBER),
    **dict.fromkeys(("generation_best", "elite_mean", "elite_threshold"), _OPTIONAL),
    **dict.fromkeys(("learned_mean_fitness", "std_mean"), _OPTIONAL),
    **dict.fromkeys(("mean", "std"), _NUMBER.list_of()),
}
_SCORE = {
    **dict.fromkeys(("controller", "rule", "pieces"), _TEXT),
    "board": _Kind("a board such as 10x20", _is_board),
    "lines_per_game": _OPTIONAL,
    "ci95": _Kind("an interval of two numbers", _is_interval),
    "decisions": _COUNT,
}


def _check(record: Any, kinds: Mapping[str, _Kind], where: str) -> None:
    """Raise ValueError, which begins with ``where``, unless a record has all keys with their kinds."""
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected an object, got {record!r:.60}")
    for key, kind in kinds.items():
        if key not in record:
            raise ValueError(f"{where}: expected the key {key!r}, {kind.name}; got none")
        if not kind.fits(record[key]):
            raise ValueError(f"{where}: expected {key!r} to be {kind.name}, got {record[key]!r:.60}")


def check_generations(records: Iterable[Any], features: int, path: object) -> None:
    """Check the records of all generations of a run with so many features; ValueError names file and key."""
    for number, record in enumerate(records, start=1):
        where = f"{path}: line {number}"
        _check(record, _GENERATION, where)
        board = f"{record['board_width']}x{record['board_height']}"
        if record["generation"] != number or not _is_board(board):
            got = f"generation {record['generation']} on {board}"
            raise ValueError(f"{where}: expected generation {number} on a board that is played, got {got}")
        for key in ("mean", "std"):
            if len(record[key]) != features:
                raise ValueError(f"{where}: expected {key!r} to have {features} numbers")


def check_starts(records: Iterable[Any], path: object) -> None:
    """Check the records of a run's starts."""
    for number, record in enumerate(records, start=1):
        _check({"start": record}, {"start": _TEXTS}, f"{path}: line {number}")


def check_provenance(known: Mapping[str, Any], path: object) -> None:
    """Check what a learned controller tells of its training and its scores."""
    where = f"{path}: provenance"
    _check({"versions": {}, **known}, {"versions": _TEXTS}, where)
    for kind in ("score", "estimates"):
        scores = known.get(kind) or []
        _check({kind: scores}, {kind: _OBJECT.list_of()}, where)
        for number, score in enumerate(scores, start=1):
            place = f"{where}: {kind} {number}"
            count = "estimates" if "estimates" in score else "games"
            _check(score, {**_SCORE, count: _COUNT}, place)
            if "measured" in score:
                _check(score["measured"], dict.fromkeys(("commit", "date", "machine"), _TEXT), place)
            try:
                Lookahead.from_dict(score)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{place}: {error}") from error
