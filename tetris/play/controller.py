"""Controllers: a feature set and its weights; JSON files, published and learned ones.

Published weights, as far as they are known: Fahey (2003) for Pierre Dellacherie's; Thiery and
Scherrer, "Building Controllers for Tetris" (ICGA Journal 32, 2009) for BCTS, also called DU,
and BDU; Gabillon, Ghavamzadeh and Scherrer, "Approximate Dynamic Programming Finally Performs
Well in the Game of Tetris" (NIPS 2013) for DT-10 and DT-20; Y. Lee, "Tetris AI: The (near)
perfect bot" (2013) for Lee's, which counts holes and heights after full rows are removed where
Lee's program counts them before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.support.files import StrPath, check_own, read_bytes, write_text
from kernels.support.names import did_you_mean, meant_path, unknown_name
from tetris.game.feature_sets import feature_names, feature_sets, split_units, weight_names
from tetris.game.policy import Lookahead, Player, Policy
from tetris.game.rules import Rules
from tetris.play.quantized_weights import played_weights

FORMAT = "cem-tetris-controller"
VERSION = 1
FILE_NAME = "controller.json"
"""Name of the controller's file in the folder of a run."""

PUBLISHED = ("dellacherie", "bcts", "bdu", "dt10", "dt20", "lee")
"""The controllers of the literature; the others of the package were learned here."""

_FOLDER = Path(__file__).resolve().parent / "controllers"
_FIELDS = ("name", "features", "weights", "rules", "provenance")
_KEYS = ("format", "version", *_FIELDS)


@dataclass(frozen=True)
class LinearController:
    """A controller that values an after-state by a weighted sum of features.

    The features may include hidden units, which are a small network.

    Examples:
        >>> controller = LinearController("holes, max_height", (-4.0, -1.0))
        >>> controller.names_on(Rules(8, 12))
        ('holes', 'max_height')

    Attributes:
        features: Name of a feature set, or feature names separated by commas; with hidden
            units, such as ``dt+8``.
        weights: A finite number for each name of `weight_names`, as float64. The controller
            plays with `played_weights`.
        rules: The rules that the controller was made for. It can also play by other rules for
            which its features exist.
        name: Its name in tables; may be empty.
        provenance: Its origin, as plain JSON values.

    Raises:
        TypeError: If the weights are not numbers.
        ValueError: If the features are unknown, the weights do not fit them or are not finite
            in float32, or all of them round to 0 in float32.
    """

    features: str
    weights: tuple[float, ...]
    rules: Rules = field(default_factory=Rules)
    name: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Validate all values, and bring features and weights into their canonical form."""
        if not isinstance(self.name, str) or not isinstance(self.provenance, Mapping):
            raise TypeError(
                f"expected a str and a mapping, got {self.name!r} and {self.provenance!r}"
            )
        object.__setattr__(
            self, "features", _canonical_features(self.features, self.rules.width)
        )
        object.__setattr__(self, "weights", _checked_weights(self.weights))
        self.names_on(self.rules)

    @property
    def played_weights(self) -> npt.NDArray[np.float64]:
        """The weights that it plays with, after `quantized_weights`: (weights,), float64."""
        weights = torch.tensor(self.weights, dtype=torch.float32, device="cpu")
        return played_weights(weights, self.names_on(self.rules)).numpy()

    def names_on(self, rules: Rules) -> tuple[str, ...]:
        """Return the names of the controller's weights on a board.

        A feature set that describes single columns, such as ``dt_columns``, has more features
        on a wider board. So its weights fit boards of one width only.

        Raises:
            ValueError: If the weights do not fit the features on a board of ``rules``.
        """
        names = weight_names(self.features, rules.width)
        if len(names) == len(self.weights):
            return names
        if rules.width != self.rules.width:
            raise ValueError(
                f"expected a board of width {self.rules.width} for the features "
                f"{self.features}, got {rules.board}"
            )
        raise ValueError(
            f"expected {len(names)} weights for the features {self.features} on a board of "
            f"width {rules.width}, got {len(self.weights)}"
        )

    def policy(self, lookahead: Lookahead | str = Lookahead.NONE) -> Policy:
        """Return the controller as a policy, for a rollout."""
        return Policy(self.weights, self.features, lookahead)

    def player(self, rules: Rules, lookahead: Lookahead = Lookahead.NONE) -> Player:
        """Return the controller as a player for the reference implementation.

        Raise ValueError if the weights do not fit the features on a board of ``rules``.
        """
        return Player(self.names_on(rules), self.played_weights, lookahead)

    def to_dict(self) -> dict[str, Any]:
        """Return the controller as plain values, for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "features": self.features,
            "weights": list(self.weights),
            "rules": self.rules.to_dict(),
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LinearController:
        """Make a controller from a dictionary as ``to_dict`` returns it.

        Raises:
            TypeError, ValueError: If a key or a value is missing or wrong.
        """
        check_format(values, FORMAT, VERSION)
        if set(values) != set(_KEYS):
            raise ValueError(
                f"expected the keys {', '.join(_KEYS)}; got {', '.join(map(str, values))}"
            )
        arguments = {key: values[key] for key in _FIELDS}
        arguments["rules"] = Rules.from_dict(arguments["rules"])
        return cls(**arguments)

    def save(self, path: StrPath) -> None:
        """Write the controller as JSON, atomically; OSError if the file cannot be written."""
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: StrPath) -> LinearController:
        """Read a controller from a JSON file, or from the folder of a run.

        Raises:
            OSError: If the file cannot be read, or the file in a folder is a link, a pipe or a
                device.
            ValueError: If it holds no valid controller; the message names the file and the
                reason.
        """
        if os.path.isdir(path):
            path = Path(path, FILE_NAME)
            check_own(path)
            if not path.is_file():
                raise ValueError(
                    f"expected the run folder {path.parent} to hold {FILE_NAME}, found none"
                )
        try:
            return cls.from_dict(json.loads(read_bytes(path).decode()))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{path} holds no valid controller: {error}") from error


def check_format(values: Any, name: str, version: int) -> None:
    """Raise ValueError if a value from a JSON file is not an object of a format."""
    if not isinstance(values, Mapping) or values.get("format") != name:
        raise ValueError(f'expected an object with "format": "{name}"')
    if values.get("version") != version:
        raise ValueError(
            f"expected version {version} of the format, got {values.get('version')!r}"
        )


def _canonical_features(features: str, width: int) -> str:
    """Return the name of a feature set, or feature names with commas and without blanks.

    Hidden units follow, such as ``+8``.
    """
    text, units = split_units(features)
    names = feature_names(text, width)
    text = text.strip().lower()
    if text == "du":
        text = "bcts"
    elif text not in feature_sets(width):
        text = ",".join(names)
    return f"{text}+{units}" if units else text


def _checked_weights(weights: Any) -> tuple[float, ...]:
    """Return weights as floats. Raise ValueError if the engines' float32 cannot hold them."""
    numbers = torch.as_tensor(weights, dtype=torch.float64, device="cpu")
    rounded = numbers.float()  # An engine would get infinity or 0 for numbers out of range.
    if numbers.dim() != 1 or not rounded.isfinite().all():
        raise ValueError(
            f"expected a list of weights that are finite in float32, got {weights!r}"
        )
    if numbers.any() and not rounded.any():
        raise ValueError(f"expected weights that are not all 0 in float32, got {weights!r}")
    return tuple(numbers.tolist())


@cache
def _packaged(name: str) -> LinearController:
    return LinearController.load(_FOLDER / f"{name}.json")


def published(name: str) -> LinearController:
    """Return a controller of the package.

    ``dellacherie``, ``bcts`` (or ``du``), ``bdu``, ``dt10`` and ``dt20`` are from the
    literature; ``lee`` is the heuristic of many tutorials; ``best``, ``bertsekas``, ``sz``
    and ``anywidth`` were learned here. Case, blanks, hyphens and underscores do not matter:
    ``"DT-20"`` is ``"dt20"``.

    Raises:
        ValueError: If no controller has this name.
    """
    canonical_name = _canonical_name(name)
    if canonical_name not in known_names():
        raise unknown_name("controller", name, known_names())
    return _packaged(canonical_name)


def known_names() -> tuple[str, ...]:
    """Return the names of the controllers of the package: published ones, then learned ones."""
    learned = {file.stem for file in _FOLDER.glob("*.json")}.difference(PUBLISHED)
    return (*PUBLISHED, *sorted(learned))


def resolve(source: StrPath | LinearController) -> LinearController:
    """Return the controller that a name, a file or the folder of a training run stands for.

    A name of a controller in this package has priority over a path: for a folder named
    ``dt20``, write ``./dt20``. In names, case, blanks, hyphens and underscores do not matter.
    If ``source`` is already a controller, it is returned unchanged.

    Raises:
        OSError: If the file cannot be read.
        TypeError: If ``source`` is neither a path nor a controller.
        ValueError: If ``source`` is neither a known name nor the path of a valid controller.
    """
    if isinstance(source, LinearController):
        return source
    text = os.fspath(source)
    if _canonical_name(text) in known_names():
        return published(text)
    path = Path(text)
    if text and path.exists():
        return LinearController.load(path)
    raise _no_such_controller(text)


def _no_such_controller(text: str) -> ValueError:
    """Return the error for a text that stands for no controller.

    It suggests a similar name or path, if there is one.
    """
    suggested_path = meant_path(text)  # for example "; did you mean 'runs/first'?", or ""
    looks_like_path = text.endswith(".json") or os.sep in text
    if looks_like_path:
        return ValueError(
            f"expected a controller at {text}, found no such file or folder{suggested_path}"
        )
    error = unknown_name("file, a run folder or a controller", text, known_names())
    has_similar_name = bool(did_you_mean(text, known_names()))
    # With a similar name, the error suggests it already.
    return error if has_similar_name else ValueError(f"{error}{suggested_path}")


def _canonical_name(name: str) -> str:
    canonical_name = name.strip().lower().translate({ord(mark): None for mark in "-_ "})
    return "bcts" if canonical_name == "du" else canonical_name
