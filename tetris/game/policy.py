"""A policy: weights of features, and how far its decisions look ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernels.support.checks import check_integer

if TYPE_CHECKING:
    import torch


class Lookahead(str, Enum):
    """What a decision considers beside the piece that falls; `choose` defines each.

    Attributes:
        NONE: Nothing.
        PREVIEW: The next piece, which is known. A decision takes some twenty times as long.
        EXPECTIMAX: All pieces that may come next, for the two best placements. A decision takes
            13 to 26 times as long.
    """

    NONE = "none"
    PREVIEW = "preview"
    EXPECTIMAX = "expectimax"

    @classmethod
    def of(cls, pieces_known: int = 1, lookahead: bool = False) -> Lookahead:
        """Return the lookahead of ``--pieces-known`` (1 or 2) and ``--lookahead``.

        Raises:
            ValueError: If two pieces are known with ``--lookahead``.
        """
        check_integer("pieces_known", pieces_known, 1, 1 if lookahead else 2)
        if lookahead:
            return cls.EXPECTIMAX
        return cls.PREVIEW if pieces_known == 2 else cls.NONE

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Lookahead:
        """Return the lookahead of a result that has the keys of `to_dict`, or none of them."""
        return cls.of(values.get("pieces_known", 1), values.get("lookahead", False))

    def to_dict(self) -> dict[str, Any]:
        """Return the keys of the lookahead in results, as plain values for JSON."""
        return {
            "pieces_known": 1 + (self is self.PREVIEW),
            "lookahead": self is self.EXPECTIMAX,
        }

    @property
    def phrase(self) -> str:
        """The end of a title; empty for `NONE`."""
        return {"preview": ", the next one known", "expectimax": ", lookahead"}.get(
            self.value, ""
        )


@dataclass(frozen=True, eq=False)
class Policy:
    """Linear policies with the same features and lookahead: a population, or one.

    Examples:
        >>> Policy([-1.0, -4.0], "max_height, holes", "preview").lookahead
        <Lookahead.PREVIEW: 'preview'>

    Attributes:
        weights: Shape (population, features) or (features,), finite; used as float32, and
            rounded as `tetris.play.quantized_weights` says.
        features: Name of a feature set, or feature names separated by commas.
        lookahead: A `Lookahead`, or its value.

    Raises:
        ValueError: If there is no such lookahead. A rollout checks the other values.
    """

    weights: npt.ArrayLike | torch.Tensor
    features: str = "dt"
    lookahead: Lookahead | str = Lookahead.NONE

    def __post_init__(self) -> None:
        """Take the lookahead by its value."""
        object.__setattr__(self, "lookahead", Lookahead(self.lookahead))


@dataclass(frozen=True, eq=False)
class Player:
    """One policy in the form that the reference implementation plays."""

    names: tuple[str, ...]  # The features.
    weights: npt.NDArray[np.float64]  # A quantized weight for each feature.
    lookahead: Lookahead = Lookahead.NONE
