"""A policy: weights of features, and how far its decisions look ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernels.support.checks import check_integer
from tetris.game.features import AfterState, feature_values
from tetris.game.hidden_units import Floats, activations, layout_of

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
    """Policies with the same features and lookahead: a population, or one.

    Examples:
        >>> Policy([-1.0, -4.0], "max_height, holes", "preview").lookahead
        <Lookahead.PREVIEW: 'preview'>

    Attributes:
        weights: Shape (population, weights) or (weights,), finite; used as float32, and rounded
            as `tetris.play.quantized_weights` says. The weights are `weight_names` of the
            features.
        features: Name of a feature set, or feature names separated by commas; with hidden
            units, such as ``dt+8``, see `tetris.game.hidden_units`.
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

    names: tuple[str, ...]  # The names of the weights.
    weights: Floats  # A quantized weight for each name.
    lookahead: Lookahead = Lookahead.NONE

    def features_of(self, after: AfterState) -> list[float]:
        """Return what each weight of the player is multiplied by, for an after-state.

        This is the value of a feature; for an output weight the activation of the unit, and for
        a weight inside of a unit 0.
        """
        layout = layout_of(self.names)
        values = feature_values(after, layout.features)
        if layout.units:
            value_of = dict(zip(layout.features, values, strict=True))
            inputs = np.array([value_of[name] for name in layout.inputs])
            by_unit = self.weights[len(values) :].reshape(layout.units, -1)
            of_units = np.zeros_like(by_unit)
            of_units[:, -1] = activations(inputs, by_unit[:, :-1])
            values += of_units.flatten().tolist()
        return values
