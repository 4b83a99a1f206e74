"""Small world models, trained here: an encoder, and the dynamics of its latent states.

A system is some lines of physics. A model learns it from random play: the encoder maps an
observation to a latent state, and the dynamics map a latent state and a block of actions to the
next latent state. The cost of a plan is the squared distance of its last latent state to that
of a goal, as in DINO-WM (https://arxiv.org/abs/2411.04983).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

HORIZON = 5
BLOCK = 5
"""Actions of the environment in one action of a plan."""
ACTION_BOUND = math.sqrt(3.0)
"""Actions are uniform and have unit variance, as those of normalised data sets."""

_LATENT = 16
_WIDTH = 128
_EPISODES = 20_000
_STEPS = 1500
_BATCH = 256
_RATE = 3e-3
_LATENT_WEIGHT = 0.1  # The weight of errors of latent states beside those of observations.


class System(NamedTuple):
    """An environment.

    Attributes:
        step: Maps states (B, S) and actions (B, A) within -1 and 1 to the next states.
        observe: Maps states (..., S) to observations.
        action_dim: A.
        spread: A first state is uniform within -spread and spread, S numbers.
    """

    step: Callable[[Tensor, Tensor], Tensor]
    observe: Callable[[Tensor], Tensor]
    action_dim: int
    spread: tuple[float, ...]


def step_pendulum(state: Tensor, action: Tensor) -> Tensor:
    """Swing a pendulum: angle and angular velocity, with the torque of Pendulum-v1."""
    angle, speed = state.unbind(-1)
    acceleration = 15.0 * angle.sin() + 6.0 * action[..., 0]
    speed = (speed + 0.05 * acceleration).clamp(-8.0, 8.0)
    return torch.stack([angle + 0.05 * speed, speed], dim=-1)


def step_rooms(state: Tensor, action: Tensor) -> Tensor:
    """Move a point in two rooms, between which a wall at x = 0 has a door."""
    moved = (state + 0.06 * action).clamp(-1.0, 1.0)
    hits_wall = (state[..., 0] * moved[..., 0] <= 0.0) & (moved[..., 1].abs() >= 0.25)
    x = torch.where(hits_wall, state[..., 0], moved[..., 0])
    return torch.stack([x, moved[..., 1]], dim=-1)


def step_links(
    state: Tensor, action: Tensor, strengths: tuple[float, float], gravity: float
) -> Tensor:
    """Swing two links of unit length with unit masses at their ends, which hang at angle 0.

    Args:
        state: Two angles and two angular velocities; the second ones are relative.
        action: The torques at both joints, or a single one that both get.
        strengths: The factors of the torques.
        gravity: The acceleration by gravity.
    """
    angles, speeds = state.split(2, dim=-1)
    speed_1, speed_2 = speeds.unbind(-1)
    cosine = angles[..., 1].cos()
    sine = angles[..., 1].sin()
    pull = gravity * angles.sum(-1).sin()
    torque_1, torque_2 = (action * torch.tensor(strengths) - 0.5 * speeds).unbind(-1)
    force_1 = torque_1 + sine * (2.0 * speed_1 + speed_2) * speed_2
    force_1 = force_1 - 2.0 * gravity * angles[..., 0].sin() - pull
    force_2 = torque_2 - sine * speed_1.square() - pull
    # The matrix of inertia is ((inertia, coupling), (coupling, 1)).
    inertia = 3.0 + 2.0 * cosine
    coupling = 1.0 + cosine
    determinant = inertia - coupling.square()
    acceleration_1 = (force_1 - coupling * force_2) / determinant
    acceleration_2 = (inertia * force_2 - coupling * force_1) / determinant
    accelerations = torch.stack([acceleration_1, acceleration_2], dim=-1)
    speeds = (speeds + 0.04 * accelerations).clamp(-8.0, 8.0)
    return torch.cat([angles + 0.04 * speeds, speeds], dim=-1)


def step_cart_pole(state: Tensor, action: Tensor) -> Tensor:
    """Push a cart with a pole: position, velocity, angle and angular velocity of CartPole."""
    position, velocity, angle, speed = state.unbind(-1)
    sine = angle.sin()
    cosine = angle.cos()
    push = (10.0 * action[..., 0] + 0.05 * speed.square() * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine.square() / 1.1))
    velocity = (velocity + 0.02 * (push - 0.05 * turn * cosine / 1.1)).clamp(-4.0, 4.0)
    speed = (speed + 0.02 * turn).clamp(-10.0, 10.0)
    position = (position + 0.02 * velocity).clamp(-2.4, 2.4)
    return torch.stack([position, velocity, angle + 0.02 * speed, speed], dim=-1)


def step_push(state: Tensor, action: Tensor) -> Tensor:
    """Move a disc, which pushes another one: the positions of both."""
    hand = (state[..., :2] + 0.08 * action).clamp(-1.0, 1.0)
    gap = state[..., 2:] - hand
    distance = gap.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    overlap = (0.3 - distance).clamp(min=0.0)
    disc = (state[..., 2:] + gap / distance * overlap).clamp(-1.0, 1.0)
    return torch.cat([hand, disc], dim=-1)


def draw_picture(positions: Tensor) -> Tensor:
    """Return a picture of 8 x 8 pixels for each pair of coordinates, flat."""
    pixels = torch.linspace(-1.0, 1.0, 8)
    coordinates = positions.unflatten(-1, (-1, 2)).unsqueeze(-1)
    rows, columns = torch.exp(-((coordinates - pixels) / 0.3).square()).unbind(-2)
    return (rows.unsqueeze(-1) * columns.unsqueeze(-2)).flatten(-3)


def read_angles(state: Tensor) -> Tensor:
    """Return sines, cosines and scaled numbers of a state: all may be angles."""
    return torch.cat([state.sin(), state.cos(), 0.25 * state], dim=-1)


_ARM = partial(step_links, strengths=(4.0, 2.0), gravity=0.0)
_ACROBOT = partial(step_links, strengths=(0.0, 6.0), gravity=9.8)
SYSTEMS = {
    "pendulum": System(step_pendulum, read_angles, 1, (math.pi, 4.0)),
    "rooms": System(step_rooms, draw_picture, 2, (1.0, 1.0)),
    "arm": System(_ARM, read_angles, 2, (math.pi, math.pi, 1.0, 1.0)),
    "cart_pole": System(step_cart_pole, read_angles, 1, (1.0, 1.0, math.pi, 2.0)),
    "push": System(step_push, draw_picture, 2, (0.8, 0.8, 0.6, 0.6)),
    "acrobot": System(_ACROBOT, read_angles, 1, (1.0, 1.0, 1.0, 1.0)),
}


class LatentModel(nn.Module):
    """A world model with an encoder, a decoder and latent dynamics."""

    def __init__(self, observation_dim: int, action_dim: int) -> None:
        """Make a model for observations and for actions of a plan."""
        super().__init__()
        self.encoder = _make_network(observation_dim, _LATENT)
        self.decoder = _make_network(_LATENT, observation_dim)
        self.dynamics = _make_network(_LATENT + action_dim, _LATENT)

    def imagine(self, latent: Tensor, plans: Tensor) -> Tensor:
        """Return the latent states after each action: (..., L), (..., H, A) -> (..., H, L)."""
        states = []
        for action in (plans / ACTION_BOUND).unbind(-2):
            latent = latent + self.dynamics(torch.cat([latent, action], dim=-1))
            states.append(latent)
        return torch.stack(states, dim=-2)


def _make_network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, _WIDTH),
        nn.SiLU(),
        nn.Linear(_WIDTH, _WIDTH),
        nn.SiLU(),
        nn.Linear(_WIDTH, outputs),
    )


def play(system: System, seed: int, episodes: int) -> tuple[Tensor, Tensor]:
    """Play episodes at random, and return observations and actions.

    In every second episode a block repeats one action with noise, so that it goes far.

    Returns:
        Observations (episodes, HORIZON + 1, O), and the actions of plans (episodes, HORIZON,
        BLOCK A), which have unit variance.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return 2.0 * torch.rand(episodes, *shape, generator=generator) - 1.0

    state = draw(len(system.spread)) * torch.tensor(system.spread)
    actions = draw(HORIZON, BLOCK, system.action_dim)
    repeated = draw(HORIZON, 1, system.action_dim)
    actions[::2] = (1.2 * repeated + 0.3 * actions)[::2].clamp(-1.0, 1.0)
    states = [state]
    for number, action in enumerate(actions.flatten(1, 2).unbind(1), 1):
        state = system.step(state, action)
        if number % BLOCK == 0:
            states.append(state)
    return system.observe(torch.stack(states, dim=1)), ACTION_BOUND * actions.flatten(2)


def train(system: System, seed: int) -> LatentModel:
    """Return a model that has learned a system: to decode what it encodes and imagines."""
    torch.manual_seed(seed)
    observations, actions = play(system, seed, _EPISODES)
    model = LatentModel(observations.shape[-1], actions.shape[-1])
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=_STEPS)
    for _ in range(_STEPS):
        batch = torch.randint(_EPISODES, (_BATCH,))
        seen = observations[batch]
        latents = model.encoder(seen)
        imagined = model.imagine(latents[:, 0], actions[batch])
        loss = (model.decoder(latents) - seen).square().mean()
        loss = loss + (model.decoder(imagined) - seen[:, 1:]).square().mean()
        loss = loss + _LATENT_WEIGHT * (imagined - latents[:, 1:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.requires_grad_(False)


def make_problems(model: LatentModel, system: System, seed: int, count: int) -> Tensor:
    """Return latent states of starts and of goals that play can reach, shape (count, 2, L)."""
    observations, _ = play(system, seed, 2 * count)
    latents: Tensor = model.encoder(observations[::2, [0, -1]])
    return latents
