"""Learn to play Tetris with PPO on the features of every placement.

python scripts/ppo_tetris.py
python scripts/ppo_tetris.py --seconds 300 --features dt_full --out ppo.json
python -m tetris evaluate ppo.json --board 10x10

One file, as in CleanRL. The policy is linear: it draws a placement by the softmax of the
weighted sums of the features of the boards that the placements lead to. So it learns a
controller that the engines can play. The critic is a small network whose inputs are the means
and minima of these features.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from kernels.support.files import check_writable
    from tetris.commands.command_line import (
        Parser,
        one_line_errors,
        positive_seconds,
        run,
        seed,
    )

if TYPE_CHECKING:
    from tetris import LinearController

BOARD = "10x10"

GAMES = 256
STEPS = 64
EPOCHS = 4
MINIBATCHES = 4
GAMMA = 0.99
LAMBDA = 0.95
CLIP = 0.2
ACTOR_RATE = 0.03
CRITIC_RATE = 0.001

# Scores of the learning curve.
SCORED_EVERY = 10.0  # seconds
STREAMS = 50
DECISIONS = 40_000


def learn(features: str, seconds: float, seed: int) -> LinearController:
    """Learn for a time in seconds, and print the learning curve."""
    import gymnasium
    import torch
    from torch import Tensor, nn
    from torch.distributions import Categorical

    from tetris import LinearController, Rules, Streams
    from tetris.play.rollouts import rollout

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # A network as small as this is fastest on one thread.
    rules = Rules(*Rules.parse_board(BOARD))
    options = {"features": features, "output": "torch", "autoreset_mode": "SameStep"}
    envs = gymnasium.make_vec(f"tetris.envs:CemTetris/Tetris-{BOARD}-v0", GAMES, **options)
    observation, infos = envs.reset(seed=seed)
    count = observation["features"].shape[-1]
    actor = nn.Linear(count, 1, bias=False)
    nn.init.zeros_(actor.weight)
    critic = nn.Sequential(
        nn.Linear(2 * count, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    )
    optimizer = torch.optim.Adam(
        [
            {"params": actor.parameters(), "lr": ACTOR_RATE},
            {"params": critic.parameters(), "lr": CRITIC_RATE},
        ]
    )

    def choices(observation: dict[str, Tensor], infos: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the features of all placements, and a mask of those to draw from.

        Placements that end the game are drawn only if all of them end it.
        """
        legal = infos["action_mask"] == 1
        surviving = legal & (infos["ends_game"] == 0)
        mask = torch.where(surviving.any(1, keepdim=True), surviving, legal)
        return observation["features"], mask

    def evaluate(features: Tensor, mask: Tensor) -> tuple[Categorical, Tensor]:
        """Return the policy, and the value of each game."""
        x = (features - mean) / deviation
        logits = actor(x).squeeze(-1).masked_fill(~mask, -torch.inf)
        is_choice = mask.unsqueeze(-1)
        means = (x * is_choice).sum(1) / is_choice.sum(1)
        minima = x.masked_fill(~is_choice, torch.inf).amin(1)
        value = critic(torch.cat([means, minima], 1)).squeeze(1)
        return Categorical(logits=logits, validate_args=False), value

    # The scale of the features is that of games at random.
    x, mask = choices(observation, infos)
    random_features = []
    for _ in range(STEPS):
        random_features.append(x[mask])
        observation, *_, infos = envs.step(torch.multinomial(mask.float(), 1).squeeze(1))
        x, mask = choices(observation, infos)
    deviation, mean = torch.std_mean(torch.cat(random_features), dim=0)
    deviation.clamp_(min=0.1)

    def controller() -> LinearController:
        weights = (actor.weight.detach()[0] / deviation).tolist()
        return LinearController(features, tuple(weights), rules, name=f"PPO, {features}")

    def print_score() -> None:
        """Print the lines per game of the policy's best placements, on other pieces."""
        streams = Streams(rules, STREAMS, seed + (1 << 32))
        result = rollout(controller().policy(), streams, DECISIONS)
        lines = float(result.lines[0]) / max(1, int(result.games[0]))
        print(
            f"{elapsed:4.0f} s {placements:12,} placements {lines:10,.1f} lines per game",
            flush=True,
        )

    elapsed = 0.0  # Seconds of learning; scoring does not count.
    next_score = 0.0
    placements = 0
    while True:
        if elapsed >= next_score or elapsed >= seconds:
            print_score()
            next_score += SCORED_EVERY
        if elapsed >= seconds:
            return controller()
        start_time = time.perf_counter()
        steps = []
        for _ in range(STEPS):
            with torch.no_grad():
                policy, value = evaluate(x, mask)
            action = policy.sample()
            observation, reward, is_over, _, infos = envs.step(action)
            steps.append((x, mask, action, policy.log_prob(action), value, reward, is_over))
            x, mask = choices(observation, infos)
        xs, masks, actions, old_log_probs, values, rewards, game_ends = (
            torch.stack(column) for column in zip(*steps, strict=True)
        )

        # Generalised advantage estimation (Schulman et al. 2016)
        with torch.no_grad():
            _, next_value = evaluate(x, mask)
        advantage = torch.zeros(GAMES)
        advantages = torch.empty_like(values)
        for t in reversed(range(STEPS)):
            discount = GAMMA * ~game_ends[t]
            error = rewards[t] + discount * next_value - values[t]
            advantage = error + LAMBDA * discount * advantage
            advantages[t] = advantage
            next_value = values[t]

        # The clipped objective (Schulman et al. 2017)
        columns = (xs, masks, actions, old_log_probs, advantages, advantages + values)
        samples = [column.flatten(0, 1) for column in columns]
        for _ in range(EPOCHS):
            for rows in torch.randperm(GAMES * STEPS).split(GAMES * STEPS // MINIBATCHES):
                features_, mask_, action_, old_log_prob, gain, target = (
                    column[rows] for column in samples
                )
                policy, value = evaluate(features_, mask_)
                ratio = (policy.log_prob(action_) - old_log_prob).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                loss = -torch.minimum(ratio * gain, clipped * gain).mean()
                loss = loss + 0.5 * (value - target).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        placements += GAMES * STEPS
        elapsed += time.perf_counter() - start_time


def main(argv: Sequence[str] | None = None) -> int:
    """Learn to play as the options say; print the learning curve, and write the controller."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    parser.add_argument(
        "--features",
        default="dt",
        metavar="NAMES",
        help="a feature set, or names separated by commas (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        default=60.0,
        help="of learning (default: %(default)g)",
    )
    parser.add_argument(
        "--seed", type=seed, default=1, help="of pieces and draws (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the controller")
    arguments = parser.parse_args(argv)
    with one_line_errors():
        if arguments.out:
            check_writable(arguments.out)  # A mistake in the path is reported before learning.
        controller = learn(arguments.features, arguments.seconds, arguments.seed)
        if arguments.out:
            controller.save(arguments.out)
    return 0


if __name__ == "__main__":
    run(main)
