"""Tetris as a Gymnasium environment in Python: one action places one piece."""

import copy
from operator import index
from typing import Any, SupportsIndex

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from kernels.support.checks import check_flags, check_integer, check_uint64
from kernels.support.names import unknown_name
from tetris import Rules
from tetris.envs.rendering import EMPTY_HOLD, Painter
from tetris.game.decisions import Rows, landing_row, place
from tetris.game.features import AfterState, column_heights
from tetris.game.piece_stream import PieceStream, hole_column
from tetris.game.pieces import PIECES, Shape
from tetris.game.positions import cells_of, read_board, read_pieces
from tetris.game.rules import GUIDELINE_POINTS

Observation = dict[str, Any]
Mask = npt.NDArray[np.int8]
"""An action mask: 1 or 0 for each action, as the environments explain."""

REWARDS = ("lines", "points", "pieces", "survival")
"""The rewards, as enum Reward in step.h numbers them; see Rewards of `TetrisEnv`."""

MAX_ORIENTATIONS = max(map(len, PIECES))


def placement(action: int, piece: int, width: int) -> tuple[Shape, int]:
    """Return the shape and the left column in which an action places a piece."""
    orientation, column = divmod(action, width)
    shape = PIECES[piece][orientation % len(PIECES[piece])]
    return shape, min(column, width - shape.width)


def action_mask(piece: int, width: int) -> Mask:
    """Return 1 for the first action of each different placement, else 0: shape (4 * width,)."""
    mask = np.zeros((MAX_ORIENTATIONS, width), dtype=np.int8)
    for shape in PIECES[piece]:
        mask[shape.orientation, : width - shape.width + 1] = 1
    return mask.ravel()


def options_of_reset(options: dict[str, Any] | None, *names: str) -> list[Any]:
    """Return the values of the named options of ``reset``, with None for an absent option.

    Any other option raises ValueError.
    """
    options = options or {}
    for unknown in options.keys() - set(names):
        raise unknown_name("option of reset", str(unknown), names)
    return [options.get(name) for name in names]


def _checked_seed(seed: int | None, stream: int | None) -> tuple[int | None, int]:
    """Return the seed and the stream of ``reset``; raise ValueError if one is out of range."""
    if stream is None:
        stream = 0
    elif seed is None:
        raise ValueError(f"expected a seed with the option stream, got stream {stream!r} alone")
    stream = check_uint64("stream", stream)
    if seed is not None:
        seed = check_uint64("seed", seed)
    return seed, stream


class TetrisEnv(gymnasium.Env[Observation, np.int64]):
    """Tetris, one placement per step, by the rules of the research literature.

    ## Description The game is *simplified Tetris* (Bertsekas & Ioffe 1996; Thiery & Scherrer
    2009). A piece is turned and moved sideways above the board, falls straight down and rests
    where it first would collide. Full rows are removed.

    ## Action Space `Discrete(4 * width)`: action `orientation * width + column`, with `column`
    the column of the left edge of the piece's bounding box and `orientation` its turns by 90
    degrees counter-clockwise. Pieces 0 to 6 are I, O, T, Z, S, J, L and have 2, 1, 4, 2, 2, 4
    and 4 orientations.

    `info["action_mask"]` (int8, one number per action) is 1 for the different placements of the
    piece; `action_space.sample(mask=info["action_mask"])` draws one. Any other action is played
    as one of them: orientations repeat, and a piece that would stick out on the right stands at
    the right wall.

    ## Observation Space
    `Dict` of

    | Key             | Space                                     | Meaning                    |
    | --------------- | ----------------------------------------- | -------------------------- |
    | `board`         | `Box(0, 1, (height, width), int8)`        | 1: full; row 0: **bottom** |
    | `piece`         | `Discrete(7)`                             | the piece to be placed     |
    | `next_pieces`   | `MultiDiscrete([7] * (pieces_known - 1))` | with `pieces_known` > 1    |
    | `hold`          | `Discrete(8)`                             | held piece, 7 for none     |
    | `since_garbage` | `Discrete(garbage_every)`                 | pieces since a garbage row |

    After the placement that ends the game, `board` also shows the part of this piece that is on
    the board.

    ## Variants *Hold* (Tetris guideline): the actions are `Discrete(8 * width)`. Action `4 *
    width + a` swaps the piece with the one in the slot, or with the next one if the slot is
    empty, and then plays `a` with it. `hold` needs `pieces_known` of at least 2: the
    observation shows the piece that a swap brings.

    *Garbage* (as opponents send it): after every `garbage_every` pieces of a game a row with
    one empty cell rises under the stack. The hole of row `n` is a pure function of seed, stream
    and `n`.

    ## Rewards `reward` is `"lines"`: the lines that the placement removed, 0 to 4, so that the
    return is the score of the game; `"points"`: their points by the Tetris guideline on level
    1, 0, 100, 300, 500 or 800; `"pieces"`: 1, and 0 for the piece that ends the game; or
    `"survival"`: 0, and -1 for the terminating step.

    ## Starting State An empty board. `reset(seed=s)` begins stream 0 of seed `s`,
    `reset(seed=s, options={"stream": n})` stream `n`, and `reset()` the next game on the same
    stream, with the piece that the last observation showed. Piece `t` is a pure function of
    seed, stream and `t`. So `tetris.rollout` with this seed plays the same games, if it chooses
    the same placements. Without any seed the first `reset()` draws one.

    `reset(options={"board": board})` begins on a stack, which
    `tetris.game.positions.read_board` reads from text, an array or a fumen. With `{"pieces":
    "TSZ"}` the first pieces are these instead of those in the stream. The next game begins on
    an empty board.

    ## Episode End The episode terminates when a piece comes to rest with a cell above the top
    row. The lines that it completed do not count. With `clear_on_overflow` these lines are
    removed and counted first, and the episode terminates only if the stack is still too high.
    It also terminates when a garbage row lifts the stack above the top row. It is never
    truncated: `gymnasium.make(..., max_episode_steps=n)` sets a limit.

    Args:
        width: Columns of the board, 4 to 10.
        height: Rows of the board, 4 to 24.
        clear_on_overflow: See Episode End.
        pieces: ``"uniform"``, ``"bag"`` (all seven, then all seven again), or letters of
            ``IOTZSJL``.
        render_mode: ``"ansi"`` or ``"rgb_array"``; of `gymnasium.make` also ``"human"``.
        pieces_known: Pieces that the observation shows, 1 to 7.
        hold: Whether there is a hold slot.
        garbage_every: Pieces from one garbage row to the next, at least 1; None: no garbage.
        reward: See Rewards.

    Raises:
        ValueError: If an argument is out of range or unknown, or a hold slot comes without a
            preview.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(  # noqa: PLR0913 - an option for each property of the game
        self,
        width: int = 10,
        height: int = 20,
        clear_on_overflow: bool = False,
        pieces: str = "uniform",
        render_mode: str | None = None,
        pieces_known: int = 1,
        hold: bool = False,
        garbage_every: int | None = None,
        reward: str = "lines",
    ) -> None:
        """Check the arguments, and set up the spaces; no game begins before `reset`.

        Args:
            width: Columns of the board.
            height: Rows of the board.
            clear_on_overflow: Whether full rows are removed before the end of a game is
                checked.
            pieces: ``"uniform"``, ``"bag"``, or the letters of the pieces to draw from.
            render_mode: ``"ansi"``, ``"rgb_array"`` or None.
            pieces_known: The number of pieces that an observation shows, 1 to 7.
            hold: Whether the current piece can be swapped with a piece in a hold slot.
            garbage_every: Pieces from one garbage row to the next; None: no garbage.
            reward: What a step is rewarded for; one of `REWARDS`.

        Raises:
            ValueError: If an argument is out of range or unknown.
        """
        self.rules = Rules(width, height, clear_on_overflow, pieces)
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise unknown_name("render_mode", str(render_mode), self.metadata["render_modes"])
        if reward not in REWARDS:
            raise unknown_name("reward", str(reward), REWARDS)
        check_flags(hold=hold)
        self.pieces_known = check_integer("pieces_known", pieces_known, 1, 7)
        if hold and pieces_known == 1:
            raise ValueError("expected pieces_known of at least 2 with a hold slot, got 1")
        if garbage_every is not None:
            garbage_every = check_integer("garbage_every", garbage_every, 1, (1 << 31) - 1)
        self.render_mode = render_mode
        self._painter = Painter(self.rules)
        self.has_hold = hold
        self.garbage_every = garbage_every
        self.reward = reward
        actions = MAX_ORIENTATIONS * width
        if hold:  # The second half of the actions swaps the piece first.
            actions *= 2
        self.action_space: spaces.Discrete = spaces.Discrete(actions)
        self._masks = [action_mask(piece, width) for piece in range(len(PIECES))]
        self.observation_space: spaces.Dict = spaces.Dict(self._spaces())
        # The options of the last reset with a seed, with which a replay begins; and, by the
        # number of steps since then, those of later resets that a replay would not make itself.
        self.seed_options: dict[str, Any] = {}
        self.later_resets: dict[int, list[Any]] = {}
        self._steps = 0
        self.rows: Rows = ()
        """Rows of the board, from the bottom; bit c is column c."""
        self.held: int | None = None
        """Number of the piece in the hold slot."""
        self.piece = 0
        """Number of the piece to be placed."""
        self.stream: PieceStream
        """The stream of pieces, after the first reset."""
        self.landing: AfterState | None = None
        """The last placement, as it came to rest."""
        # The index of the next piece in the stream; 0 until the first reset.
        self._time = 0
        # Pieces that replace those of the stream, by their index in it.
        self._chosen_pieces: dict[int, int] = {}
        self._placed = 0  # Pieces that were placed in this game.
        self._garbage_rows = 0  # Rows of garbage that rose since the stream began.
        self.is_over = True
        """Whether no game is in progress."""

    @property
    def swapped_piece(self) -> int:
        """Number of the piece that a swap with the hold slot brings."""
        return self._piece_at(self._time) if self.held is None else self.held

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a game, and return its first observation and its info.

        Args:
            seed: The seed of a new stream of random pieces, 0 to 2^64 - 1. None: the game uses
                the next pieces of the current stream; the first reset draws a random seed.
            options: ``"stream"``: the number of the stream, because every seed has 2^64 streams
                of pieces; the default is 0. ``"board"``: the stack to begin with.
                ``"pieces"``: the first pieces, as letters or numbers.

        Raises:
            ValueError: If a number is out of range, a stream is given without a seed, a board
                or a piece does not fit the rules, or an option is unknown.
        """
        # An option that is not given is None.
        stream, board, pieces = options_of_reset(options, "stream", "board", "pieces")
        rows = () if board is None else read_board(board, self.rules)
        chosen_pieces = () if pieces is None else read_pieces(pieces, self.rules)
        seed, stream = _checked_seed(seed, stream)
        super().reset(seed=seed)  # Gymnasium seeds the generator `np_random`.
        # Before the first reset no piece has been drawn, and there is no stream to go on with.
        is_first_reset = self._time == 0
        if seed is None and is_first_reset:
            seed = int(self.np_random.integers(1 << 63))
        if seed is None:
            if options or not self.is_over:
                self.later_resets.setdefault(self._steps, []).append(copy.deepcopy(options))
            self._continue_stream()
        else:
            self.seed_options = copy.deepcopy(options or {})
            self.later_resets = {}
            self._steps = 0
            self._begin_stream(PieceStream(self.rules, seed, stream))
        if chosen_pieces:
            self._replace_pieces(chosen_pieces)
        self.rows = rows
        self.held = None
        self._placed = 0
        self.is_over = False
        self._begin()  # A subclass sets up its own state.
        return self._observation(), {"action_mask": self._mask()}

    def _begin_stream(self, stream: PieceStream) -> None:
        """Draw the first piece of a stream."""
        self.stream = stream
        self._time = 0
        self._garbage_rows = 0
        self._chosen_pieces = {}
        self._draw_piece()

    def _continue_stream(self) -> None:
        """Go on with the piece that was drawn last, which is the first one of the next game."""
        # After a swap with the hold slot the current piece is another one. So draw it again.
        self._time -= 1
        self._draw_piece()

    def _replace_pieces(self, pieces: tuple[int, ...]) -> None:
        """Replace pieces of the stream by chosen ones, from the current piece on."""
        current = self._time - 1  # The index of the current piece.
        self._chosen_pieces = dict(enumerate(pieces, start=current))
        self.piece = pieces[0]

    def step(
        self, action: SupportsIndex
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Place the piece as an action says, and draw the next piece.

        Args:
            action: The number ``orientation * width + column``, with the orientation and the
                leftmost column of the piece. With a hold slot there are twice as many actions:
                the second half of them swaps the piece first.

        Returns:
            Observation, reward, terminated, truncated and info, as Gymnasium defines them.

        Raises:
            gymnasium.error.ResetNeeded: If no game is in progress.
            ValueError: If the action is not in the action space.
        """
        width = self.rules.width
        number = self._begin_step(action)
        swaps_first, placement_number = divmod(number, MAX_ORIENTATIONS * width)
        if swaps_first:
            self._swap()
        shape, column = placement(placement_number, self.piece, width)
        row = landing_row(column_heights(self.rows, width), shape, column)
        reward = self._settle(shape, column, row)
        return self._observation(), reward, self.is_over, False, {"action_mask": self._mask()}

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the action mask as bools, the form that sb3-contrib expects."""
        return self._mask().astype(np.bool_)

    def render(self) -> Any:
        """Draw the board and the piece to be placed, in the render mode that was chosen."""
        pictures = self._painter.draw(self.render_mode, [self._observation()])
        return pictures and pictures[0]  # None if no render mode was chosen.

    def _begin_step(self, action: SupportsIndex) -> int:
        """Count a step, and return its action as an int.

        Raise an error if the action is not valid or no game is in progress.
        """
        if self.is_over:
            raise gymnasium.error.ResetNeeded(
                "expected a game in progress, got step() before reset()"
            )
        number = index(action)
        if number not in self.action_space:
            raise ValueError(f"expected an action of {self.action_space}, got {action!r}")
        self._steps += 1
        return number

    def _begin(self) -> None:
        """Prepare the state that a subclass adds to a game."""

    def _spaces(self) -> dict[str, spaces.Space[Any]]:
        """Return the space of each entry of the observation, by the name of the entry."""
        space_of: dict[str, spaces.Space[Any]] = {
            "board": spaces.Box(0, 1, (self.rules.height, self.rules.width), np.int8),
            "piece": spaces.Discrete(len(PIECES)),
        }
        if self.pieces_known > 1:
            space_of["next_pieces"] = spaces.MultiDiscrete(
                [len(PIECES)] * (self.pieces_known - 1)
            )
        if self.has_hold:  # The last number means that no piece is held.
            space_of["hold"] = spaces.Discrete(len(PIECES) + 1)
        if self.garbage_every is not None:
            space_of["since_garbage"] = spaces.Discrete(self.garbage_every)
        return space_of

    def _observation(self) -> Observation:
        """Return the observation: the board, the piece to place, and the optional entries.

        The board is an int8 array of 0 and 1 with the shape (height, width). Row 0 is the
        bottom.
        """
        cells = cells_of(self.rows, self.rules.width, self.rules.height)
        observation: Observation = {
            "board": cells.astype(np.int8),
            "piece": np.int64(self.piece),
        }
        if self.pieces_known > 1:
            # `_time` is the index of the next piece in the stream.
            times = range(self._time, self._time + self.pieces_known - 1)
            next_pieces = [self._piece_at(time) for time in times]
            observation["next_pieces"] = np.array(next_pieces, dtype=np.int64)
        if self.has_hold:
            held = EMPTY_HOLD if self.held is None else self.held
            observation["hold"] = np.int64(held)
        if self.garbage_every is not None:
            observation["since_garbage"] = np.int64(self._placed % self.garbage_every)
        return observation

    def _mask(self) -> Mask:
        masks = [self._masks[self.piece]]
        if self.has_hold:
            masks.append(self._masks[self.swapped_piece])
        return np.concatenate(masks)

    def _draw_piece(self) -> None:
        self.piece = self._piece_at(self._time)
        self._time += 1

    def _piece_at(self, time: int) -> int:
        """Return the piece at an index, from the chosen pieces or else from the stream."""
        if time in self._chosen_pieces:
            return self._chosen_pieces[time]
        return self.stream[time]

    def _swap(self) -> None:
        """Put the piece into the hold slot, and take the held piece, or else the next one."""
        held = self.held
        self.held = self.piece
        if held is None:
            self._draw_piece()
        else:
            self.piece = held

    def _settle(self, shape: Shape, column: int, row: int) -> float:
        """Add the piece to the stack, draw the next piece, and return the reward.

        After every ``garbage_every`` pieces a row of garbage rises from below.

        Args:
            shape: The current piece, in the orientation in which it comes to rest.
            column: The leftmost column of the piece.
            row: The lowest row of the piece.
        """
        after = place(self.rows, shape, column, row, self.rules)
        self.landing = after
        self.rows = after.rows
        self.is_over = after.game_over
        self._placed += 1
        garbage_rises = (
            self.garbage_every is not None and self._placed % self.garbage_every == 0
        )
        if garbage_rises and not self.is_over:
            self._raise_garbage()
        self._draw_piece()
        # In C++ the vector environment computes the same rewards, see step.h.
        rewards = {
            "lines": float(after.lines),
            "points": float(GUIDELINE_POINTS[after.lines]),
            "pieces": 0.0 if self.is_over else 1.0,
            "survival": -1.0 if self.is_over else 0.0,
        }
        return rewards[self.reward]

    def _raise_garbage(self) -> None:
        """Lift the stack by a row with one hole, which may end the game."""
        stream = self.stream
        hole = hole_column(self.rules, stream.seed, stream.stream, self._garbage_rows)
        self.rows = (self.rules.full_row & ~(1 << hole), *self.rows)
        self._garbage_rows += 1
        self.is_over = len(self.rows) > self.rules.height
