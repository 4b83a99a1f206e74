"""Many games of Tetris at once on the C++ engine or on a GPU, as a Gymnasium vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from kernels.ops.philox import signed64
from kernels.support.checks import check_integer
from tetris.envs import native
from tetris.envs.placement_features import features_space
from tetris.envs.placements import action_count
from tetris.envs.rendering import Shown, frame, text
from tetris.envs.tetris_env import REWARDS, TetrisEnv, option_of_reset
from tetris.envs.vector_checks import (
    check_single_only,
    checked_actions,
    checked_device,
    checked_mask,
    checked_output,
)
from tetris.envs.vector_finals import copied, final_arrays, final_tensors
from tetris.game.feature_sets import feature_names
from tetris.game.piece_stream import packed_source

Array = Any
"""A NumPy array or a torch tensor, by the environment's ``output``."""

Tensors = dict[str, torch.Tensor]

# As enum Autoreset in step.h numbers them.
_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


class TetrisVectorEnv(VectorEnv[dict[str, Array], Array, Array]):
    """Many independent games of `TetrisEnv`, which describes actions, observations, rewards and arguments.

    ``gymnasium.make_vec("CemTetris/Tetris-v0", num_envs=1024)`` makes one, for every id of `TetrisEnv`.
    ``vectorization_mode="sync"`` makes one out of single environments instead, which needs no compiler.

    Observations, rewards (float32), terminations and truncations are those of all games, one after the
    other; ``infos["action_mask"]`` has the shape (num_envs, 4 * width), int8. They are new arrays in every
    step. With ``device="cuda"`` they are torch tensors on the GPU, made there, and a step waits for nothing.

    With ``features="dt"``, or another feature set, the observation has ``features`` and the infos have
    ``ends_game``, as `PlacementFeatures` adds them to a single environment, for all games, by the engine.

    ``reset(seed=s)`` has game i play stream ``first_stream + i`` of the seed s, as in `tetris.rollout`; with
    a sequence of seeds game i plays stream 0 of its own, as ``TetrisEnv.reset(seed=...)`` does. A game that
    has ended is followed by the next one on its stream.

    When a game ends, ``autoreset_mode`` says what follows. ``NEXT_STEP``: the next step ignores the action
    and begins a game. ``SAME_STEP``: the step begins a game at once, what the ended one showed is in
    ``infos["final_obs"]`` and ``infos["final_info"]``, for the games of ``infos["_final_obs"]``. As NumPy
    these are there only where a game has ended, and ``final_obs`` is an array of dictionaries, as Gymnasium's
    wrappers expect; as torch tensors they are always there and batched like the observation. ``DISABLED``: a
    game stays as it is, without rewards, until ``reset(options={"reset_mask": mask})`` with a bool for every
    game.

    Examples:
        >>> import gymnasium, tetris.envs
        >>> envs = gymnasium.make_vec("CemTetris/Tetris-10x10-v0", num_envs=3)
        >>> observation, infos = envs.reset(seed=1)
        >>> observation["board"].shape, infos["action_mask"].shape
        ((3, 10, 10), (3, 40))
        >>> observation, rewards, terminations, truncations, infos = envs.step([0, 1, 2])
        >>> rewards
        array([0., 0., 0.], dtype=float32)

    The arguments that are not listed here are those of `TetrisEnv`, which alone has `hold` and
    `garbage_every`.

    Args:
        num_envs: Games, at least 1.
        render_mode: ``"ansi"`` or ``"rgb_array"``: ``render`` returns a picture of every game.
        device: ``"cpu"``: all of torch's threads; ``"cuda"`` or ``"cuda:1"``: a GPU.
        output: ``"numpy"`` or ``"torch"``; by default NumPy on the CPU. On a GPU it is torch.
        autoreset_mode: An `AutoresetMode` or its value.
        max_episode_steps: Placements after which a game is truncated; None: never.
        first_stream: Number of the first game's stream, 0 to 2^62.
        features: Name of a feature set, or feature names separated by commas; None: no features.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or single environments alone have it, there is no such
            feature, it is defined in Python only, or there is no GPU for ``"cuda"``.
        kernels.loader.CompilerMissingError: If there is no compiler.
        kernels.loader.BuildError: If the engine could not be built.
    """

    def __init__(
        self,
        num_envs: int = 1,
        width: int = 10,
        height: int = 20,
        clear_on_overflow: bool = False,
        pieces: str = "uniform",
        render_mode: str | None = None,
        *,
        pieces_known: int = 1,
        reward: str = "lines",
        device: str | torch.device = "cpu",
        output: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        first_stream: int = 0,
        features: str | None = None,
        hold: bool = False,
        garbage_every: int | None = None,
    ) -> None:
        """Set up the spaces and the engine; see the class."""
        check_single_only(render_mode, hold, garbage_every)
        single = TetrisEnv(
            width, height, clear_on_overflow, pieces, render_mode, pieces_known=pieces_known, reward=reward
        )
        self.rules = single.rules
        self.render_mode = render_mode
        self.num_envs = check_integer("num_envs", num_envs, 1, 1 << 31)
        self.device = checked_device(device)
        self.output = checked_output(output, self.device)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {
            **single.metadata,
            "render_modes": [mode for mode in single.metadata["render_modes"] if mode != "human"],
            "autoreset_mode": self.autoreset_mode,
        }
        self._first_stream = check_integer("first_stream", first_stream, 0, 1 << 62)
        self._limit = 0  # placements after which a game is truncated; 0: never
        if max_episode_steps is not None:
            self._limit = check_integer("max_episode_steps", max_episode_steps, 1, 1 << 62)

        self.pieces_known = single.pieces_known
        self.names = () if features is None else feature_names(features, self.rules.width)
        """Names of the features, in the order of their columns."""
        self._actions = action_count(self.rules.width)
        self.single_action_space = single.action_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space: spaces.Space[Any] = single.observation_space
        if self.names:
            space = features_space(self._actions, len(self.names))
            self.single_observation_space = spaces.Dict({**single.observation_space, "features": space})

        self._source = packed_source(self.rules)
        mode = _MODES.index(self.autoreset_mode)
        self._task = (clear_on_overflow, *self._source, mode, self._limit, REWARDS.index(reward))
        _ = self._operators, self._feature_operators  # built now, if need be
        zeros = partial(torch.zeros, device=self.device)
        self._columns = zeros(self.rules.width, num_envs, dtype=torch.int32)
        self._seed, self._stream, self._time, self._length = (
            zeros(num_envs, dtype=torch.int64) for _ in range(4)
        )
        self._current, self._ended = (zeros(num_envs, dtype=torch.uint8) for _ in range(2))
        self._begun = False

    # The engine is looked up in every step: an attribute could be neither copied nor pickled.
    @property
    def _operators(self) -> Any:
        return native.operators(cuda=self.device.type == "cuda")

    @property
    def _feature_operators(self) -> Any:
        return native.feature_operators(self.names, cuda=self.device.type == "cuda") if self.names else None

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override] # an attribute of the class
        """The space of all games' observations, made on first use: it holds bounds for every cell."""
        return batch_space(self.single_observation_space, self.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin games on empty boards.

        Args:
            seed: Chooses the pieces, 0 to 2^64 - 1, for all games or one for each; see the class. None goes
                on with those that come next.
            options: ``{"reset_mask": mask}``, bools of shape (num_envs,): the games to begin; others go on.

        Returns:
            Observation and infos of all games.

        Raises:
            gymnasium.error.ResetNeeded: If some games shall begin and the others never have.
            TypeError: If the seed or the mask has the wrong type.
            ValueError: If the seed is out of range, the number of seeds or the shape of the mask is wrong, or
                an option is unknown.
        """
        chosen = self._chosen(option_of_reset(options, "reset_mask"))
        if isinstance(seed, (int, np.integer)):
            seed = check_integer("seed", seed, 0, (1 << 64) - 1)
            super().reset(seed=seed)
        elif seed is None and not self._begun:
            seed = int(self.np_random.integers(1 << 63))
        if seed is not None:
            self._choose_pieces(seed, chosen)
        for state in (self._columns, self._length, self._ended):
            state.masked_fill_(chosen, 0)
        self._begun = True
        seen = self._with_features(*self._observe(), self._columns, self._ended)
        return self._given(seen[0]), self._infos(seen[1])

    def step(
        self, actions: npt.ArrayLike | torch.Tensor
    ) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        """Place a piece in every game.

        Args:
            actions: ``orientation * width + column`` for every game, integers of shape (num_envs,). On a GPU
                one outside the action space is taken for the nearest in it, for looking would mean to wait.

        Returns:
            Observation, rewards, terminations, truncations, infos; see the class.

        Raises:
            gymnasium.error.ResetNeeded: If the games have not begun.
            TypeError: If the actions are no integers.
            ValueError: If their shape is wrong, or one is not of the action space.
        """
        if not self._begun:
            raise gymnasium.error.ResetNeeded("expected games in progress, got step() before reset()")
        number = checked_actions(actions, self.num_envs, self._actions, self.device)
        board, piece, mask, following = self._views()
        reward = self._empty(self.num_envs, dtype=torch.float32)
        terminated, truncated = (self._empty(self.num_envs, dtype=torch.bool) for _ in range(2))
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        final_board = torch.empty_like(board) if same_step else board.new_empty(0)
        self._operators.step(
            *(number, self._seed, self._stream, self._columns, self._time, self._length, self._current),
            *(self._ended, board, piece, mask, following, reward, terminated, truncated, final_board),
            *self._task,
        )
        seen = self._named(board, piece, following), {"action_mask": mask}
        observation, info = self._with_features(*seen, self._columns, self._ended)
        infos = self._infos(info)
        if same_step:
            # The next game begins with the pieces that the ended one showed last.
            shown = self._named(final_board, copied(piece), copied(following))
            last = shown, {"action_mask": copied(mask)}
            if self._limit:
                columns, over = _columns_of(final_board), terminated.to(torch.uint8)
            else:  # all that ended are over, and have no features
                columns, over = self._columns, torch.ones_like(self._ended)
            finals = final_arrays if self.output == "numpy" else final_tensors
            infos.update(finals(*self._with_features(*last, columns, over), terminated | truncated))
        outcome = (self._as_output(each) for each in (reward, terminated, truncated))
        return self._given(observation), *outcome, infos

    def render(self) -> tuple[Any, ...] | None:
        """Draw every game in the render mode that was chosen."""
        if self.render_mode is None:
            gymnasium.logger.warn("You are calling render method without specifying any render mode.")
            return None
        draw = text if self.render_mode == "ansi" else frame
        observation, _ = self._observe()
        boards, pieces = observation["board"].cpu().numpy(), observation["piece"].tolist()
        following = observation["next"].tolist() if self.pieces_known > 1 else [()] * self.num_envs
        return tuple(draw(Shown(*each)) for each in zip(boards, pieces, following, strict=True))

    def _empty(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _views(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return new tensors for boards, pieces, masks and the pieces that follow."""
        count, width, height = self.num_envs, self.rules.width, self.rules.height
        return (
            self._empty(count, height, width, dtype=torch.int8),
            self._empty(count, dtype=torch.int64),
            self._empty(count, self._actions, dtype=torch.int8),
            self._empty(count, self.pieces_known - 1, dtype=torch.int64),
        )

    def _named(self, board: torch.Tensor, piece: torch.Tensor, following: torch.Tensor) -> Tensors:
        return {"board": board, "piece": piece, **({"next": following} if self.pieces_known > 1 else {})}

    def _observe(self) -> tuple[Tensors, Tensors]:
        board, piece, mask, following = self._views()
        self._operators.observe(
            *(self._seed, self._stream, self._columns, self._time, self._current, board, piece, mask),
            *(following, *self._source),
        )
        return self._named(board, piece, following), {"action_mask": mask}

    def _with_features(
        self, observation: Tensors, infos: Tensors, columns: torch.Tensor, ended: torch.Tensor
    ) -> tuple[Tensors, Tensors]:
        """Add the features of all placements, if they are wanted."""
        if not self.names:
            return observation, infos
        features = self._empty(self.num_envs, self._actions, len(self.names), dtype=torch.float32)
        ends = self._empty(self.num_envs, self._actions, dtype=torch.int8)
        rules = self.rules.height, self.rules.clear_on_overflow
        self._feature_operators.placements(columns, self._current, ended, features, ends, *rules)
        return {**observation, "features": features}, {**infos, "ends_game": ends}

    def _as_output(self, tensor: torch.Tensor) -> Array:
        return tensor.numpy() if self.output == "numpy" else tensor

    def _given(self, tensors: dict[str, torch.Tensor]) -> dict[str, Array]:
        return {name: self._as_output(tensor) for name, tensor in tensors.items()}

    def _infos(self, infos: Tensors) -> dict[str, Any]:
        """Say of all infos that every game has them."""
        return self._given({**infos, **{f"_{name}": self._every_game() for name in infos}})

    def _every_game(self) -> torch.Tensor:
        return torch.ones(self.num_envs, dtype=torch.bool, device=self.device)

    def _chosen(self, mask: Any) -> torch.Tensor:
        """Return the games to reset, as bools on the device."""
        if mask is None:
            return self._every_game()
        if not self._begun:
            raise gymnasium.error.ResetNeeded("expected reset() of all games first, got a reset_mask")
        return checked_mask(mask, self.num_envs, self.device)

    def _choose_pieces(self, seed: int | Sequence[int | None], chosen: torch.Tensor) -> None:
        """Let the chosen games begin streams of a seed, or those of them that have one their own seed's."""
        if isinstance(seed, int):
            seeds = torch.full((self.num_envs,), signed64(seed), dtype=torch.int64, device=self.device)
            streams = torch.arange(self.num_envs, dtype=torch.int64, device=self.device) + self._first_stream
        else:
            if len(seed) != self.num_envs:
                raise ValueError(f"expected {self.num_envs} seeds, got {len(seed)}")
            if not self._begun and None in seed:
                drawn = self.np_random.integers(1 << 63, size=self.num_envs).tolist()
                seed = [own if own is not None else new for own, new in zip(seed, drawn, strict=True)]
            known = [0 if own is None else check_integer("seed", own, 0, (1 << 64) - 1) for own in seed]
            seeds = torch.tensor([signed64(own) for own in known], dtype=torch.int64, device=self.device)
            streams = torch.zeros_like(seeds)
            chosen = chosen & torch.tensor([own is not None for own in seed], device=self.device)
        self._seed = torch.where(chosen, seeds, self._seed)
        self._stream = torch.where(chosen, streams, self._stream)
        self._time.masked_fill_(chosen, 0)


def _columns_of(board: torch.Tensor) -> torch.Tensor:
    """Boards, shape (num_envs, height, width), as the engine has them: a word a column."""
    rows = torch.arange(board.shape[1], dtype=torch.int32, device=board.device).view(-1, 1)
    return (board.to(torch.int32) << (31 - rows)).sum(1, dtype=torch.int32).T.contiguous()
