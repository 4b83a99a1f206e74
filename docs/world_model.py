"""Learn a model of an environment, plan with it, and draw what it imagined.

python world_model.py Acrobot-v1
"""

import argparse
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import nn

from cem import Planner, rollout_cost

HORIZON = 15  # The actions of a plan. In the clip, the model predicts as many steps.
EPISODES = 8  # These are played side by side.
ROUNDS = 2  # In each, the model learns from all earlier episodes, and others are planned.
TRAINING_STEPS = 4000
DEVICE = "cpu"  # or "cuda"

# The clip: the side of a square in pixels, and colours.
SIDE = 320
PAGE = "#16181d"
SHADOW = "#4a5160"
REAL = "#2bc4d8"
IMAGINED = "#e6c229"


def pendulum_cost(observation, torque):
    """Return the negative reward of Pendulum-v1."""
    cosine, sine, speed = observation.unbind(-1)
    angle = torch.atan2(sine, cosine)
    return angle.square() + 0.1 * speed.square() + 0.001 * torque[..., 0].square()


def pendulum_joints(observation):
    """Return the ends of the pendulum, as complex numbers."""
    cosine, sine, _ = observation.unbind(-1)
    tip = 0.7 * torch.complex(-sine, cosine)
    return [0 * tip, tip]


def acrobot_cost(observation, torque):
    """Return the depth of the tip, less a tenth of the squared speed of the first link."""
    *_, tip = acrobot_joints(observation)
    return -tip.imag / 0.4 - 0.1 * observation[..., 4].square()


def acrobot_joints(observation):
    """Return the ends of both links of Acrobot-v1. They hang down if both angles are 0."""
    cosine_1, sine_1, cosine_2, sine_2, *_ = observation.unbind(-1)
    elbow = 0.4 * torch.complex(sine_1, -cosine_1)
    # The second angle is relative to the first one.
    tip = elbow + elbow * torch.complex(cosine_2, sine_2)
    return [0 * elbow, elbow, tip]


def cart_pole_cost(observation, push):
    """Return the squared angle of the pole, and a little for the position of the cart."""
    position, _, angle, _ = observation.unbind(-1)
    return angle.square() + 0.01 * position.square()


def cart_pole_joints(observation):
    """Return the ends of the pole of CartPole-v1."""
    position, _, angle, _ = observation.unbind(-1)
    cart = torch.complex(position, 0 * position)
    return [cart, cart + 0.8 * torch.complex(angle.sin(), angle.cos())]


class Task(NamedTuple):
    """What the planner minimises, and what the clip draws."""

    cost: object  # Maps observations and the actions before them to costs.
    joints: object  # Maps an observation to the ends of links, in a square from -1 to 1.
    line: float  # The height of a horizontal line.
    speed: int  # The number of steps that the clip shows in a second.


TASKS = {
    "Pendulum-v1": Task(pendulum_cost, pendulum_joints, line=0.7, speed=20),
    "Acrobot-v1": Task(acrobot_cost, acrobot_joints, line=0.4, speed=10),
    "CartPole-v1": Task(cart_pole_cost, cart_pole_joints, line=0.0, speed=50),
}


class Episodes(NamedTuple):
    """What was played: T steps of B environments."""

    observations: torch.Tensor  # (T + 1, B, O)
    actions: torch.Tensor  # (T, B, A)
    is_running: torch.Tensor  # (T, B): False after the first episode of an environment.
    returns: torch.Tensor  # (B,)


def play(envs, policy, seed):
    """Play an episode in each environment, and return the episodes."""
    observation, _ = envs.reset(seed=seed)
    observations = [observation]
    actions = []
    rewards = []
    is_running = [np.ones(envs.num_envs, dtype=bool)]
    while is_running[-1].any():
        action = policy(observation)
        step = envs.step(action.reshape(envs.action_space.shape))
        observation, reward, is_terminated, is_truncated, _ = step
        observations.append(observation)
        actions.append(action.reshape(envs.num_envs, -1))
        rewards.append(reward * is_running[-1])
        # An environment whose episode has ended begins another one, which does not count.
        is_running.append(is_running[-1] & ~is_terminated & ~is_truncated)
    return Episodes(
        make_tensor(observations),
        make_tensor(actions),
        make_tensor(is_running[:-1]),
        make_tensor(sum(rewards)),
    )


def make_tensor(arrays):
    """Return arrays as one tensor on the device."""
    return torch.as_tensor(np.array(arrays), device=DEVICE)


class WorldModel(nn.Module):
    """A network that predicts the next observation."""

    def __init__(self, observations, actions, next_observations):
        """Make an untrained model, which takes the scales of its data from N steps.

        Args:
            observations: The observations before the steps, shape (N, O).
            actions: The actions, shape (N, A).
            next_observations: The observations after the steps, shape (N, O).
        """
        super().__init__()
        inputs = torch.cat([observations, actions], dim=-1)
        changes = next_observations - observations
        self.mean = inputs.mean(0)
        self.std = inputs.std(0)
        self.scale = changes.std(0)
        self.network = nn.Sequential(
            nn.Linear(inputs.shape[-1], 64),
            nn.SiLU(),
            nn.Linear(64, 64),
            nn.SiLU(),
            nn.Linear(64, changes.shape[-1]),
        ).to(DEVICE)

    def forward(self, observation, action):
        """Return the next observations, shape (..., O)."""
        inputs = torch.cat([observation, action], dim=-1)
        return observation + self.scale * self.network((inputs - self.mean) / self.std)


def learn(plays):
    """Train a model on the steps of all episodes, and return it."""
    observations = torch.cat([p.observations[:-1][p.is_running] for p in plays])
    actions = torch.cat([p.actions[p.is_running] for p in plays])
    next_observations = torch.cat([p.observations[1:][p.is_running] for p in plays])
    model = WorldModel(observations, actions, next_observations)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, TRAINING_STEPS)
    for _ in range(TRAINING_STEPS):
        batch = torch.randint(len(observations), (256,))
        error = model(observations[batch], actions[batch]) - next_observations[batch]
        loss = (error / model.scale).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.requires_grad_(False)


def make_planner(envs, model, cost, seed):
    """Return a planner for all environments, which predicts observations with a model."""

    def step(observation, action):
        next_observation = model(observation, action)
        return next_observation, cost(next_observation, action)

    return Planner(
        rollout_cost(step),
        HORIZON,
        bounds=envs.single_action_space,
        num_envs=envs.num_envs,
        num_samples=64,
        iterations=3,
        seed=seed,
        device=DEVICE,
    )


def run(name, seed=1):
    """Learn a model, plan with it, and learn again.

    Returns:
        The last model.
        The random episodes, and the episodes of each round.
    """
    torch.manual_seed(seed)
    envs = gymnasium.make_vec(name, EPISODES)
    envs.action_space.seed(seed)
    plays = [play(envs, lambda _: envs.action_space.sample(), seed)]
    print_returns("random play", plays)
    for number in range(1, ROUNDS + 1):
        model = learn(plays)
        planner = make_planner(envs, model, TASKS[name].cost, seed)
        plays.append(play(envs, planner.plan, seed + number * EPISODES))
        print_returns(f"planned, round {number}", plays)
    return model, plays


def print_returns(label, plays):
    """Print the returns of the last episodes, and the number of steps of all."""
    returns = plays[-1].returns
    steps = sum(int(p.is_running.sum()) for p in plays)
    text = f"{returns.mean():.1f} ± {returns.std():.1f}"
    print(f"{label}: return {text} in {EPISODES} episodes ({steps} steps so far)", flush=True)


def imagine(model, observations, actions):
    """Return what a model predicts of an episode.

    Predictions follow from each other. They begin again from a real observation after every
    `HORIZON` steps.

    Args:
        model: The model.
        observations: The real observations before the actions, shape (T, O).
        actions: The actions, shape (T, A).
    """
    predictions = []
    for step, action in enumerate(actions):
        start = predictions[-1] if step % HORIZON else observations[step]
        predictions.append(model(start, action))
    return predictions


def draw_links(picture, task, observation, left, color):
    """Draw the links of a task into the square whose left side is at ``left``."""
    points = []
    for joint in task.joints(observation.cpu()):
        points.append((left + SIDE * (1 + joint.real.item()), SIDE * (1 - joint.imag.item())))
    picture.line(points, color, width=24)
    for x, y in points:
        picture.ellipse((x - 18, y - 18, x + 18, y + 18), color)


def draw_frame(task, real, imagined, step):
    """Return a picture of the real links, and of the imagined ones with the real as shadow."""
    # The picture is drawn at twice its size and then made smaller, for smooth edges.
    side = 2 * SIDE
    frame = Image.new("RGB", (2 * side, side), PAGE)
    picture = ImageDraw.Draw(frame)
    font = ImageFont.load_default(40)
    height = SIDE * (1 - task.line)
    picture.line((0, height, 2 * side, height), SHADOW, width=4)
    draw_links(picture, task, real, 0, REAL)
    draw_links(picture, task, real, side, SHADOW)
    draw_links(picture, task, imagined, side, IMAGINED)
    picture.line((side, 0, side, side), PAGE, width=16)
    picture.text((24, 16), "real", REAL, font)
    caption = f"imagined, step {step % HORIZON + 1} of {HORIZON}"
    picture.text((side + 24, 16), caption, IMAGINED, font)
    return frame.resize((2 * SIDE, SIDE)).quantize(64)


def write_clip(task, model, episodes, path):
    """Write a GIF of the first episode."""
    steps = int(episodes.is_running[:, 0].sum())
    observations = episodes.observations[: steps + 1, 0]
    predictions = imagine(model, observations, episodes.actions[:steps, 0])
    frames = []
    for step, (real, imagined) in enumerate(zip(observations[1:], predictions, strict=True)):
        frames.append(draw_frame(task, real, imagined, step))
    last_second = task.speed * [frames[-1]]
    frames += last_second
    duration = 1000 / task.speed
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=duration, loop=0)


def main():
    """Write a clip of the environment that the command line names."""
    torch.set_num_threads(1)  # This is the fastest for so small a network.
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TASKS)
    name = parser.parse_args().name
    model, plays = run(name)
    clip = f"{name}.gif"
    write_clip(TASKS[name], model, plays[-1], clip)
    print(f"wrote {clip}")


if __name__ == "__main__":
    main()
