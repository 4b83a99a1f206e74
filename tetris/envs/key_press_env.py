"""Tetris by key presses as a Gymnasium environment: one action presses one key."""

from typing import Any, SupportsIndex

import numpy as np
from gymnasium import spaces

from kernels.support.checks import check_integer
from tetris.envs.tetris_env import Mask, Observation, TetrisEnv
from tetris.game.decisions import Rows
from tetris.game.pieces import PIECES, Shape
from tetris.view.game_view import HEADROOM, put

NOTHING, LEFT, RIGHT, ROTATE, DOWN, DROP, HOLD = range(7)
"""The actions by number."""


def collides(rows: Rows, shape: Shape, column: int, row: int) -> bool:
    """Return whether a piece overlaps the stack or the floor.

    ``column`` is the left edge of the piece, and ``row`` is its bottom. Bit c of a row of the
    stack is column c.
    """
    if row < 0:
        return True
    # Above the top of the stack nothing can collide.
    row_pairs = zip(shape.rows, rows[row:], strict=False)
    return any(cells << column & stack_row for cells, stack_row in row_pairs)


class KeyPressTetrisEnv(TetrisEnv):
    """Tetris, one key press per step: a piece moves and turns while it falls.

    A piece can slide under overhangs.

    Everything else, including the arguments, is as in `TetrisEnv`.

    ## Description A piece appears in the middle, right above the board. After every
    `gravity`-th step it falls by one row. If it cannot fall when gravity or a key moves it
    down, it comes to rest.

    ## Action Space
    `Discrete(6)`; `Discrete(7)` with a hold slot.

    | Action | Key   | Effect                                                                |
    | ------ | ----- | --------------------------------------------------------------------- |
    | 0      |       | none                                                                  |
    | 1      | left  | one column to the left                                                |
    | 2      | right | one column to the right                                               |
    | 3      | up    | turns by 90 degrees counter-clockwise around the lower left corner of |
    |        |       | its box, and moves left where it would stick out on the right         |
    | 4      | down  | falls by one row (soft drop)                                          |
    | 5      | space | falls as far as it can and comes to rest (hard drop)                  |
    | 6      | c     | swaps with the hold slot, once per piece; the other begins on top     |

    `info["action_mask"]` (int8) is 0 for the keys that would change nothing: a move, a turn or
    a swap that is not possible. These keys are allowed and do the same as action 0.

    ## Observation Space
    `Dict` of the entries of `TetrisEnv` and

    | Key             | Space                                  | Meaning                     |
    | --------------- | -------------------------------------- | --------------------------- |
    | `falling`       | `Box(0, 1, (height + 4, width), int8)` | the falling piece           |
    | `since_gravity` | `Discrete(gravity)`                    | steps since gravity acted   |
    | `may_hold`      | `Discrete(2)`, with a hold slot        | if the piece may be swapped |

    ## Rewards 0 except in the step in which the piece comes to rest. With `reward="points"`
    also a point for each row of a soft drop and two for each row of a hard drop (Tetris
    guideline).

    Args:
        gravity: Steps from one fall by gravity to the next, at least 1.
    """

    metadata: dict[str, Any] = {**TetrisEnv.metadata, "render_fps": 15}  # noqa: RUF012

    def __init__(self, *arguments: Any, gravity: int = 8, **options: Any) -> None:
        """Set up the spaces; see the class."""
        self.gravity = check_integer("gravity", gravity, 1, (1 << 31) - 1)
        super().__init__(*arguments, **options)
        self.action_space = spaces.Discrete(HOLD + self.has_hold)

    def _begin(self) -> None:
        self._since_gravity = 0
        self._begin_piece()

    def _begin_piece(self) -> None:
        """Put the piece above the board, in the middle."""
        self._shape = PIECES[self.piece][0]
        self._column = (self.rules.width - self._shape.width) // 2
        self._row = self.rules.height
        self._may_hold = self.has_hold

    def step(
        self, action: SupportsIndex
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Press a key, and let the piece fall by a row if gravity acts in this step.

        If a key or gravity moves the piece down and it cannot fall, it comes to rest. The next
        piece then begins above the board. A key that has no effect now is allowed.

        Args:
            action: The number of a key. 0: nothing, 1: left, 2: right, 3: rotate, 4: down by
                one row, 5: drop as far as possible, 6: swap with the hold slot.

        Returns:
            Observation, reward, terminated, truncated and info, as Gymnasium defines them.
        """
        key = self._begin_step(action)
        placed_before = self._placed
        reward = 0.0
        dropped_rows = 0
        if key in (DOWN, DROP):
            # A drop is limited by the height of the piece above the floor, `_row`.
            most_rows = 1 if key == DOWN else self._row
            dropped_rows = self._fall(most_rows)
            is_blocked = dropped_rows == 0
            if key == DROP or is_blocked:
                reward = self._come_to_rest()
        else:
            self._press(key)
        # If `gravity` is n, gravity acts in every n-th step, unless the key has just brought
        # the piece to rest. The reward is therefore still 0 when gravity acts.
        self._since_gravity = (self._since_gravity + 1) % self.gravity
        if self._since_gravity == 0 and self._placed == placed_before:
            is_blocked = self._fall(1) == 0
            if is_blocked:
                reward = self._come_to_rest()
        if self.reward == "points":
            points_per_row = 2 if key == DROP else 1
            reward += dropped_rows * points_per_row
        return self._observation(), reward, self.is_over, False, {"action_mask": self._mask()}

    def _fall(self, most_rows: int) -> int:
        """Let the piece fall as far as it can, at most ``most_rows``; return how many rows."""
        rows = 0
        while rows < most_rows:
            if collides(self.rows, self._shape, self._column, self._row - 1):
                break
            self._row -= 1
            rows += 1
        return rows

    def _press(self, key: int) -> None:
        """Move, turn or swap the piece by one of the keys that do not lower it."""
        if key == HOLD:
            if self._may_hold:
                self._swap()
                self._begin_piece()
                self._may_hold = False
        elif key != NOTHING:  # The key is left, right or rotate.
            moved_piece = self._piece_after_key(key)
            if moved_piece is not None:
                self._shape, self._column = moved_piece

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """Return the actions of keys for `gymnasium.utils.play`: arrows or wasd, space, c."""
        right, left, down, up = range(0x4000004F, 0x40000053)  # The SDL codes of the arrows.
        keys = {left: LEFT, right: RIGHT, up: ROTATE, down: DOWN, ord(" "): DROP}
        keys |= {ord("a"): LEFT, ord("d"): RIGHT, ord("w"): ROTATE, ord("s"): DOWN}
        if self.has_hold:
            keys[ord("c")] = HOLD
        return {(key,): action for key, action in keys.items()}

    def _come_to_rest(self) -> float:
        reward = self._settle(self._shape, self._column, self._row)
        self._begin_piece()
        return reward

    def _piece_after_key(self, key: int) -> tuple[Shape, int] | None:
        """Return the falling piece's shape and column after the key left, right or rotate.

        Returns:
            The piece in its new orientation, and its leftmost column. None if the key has no
            effect: a wall or the stack is in the way, or the piece looks the same after a turn.
        """
        shape = self._shape
        column = self._column
        if key == ROTATE:
            orientations = PIECES[shape.piece]
            next_orientation = (shape.orientation + 1) % len(orientations)
            shape = orientations[next_orientation]
            # If the turned piece would stick out on the right, it also moves to the left.
            column = min(column, self.rules.width - shape.width)
        else:
            column += 1 if key == RIGHT else -1
        if not 0 <= column <= self.rules.width - shape.width:
            return None
        is_same = (shape, column) == (self._shape, self._column)
        if is_same or collides(self.rows, shape, column, self._row):
            return None
        return shape, column

    def _spaces(self) -> dict[str, spaces.Space[Any]]:
        """Return the space of each value of `_observation`, by its key."""
        space_of = super()._spaces()
        shape = self.rules.height + HEADROOM, self.rules.width
        space_of["falling"] = spaces.Box(0, 1, shape, np.int8)
        space_of["since_gravity"] = spaces.Discrete(self.gravity)
        if self.has_hold:
            space_of["may_hold"] = spaces.Discrete(2)
        return space_of

    def _observation(self) -> Observation:
        """Return the entries of `TetrisEnv`, the falling piece, and what belongs to it."""
        falling = np.zeros((self.rules.height + HEADROOM, self.rules.width), dtype=np.int8)
        put(falling, self._shape, self._column, self._row, 1)
        observation = super()._observation()
        observation["falling"] = falling
        observation["since_gravity"] = np.int64(self._since_gravity)
        if self.has_hold:
            observation["may_hold"] = np.int64(self._may_hold)
        return observation

    def _mask(self) -> Mask:
        mask = np.ones(HOLD + self.has_hold, dtype=np.int8)
        for key in (LEFT, RIGHT, ROTATE):
            mask[key] = self._piece_after_key(key) is not None
        # Without a hold slot this part of the mask is empty.
        mask[HOLD:] = self._may_hold
        return mask
