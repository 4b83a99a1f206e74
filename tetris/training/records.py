"""Checks of a run's files: keys and types of the records that reports and resumed runs read."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tetris import Lookahead, Rules

_LARGEST = 1e300  # The sum of all numbers of a run stays finite.


def whole_number(value: Any) -> bool:
    """Return whether a value of JSON is a count; a bool, which is an int in Python, is not."""
    return type(value) is int and 0 <= value < 1 << 62


def finite_number(value: Any) -> bool:
    """Return whether a value is a finite number; a bool is not."""
    return type(value) in (int, float) and abs(value) <= _LARGEST


def number_or_null(value: Any) -> bool:
    """Return whether a value is a number, or None."""
    return value is None or finite_number(value)


def text(value: Any) -> bool:
    """Return whether a value is a string."""
    return isinstance(value, str)


def board(value: Any) -> bool:
    """Return whether a value is a board such as ``10x20``, on which games are played."""
    return _accepts(Rules.parse_board, value)


def score_with_a_lookahead(value: Any) -> bool:
    """Return whether the lookahead of a score's player is known, or the score has none."""
    return _accepts(Lookahead.from_dict, value)


def _accepts(read: Callable[[Any], object], value: Any) -> bool:
    try:
        read(value)
    except (ValueError, TypeError, AttributeError):
        return False
    return True


_GENERATION = {
    **dict.fromkeys(
        ("generation", "stage", "board_width", "board_height", "lines", "decisions"),
        whole_number,
    ),
    **dict.fromkeys(("seconds", "elapsed_s"), finite_number),
    **dict.fromkeys(
        (
            "generation_best",
            "elite_mean",
            "elite_threshold",
            "learned_mean_fitness",
            "std_mean",
        ),
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


def _check(value: Any, schema: Any, place: str) -> None:
    """Raise ValueError if a value of JSON does not have the form of a schema.

    Args:
        value: The value.
        schema: For an object a dictionary: the schema of each key; the object may have other
            keys. For a list a tuple: the schema of each item. For any other value a function
            that returns whether the value is valid; its name says in the error what is
            expected.
        place: The file, and the place of the value in it, with which the error begins.
    """
    if isinstance(schema, Mapping):
        _expect(isinstance(value, Mapping), "an object", value, place)
        for key, schema_of_key in schema.items():
            _expect(key in value, f"the key {key!r}", list(value), place)
            _check(value[key], schema_of_key, f"{place}: {key}")
    elif isinstance(schema, tuple):
        _expect(isinstance(value, list), "a list", value, place)
        _expect(len(value) == len(schema), f"{len(schema)} values", value, place)
        for index, schema_of_item in enumerate(schema):
            _check(value[index], schema_of_item, f"{place}: {index + 1}")
    else:
        _expect(schema(value), f"a {schema.__name__.replace('_', ' ')}", value, place)


def _expect(is_valid: bool, expected: str, value: object, place: str) -> None:
    if not is_valid:
        raise ValueError(f"{place}: expected {expected}, got {value!r:.80}")


def check_generations(records: Iterable[Any], features: int, path: object) -> None:
    """Check the records of the generations of a run, which begin with generation 1.

    Args:
        records: The records, one for each line of the file.
        features: The number of features.
        path: The file, for the ValueError, which names its line and the key.
    """
    weights = (finite_number,) * features
    for number, record in enumerate(records, start=1):
        place = f"{path}: line {number}"
        _check(record, {**_GENERATION, "mean": weights, "std": weights}, place)
        _check(f"{record['board_width']}x{record['board_height']}", board, place)
        _expect(
            record["generation"] == number, f"generation {number}", record["generation"], place
        )


def check_provenance(provenance: Mapping[str, Any], path: object) -> None:
    """Check what the file of a learned controller says about its training and its scores.

    A ValueError names the file, ``path``, and the key.
    """
    top = f"{path}: provenance"
    _check(provenance.get("versions", {}), {}, f"{top}: versions")
    for key in ("score", "estimates"):
        scores = provenance.get(key) or []
        _expect(isinstance(scores, list), "a list", scores, f"{top}: {key}")
        for number, score in enumerate(scores, start=1):
            place = f"{top}: {key}: {number}"
            _check(score, score_with_a_lookahead, place)
            count = "estimates" if "estimates" in score else "games"
            schema = {**_SCORE, count: whole_number}
            if "measured" in score:
                schema |= _SHIPPED
            _check(score, schema, place)
