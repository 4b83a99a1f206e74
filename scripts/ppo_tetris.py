"""Learn to play Tetris with PPO on the features of every placement.

python scripts/ppo_tetris.py
python scripts/ppo_tetris.py --seconds 300 --features dt_full --out ppo.json
python -m tetris evaluate ppo.json --board 10x10

One file, as in CleanRL. The policy is linear: a placement is drawn by the softmax of the weighted sums of the
features of the boards that the placements lead to, so what is learned is a controller, which the engines
play. The critic is a small network that sees the means and minima of these features.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.support.interrupts import one_line_interrupts

with one_line_interrupts():
    from kernels.support.files import check_writable
    from tetris.commands.command_line import Parser, one_line_errors, positive_seconds, run, seed

if TYPE_CHECKING:
    from tetris import LinearController

GAMES, STEPS, EPOCHS, MINIBATCHES = 256, 64, 4, 4
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
ACTOR_RATE, CRITIC_RATE = 0.03, 0.001
BOARD = "10x10"
SCORED_EVERY, STREAMS, DECISIONS = 10.0, 50, 40_000  # seconds; streams of games, and pieces of each


def learn(features: str, seconds: float, seed: int) -> LinearController:
    """Learn for so many seconds, and print the learning curve."""
    import gymnasium
    import torch
    from torch import Tensor, nn
    from torch.distributions import Categorical

    from tetris import LinearController, Rules, Streams
    from tetris.play.rollouts import rollout

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # so small a network is fastest so
    rules = Rules(*Rules.parse_board(BOARD))
    options = {"num_envs": GAMES, "features": features, "output": "torch", "autoreset_mode": "SameStep"}
    envs = gymnasium.make_vec(f"tetris.envs:CemTetris/Tetris-{BOARD}-v0", **options)
    observation, infos = envs.reset(seed=seed)
    count = observation["features"].shape[-1]
    actor = nn.Linear(count, 1, bias=False)
    nn.init.zeros_(actor.weight)
    hidden = nn.Linear(2 * count, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
    critic = nn.Sequential(*hidden, nn.Linear(64, 1))
    groups = [(actor, ACTOR_RATE), (critic, CRITIC_RATE)]
    optimizer = torch.optim.Adam([{"params": part.parameters(), "lr": rate} for part, rate in groups])

    def look(observation: dict[str, Tensor], infos: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Features of all placements, and which to draw from: those that do not end the game, if any."""
        legal = infos["action_mask"] == 1
        alive = legal & (infos["ends_game"] == 0)
        return observation["features"], torch.where(alive.any(1, keepdim=True), alive, legal)

    def judge(features: Tensor, mask: Tensor) -> tuple[Categorical, Tensor]:
        """The policy and the value of each game."""
        x = (features - mean) / deviation
        logits = actor(x).squeeze(-1).masked_fill(~mask, -torch.inf)
        chosen = mask.unsqueeze(-1)
        means = (x * chosen).sum(1) / chosen.sum(1)
        minima = x.masked_fill(~chosen, torch.inf).amin(1)
        value = critic(torch.cat([means, minima], 1)).squeeze(1)
        return Categorical(logits=logits, validate_args=False), value

    # The scale of the features, from games at random.
    x, mask = look(observation, infos)
    seen = []
    for _ in range(STEPS):
        seen.append(x[mask])
        observation, *_, infos = envs.step(torch.multinomial(mask.float(), 1).squeeze(1))
        x, mask = look(observation, infos)
    deviation, mean = torch.std_mean(torch.cat(seen), dim=0)
    deviation.clamp_(min=0.1)

    def controller() -> LinearController:
        weights = (actor.weight.detach()[0] / deviation).tolist()
        return LinearController(features, tuple(weights), rules, name=f"PPO, {features}")

    def score(placements: int) -> None:
        """Lines a game of the best placement by the policy, on other pieces than it learns from."""
        played = rollout(controller().policy(), Streams(rules, STREAMS, seed + (1 << 32)), DECISIONS)
        lines = float(played.lines[0]) / max(1, int(played.games[0]))
        print(f"{learned:4.0f} s {placements:12,} placements {lines:10,.1f} lines per game", flush=True)

    learned, placements, next_score = 0.0, 0, 0.0  # seconds of learning; scoring does not count
    while True:
        if learned >= next_score or learned >= seconds:
            score(placements)
            next_score += SCORED_EVERY
        if learned >= seconds:
            return controller()
        start = time.perf_counter()
        steps = []
        for _ in range(STEPS):
            with torch.no_grad():
                policy, value = judge(x, mask)
            action = policy.sample()
            observation, reward, ended, _, infos = envs.step(action)
            steps.append((x, mask, action, policy.log_prob(action), value, reward, ended))
            x, mask = look(observation, infos)
        xs, masks, actions, before, values, rewards, ends = (
            torch.stack(each) for each in zip(*steps, strict=True)
        )

        # Generalised advantage estimation (Schulman et al. 2016)
        with torch.no_grad():
            following, advantage = judge(x, mask)[1], torch.zeros(GAMES)
        advantages = torch.empty_like(values)
        for t in reversed(range(STEPS)):
            goes_on = GAMMA * ~ends[t]
            advantage = rewards[t] + goes_on * following - values[t] + LAMBDA * goes_on * advantage
            advantages[t], following = advantage, values[t]

        # The clipped objective (Schulman et al. 2017)
        columns = (xs, masks, actions, before, advantages, advantages + values)
        data = [column.flatten(0, 1) for column in columns]
        for _ in range(EPOCHS):
            for rows in torch.randperm(GAMES * STEPS).split(GAMES * STEPS // MINIBATCHES):
                x_, mask_, action_, before_, gain, goal = (column[rows] for column in data)
                policy, value = judge(x_, mask_)
                ratio = (policy.log_prob(action_) - before_).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = -torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
                loss = loss + 0.5 * (value - goal).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        placements += GAMES * STEPS
        learned += time.perf_counter() - start


def main(argv: Sequence[str] | None = None) -> int:
    """Learn, print the learning curve, and write the controller."""
    parser = Parser(description=__doc__, usage="%(prog)s [option ...]")
    names = "a feature set, or names separated by commas (default: %(default)s)"
    parser.add_argument("--features", default="dt", metavar="NAMES", help=names)
    parser.add_argument(
        "--seconds", type=positive_seconds, default=60.0, help="of learning (default: %(default)g)"
    )
    parser.add_argument("--seed", type=seed, default=1, help="of pieces and draws (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the controller")
    arguments = parser.parse_args(argv)
    with one_line_errors():
        if arguments.out:
            check_writable(arguments.out)
        controller = learn(arguments.features, arguments.seconds, arguments.seed)
        if arguments.out:
            controller.save(arguments.out)
    return 0


if __name__ == "__main__":
    run(main)
