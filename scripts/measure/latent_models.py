"""Small world models, which are trained here: an encoder, and the dynamics of latent states.

A system is some lines of physics. A model learns the system from random play. Its encoder maps
an observation to a latent state, and its dynamics map a latent state and a block of actions to
the next latent state. The cost of a plan is the squared distance between the last latent state
of the plan and the latent state of the goal, as in DINO-WM (https://arxiv.org/abs/2411.04983).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

HORIZON = 5
BLOCK = 5
"""The number of the environment's actions in one action of a plan."""
ACTION_BOUND = math.sqrt(3.0)
"""Uniform actions within this bound have unit variance, as in normalised data sets."""

_LATENT = 16
_WIDTH = 128
_EPISODES = 20_000
_STEPS = 1500
_BATCH = 256
_RATE = 3e-3
_LATENT_WEIGHT = 0.1  # The loss weight of latent errors; observation errors have weight 1.


class System(NamedTuple):
    """An environment.

    Attributes:
        step: Maps states (B, S) and actions (B, A) to the next states. Actions lie between -1
            and 1.
        observe: Maps states (..., S) to observations (..., O).
        action_dim: The number A.
        spread: The bound of each of the S numbers of a first state: number i is uniform between
            -spread[i] and spread[i].
    """

    step: Callable[[Tensor, Tensor], Tensor]
    observe: Callable[[Tensor], Tensor]
    action_dim: int
    spread: tuple[float, ...]


def step_pendulum(state: Tensor, action: Tensor) -> Tensor:
    """Return the next states of a pendulum, with the equations of Pendulum-v1.

    A state is an angle and an angular velocity.
    """
    angle, speed = state.unbind(-1)
    acceleration = 15.0 * angle.sin() + 6.0 * action[..., 0]
    speed = (speed + 0.05 * acceleration).clamp(-8.0, 8.0)
    return torch.stack([angle + 0.05 * speed, speed], dim=-1)


def step_rooms(state: Tensor, action: Tensor) -> Tensor:
    """Return the next positions of a point in two rooms.

    A wall at x = 0 divides the rooms. It has a door where abs(y) < 0.25.
    """
    moved = (state + 0.06 * action).clamp(-1.0, 1.0)
    # If x changes its sign outside the door, the point keeps its x.
    hits_wall = (state[..., 0] * moved[..., 0] <= 0.0) & (moved[..., 1].abs() >= 0.25)
    x = torch.where(hits_wall, state[..., 0], moved[..., 0])
    return torch.stack([x, moved[..., 1]], dim=-1)


def step_links(
    state: Tensor, action: Tensor, strengths: tuple[float, float], gravity: float
) -> Tensor:
    """Return the next states of a double pendulum: two links with motors at their joints.

    The links have unit length and a unit mass at their ends. They hang down at angle 0.

    Args:
        state: The angles of both links and their angular velocities. Those of the second link
            are relative to the first link.
        action: The actions of the motors at both joints, between -1 and 1. If there is only
            one, both motors get it.
        strengths: For each joint, the torque of the action 1.
        gravity: The acceleration due to gravity.
    """
    angles, speeds = state.split(2, dim=-1)
    speed_1, speed_2 = speeds.unbind(-1)
    cosine = angles[..., 1].cos()
    sine = angles[..., 1].sin()
    weight_2 = gravity * angles.sum(-1).sin()  # The torque of the second link's weight.
    # The torques at both joints: those of the motors, less the friction.
    torques = action * torch.tensor(strengths) - 0.5 * speeds
    torque_1, torque_2 = torques.unbind(-1)
    # The terms with `sine` are the centrifugal and Coriolis forces.
    force_1 = torque_1 + sine * (2.0 * speed_1 + speed_2) * speed_2
    force_1 = force_1 - 2.0 * gravity * angles[..., 0].sin() - weight_2
    force_2 = torque_2 - sine * speed_1.square() - weight_2
    # Solve M a = f for the accelerations a with Cramer's rule. M is the inertia matrix
    # ((inertia, coupling), (coupling, 1)).
    inertia = 3.0 + 2.0 * cosine
    coupling = 1.0 + cosine
    determinant = inertia - coupling.square()
    acceleration_1 = (force_1 - coupling * force_2) / determinant
    acceleration_2 = (inertia * force_2 - coupling * force_1) / determinant
    accelerations = torch.stack([acceleration_1, acceleration_2], dim=-1)
    # A step of the semi-implicit Euler method, of 0.04 seconds. Speeds are limited to 8.
    new_speeds = (speeds + 0.04 * accelerations).clamp(-8.0, 8.0)
    new_angles = angles + 0.04 * new_speeds
    return torch.cat([new_angles, new_speeds], dim=-1)


def step_cart_pole(state: Tensor, action: Tensor) -> Tensor:
    """Return the next states of a cart with a pole, with the equations of CartPole.

    A state is the position and velocity of the cart, and the angle and angular velocity of the
    pole. The cart weighs 1 kg, the pole 0.1 kg, and half of its length is 0.5 m. The action 1
    is a force of 10 N. A step takes 0.02 s.
    """
    position, velocity, angle, speed = state.unbind(-1)
    sine = angle.sin()
    cosine = angle.cos()
    # `push` is the acceleration of the cart if the pole did not turn. `turn` is the angular
    # acceleration of the pole.
    push = (10.0 * action[..., 0] + 0.05 * speed.square() * sine) / 1.1
    turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine.square() / 1.1))
    velocity = (velocity + 0.02 * (push - 0.05 * turn * cosine / 1.1)).clamp(-4.0, 4.0)
    speed = (speed + 0.02 * turn).clamp(-10.0, 10.0)
    position = (position + 0.02 * velocity).clamp(-2.4, 2.4)
    return torch.stack([position, velocity, angle + 0.02 * speed, speed], dim=-1)


def step_push(state: Tensor, action: Tensor) -> Tensor:
    """Return the next positions of a hand and of the disc that it pushes.

    A state is both positions. The disc is pushed away where it is closer than 0.3 to the hand.
    """
    hand = (state[..., :2] + 0.08 * action).clamp(-1.0, 1.0)
    gap = state[..., 2:] - hand
    distance = gap.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    overlap = (0.3 - distance).clamp(min=0.0)
    disc = (state[..., 2:] + gap / distance * overlap).clamp(-1.0, 1.0)
    return torch.cat([hand, disc], dim=-1)


def draw_picture(positions: Tensor) -> Tensor:
    """Return pictures of 8 x 8 pixels, flattened: one for each pair of coordinates.

    A picture shows a bell-shaped spot at the coordinates.
    """
    pixels = torch.linspace(-1.0, 1.0, 8)
    # Shape (..., pairs, 2, 1), so that every coordinate is compared with all eight pixels.
    coordinates = positions.unflatten(-1, (-1, 2)).unsqueeze(-1)
    rows, columns = torch.exp(-((coordinates - pixels) / 0.3).square()).unbind(-2)
    return (rows.unsqueeze(-1) * columns.unsqueeze(-2)).flatten(-3)


def read_angles(state: Tensor) -> Tensor:
    """Return the sines and the cosines of a state, and a quarter of the state itself."""
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
        """Make a model for the numbers of an observation and of an action of a plan."""
        super().__init__()
        self.encoder = _make_network(observation_dim, _LATENT)
        self.decoder = _make_network(_LATENT, observation_dim)
        self.dynamics = _make_network(_LATENT + action_dim, _LATENT)

    def imagine(self, latent: Tensor, plans: Tensor) -> Tensor:
        """Return the latent states after each action of plans, shape (..., H, L).

        Args:
            latent: The latent states at the start, shape (..., L).
            plans: The actions of the plans, shape (..., H, A).
        """
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
    """Play random episodes, and return observations and actions.

    An episode is one plan. A plan has `HORIZON` actions, each of which is a block of `BLOCK`
    actions of the system. The system is observed at the start and after each block. An
    observation has O numbers, and an action of the system has A numbers.

    Returns:
        The observations, shape (episodes, HORIZON + 1, O).
        The actions of the plans, shape (episodes, HORIZON, BLOCK * A). They are scaled from
        [-1, 1] to [-ACTION_BOUND, ACTION_BOUND], where uniform numbers have variance 1.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        """Draw uniform numbers between -1 and 1, with a row for each episode."""
        return 2.0 * torch.rand(episodes, *shape, generator=generator) - 1.0

    # A first state is uniform within bounds that the system gives.
    state = draw(len(system.spread)) * torch.tensor(system.spread)
    actions = draw(HORIZON, BLOCK, system.action_dim)
    # In every second episode, the actions of a block are one action plus some noise. These
    # episodes reach states that independent actions do not reach.
    repeated = draw(HORIZON, 1, system.action_dim)
    similar_actions = (1.2 * repeated + 0.3 * actions).clamp(-1.0, 1.0)
    actions[::2] = similar_actions[::2]
    states = [state]
    # Take the actions of all blocks one after another, each of shape (episodes, A).
    for step, action in enumerate(actions.flatten(1, 2).unbind(1), start=1):
        state = system.step(state, action)
        if step % BLOCK == 0:  # A block ends.
            states.append(state)
    observations = system.observe(torch.stack(states, dim=1))
    return observations, ACTION_BOUND * actions.flatten(2)


def train(system: System, seed: int) -> LatentModel:
    """Train a model of a system on random play, and return it.

    The encoder maps an observation to a latent state, and the decoder maps it back. The model
    imagines latent states: from the first one and the actions it predicts all later ones. The
    loss is the sum of three mean squared errors:

    - between the observations and those decoded from their own latent states;
    - between the observations and those decoded from the imagined latent states;
    - between the imagined and the encoded latent states, with a small weight.
    """
    torch.manual_seed(seed)
    observations, actions = play(system, seed, _EPISODES)
    model = LatentModel(observations.shape[-1], actions.shape[-1])
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=_STEPS)
    for _ in range(_STEPS):
        batch = torch.randint(_EPISODES, (_BATCH,))
        observed = observations[batch]
        latents = model.encoder(observed)  # Shape (batch, HORIZON + 1, L).
        # Predict all latent states after the first one.
        imagined = model.imagine(latents[:, 0], actions[batch])
        decoding_error = (model.decoder(latents) - observed).square().mean()
        prediction_error = (model.decoder(imagined) - observed[:, 1:]).square().mean()
        latent_error = (imagined - latents[:, 1:]).square().mean()
        loss = decoding_error + prediction_error + _LATENT_WEIGHT * latent_error
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.requires_grad_(False)


def make_problems(model: LatentModel, system: System, seed: int, count: int) -> Tensor:
    """Return the latent states of starts and goals, shape (count, 2, L).

    A start and its goal are the first and the last state of an episode of random play, so the
    goal can be reached.
    """
    # The episodes with even numbers repeat actions, so their goals are far from the starts.
    observations, _ = play(system, seed, 2 * count)
    latents: Tensor = model.encoder(observations[::2, [0, -1]])
    return latents
