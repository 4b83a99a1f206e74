"""Replays of the games of environments, from their actions."""

import copy
from collections.abc import Iterable
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from tetris.envs.tetris_env import TetrisEnv
from tetris.envs.vector_env import TetrisVectorEnv
from tetris.game.decisions import Rows
from tetris.game.features import AfterState
from tetris.record.replay import Replay


def replay_of(
    env: gymnasium.Env[Any, Any] | TetrisVectorEnv,
    actions: Iterable[Any],
    *,
    seed: Any,
    options: dict[str, Any] | None = None,
    game: int = 0,
) -> Replay:
    """Return the replay of the games that actions have played in an environment.

    The actions are played again on a copy, from a reset on. After the end of a game the next
    one follows, as `reset` without a seed begins it.

    Args:
        env: An environment of this package, also inside wrappers.
        actions: The actions of all steps since the reset; of a vector environment those of all
            games, shape (steps, num_envs).
        seed: The seed of that reset; of a vector environment also one for each game.
        options: The options of that reset.
        game: The game of a vector environment, by its number.

    Returns:
        The replay. It has no seed if the pieces were not those of the stream in their order,
        for example after a swap with the hold slot. A game that a garbage row ends counts as
        unfinished.

    Raises:
        TypeError: If it is another environment.
    """
    if isinstance(env, TetrisVectorEnv):
        single = env.single(game, seed, (options or {}).get("board"))
        numbers = [int(step[game]) for step in actions]
        return _record(single, numbers, env.max_placements, env.autoreset_mode)
    if not isinstance(env.unwrapped, TetrisEnv):
        raise TypeError(f"expected an environment of tetris.envs, got {env!r}")
    single = copy.deepcopy(env.unwrapped)
    single.reset(seed=seed, options=options)
    limit = env.spec.max_episode_steps if env.spec else None
    return _record(single, map(int, actions), limit, AutoresetMode.SAME_STEP)


def _record(
    env: TetrisEnv, actions: Iterable[int], limit: int | None, mode: AutoresetMode
) -> Replay:
    """Return the replay of actions in an environment that was reset.

    Args:
        env: The environment, which changes.
        actions: The actions.
        limit: Steps after which a game is truncated; None: never.
        mode: What follows the end of a game.
    """
    placements: list[AfterState] = []
    boards: dict[int, Rows] = {}
    rows_left: Rows = ()  # The stack that the last placement has left.
    steps = 0  # Of this game.
    for action in actions:
        if env.is_over or steps == limit:
            if mode is AutoresetMode.DISABLED:
                break
            env.reset()
            steps = 0
            if mode is AutoresetMode.NEXT_STEP:  # This action places nothing.
                continue
        rows = env.rows
        last_landing = env.landing
        env.step(action)
        steps += 1
        landing = env.landing
        if landing is not None and landing is not last_landing:
            if rows != rows_left:
                boards[len(placements)] = rows
            placements.append(landing)
            rows_left = () if landing.game_over else landing.rows
    pieces = env.stream
    is_of_stream = all(pieces[t] == after.piece for t, after in enumerate(placements))
    if is_of_stream:
        return Replay.of(placements, env.rules, pieces.seed, pieces.stream, None, boards)
    return Replay.of(placements, env.rules, boards=boards)
