"""Checks of a run's files: the keys and types of the records that are read from them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tetris import Lookahead, Rules

_LARGEST = 1e300  # The sum of all numbers of a run stays finite.


def whole_number(value: Any) -> bool:
    """Return whether a JSON value is a count. A bool, which is an int in Python, is not one."""
    return type(value) is int and 0 <= value < 1 << 62


def finite_number(value: Any) -> bool:
    """Return whether a value is a finite number. A bool is not one."""
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
    """Return whether the lookahead in a score is a known one, or the score has none."""
    return _accepts(Lookahead.from_dict, value)


def _accepts(read: Callable[[Any], object], value: Any) -> bool:
    """Return whether a function can read a value, without an error."""
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
    """Raise ValueError if a value that was read from JSON does not match a schema.

    The schema ``{"board": text, "ci95": (finite_number, number_or_null)}`` accepts the value
    ``{"board": "10x20", "ci95": [1.5, None]}``.

    Args:
        value: The value.
        schema: A dictionary, a tuple or a function. A dictionary stands for an object: it must
            have the keys of the dictionary, and their values must match the schemas there. A
            tuple stands for a list: it must have an item for each schema of the tuple. A
            function is called with the value, and returns whether it is valid; an error
            contains its name, such as "expected a whole number".
        place: The file, and the position of the value in it. Errors begin with this text.
    """
    if isinstance(schema, Mapping):
        _require(isinstance(value, Mapping), "an object", value, place)
        for key, schema_of_key in schema.items():
            _require(key in value, f"the key {key!r}", list(value), place)
            _check(value[key], schema_of_key, f"{place}: {key}")
    elif isinstance(schema, tuple):
        _require(isinstance(value, list), "a list", value, place)
        _require(len(value) == len(schema), f"{len(schema)} values", value, place)
        for index, schema_of_item in enumerate(schema):
            _check(value[index], schema_of_item, f"{place}: {index + 1}")
    else:
        is_valid = schema(value)
        description = schema.__name__.replace("_", " ")
        _require(is_valid, f"a {description}", value, place)


def _require(is_valid: bool, expected: str, got: object, place: str) -> None:
    """Raise ValueError unless ``is_valid``.

    Args:
        is_valid: Whether the value is valid.
        expected: A description of a valid value, for the error.
        got: The value that the error shows.
        place: The file, and the position of the value in it. The error begins with this text.
    """
    if not is_valid:
        raise ValueError(f"{place}: expected {expected}, got {got!r:.80}")


def check_generations(records: Iterable[Any], features: int, path: object) -> None:
    """Check the records of the generations of a run, which begin with generation 1.

    Args:
        records: The records, one for each line of the file.
        features: The number of features.
        path: The path of the file, for the error.

    Raises:
        ValueError: If a record is not valid; the message names the file, the line and the key.
    """
    weights = (finite_number,) * features
    for number, record in enumerate(records, start=1):
        place = f"{path}: line {number}"
        _check(record, {**_GENERATION, "mean": weights, "std": weights}, place)
        _check(f"{record['board_width']}x{record['board_height']}", board, place)
        generation = record["generation"]
        _require(generation == number, f"generation {number}", generation, place)


def check_provenance(provenance: Mapping[str, Any], path: object) -> None:
    """Check the entry of a controller's file about its training and its scores.

    Args:
        provenance: The entry ``provenance`` of the file, as read from JSON.
        path: The path of the file, for the error.

    Raises:
        ValueError: If a value does not have the expected form; the message names the file and
            the keys that lead to the value.
    """
    place = f"{path}: provenance"
    # The versions of libraries must be an object. It may have any keys, so its schema is empty.
    _check(provenance.get("versions", {}), {}, f"{place}: versions")
    for key in ("score", "estimates"):
        scores = provenance.get(key) or []  # The value is None if there are no scores.
        _require(isinstance(scores, list), "a list", scores, f"{place}: {key}")
        for number, score in enumerate(scores, start=1):
            place_of_score = f"{place}: {key}: {number}"
            # This schema is a function that returns whether the score has a valid lookahead.
            _check(score, score_with_a_lookahead, place_of_score)
            # An estimated score has a count of estimates, a played score has a count of games.
            count_key = "estimates" if "estimates" in score else "games"
            schema = {**_SCORE, count_key: whole_number}
            if "measured" in score:  # This score comes with the package.
                schema |= _SHIPPED
            _check(score, schema, place_of_score)
