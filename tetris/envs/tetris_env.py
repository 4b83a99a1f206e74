"""Tetris as a Gymnasium environment, on the reference implementation: one action places one piece."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, SupportsIndex

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from kernels.checks import check_integer
from kernels.names import unknown_name
from tetris.envs import rendering
from tetris.envs.placements import action_count, action_mask, placement
from tetris.features import column_heights
from tetris.game import Rows, landing_row, place
from tetris.piece_stream import PieceStream
from tetris.pieces import PIECES
from tetris.rules import Rules

Observation = dict[str, Any]


def checked_options(options: Any) -> dict[Any, Any]:
    """Return the options of ``reset``; none for None.

    Raises:
        TypeError: If they are no mapping.
    """
    if not isinstance(options, Mapping | None):
        raise TypeError(f"expected options to be a mapping or None, got {options!r}")
    return dict(options or {})


def observation_space(rules: Rules) -> spaces.Dict:
    """Return the space of a board and the piece that is to be placed."""
    board = spaces.Box(0, 1, (rules.height, rules.width), np.int8)
    return spaces.Dict({"board": board, "piece": spaces.Discrete(len(PIECES))})


class TetrisEnv(gymnasium.Env[Observation, np.int64]):
    """Tetris, one placement a step, by the rules on which controllers are scored in the research literature.

    ## Description
    The game is *simplified Tetris* (Bertsekas & Ioffe 1996; Thiery & Scherrer 2009). A piece is turned and
    moved sideways above the board, falls straight down and rests where it first would collide. Full rows are
    removed. There is no gravity to race against and no sliding under overhangs: an action is a placement.

    ## Action Space
    `Discrete(4 * width)`: action `orientation * width + column`, with `column` the column of the left edge of
    the piece's bounding box. Orientation 0 is the piece as it comes, each next one turned by 90 degrees
    counter-clockwise.

    | Piece | Letter | Orientations | Placements on ten columns |
    | ----- | ------ | ------------ | ------------------------- |
    | 0     | I      | 2            | 17                        |
    | 1     | O      | 1            | 9                         |
    | 2     | T      | 4            | 34                        |
    | 3     | Z      | 2            | 17                        |
    | 4     | S      | 2            | 17                        |
    | 5     | J      | 4            | 34                        |
    | 6     | L      | 4            | 34                        |

    `info["action_mask"]` (int8, one number an action) is 1 for the actions that are different placements of
    the piece to be placed; `action_space.sample(mask=info["action_mask"])` draws one of them. Every other
    action is allowed, too, and is played as one of them: orientations repeat, and a piece that would stick
    out on the right stands at the right wall.

    ## Observation Space
    `Dict` of

    | Key     | Space                                    | Meaning                                          |
    | ------- | ---------------------------------------- | ------------------------------------------------ |
    | `board` | `Box(0, 1, (height, width), int8)`       | 1 for a full cell; row 0 is the **bottom** row   |
    | `piece` | `Discrete(7)`                            | the piece to be placed, numbered as above        |

    After the placement that ends the game `board` shows that piece, too, as far as it is on the board.

    ## Rewards
    The number of lines the placement removed, 0 to 4. The return of an episode is the score of the game.

    ## Starting State
    An empty board. The pieces are piece `t` of a stream of a seed, a pure function of the three, the same on
    every machine: `reset(seed=s)` begins stream 0 of seed `s` at piece 0, and
    `reset(seed=s, options={"stream": n})` stream `n`. `reset()` begins the next game on the same stream, with
    the piece that the last observation showed. So the games are those of `tetris.rollouts` with this seed, if
    the same placements are chosen. Without any seed the first `reset()` draws one.

    ## Episode End
    The episode terminates when a piece comes to rest with a cell above the top row; the lines it completed do
    not count. With `clear_on_overflow` they are removed and counted first, and the episode terminates only if
    the stack is still higher than the board. It is never truncated; a good controller's game lasts for
    millions of placements, and `gymnasium.make(..., max_episode_steps=n)` sets a limit.

    ## Arguments
    ```python
    import gymnasium
    import tetris.envs

    env = gymnasium.make("CemTetris/Tetris-v0", height=12, pieces="bag", render_mode="ansi")
    ```

    | Argument            | Default     | Meaning                                                       |
    | ------------------- | ----------- | ------------------------------------------------------------- |
    | `width`             | `10`        | columns of the board, 4 to 10                                 |
    | `height`            | `20`        | rows of the board, 4 to 24                                    |
    | `clear_on_overflow` | `False`     | see Episode End                                               |
    | `pieces`            | `"uniform"` | `"uniform"`, `"bag"` (all seven, then all seven again), or    |
    |                     |             | letters of `IOTZSJL`: these alone                             |
    | `render_mode`       | `None`      | `"ansi"` or `"rgb_array"`                                     |

    | Id                                          | Differs from the defaults in                   |
    | ------------------------------------------- | ---------------------------------------------- |
    | `CemTetris/Tetris-v0`                       |                                                |
    | `CemTetris/Tetris-10x10-v0`                 | `height=10`, the small board of the literature |
    | `CemTetris/Tetris-ClearOnOverflow-v0`       | `clear_on_overflow=True`                       |
    | `CemTetris/Tetris-10x10-ClearOnOverflow-v0` | both                                           |
    | `CemTetris/Tetris-Bag-v0`                   | `pieces="bag"`                                 |

    ## Version History
    * v0: first version
    """

    # Gymnasium's type for it is that of an instance's attribute.
    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        width: int = 10,
        height: int = 20,
        clear_on_overflow: bool = False,
        pieces: str = "uniform",
        render_mode: str | None = None,
    ) -> None:
        """Set up the spaces; see the class.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range, or there is no such render mode.
        """
        self.rules = Rules(width, height, clear_on_overflow, pieces)
        if not isinstance(render_mode, str | None) or render_mode not in (
            None,
            *self.metadata["render_modes"],
        ):
            known = ", ".join(self.metadata["render_modes"])
            raise ValueError(f"expected render_mode to be None or one of {known}; got {render_mode!r}")
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(action_count(width))
        self.observation_space = observation_space(self.rules)
        self.rows: Rows = ()
        """Rows of the board, from the bottom; bit c is column c."""
        self._stream: PieceStream | None = None
        self._time = 0
        self._over = True

    @property
    def piece(self) -> int:
        """Number of the piece to be placed."""
        return self._pieces[self._time]

    @property
    def is_over(self) -> bool:
        """Whether no game is in progress."""
        return self._over

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a game on an empty board; see Starting State.

        Args:
            seed: Chooses the pieces, 0 to 2^64 - 1; None goes on with those that come next.
            options: ``{"stream": n}`` chooses the stream of a seed that is given.

        Raises:
            TypeError: If the seed or the stream is not a whole number.
            ValueError: If one is out of range, a stream comes without a seed, or an option is unknown.
        """
        options = checked_options(options)
        unknown = set(options) - {"stream"}
        if unknown:
            raise unknown_name("option of reset", str(unknown.pop()), ["stream"])
        stream = options.get("stream")
        if stream is not None and seed is None:
            raise ValueError(f"expected a seed with the option stream, got stream {stream!r} alone")
        begun = None
        if seed is not None:
            stream = 0 if stream is None else check_integer("stream", stream, 0, (1 << 64) - 1)
            seed = check_integer("seed", seed, 0, (1 << 64) - 1)
            begun = PieceStream(self.rules, seed, stream)
        super().reset(seed=seed)
        if begun is None and self._stream is None:
            begun = PieceStream(self.rules, int(self.np_random.integers(1 << 63)), 0)
        if begun is not None:
            self._stream, self._time = begun, 0
        self.rows, self._over = (), False
        return self._observation(), self._info()

    def step(self, action: SupportsIndex) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Place the piece.

        Args:
            action: ``orientation * width + column``; see Action Space.

        Returns:
            Observation, lines removed, whether the game is over, False, info.

        Raises:
            gymnasium.error.ResetNeeded: If no game is in progress.
            TypeError: If the action is not a whole number.
            ValueError: If it is not of the action space.
        """
        if self._over:
            raise gymnasium.error.ResetNeeded("expected a game in progress, got step() before reset()")
        try:
            number = index(action)
        except TypeError:
            raise TypeError(f"expected an action to be a whole number, got {action!r}") from None
        if not 0 <= number < action_count(self.rules.width):
            raise ValueError(f"expected an action of {self.action_space}, got {action!r}")
        shape, column = placement(number, self.piece, self.rules.width)
        row = landing_row(column_heights(self.rows, self.rules.width), shape, column)
        after = place(self.rows, shape, column, row, self.rules)
        self.rows, self._over = after.rows, after.game_over
        self._time += 1
        return self._observation(), float(after.lines), after.game_over, False, self._info()

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return which actions are placements of their own, bools: what sb3-contrib's MaskablePPO asks for.

        Raises:
            gymnasium.error.ResetNeeded: If no game has begun.
        """
        return action_mask(self.piece, self.rules.width).astype(np.bool_)

    def render(self) -> Any:
        """Draw the board and the piece to be placed, in the render mode that was chosen."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "You are calling render method without specifying any render mode; "
                'make the environment with render_mode="ansi" or "rgb_array".'
            )
            return None
        draw = rendering.text if self.render_mode == "ansi" else rendering.frame
        return draw(self._board(), self.piece)

    @property
    def _pieces(self) -> PieceStream:
        if self._stream is None:
            raise gymnasium.error.ResetNeeded("expected reset() to be called first")
        return self._stream

    def _board(self) -> npt.NDArray[np.int8]:
        rows = np.zeros(self.rules.height, dtype=np.int32)
        visible = self.rows[: self.rules.height]
        rows[: len(visible)] = visible
        return (rows[:, np.newaxis] >> np.arange(self.rules.width) & 1).astype(np.int8)

    def _observation(self) -> Observation:
        return {"board": self._board(), "piece": np.int64(self.piece)}

    def _info(self) -> dict[str, Any]:
        return {"action_mask": action_mask(self.piece, self.rules.width)}
