"""Features of steps as the engines have them: their weights lie in tables, whichever of them there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import torch
from torch import Tensor

_SLOTS, _FIRST, _CLASSES = 16, 2, 8  # TABLE_SLOTS, FIRST_COLUMN and 1 << CLASS_BITS of tetris/engine
_TABLES = (
    (re.compile(r"step_(\d+)_(\d+)"), "step_features_1"),
    (re.compile(r"step_pair_(\d+)_(\d+)_(\d+)"), "step_features_2"),
)


def engine_features(names: Sequence[str]) -> tuple[str, ...]:
    """Return the features of an engine that plays a list of them: one feature for all that share a table."""
    others = (name for name in names if not any(kind.fullmatch(name) for kind, _ in _TABLES))
    tables = (table for kind, table in _TABLES if any(kind.fullmatch(name) for name in names))
    return (*others, *tables)


def engine_weights(whole: Tensor, names: Sequence[str]) -> Tensor:
    """Return the weights of a list of features as its engine wants them.

    Those of its `engine_features`, 0 for the tables; then the tables. Each has a number for every column and
    class of a step, or for every column and classes of two, 0 where there is no such feature.

    Args:
        whole: Shape (candidates, features), int32.
        names: Names of the features, in their order.

    Returns:
        Shape (candidates, features of the engine and entries of its tables), int32.
    """
    places = _places(tuple(names), whole.device)
    return whole if places is None else torch.cat([whole, torch.zeros_like(whole[:, :1])], 1)[:, places]


@lru_cache(maxsize=64)
def _places(names: tuple[str, ...], device: torch.device) -> Tensor | None:
    """Return the feature of each number, or their count where it has none; None: all stay where they are."""
    features, none = {name: index for index, name in enumerate(names)}, len(names)
    engine = engine_features(names)
    if engine == names:
        return None
    places = [[features.get(name, none) for name in engine]]
    for kind, table in _TABLES:
        if table in engine:
            entries = [none] * (_SLOTS * _CLASSES ** (kind.groups - 1))
            for name, index in features.items():
                if found := kind.fullmatch(name):
                    column, *classes = map(int, found.groups())
                    place = _FIRST + column
                    for each in classes:
                        place = place * _CLASSES + each
                    entries[place] = index
            places.append(entries)
    return torch.tensor(list(chain.from_iterable(places)), device=device)
