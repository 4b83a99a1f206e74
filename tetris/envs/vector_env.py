"""Many games of Tetris at once, on the C++ engine or a GPU: a Gymnasium vector environment."""

import copy
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from kernels.ops.philox import signed64
from kernels.support.checks import check_integer, check_uint64
from kernels.support.names import unknown_name
from tetris import feature_names
from tetris.envs import native
from tetris.envs.rendering import Painter
from tetris.envs.tetris_env import MAX_ORIENTATIONS, REWARDS, TetrisEnv, options_of_reset
from tetris.game.piece_stream import packed_source
from tetris.game.positions import cells_of, read_boards
from tetris.play.devices import check_gpu

OUTPUTS = ("numpy", "torch")
Array = Any
"""A NumPy array or a torch tensor, by the environment's ``output``."""
Tensors = dict[str, Tensor]


class Views(NamedTuple):
    """What the games show: tensors that the engine fills, in the order of its arguments."""

    board: Tensor
    piece: Tensor
    action_mask: Tensor
    next_pieces: Tensor


# Their indices are the numbers of enum Autoreset in step.h.
_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)

_UNLIMITED = 1 << 62  # Steps of a game that was not reset again.


class TetrisVectorEnv(VectorEnv[dict[str, Array], Array, Array]):
    """Many independent games of `TetrisEnv`, which describes the game and the arguments.

    ``gymnasium.make_vec("CemTetris/Tetris-v0", num_envs=1024)`` makes one, for every id of
    `TetrisEnv`. ``vectorization_mode="sync"`` combines single environments instead, and needs
    no compiler.

    Observations, rewards (float32), terminations and truncations are arrays with an entry for
    each game. ``infos["action_mask"]`` has the shape (num_envs, 4 * width), int8. Every step
    returns new arrays. With ``device="cuda"`` they are torch tensors that are computed on the
    GPU, and a step does not wait for the GPU.

    With ``features="dt"``, or another feature set, the engine adds ``features`` and
    ``ends_game``, as `PlacementFeatures` does for a single environment.

    After ``reset(seed=s)``, game i plays stream ``first_stream + i`` of the seed s, as in
    `tetris.rollout`. After a reset with a sequence of seeds, game i plays stream 0 of the i-th
    seed. When a game has ended, the next game on its stream begins as Gymnasium's
    ``autoreset_mode`` says. In ``SAME_STEP`` the infos have ``final_obs`` and ``final_info``.
    NumPy outputs have them only in steps in which a game ends, and ``final_obs`` is an array of
    dictionaries, as Gymnasium's wrappers expect. Torch outputs have them in every step, batched
    like the observation. In ``DISABLED`` a game that has ended does not change and yields no
    rewards until ``reset(options={"reset_mask": mask})``.

    Args:
        num_envs: Games, at least 1.
        arguments: The arguments of `TetrisEnv`.
        device: ``"cpu"``: all of torch's threads; ``"cuda"`` or ``"cuda:1"``: a GPU.
        output: ``"numpy"`` or ``"torch"``; by default NumPy on the CPU. On a GPU it is torch.
        autoreset_mode: An `AutoresetMode` or its value.
        max_episode_steps: Placements after which a game is truncated; None: never.
        first_stream: Number of the first game's stream, 0 to 2^62.
        features: Name of a feature set, or feature names separated by commas; None: no
            features.
        options: Other arguments of `TetrisEnv`, except ``hold`` and ``garbage_every``.

    Raises:
        ValueError: If an argument is out of range, there is no such feature, it is defined in
            Python only, or there is no GPU for ``"cuda"``.
        kernels.loader.CompilerMissingError: If there is no compiler.
        kernels.loader.BuildError: If the engine could not be built.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *arguments: Any,
        device: str | torch.device = "cpu",
        output: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        first_stream: int = 0,
        features: str | None = None,
        **options: Any,
    ) -> None:
        """Set up the spaces and the engine; see the class."""
        single = TetrisEnv(*arguments, **options)
        if single.has_hold or single.garbage_every is not None:
            raise ValueError(
                'expected hold and garbage_every with vectorization_mode="sync" alone'
            )
        self.rules = single.rules
        self.render_mode = single.render_mode
        self._painter = Painter(single.rules)
        self.num_envs = check_integer("num_envs", num_envs, 1, 1 << 31)
        self.device = _engine_device(device)
        outputs = OUTPUTS if self.device.type == "cpu" else ("torch",)
        if output is not None and output not in outputs:
            raise unknown_name(f"output on {self.device}", str(output), outputs)
        self.output = output or outputs[0]
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**single.metadata, "autoreset_mode": self.autoreset_mode}
        self._first_stream = check_integer("first_stream", first_stream, 0, 1 << 62)
        if max_episode_steps is not None:
            max_episode_steps = check_integer(
                "max_episode_steps", max_episode_steps, 1, 1 << 62
            )
        self.max_placements = max_episode_steps
        """Placements after which a game is truncated; None: never."""
        self.pieces_known = single.pieces_known
        self.names = () if features is None else feature_names(features, self.rules.width)
        """Names of the features, in the order of their columns."""
        self._actions = MAX_ORIENTATIONS * self.rules.width
        self.single_action_space = single.action_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space: spaces.Space[Any] = single.observation_space
        if self.names:
            shape = self._actions, len(self.names)
            space = spaces.Box(-np.inf, np.inf, shape, np.float32)
            self.single_observation_space = spaces.Dict(
                {**single.observation_space, "features": space}
            )
        self._source = packed_source(self.rules)
        self._task = (  # The last arguments of the step operator.
            self.rules.clear_on_overflow,
            *self._source,
            _MODES.index(self.autoreset_mode),
            self.max_placements or 0,
            REWARDS.index(single.reward),
        )
        # The first look-up compiles the operators if necessary. Do it now, before any step.
        self._operators()
        self._operators(self.names)
        zeros = partial(torch.zeros, num_envs, dtype=torch.int64, device=self.device)
        self._seed = zeros()
        self._stream = zeros()
        self._time = zeros()  # The number of the next piece in the stream.
        self._length = zeros()  # The pieces placed in the current game.
        self._current = zeros(dtype=torch.uint8)  # The piece to place.
        self._ended = zeros(dtype=torch.uint8)
        self._columns = self._seed.new_zeros(self.rules.width, num_envs, dtype=torch.int32)
        self._is_reset = False
        # The options of the last reset with a seed, with which a replay begins; the steps since
        # then; and how many of them each game can play until it is reset without a seed.
        self.seed_options: dict[str, Any] = {}
        self._steps = 0
        self.replayable_steps = zeros() + _UNLIMITED

    # It is called in every step, because an attribute could be neither copied nor pickled.
    def _operators(self, names: tuple[str, ...] = ()) -> Any:
        return native.operators(names, cuda=self.device.type == "cuda")

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override] # an attribute of the class
        """The space of all games' observations, made on first use: it is large."""
        return batch_space(self.single_observation_space, self.num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin new games, and return the observation and the infos of all games.

        Args:
            seed: An integer: game i plays stream ``first_stream + i`` of this seed. A sequence:
                each game plays stream 0 of its own seed. None, for all games or in the
                sequence: a game uses the next pieces of its current stream.
            options: ``"reset_mask"``: bools of shape (num_envs,) that say which games begin
                again; the other games go on. ``"board"``: the stack to begin with, one for all
                games or one for each game.

        Raises:
            gymnasium.error.ResetNeeded: If the first reset has a mask.
            ValueError: If a seed, the number of seeds, the mask or an option is wrong.
        """
        # An option that is not given is None.
        mask, boards, pieces = options_of_reset(options, "reset_mask", "board", "pieces")
        if pieces is not None:
            raise ValueError('expected the option pieces with vectorization_mode="sync" alone')
        columns = self._columns_of_boards(boards)
        chosen = self._games_to_reset(mask)
        if isinstance(seed, (int, np.integer)):
            seed = check_uint64("seed", seed)
            super().reset(seed=seed)
        elif not self._is_reset:
            # Before the first reset the games have no streams. Begin on streams of a random
            # seed. The next block replaces the streams of games with a seed of their own.
            random_seed = int(self.np_random.integers(1 << 63))
            self._choose_pieces(random_seed, chosen)
        if seed is None:
            steps = self.replayable_steps
            self.replayable_steps = torch.where(chosen, steps.clamp(max=self._steps), steps)
        else:
            self.seed_options = copy.deepcopy(options or {})
            self._steps = 0
            self._choose_pieces(seed, chosen)
        # The chosen games begin on their new boards, no piece is placed, and none has ended.
        self._columns = torch.where(chosen, columns, self._columns)
        for state in (self._length, self._ended):
            state.masked_fill_(chosen, 0)
        self._is_reset = True
        return self._as_outputs(*self._observe())

    def step(
        self, actions: npt.ArrayLike | Tensor
    ) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        """Place a piece in every game. The autoreset mode says when an ended game restarts.

        Args:
            actions: ``orientation * width + column`` for every game, integers of shape
                (num_envs,). On a GPU they are not checked, because that would wait for the GPU;
                instead of an invalid action the nearest valid one is played.

        Returns:
            Observation, reward, terminated, truncated and infos of all games, as Gymnasium
            defines them.

        Raises:
            gymnasium.error.ResetNeeded: If `reset` was not called.
            TypeError: If the actions are not integers.
            ValueError: If their shape is wrong, or one is not in the action space.
        """
        if not self._is_reset:
            raise gymnasium.error.ResetNeeded(
                "expected games in progress, got step() before reset()"
            )
        numbers = self._checked_numbers(actions)
        self._steps += 1
        # The engine writes the results into new tensors.
        views = self._empty_views()
        reward = self._empty(torch.float32)
        terminated = self._empty(torch.bool)
        truncated = self._empty(torch.bool)
        # In the mode SAME_STEP, where a game has ended the views already show the next game. So
        # the last board of the ended game is returned separately.
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        final_board = views.board.new_empty(0)
        if same_step:
            final_board = torch.empty_like(views.board)
        # The operator also updates the state of the games in place: the boards as columns, the
        # current pieces, and the numbers of pieces drawn and placed.
        self._operators().step(
            numbers,
            self._seed,
            self._stream,
            self._columns,
            self._time,
            self._length,
            self._current,
            self._ended,
            *views,
            reward,
            terminated,
            truncated,
            final_board,
            *self._task,
        )
        tensors, info_tensors = self._observation_of(views, self._columns, self._ended)
        observation, infos = self._as_outputs(tensors, info_tensors)
        if same_step:
            infos.update(self._final_infos(final_board, views, terminated, truncated))
        as_output = self._as_output
        return (
            observation,
            as_output(reward),
            as_output(terminated),
            as_output(truncated),
            infos,
        )

    def single(self, game: int, seed: int | Sequence[int], boards: Any = None) -> TetrisEnv:
        """Return a single environment with the pieces and the board of a game after a reset.

        Args:
            game: The number of the game, from 0.
            seed: The seed of the reset.
            boards: The option ``"board"`` of the reset.
        """
        game = check_integer("game", game, 0, self.num_envs - 1)
        rules = self.rules
        env = TetrisEnv(rules.width, rules.height, rules.clear_on_overflow, rules.pieces)
        if isinstance(seed, (int, np.integer)):
            env.reset(seed=int(seed), options={"stream": self._first_stream + game})
        else:
            env.reset(seed=seed[game])
        if boards is not None:
            env.rows = read_boards(boards, rules, self.num_envs)[game]
        return env

    def render(self) -> tuple[Any, ...] | None:
        """Draw every game in the render mode that was chosen."""
        observation, _ = self._observe()
        arrays = {name: tensor.cpu().numpy() for name, tensor in observation.items()}
        games = (
            {name: array[i] for name, array in arrays.items()} for i in range(self.num_envs)
        )
        return self._painter.draw(self.render_mode, games)

    def _empty(self, dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.empty((self.num_envs, *shape), dtype=dtype, device=self.device)

    def _checked_numbers(self, actions: npt.ArrayLike | Tensor) -> Tensor:
        """Check the type and the shape of actions, and return them as int64 on the device.

        On the CPU the values are checked, too. On a GPU they are not, because the check would
        wait for the GPU.
        """
        tensor = _tensor_of(actions)
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            raise TypeError(f"expected actions to be integers, got {tensor.dtype}")
        if tensor.shape != (self.num_envs,):
            raise ValueError(
                f"expected actions of shape ({self.num_envs},), got {tuple(tensor.shape)}"
            )
        numbers = tensor.to(self.device, torch.int64).contiguous()
        if self.device.type == "cpu":
            least, greatest = torch.aminmax(numbers)
            for extreme in (int(least), int(greatest)):
                if not 0 <= extreme < self._actions:
                    raise ValueError(
                        f"expected actions from 0 to {self._actions - 1}, got {extreme}"
                    )
        return numbers

    def _empty_views(self) -> Views:
        """Return empty tensors, which the engine fills with what the games show."""
        return Views(
            self._empty(torch.int8, self.rules.height, self.rules.width),
            self._empty(torch.int64),
            self._empty(torch.int8, self._actions),
            self._empty(torch.int64, self.pieces_known - 1),
        )

    def _observe(self) -> tuple[Tensors, Tensors]:
        """Return the observation and the infos of all games, as tensors by name."""
        # The operator reads the state of the games, and fills the tensors of `views` with the
        # board, the piece, the action mask and the next pieces of each game.
        views = self._empty_views()
        self._operators().observe(
            self._seed,
            self._stream,
            self._columns,
            self._time,
            self._current,
            *views,
            *self._source,  # The pieces that the rules allow, packed for the engine.
        )
        return self._observation_of(views, self._columns, self._ended)

    def _observation_of(
        self, views: Views, columns: Tensor, ended: Tensor
    ) -> tuple[Tensors, Tensors]:
        """Return the observation and the infos of games, as tensors by name.

        If the environment has features, the observation also has the features of the board
        after every action, shape (num_envs, actions, features), and the infos say which actions
        end the game.

        Args:
            views: The board, the piece, the action mask and the next pieces of each game.
            columns: The same boards, as the engine stores them.
            ended: Whether each game has ended, uint8. The features of an ended game are 0.
        """
        observation = {"board": views.board, "piece": views.piece}
        infos = {"action_mask": views.action_mask}
        if self.pieces_known > 1:
            observation["next_pieces"] = views.next_pieces
        if self.names:
            features = self._empty(torch.float32, self._actions, len(self.names))
            ends_game = self._empty(torch.int8, self._actions)
            # The operator fills the two tensors.
            self._operators(self.names).placements(
                columns,
                self._current,
                ended,
                features,
                ends_game,
                self.rules.height,
                self.rules.clear_on_overflow,
            )
            observation["features"] = features
            infos["ends_game"] = ends_game
        return observation, infos

    def _final_infos(
        self,
        final_board: Tensor,
        views: Views,
        terminated: Tensor,
        truncated: Tensor,
    ) -> dict[str, Any]:
        """Return the last observations and infos of games that have just ended.

        In the autoreset mode ``SAME_STEP`` these games have already restarted, so the step
        returns their last observations as infos. With NumPy outputs the result is empty if no
        game ended. With torch outputs it is never empty, because a look at the values would
        wait for the GPU.

        Args:
            final_board: The last board of each game that ended.
            views: The current board, piece, action mask and next pieces of each game. If a
                game has ended, they belong to the next game.
            terminated: Whether each game is over, bool.
            truncated: Whether each game has reached the greatest length, bool.
        """
        ended: Array = self._as_output(terminated | truncated)
        if self.output == "numpy" and not ended.any():
            return {}
        observation, infos = self._last_observation(final_board, views, terminated)
        final_observation: Any = observation
        final_info: dict[str, Array] = {**infos}
        if self.output == "numpy":
            final_observation = _dictionary_per_game(observation, ended)
            for name, tensor in infos.items():
                # The multiplication sets the infos of games that have not ended to 0.
                final_info[name] = tensor.numpy() * ended[:, np.newaxis]
        # By Gymnasium's convention, "_x" says which games have the info "x".
        final_info |= {f"_{name}": ended for name in infos}
        return {
            "final_obs": final_observation,
            "_final_obs": ended,
            "final_info": final_info,
            "_final_info": ended,
        }

    def _last_observation(
        self, final_board: Tensor, views: Views, terminated: Tensor
    ) -> tuple[Tensors, Tensors]:
        """Return the last observation and infos of games that have ended, as tensors.

        The arguments are those of `_final_infos`.
        """
        if self.max_placements:
            # A truncated game is not over, so its last board has features.
            columns = _columns_of(final_board)
            is_over = terminated.to(torch.uint8)
        else:
            # Without truncation every game that ended is over. Then its features are 0 for any
            # board, so the boards of the next games serve as well.
            columns = self._columns
            is_over = torch.ones_like(self._ended)
        # The last observation of a game has the same pieces as the first one of the next game.
        # Copy them, so that a caller can change one of the two observations only.
        final_views = Views(
            final_board, _copy(views.piece), _copy(views.action_mask), _copy(views.next_pieces)
        )
        return self._observation_of(final_views, columns, is_over)

    def _as_output(self, tensor: Tensor) -> Array:
        return tensor.numpy() if self.output == "numpy" else tensor

    def _as_outputs(
        self, observation: Tensors, infos: Tensors
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return an observation and infos as NumPy arrays or as tensors, as ``output`` says.

        By Gymnasium's convention, "_x" says which games have the info "x". Here all games have
        all infos.
        """
        as_output = self._as_output
        outputs = {name: as_output(tensor) for name, tensor in observation.items()}
        info_outputs = {name: as_output(tensor) for name, tensor in infos.items()}
        for name in infos:
            all_games = torch.ones_like(self._ended, dtype=torch.bool)
            info_outputs[f"_{name}"] = as_output(all_games)
        return outputs, info_outputs

    def _columns_of_boards(self, boards: Any) -> Tensor:
        """Return the boards to begin with, as the engine stores them; None means empty ones."""
        if boards is None:
            return torch.zeros_like(self._columns)
        rules = self.rules
        stacks = read_boards(boards, rules, self.num_envs)
        cells = np.stack([cells_of(rows, rules.width, rules.height) for rows in stacks])
        return _columns_of(torch.from_numpy(cells).to(self.device))

    def _games_to_reset(self, mask: Any) -> Tensor:
        """Check a ``reset_mask``, and return which games to reset; None means all games.

        The result is a tensor of bools, shape (num_envs,), on the device.
        """
        if mask is None:
            return torch.ones_like(self._ended, dtype=torch.bool)
        if not self._is_reset:
            raise gymnasium.error.ResetNeeded(
                "expected reset() of all games first, got a reset_mask"
            )
        chosen = _tensor_of(mask)
        if chosen.dtype != torch.bool or chosen.shape != (self.num_envs,):
            raise ValueError(
                f"expected reset_mask to hold bools of shape ({self.num_envs},), "
                f"got {chosen.dtype} of shape {tuple(chosen.shape)}"
            )
        return chosen.to(self.device)

    def _choose_pieces(self, seed: int | Sequence[int | None], chosen: Tensor) -> None:
        """Start some games on new streams of pieces, each at its first piece.

        Args:
            seed: One seed: game i plays its stream ``first_stream + i``. Or a sequence with a
                seed for each game: the game plays stream 0 of it, or goes on with its current
                stream if the seed is None.
            chosen: The games that start on new streams, bools of shape (num_envs,).
        """
        if isinstance(seed, int):
            seeds = self._tensor_of_seeds([seed]).expand(self.num_envs)
            streams = torch.arange(self.num_envs, device=self.device) + self._first_stream
        else:
            if len(seed) != self.num_envs:
                raise ValueError(f"expected {self.num_envs} seeds, got {len(seed)}")
            # A game whose seed is None goes on with its current stream. It is not chosen, so
            # the number 0 that stands for its seed has no effect.
            has_seed = [seed_of_game is not None for seed_of_game in seed]
            chosen = chosen & torch.tensor(has_seed, device=self.device)
            numbers = [check_uint64("seed", seed_of_game or 0) for seed_of_game in seed]
            seeds = self._tensor_of_seeds(numbers)
            streams = torch.zeros_like(seeds)
        self._seed = torch.where(chosen, seeds, self._seed)
        self._stream = torch.where(chosen, streams, self._stream)
        self._time.masked_fill_(chosen, 0)
        self.replayable_steps = chosen * _UNLIMITED  # 0 for games whose pieces go on.

    def _tensor_of_seeds(self, seeds: Sequence[int]) -> Tensor:
        """Return unsigned seeds as a tensor on the device: the int64 with the same bits."""
        signed_seeds = [signed64(seed) for seed in seeds]
        return torch.tensor(signed_seeds, dtype=torch.int64, device=self.device)


def _dictionary_per_game(observation: Tensors, ended: Array) -> npt.NDArray[np.object_]:
    """Return the observation of each ended game as a dictionary, and None for other games.

    Gymnasium's wrappers expect this form: an array of objects with the shape (num_envs,).
    """
    dictionaries = np.empty(len(ended), dtype=object)
    games = np.flatnonzero(ended)
    arrays = {name: tensor.numpy()[games] for name, tensor in observation.items()}
    for row, game in enumerate(games.tolist()):
        dictionaries[game] = {name: array[row] for name, array in arrays.items()}
    return dictionaries


def _columns_of(board: Tensor) -> Tensor:
    """Return boards of shape (num_envs, height, width) as the engine stores them.

    The result has the shape (width, num_envs), int32. Each number is a column of a board; its
    highest bit is the bottom row.
    """
    rows = torch.arange(board.shape[1], dtype=torch.int32, device=board.device).view(-1, 1)
    return (board.to(torch.int32) << (31 - rows)).sum(1, dtype=torch.int32).T.contiguous()


def _copy(tensor: Tensor) -> Tensor:
    # On the CPU NumPy copies. For so few bytes torch would wake its threads, and wait for them.
    return tensor.clone() if tensor.is_cuda else torch.from_numpy(tensor.numpy().copy())


def _engine_device(device: str | torch.device) -> torch.device:
    device = torch.device(device)
    if device.type == "cuda":
        check_gpu(f"device {device}", "device cpu")
    # The device of a tensor includes the number of the GPU. "cuda" alone is torch's current
    # GPU, which may change.
    return torch.empty(0, device=device).device


def _tensor_of(values: npt.ArrayLike | Tensor) -> Tensor:
    # NumPy makes a copy, because torch accepts no negative strides.
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
