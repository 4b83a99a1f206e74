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
    """Raise ValueError if a value that was read from JSON does not match a schema.

    Args:
        value: The value.
        schema: One of three forms. A dictionary stands for an object with at least these keys,
            whose values match the schemas in the dictionary. A tuple stands for a list with an
            item for each of its schemas. A function returns whether any other value is valid;
            its name is part of the error, such as "expected a whole number".
        place: The file, and the position of the value in it, with which the error begins.
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
        description = schema.__name__.replace("_", " ")
        _expect(schema(value), f"a {description}", value, place)


def _expect(is_valid: bool, expected: str, value: object, place: str) -> None:
    """Raise ValueError unless a value is valid."""
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

    Args:
        provenance: The entry ``provenance`` of the file, as read from JSON.
        path: The file, for the error.

    Raises:
        ValueError: If a value does not have the expected form; the message names the file and
            the keys that lead to the value.
    """
    place = f"{path}: provenance"
    # The versions of libraries are an object with any keys.
    _check(provenance.get("versions", {}), {}, f"{place}: versions")
    for key in ("score", "estimates"):
        scores = provenance.get(key) or []  # None stands for no scores.
        _expect(isinstance(scores, list), "a list", scores, f"{place}: {key}")
        for number, score in enumerate(scores, start=1):
            place_of_score = f"{place}: {key}: {number}"
            _check(score, score_with_a_lookahead, place_of_score)
            # A score is an estimate, or counts games that were played.
            count = "estimates" if "estimates" in score else "games"
            schema = {**_SCORE, count: whole_number}
            if "measured" in score:  # It was shipped with the package.
                schema |= _SHIPPED
            _check(score, schema, place_of_score)
