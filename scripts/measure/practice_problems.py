"""Twelve problems of practice, as functions of their parameters.

boxbod, mgh09, misra1a    fits from NIST's Statistical Reference Datasets: the certified sum of
                          squared residuals is the best value
vessel, beam, truss,      designs with constraints, from C. Coello Coello, Use of a
spring, reducer           self-adaptive penalty approach for engineering optimization problems,
                          2000, and T. Ray and P. Saini, Engineering design optimization using a
                          swarm with an intelligent information sharing among individuals, 2001;
                          all parameters are real numbers, also the gauge of steel
pid                       a PID controller of a plant of second order with dead time
kernel                    hyperparameters of a kernel regression, by leave-one-out errors
predators                 six parameters of an ordinary differential equation
pendulum                  the 41 weights of a neural network that swings up a pendulum

A function returns its value, or its value and its constraints, which are at most 0 if the
parameters are feasible. The best known values of the last four problems are the best that long
searches have found: `scripts/measure/practice.py` reports lower ones.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np


class Problem(NamedTuple):
    """A problem of practice.

    Attributes:
        function: Maps the parameters to a value, to a value and constraints, or to residuals,
            whose sum of squares is the value of a fit.
        low: The least value of each parameter, separated by spaces.
        high: The greatest value of each parameter.
        best: The best known value.
        has_constraints: Whether the function returns constraints.
        is_fit: Whether the function returns residuals.
    """

    function: Callable[..., Any]
    low: str
    high: str
    best: float
    has_constraints: bool = False
    is_fit: bool = False

    def evaluate(self, x: Any) -> tuple[float, Any]:
        """Return the value and the constraints of a point of the unit cube, shape (dim,)."""
        result = self.call(x)
        if self.has_constraints:
            value, constraints = result
            return float(value), constraints
        value = np.square(result).sum() if self.is_fit else result
        return float(value), np.zeros(1)

    def call(self, x: Any) -> Any:
        """Return what the function returns for a point of the unit cube, shape (dim,)."""
        low = _numbers(self.low)
        high = _numbers(self.high)
        return self.function(*(low + x * (high - low)))


def _numbers(text: str) -> Any:
    return np.array(text.split(), dtype=np.float64)


_BOXBOD_X = _numbers("1 2 3 5 7 10")
_BOXBOD_Y = _numbers("109 149 149 191 213 224")
_MGH09_X = _numbers("4 2 1 .5 .25 .167 .125 .1 .0833 .0714 .0625")
_MGH09_Y = _numbers(".1957 .1947 .1735 .16 .0844 .0627 .0456 .0342 .0323 .0235 .0246")
_MISRA1A_X = _numbers(
    "77.6 114.9 141.1 190.8 239.9 289 332.8 378.4 434.8 477.3 536.8 593.1 689.1 760"
)
_MISRA1A_Y = _numbers(
    "10.07 14.73 17.94 23.93 29.61 35.18 40.02 44.82 50.76 55.05 61.01 66.4 75.47 81.78"
)


def boxbod(limit: float, rate: float) -> Any:
    """Return the errors of the biochemical oxygen demand over time."""
    return _BOXBOD_Y - limit * (1 - np.exp(-rate * _BOXBOD_X))


def misra1a(limit: float, rate: float) -> Any:
    """Return the errors of the volume of dental nitrogen at pressures."""
    return _MISRA1A_Y - limit * (1 - np.exp(-rate * _MISRA1A_X))


def mgh09(b1: float, b2: float, b3: float, b4: float) -> Any:
    """Return the errors of Kowalik and Osborne's rational function."""
    x = _MGH09_X
    prediction = b1 * (x**2 + x * b2) / (x**2 + x * b3 + b4)
    return _MGH09_Y - prediction


def vessel(shell: float, head: float, radius: float, length: float) -> Any:
    """Return the cost and the constraints of a pressure vessel.

    Args:
        shell: The thickness of the shell in inches.
        head: The thickness of the heads in inches.
        radius: The inner radius in inches.
        length: The length of the cylinder in inches.
    """
    cost = 0.6224 * shell * radius * length + 1.7781 * head * radius**2
    cost += (3.1661 * length + 19.84 * radius) * shell**2
    volume = math.pi * radius**2 * (length + 4 / 3 * radius)
    # Each is a ratio that may be at most 1.
    constraints = 0.0193 * radius / shell, 0.00954 * radius / head, 1_296_000 / volume
    return cost, np.array(constraints) - 1


def beam(weld: float, length: float, height: float, width: float) -> Any:
    """Return the cost and the constraints of a welded beam.

    The beam carries 6,000 pounds, 14 inches from the weld. Lengths are in inches.

    Args:
        weld: The thickness of the weld.
        length: The length of the weld.
        height: The height of the beam.
        width: The width of the beam.
    """
    bar_cost = 0.04811 * height * width * (14 + length)
    # The shear stress in the weld has two parts: the load itself, and its torsion.
    lever = (weld + height) / 2
    radius = math.hypot(length / 2, lever)
    area = math.sqrt(2) * weld * length
    direct = 6000 / area
    torsion = 3000 * (14 + length / 2) * radius / (area * (length**2 / 12 + lever**2))
    stress = math.sqrt(direct**2 + direct * torsion * length / radius + torsion**2)
    # Each is a ratio that may be at most 1.
    constraints = (
        stress / 13_600,
        504_000 / (width * height**2) / 30_000,  # The bending stress.
        weld / width,
        (0.10471 * weld**2 + bar_cost) / 5,  # A cost of at most 5.
        0.125 / weld,
        2.1952 / (height**3 * width) / 0.25,  # The deflection at the end.
        6000 / (102_372.449 * (1 - 0.0282346 * height) * height * width**3),  # Buckling.
    )
    return 1.10471 * weld**2 * length + bar_cost, np.array(constraints) - 1


def truss(outer: float, middle: float) -> Any:
    """Return the volume and the constraints of a truss of three bars.

    ``outer`` and ``middle`` are the cross-sections of the bars.
    """
    root = math.sqrt(2)
    stress = 1 / (root * outer**2 + 2 * outer * middle)
    # The stresses of the bars, as ratios that may be at most 1.
    constraints = (root * outer + middle) * stress, middle * stress, 1 / (root * middle + outer)
    return 100 * (2 * root * outer + middle), np.array(constraints) - 1


def spring(wire: float, coil: float, turns: float) -> Any:
    """Return the weight and the constraints of a tension spring.

    Args:
        wire: The diameter of the wire in inches.
        coil: The diameter of the coil in inches.
        turns: The number of turns.
    """
    bending = (4 * coil**2 - wire * coil) / (12_566 * (coil * wire**3 - wire**4))
    constraints = (
        1 - coil**3 * turns / (71_785 * wire**4),  # The deflection.
        bending + 1 / (5108 * wire**2) - 1,  # The shear stress.
        1 - 140.45 * wire / (coil**2 * turns),  # The surge frequency.
        (wire + coil) / 1.5 - 1,  # The outer diameter.
    )
    return (turns + 2) * coil * wire**2, np.array(constraints)


def reducer(
    face: float, module: float, teeth: float, l1: float, l2: float, d1: float, d2: float
) -> Any:
    """Return the weight and the constraints of a speed reducer with two gears on two shafts.

    Lengths are in centimetres.

    Args:
        face: The width of the gears' faces.
        module: The module of the teeth: the pitch diameter of a gear divided by its teeth.
        teeth: The number of teeth of the smaller gear.
        l1: The length of the first shaft between its bearings.
        l2: The length of the second shaft.
        d1: The diameter of the first shaft.
        d2: The diameter of the second shaft.
    """
    gears = face * module**2
    weight = 0.7854 * gears * (3.3333 * teeth**2 + 14.9334 * teeth - 43.0934)
    weight += 7.4777 * (d1**3 + d2**3) - 1.508 * face * (d1**2 + d2**2)
    weight += 0.7854 * (l1 * d1**2 + l2 * d2**2)
    pitch = module * teeth  # The pitch diameter of the smaller gear.
    # Each is a ratio that may be at most 1.
    constraints = (
        27 / (gears * teeth),  # The bending stress of the teeth.
        397.5 / (gears * teeth**2),  # The stress of their surface.
        1.93 * l1**3 / (pitch * d1**4),  # The deflections of the shafts.
        1.93 * l2**3 / (pitch * d2**4),
        # The stresses of the shafts.
        math.hypot(745 * l1 / pitch, math.sqrt(16.9e6)) / (110 * d1**3),
        math.hypot(745 * l2 / pitch, math.sqrt(157.5e6)) / (85 * d2**3),
        pitch / 40,  # This and the following ones limit sizes.
        5 * module / face,
        face / (12 * module),
        (1.5 * d1 + 1.9) / l1,
        (1.1 * d2 + 1.9) / l2,
    )
    return weight, np.array(constraints) - 1


def pid(proportional: float, integral: float, derivative: float) -> float:
    """Return the integral of time times absolute error (ITAE) of a PID controller.

    The plant y'' + y' + y = u has a dead time of 0.5 s. Its input is limited to [-10, 10]. The
    output should jump from 0 to 1, and is observed for 15 s in steps of 0.02 s.
    """
    step_s = 0.02
    # The plant gets an input 25 steps late. During the first 25 steps its input is 0.
    inputs = [0.0] * 25
    # At the start the plant is at rest.
    output = 0.0
    speed = 0.0
    error_sum = 0.0
    cost = 0.0
    for step in range(750):
        error = 1 - output
        error_sum += error * step_s
        control = proportional * error + integral * error_sum - derivative * speed
        inputs.append(min(max(control, -10.0), 10.0))
        # The semi-implicit Euler method; `speed` is y'.
        speed += (inputs[step] - speed - output) * step_s
        output += speed * step_s
        cost += step * step_s * abs(error) * step_s
    return cost


def kernel(*exponents: float) -> Any:
    """Return the root mean squared leave-one-out error of a kernel regression.

    Args:
        exponents: The decimal logarithms of two length scales and of the noise's variance.
    """
    # The data are 60 points of the unit square, spread evenly by the golden ratio.
    number = np.arange(60)
    inputs = np.stack([number / 60, number * 0.618034 % 1])
    targets = np.sin(6 * inputs[0]) * np.cos(4 * inputs[1]) + 0.1 * np.sin(number**2)
    *scales, noise = 10.0 ** np.array(exponents)
    scaled = inputs / np.array(scales)[:, None]
    # The squared distance of every pair of points, shape (60, 60).
    distances = np.square(scaled[:, :, None] - scaled[:, None]).sum(0)
    inverse = np.linalg.inv(np.exp(-distances / 2) + noise * np.eye(60))
    # The leave-one-out errors follow from the inverse, without another fit for every point.
    return np.sqrt(np.mean((inverse @ targets / inverse.diagonal()) ** 2))


def _prey_and_predators(
    growth: float, capacity: float, attack: float, gain: float, death: float, predators: float
) -> Any:
    """Return the numbers of prey and predators after each of 20 seconds, shape (20, 2).

    Args:
        growth: The growth rate of few prey.
        capacity: The number of prey at which no more are born.
        attack: The prey that a predator eats per second, for each prey that there is.
        gain: The predators that are born for each prey that is eaten.
        death: The death rate of predators.
        predators: The number of predators at the start, when there is one prey.
    """

    def change(state: Any) -> Any:
        """Return the derivative of a state (prey, predators) with respect to time."""
        prey, hunters = state
        eaten = attack * prey * hunters
        births = growth * prey * (1 - prey / capacity)
        return np.array([births - eaten, gain * eaten - death * hunters])

    step_s = 0.1
    state = np.array([1.0, predators])
    states = []
    for _ in range(200):
        # A step of the midpoint method.
        middle = state + step_s / 2 * change(state)
        state = state + step_s * change(middle)
        states.append(state)
    return np.array(states[9::10])  # Ten steps are a second.


@cache
def _observed() -> Any:
    """Return what the fit of `predators` has to reproduce: a solution with errors of 5 %."""
    errors = np.sin(np.arange(40) ** 2).reshape(20, 2)
    return _prey_and_predators(1.0, 3.0, 1.2, 0.6, 0.5, 0.5) * (1 + 0.05 * errors)


def predators(*parameters: float) -> Any:
    """Return the errors of a model of prey and predators over 20 s, shape (40,)."""
    return (_prey_and_predators(*parameters) - _observed()).ravel()


@cache
def _pendulum() -> Any:
    import gymnasium

    return gymnasium.make("Pendulum-v1").unwrapped


def pendulum(*weights: float) -> float:
    """Return the cost of two episodes of Gymnasium's Pendulum, played by a neural network.

    Args:
        weights: The 41 weights of the network. It has one layer of eight hidden units.
    """
    # A hidden unit has three weights and a bias, the output has eight weights and a bias.
    hidden = np.reshape(weights[:32], (8, 4))
    output = np.array(weights[32:])
    environment = _pendulum()
    cost = 0.0
    for seed in (1, 2):
        observation, _ = environment.reset(seed=seed)
        for _ in range(200):
            activations = np.tanh(hidden[:, :3] @ observation + hidden[:, 3])
            torque = 2 * np.tanh(output[:8] @ activations + output[8])  # Between -2 and 2.
            observation, reward, *_ = environment.step([torque])
            cost -= float(reward)
    return cost


_DESIGN = partial(Problem, has_constraints=True)
_FIT = partial(Problem, is_fit=True)

PROBLEMS = {
    "boxbod": _FIT(boxbod, "1 0.1", "500 2", 1168.0088766),
    "mgh09": _FIT(mgh09, "0 0 0 0", "1 1 1 1", 3.0750560385e-4),
    "misra1a": _FIT(misra1a, "100 1e-5", "1000 1e-3", 0.12455138894),
    "vessel": _DESIGN(vessel, "0.0625 0.0625 10 10", "6.1875 6.1875 200 200", 5885.33277),
    "beam": _DESIGN(beam, "0.1 0.1 0.1 0.1", "2 10 10 2", 1.7248523),
    "truss": _DESIGN(truss, "0.01 0.01", "1 1", 263.8958434),
    "spring": _DESIGN(spring, "0.05 0.25 2", "2 1.3 15", 0.0126652328),
    "reducer": _DESIGN(
        reducer,
        "2.6 0.7 17 7.3 7.3 2.9 5",
        "3.6 0.8 28 8.3 8.3 3.9 5.5",
        2994.4710662,
    ),
    "pid": Problem(pid, "0 0 0", "10 5 10", 1.3706290),
    "kernel": Problem(kernel, "-2 -2 -6", "1 1 0", 0.081873277),
    "predators": _FIT(predators, "0.1 1 0.1 0.1 0.1 0.1", "2 5 2 2 2 2", 0.016868322),
    "pendulum": Problem(pendulum, "-4 " * 41, "4 " * 41, 116.2437),
}
