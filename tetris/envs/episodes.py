"""Replays of games in environments, made from the actions."""

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from tetris.envs.tetris_env import TetrisEnv
from tetris.envs.vector_env import TetrisVectorEnv
from tetris.game.decisions import Rows
from tetris.game.features import AfterState
from tetris.play.controller import LinearController
from tetris.record.replay import Replay, record_steps

_OWN_ACTIONS = ("autoreset", "action", "actions", "num_repeats")
"""Attributes of Autoreset, ActionWrapper, VectorActionWrapper and RepeatAction.

These wrappers reset an environment, or play other actions in it than they are given. Old
versions of Gymnasium do not have all of them.
"""


def replay_of(
    env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any],
    actions: Iterable[Any],
    *,
    seed: Any,
    options: dict[str, Any] | None = None,
    game: int = 0,
    controller: LinearController | None = None,
) -> Replay:
    """Return a replay of the games that a list of actions plays in an environment.

    This function resets a copy of the environment, and plays the actions in the copy. When a
    game ends, the next game begins on the same stream of pieces. A single environment's later
    resets are repeated, too: those with options, and those during a game.

    Args:
        env: An environment of this package, with or without wrappers, but not `Autoreset` or
            one that changes actions.
        actions: The actions of all steps since the reset. For a vector environment they have
            the shape (steps, num_envs).
        seed: The seed of the reset. For a vector environment it can also be a sequence with a
            seed for each game.
        options: The options of the reset. None: the options of the last reset with a seed.
        game: For a vector environment, the number of the game to return.
        controller: The controller that chose the actions, which the replay names. None: no
            controller did.

    Returns:
        The replay. Its seed is None if the pieces were not placed in the order of the stream,
        for example after a swap with the hold slot. A game that a garbage row ends counts as
        unfinished.

    Raises:
        TypeError: If the environment is not from this package.
        ValueError: If the game of a vector environment was reset after the last seed, and
            there are actions after that reset; or if a wrapper resets the environment or
            changes its actions.
    """
    inner = env.unwrapped
    wrapper: Any = env
    while wrapper is not inner:
        if any(hasattr(wrapper, name) for name in _OWN_ACTIONS):
            raise ValueError(f"expected no wrapper that resets or changes actions, got {env}")
        wrapper = wrapper.env
    if isinstance(inner, TetrisVectorEnv):
        # Play this game alone, in a single environment with the same pieces and board.
        if options is None:
            options = inner.seed_options
        single = inner.single(game, seed, options.get("board"))
        actions_of_game = [int(step[game]) for step in actions]
        most = int(inner.replayable_steps[game])
        if len(actions_of_game) > most:
            raise ValueError(
                f"expected at most {most} actions for game {game}, whose next reset was "
                f"without a seed, got {len(actions_of_game)}"
            )
        mode = inner.autoreset_mode
        played = _play(single, actions_of_game, inner.max_placements, mode, {})
        return _record(single, played, controller)
    if isinstance(env, VectorEnv) or not isinstance(inner, TetrisEnv):
        raise TypeError(f"expected an environment of tetris.envs, got {env!r}")
    single = copy.deepcopy(inner)
    if options is None:
        options = single.seed_options
    single.reset(seed=seed, options=options)
    limit = env.spec.max_episode_steps if env.spec else None
    resets = inner.later_resets
    mode = AutoresetMode.SAME_STEP
    # At the end of a game the user has called `reset` without an action. So every action places
    # a piece, as in the autoreset mode SAME_STEP.
    played = _play(single, map(int, actions), limit, mode, resets)
    return _record(single, played, controller)


def _record(
    env: TetrisEnv,
    played: Iterable[tuple[Rows, AfterState]],
    controller: LinearController | None,
) -> Replay:
    """Return the replay of placements in an environment.

    Args:
        env: The environment.
        played: What `_play` yields.
        controller: The controller that the replay names.
    """
    placements, boards = record_steps(played)
    # The replay can name the stream of its pieces only if they were placed in its order.
    seed = None
    stream = None
    pieces = env.stream
    if all(pieces[t] == after.piece for t, after in enumerate(placements)):
        seed = pieces.seed
        stream = pieces.stream
    return Replay.of(placements, env.rules, seed, stream, controller, boards)


def _play(
    env: TetrisEnv,
    actions: Iterable[int],
    limit: int | None,
    mode: AutoresetMode,
    resets: dict[int, list[Any]],
) -> Iterator[tuple[Rows, AfterState]]:
    """Play actions; yield every placement, as the stack before it and the board after it.

    Args:
        env: An environment that was just reset, which is changed.
        actions: The actions.
        limit: The number of steps after which a game is truncated; None: never.
        mode: What happens after the end of a game.
        resets: The options of further resets, by the number of actions before them.
    """
    steps = 0  # The steps of the current game.
    for time, action in enumerate(actions):
        for options in resets.get(time, ()):
            env.reset(options=options)
            steps = 0
        if env.is_over or steps == limit:  # The last game has ended: begin the next one.
            if mode is AutoresetMode.DISABLED:
                return
            env.reset()
            steps = 0
            if mode is AutoresetMode.NEXT_STEP:  # This action is ignored: it only resets.
                continue
        rows = env.rows
        last_landing = env.landing
        env.step(action)
        steps += 1
        # `landing` is the last placement. With key presses, a step places a piece only if the
        # piece comes to rest. Then `landing` is a new object.
        landing = env.landing
        if landing is not None and landing is not last_landing:
            yield rows, landing
