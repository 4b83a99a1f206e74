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
from kernels.support.names import unknown_name
from tetris.envs import native
from tetris.envs.rendering import Painter
from tetris.envs.tetris_env import MAX_ORIENTATIONS, REWARDS, TetrisEnv, option_of_reset
from tetris.game.feature_sets import feature_names
from tetris.game.piece_stream import packed_source
from tetris.play.devices import check_gpu

OUTPUTS = ("numpy", "torch")
Array = Any
"""A NumPy array or a torch tensor, by the environment's ``output``."""
Tensors = dict[str, torch.Tensor]
Views = tuple[torch.Tensor, ...]
"""What games show: boards, pieces, masks of actions and the pieces that follow."""

# As enum Autoreset in step.h numbers them.
_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


class TetrisVectorEnv(VectorEnv[dict[str, Array], Array, Array]):
    """Many independent games of `TetrisEnv`, which describes actions, observations, rewards and arguments.

    ``gymnasium.make_vec("CemTetris/Tetris-v0", num_envs=1024)`` makes one, for every id of `TetrisEnv`.
    ``vectorization_mode="sync"`` makes one out of single environments instead, which needs no compiler.

    Observations, rewards (float32), terminations and truncations are those of all games, one after the
    other; ``infos["action_mask"]`` has the shape (num_envs, 4 * width), int8. They are new arrays in every
    step. With ``device="cuda"`` they are torch tensors on the GPU, made there, and a step waits for nothing.

    With ``features="dt"``, or another feature set, the engine adds ``features`` and ``ends_game``, as
    `PlacementFeatures` does to a single environment.

    ``reset(seed=s)`` has game i play stream ``first_stream + i`` of the seed s, as in `tetris.rollout`; with
    a sequence of seeds game i plays stream 0 of its own. A game that has ended is followed by the next one on
    its stream, when Gymnasium's ``autoreset_mode`` says so. In ``SAME_STEP`` the infos have ``final_obs`` and
    ``final_info``: as NumPy only where a game has ended, with ``final_obs`` an array of dictionaries, as
    Gymnasium's wrappers expect; as torch tensors always, batched like the observation. In ``DISABLED`` a game
    stays as it is, without rewards, until ``reset(options={"reset_mask": mask})``.

    Args:
        num_envs: Games, at least 1.
        arguments: Those of `TetrisEnv`.
        device: ``"cpu"``: all of torch's threads; ``"cuda"`` or ``"cuda:1"``: a GPU.
        output: ``"numpy"`` or ``"torch"``; by default NumPy on the CPU. On a GPU it is torch.
        autoreset_mode: An `AutoresetMode` or its value.
        max_episode_steps: Placements after which a game is truncated; None: never.
        first_stream: Number of the first game's stream, 0 to 2^62.
        features: Name of a feature set, or feature names separated by commas; None: no features.
        options: Those of `TetrisEnv` but ``hold`` and ``garbage_every``.

    Raises:
        ValueError: If an argument is out of range, there is no such feature, it is defined in Python only, or
            there is no GPU for ``"cuda"``.
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
            raise ValueError('expected hold and garbage_every with vectorization_mode="sync" alone')
        self.rules, self.render_mode, self._painter = single.rules, single.render_mode, Painter(single.rules)
        self.num_envs = check_integer("num_envs", num_envs, 1, 1 << 31)
        self.device = _device_of_an_engine(device)
        outputs = OUTPUTS if self.device.type == "cpu" else ("torch",)
        if output is not None and output not in outputs:
            raise unknown_name(f"output on {self.device}", str(output), outputs)
        self.output = output or outputs[0]
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**single.metadata, "autoreset_mode": self.autoreset_mode}
        self._first_stream = check_integer("first_stream", first_stream, 0, 1 << 62)
        self._limit = 0  # placements after which a game is truncated; 0: never
        if max_episode_steps is not None:
            self._limit = check_integer("max_episode_steps", max_episode_steps, 1, 1 << 62)
        self.pieces_known = single.pieces_known
        self.names = () if features is None else feature_names(features, self.rules.width)
        """Names of the features, in the order of their columns."""
        self._actions = MAX_ORIENTATIONS * self.rules.width
        self.single_action_space = single.action_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space: spaces.Space[Any] = single.observation_space
        if self.names:
            space = spaces.Box(-np.inf, np.inf, (self._actions, len(self.names)), np.float32)
            self.single_observation_space = spaces.Dict({**single.observation_space, "features": space})
        self._source = packed_source(self.rules)
        mode = _MODES.index(self.autoreset_mode)
        reward = REWARDS.index(single.reward)
        self._task = (self.rules.clear_on_overflow, *self._source, mode, self._limit, reward)
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
        return native.operators(self.names, cuda=self.device.type == "cuda") if self.names else None

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override] # an attribute of the class
        """The space of all games' observations, made on first use: it holds bounds for every cell."""
        return batch_space(self.single_observation_space, self.num_envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin games on empty boards.

        Args:
            seed: Chooses the pieces, for all games or one for each; see the class and `TetrisEnv.reset`.
            options: ``{"reset_mask": mask}``, bools of shape (num_envs,): the games to begin; others go on.

        Raises:
            gymnasium.error.ResetNeeded: If some games shall begin and the others never have.
            ValueError: If a seed, the number of seeds, the mask or an option is wrong.
        """
        chosen = self._chosen(option_of_reset(options, "reset_mask"))
        if isinstance(seed, (int, np.integer)):
            seed = check_integer("seed", seed, 0, (1 << 64) - 1)
            super().reset(seed=seed)
        elif not self._begun:  # for the games without a seed of their own
            self._choose_pieces(int(self.np_random.integers(1 << 63)), chosen)
        if seed is not None:
            self._choose_pieces(seed, chosen)
        for state in (self._columns, self._length, self._ended):
            state.masked_fill_(chosen, 0)
        self._begun = True
        return self._as_outputs(*self._observe())

    def step(
        self, actions: npt.ArrayLike | torch.Tensor
    ) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        """Place a piece in every game.

        Args:
            actions: ``orientation * width + column`` for every game, integers of shape (num_envs,). On a GPU
                one outside the action space is taken for the nearest in it, for looking would mean to wait.

        Raises:
            gymnasium.error.ResetNeeded: If the games have not begun.
            TypeError: If the actions are no integers.
            ValueError: If their shape is wrong, or one is not of the action space.
        """
        if not self._begun:
            raise gymnasium.error.ResetNeeded("expected games in progress, got step() before reset()")
        number, views = self._numbers_of(actions), self._views()
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        reward, terminated, truncated = map(self._empty, (torch.float32, torch.bool, torch.bool))
        final_board = torch.empty_like(views[0]) if same_step else views[0].new_empty(0)
        self._operators.step(
            *(number, self._seed, self._stream, self._columns, self._time, self._length, self._current),
            *(self._ended, *views, reward, terminated, truncated, final_board),
            *self._task,
        )
        observation, infos = self._as_outputs(*self._named(views, self._columns, self._ended))
        if same_step:
            infos.update(self._finals(final_board, views, terminated, truncated))
        outcome = (self._as_output(each) for each in (reward, terminated, truncated))
        return observation, *outcome, infos

    def render(self) -> tuple[Any, ...] | None:
        """Draw every game in the render mode that was chosen."""
        arrays = {name: tensor.cpu().numpy() for name, tensor in self._observe()[0].items()}
        games = ({name: array[i] for name, array in arrays.items()} for i in range(self.num_envs))
        return self._painter.draw(self.render_mode, games)

    def _empty(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.empty((self.num_envs, *shape), dtype=dtype, device=self.device)

    def _numbers_of(self, actions: npt.ArrayLike | torch.Tensor) -> torch.Tensor:
        """Return the actions, int64 on the device; their values are looked at on the CPU alone."""
        tensor = _tensor_of(actions)
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            raise TypeError(f"expected actions to be integers, got {tensor.dtype}")
        if tensor.shape != (self.num_envs,):
            raise ValueError(f"expected actions of shape ({self.num_envs},), got {tuple(tensor.shape)}")
        number = tensor.to(self.device, torch.int64).contiguous()
        if self.device.type == "cpu":
            least, most = map(int, torch.aminmax(number))
            if least < 0 or most >= self._actions:
                got = least if least < 0 else most
                raise ValueError(f"expected actions from 0 to {self._actions - 1}, got {got}")
        return number

    def _views(self) -> Views:
        """Return new tensors for what the games show."""
        return (
            self._empty(torch.int8, self.rules.height, self.rules.width),
            self._empty(torch.int64),
            self._empty(torch.int8, self._actions),
            self._empty(torch.int64, self.pieces_known - 1),
        )

    def _observe(self) -> tuple[Tensors, Tensors]:
        views = self._views()
        self._operators.observe(
            *(self._seed, self._stream, self._columns, self._time, self._current, *views, *self._source)
        )
        return self._named(views, self._columns, self._ended)

    def _named(self, views: Views, columns: torch.Tensor, ended: torch.Tensor) -> tuple[Tensors, Tensors]:
        """Return observation and infos, with the features of all placements, if they are wanted."""
        board, piece, mask, following = views
        observation, infos = {"board": board, "piece": piece}, {"action_mask": mask}
        if self.pieces_known > 1:
            observation["next_pieces"] = following
        if self.names:
            features = self._empty(torch.float32, self._actions, len(self.names))
            ends = self._empty(torch.int8, self._actions)
            rules = self.rules.height, self.rules.clear_on_overflow
            self._feature_operators.placements(columns, self._current, ended, features, ends, *rules)
            observation["features"], infos["ends_game"] = features, ends
        return observation, infos

    def _finals(
        self, board: torch.Tensor, views: Views, terminated: torch.Tensor, truncated: torch.Tensor
    ) -> dict[str, Any]:
        """Return what the games that ended showed last, as entries of the infos; see the class."""
        ended: Array = self._as_output(terminated | truncated)
        if self.output == "numpy" and not ended.any():
            return {}
        if self._limit:
            columns, over = _columns_of(board), terminated.to(torch.uint8)
        else:  # all that ended are over, and have no features
            columns, over = self._columns, torch.ones_like(self._ended)
        # The next game begins with the pieces that the ended one showed last.
        observation, infos = self._named((board, *map(_copied, views[1:])), columns, over)
        last: Any = observation
        info: dict[str, Array] = {**infos}
        if self.output == "numpy":
            last = np.empty(self.num_envs, dtype=object)
            where = np.flatnonzero(ended)
            arrays = {name: tensor.numpy()[where] for name, tensor in observation.items()}
            for at, i in enumerate(where.tolist()):
                last[i] = {name: array[at] for name, array in arrays.items()}
            info = {name: tensor.numpy() * ended[:, np.newaxis] for name, tensor in infos.items()}
        info |= {f"_{name}": ended for name in infos}
        return {"final_obs": last, "_final_obs": ended, "final_info": info, "_final_info": ended}

    def _as_output(self, tensor: torch.Tensor) -> Array:
        return tensor.numpy() if self.output == "numpy" else tensor

    def _as_outputs(self, observation: Tensors, infos: Tensors) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return both as the caller takes them; of all infos they say that every game has them."""
        infos = {**infos, **{f"_{name}": torch.ones_like(self._ended, dtype=torch.bool) for name in infos}}
        both = observation, infos
        shown, more = ({name: self._as_output(tensor) for name, tensor in each.items()} for each in both)
        return shown, more

    def _chosen(self, mask: Any) -> torch.Tensor:
        """Return the games to reset, as bools on the device."""
        if mask is None:
            return torch.ones_like(self._ended, dtype=torch.bool)
        if not self._begun:
            raise gymnasium.error.ResetNeeded("expected reset() of all games first, got a reset_mask")
        chosen = _tensor_of(mask)
        if chosen.dtype != torch.bool or chosen.shape != (self.num_envs,):
            got = f"{chosen.dtype} of shape {tuple(chosen.shape)}"
            raise ValueError(f"expected reset_mask to hold bools of shape ({self.num_envs},), got {got}")
        return chosen.to(self.device)

    def _choose_pieces(self, seed: int | Sequence[int | None], chosen: torch.Tensor) -> None:
        """Let the chosen games begin streams of a seed, or those of them that have one their own seed's."""
        if isinstance(seed, int):
            seeds = torch.full((self.num_envs,), signed64(seed), dtype=torch.int64, device=self.device)
            streams = torch.arange(self.num_envs, dtype=torch.int64, device=self.device) + self._first_stream
        else:
            if len(seed) != self.num_envs:
                raise ValueError(f"expected {self.num_envs} seeds, got {len(seed)}")
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


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    # NumPy's for the CPU: torch would wake its threads for so few bytes, and wait for them.
    return tensor.clone() if tensor.is_cuda else torch.from_numpy(tensor.numpy().copy())


def _device_of_an_engine(device: str | torch.device) -> torch.device:
    chosen = torch.device(device)
    if chosen.type == "cuda":
        check_gpu(f"device {device}", "device cpu")
    return torch.empty(0, device=chosen).device  # with its number: torch's current GPU may later be another


def _tensor_of(values: npt.ArrayLike | torch.Tensor) -> torch.Tensor:
    # NumPy's copy: torch takes no negative strides.
    return values if isinstance(values, torch.Tensor) else torch.from_numpy(np.array(values))
