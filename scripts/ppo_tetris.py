"""Learn to play Tetris with PPO on the features of every placement.

python scripts/ppo_tetris.py
python scripts/ppo_tetris.py --seconds 300 --features dt_full --out ppo.json
python -m tetris evaluate ppo.json --board 10x10

Everything is in one file, as in CleanRL. The policy is linear: the score of a placement is the
weighted sum of the features of the board after it, and the policy draws a placement with the
softmax of the scores as probabilities. So the weights are a controller that the engines can
play. The critic is a small network whose inputs are the means and minima of the features over
all placements.
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
    from torch import Tensor
    from torch.distributions import Categorical

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


class Agent:
    """The policy, the critic and their optimizer."""

    def __init__(self, count: int) -> None:
        """Make a linear policy over ``count`` features, a critic and their optimizer.

        The policy's weights begin at 0, so at first all placements are equally probable.
        The critic has two inputs for each feature: its mean and its minimum over the
        placements.
        """
        import torch
        from torch import nn

        self.actor = nn.Linear(count, 1, bias=False)
        nn.init.zeros_(self.actor.weight)
        self.critic = nn.Sequential(
            nn.Linear(2 * count, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        )
        self.optimizer = torch.optim.Adam(
            [
                {"params": self.actor.parameters(), "lr": ACTOR_RATE},
                {"params": self.critic.parameters(), "lr": CRITIC_RATE},
            ]
        )

    def set_scale(self, features: Tensor) -> None:
        """Set the scale of the inputs to the mean and standard deviation of sample features.

        ``features`` has the shape (boards, features).
        """
        import torch

        self.deviation, self.mean = torch.std_mean(features, dim=0)
        self.deviation.clamp_(min=0.1)

    def evaluate(self, features: Tensor, mask: Tensor) -> tuple[Categorical, Tensor]:
        """Return the policy's distribution of placements, and the critic's values.

        Args:
            features: The features of all placements, shape (games, placements, features).
            mask: Which placements the policy may draw, shape (games, placements).

        Returns:
            The distribution of each game's placement.
            The value of each game, shape (games,).
        """
        import torch
        from torch.distributions import Categorical

        x = (features - self.mean) / self.deviation
        logits = self.actor(x).squeeze(-1).masked_fill(~mask, -torch.inf)
        # The mean and the minimum of each feature over the placements that may be drawn.
        is_choice = mask.unsqueeze(-1)
        means = (x * is_choice).sum(1) / is_choice.sum(1)
        minima = x.masked_fill(~is_choice, torch.inf).amin(1)
        value = self.critic(torch.cat([means, minima], 1)).squeeze(1)
        return Categorical(logits=logits, validate_args=False), value

    def weights(self) -> tuple[float, ...]:
        """Return the policy's weights for features that are not scaled."""
        return tuple((self.actor.weight.detach()[0] / self.deviation).tolist())

    def improve(self, samples: Sequence[Tensor]) -> None:
        """Take gradient steps on PPO's clipped objective (Schulman et al. 2017).

        Args:
            samples: Six tensors with one row per decision: the features, the mask, the action,
                the log probability of the action when it was drawn, the advantage, and the
                target of the critic's value.
        """
        import torch

        decisions = len(samples[0])
        for _ in range(EPOCHS):
            # Divide the decisions at random into minibatches.
            for rows in torch.randperm(decisions).split(decisions // MINIBATCHES):
                minibatch = [tensor[rows] for tensor in samples]
                features, mask, action, old_log_prob, advantage, target = minibatch
                policy, value = self.evaluate(features, mask)
                ratio = (policy.log_prob(action) - old_log_prob).exp()
                clipped_ratio = ratio.clamp(1 - CLIP, 1 + CLIP)
                # PPO scales the advantages of a minibatch to mean 0 and standard deviation 1.
                scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                loss = -torch.minimum(ratio * scaled, clipped_ratio * scaled).mean()
                # The loss of the critic.
                loss = loss + 0.5 * (value - target).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


def choices(observation: dict[str, Tensor], infos: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return the features of all placements, and a mask that says which may be drawn.

    A placement that ends the game may be drawn only if every placement ends it.
    """
    import torch

    legal = infos["action_mask"] == 1
    surviving = legal & (infos["ends_game"] == 0)
    mask = torch.where(surviving.any(1, keepdim=True), surviving, legal)
    return observation["features"], mask


def estimate_advantages(
    rewards: Tensor, values: Tensor, game_ends: Tensor, next_value: Tensor
) -> Tensor:
    """Return the advantages by generalised advantage estimation (Schulman et al. 2016).

    Args:
        rewards: The reward of every step, shape (steps, games).
        values: The critic's values before each step, shape (steps, games).
        game_ends: Whether the game ended in the step, shape (steps, games).
        next_value: The critic's values after the last step, shape (games,).

    Returns:
        The advantages, shape (steps, games).
    """
    import torch

    advantage = torch.zeros_like(next_value)
    advantages = torch.empty_like(values)
    # Go from the last step to the first. At the beginning of a round, `advantage` and
    # `next_value` are those of step t + 1.
    for t in reversed(range(len(rewards))):
        # At the end of a game the discount is 0, since the next step belongs to a new game.
        discount = GAMMA * ~game_ends[t]
        error = rewards[t] + discount * next_value - values[t]
        advantage = error + LAMBDA * discount * advantage
        advantages[t] = advantage
        next_value = values[t]
    return advantages


def learn(features: str, seconds: float, seed: int) -> LinearController:
    """Learn a controller for a number of seconds, and print the learning curve."""
    import gymnasium
    import torch

    from tetris import LinearController, Rules, Streams
    from tetris.play.rollouts import rollout

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # A network as small as this is fastest on one thread.
    rules = Rules(*Rules.parse_board(BOARD))
    options = {"features": features, "output": "torch", "autoreset_mode": "SameStep"}
    envs = gymnasium.make_vec(f"tetris.envs:CemTetris/Tetris-{BOARD}-v0", GAMES, **options)
    x, mask = choices(*envs.reset(seed=seed))
    agent = Agent(x.shape[-1])

    # Random games give the scale of the features.
    random_features = []
    for _ in range(STEPS):
        random_features.append(x[mask])
        action = torch.multinomial(mask.float(), 1).squeeze(1)
        observation, *_, infos = envs.step(action)
        x, mask = choices(observation, infos)
    agent.set_scale(torch.cat(random_features))

    def controller() -> LinearController:
        return LinearController(features, agent.weights(), rules, name=f"PPO, {features}")

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
                policy, value = agent.evaluate(x, mask)
            action = policy.sample()
            observation, reward, is_over, _, infos = envs.step(action)
            steps.append((x, mask, action, policy.log_prob(action), value, reward, is_over))
            x, mask = choices(observation, infos)
        # Each of shape (STEPS, GAMES, ...).
        xs, masks, actions, log_probs, values, rewards, game_ends = (
            torch.stack(column) for column in zip(*steps, strict=True)
        )
        with torch.no_grad():
            _, next_value = agent.evaluate(x, mask)
        advantages = estimate_advantages(rewards, values, game_ends, next_value)
        # The target of a value is the estimated return: the advantage plus the value.
        columns = (xs, masks, actions, log_probs, advantages, advantages + values)
        agent.improve([column.flatten(0, 1) for column in columns])
        placements += GAMES * STEPS
        elapsed += time.perf_counter() - start_time


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the options, learn a controller, and with --out write it to a file.

    `learn` prints the learning curve.
    """
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
        help="how long to learn (default: %(default)g)",
    )
    parser.add_argument(
        "--seed", type=seed, default=1, help="seed of pieces and policy (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the controller")
    arguments = parser.parse_args(argv)
    with one_line_errors():
        if arguments.out:
            check_writable(arguments.out)  # Report a mistake in the path before learning.
        controller = learn(arguments.features, arguments.seconds, arguments.seed)
        if arguments.out:
            controller.save(arguments.out)
    return 0


if __name__ == "__main__":
    run(main)
