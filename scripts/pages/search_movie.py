"""The moving picture of docs/optimiser.md: two searches of the real optimiser on one function."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cem import CrossEntropyMethod
from kernels.support.files import write_bytes
from tetris.report.figures import COLORS, new_figure

_MEAN, _STD, _POPULATION, _SEED = (-1.5, 2.2), 0.3, 60, 1
TEXTBOOK: Mapping[str, Any] = {
    "variance_about": "new_mean",
    "weights": "equal",
    "elite_fraction": 0.1,
    "std_smoothing": 1.0,
    "relative_std_floor": 0.0,
}
"""Options for the method as textbooks have it."""

PANELS: Mapping[str, Mapping[str, Any]] = {
    "textbook: variance about the elites' mean": TEXTBOOK,
    "default: variance about the old mean": {},
}
_X, _Y = (-2.25, 2.05), (-0.85, 3.05)
_OPTIMUM = (1.0, 1.0)
_STEPS = 3  # frames in which the ellipse moves to the next distribution
_SLOW = 3  # generations at a reader's pace
_MILLISECONDS = {"draw": (800, 160), "elites": (900, 160), "move": (120, 60)}  # at first, later
_LAST_MILLISECONDS = 3500
_COLOURS = 256
_GREY, _BLACK, _VERMILION, _BLUE = "0.35", *COLORS[:3]


@dataclass(frozen=True)
class Generation:
    """A generation of a search.

    Attributes:
        mean: The mean it was drawn with, shape (2,).
        std: The standard deviation, shape (2,).
        candidates: Shape (N, 2).
        elites: The indices of the elites, best first.
    """

    mean: Any
    std: Any
    candidates: Any
    elites: Any


def banana(x: Any) -> Any:
    """Rosenbrock's function with a tenth of its usual steepness; x has shape (..., 2)."""
    return (1 - x[..., 0]) ** 2 + 10 * (x[..., 1] - x[..., 0] ** 2) ** 2


def generations(count: int, options: Mapping[str, Any], seed: int = _SEED) -> list[Generation]:
    """Return the generations of a search, and the distribution after them as one without candidates."""
    start = np.array(_MEAN)
    search = CrossEntropyMethod(start, _STD, _POPULATION, maximize=False, seed=seed, **options)
    found = []
    for _ in range(count):
        mean, std, candidates = search.mean, search.std, search.ask()
        fitness = banana(candidates)
        elites = np.argsort(fitness, kind="stable")[: search.num_elites]
        found.append(Generation(mean, std, candidates, elites))
        search.tell(fitness)
    return [*found, Generation(search.mean, search.std, np.empty((0, 2)), np.empty(0, dtype=int))]


def write_movie(path: Path, count: int = 30) -> None:
    """Write the picture as a looping GIF.

    Args:
        path: The file.
        count: The generations shown, ``>= 1``.
    """
    from PIL import Image

    pictures, milliseconds = zip(*_frames(count), strict=True)
    images = [Image.fromarray(picture) for picture in pictures]
    palette = images[1].quantize(_COLOURS)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    file = io.BytesIO()
    images[0].save(
        file,
        "GIF",
        save_all=True,
        append_images=images[1:],
        duration=list(milliseconds),
        loop=0,
        optimize=True,
    )
    write_bytes(path, file.getvalue())


def _frames(count: int) -> Iterator[tuple[Any, int]]:
    """Yield pictures, shape (height, width, 3), uint8, and how long each is shown, in milliseconds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    searches = [generations(count, options) for options in PANELS.values()]
    figure = new_figure(9.0, 4.4)
    figure.set_dpi(100)
    canvas: Any = FigureCanvasAgg(figure)
    panels = [_Panel(axes, title) for axes, title in zip(figure.subplots(1, 2), PANELS, strict=True)]

    canvas.draw()  # the first drawing lays the panels out

    def picture() -> Any:
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    for t in range(count):
        pace = int(t >= _SLOW)
        for panel, search in zip(panels, searches, strict=True):
            panel.show(t, search[t], means=[each.mean for each in search[: t + 1]])
        yield picture(), _MILLISECONDS["draw"][pace]
        for panel, search in zip(panels, searches, strict=True):
            panel.choose(search[t])
        yield picture(), _MILLISECONDS["elites"][pace]
        for step in range(1, _STEPS):
            for panel, search in zip(panels, searches, strict=True):
                panel.move(search[t], search[t + 1], step / _STEPS)
            yield picture(), _MILLISECONDS["move"][pace]
    for panel, search in zip(panels, searches, strict=True):
        panel.show(count, search[count], means=[each.mean for each in search])
    yield picture(), _LAST_MILLISECONDS


def draw_function(axes: Any) -> None:
    """Draw the contours of `banana` and its optimum."""
    grid = np.stack(np.meshgrid(np.linspace(*_X, 300), np.linspace(*_Y, 300)), axis=-1)
    levels = [0, 0.03, 0.2, 1, 3, 10, 30, 100, 1000]
    shades = [str(shade) for shade in np.linspace(0.74, 1.0, len(levels) - 1)]
    axes.contourf(grid[..., 0], grid[..., 1], banana(grid), levels=levels, colors=shades)
    axes.contour(grid[..., 0], grid[..., 1], banana(grid), levels=levels, colors="0.7", linewidths=0.6)
    axes.plot(*_OPTIMUM, "*", color=_BLACK, markersize=13, zorder=2)
    axes.set(xlim=_X, ylim=_Y, xticks=[], yticks=[], aspect="equal")


class _Panel:
    """One search on the contours of the function."""

    def __init__(self, axes: Any, title: str) -> None:
        from matplotlib.patches import Ellipse

        draw_function(axes)
        (self._rest,) = axes.plot([], [], "o", color=_GREY, markersize=3.5, alpha=0.6)
        (self._elites,) = axes.plot([], [], "o", color=_VERMILION, markersize=5)
        (self._path,) = axes.plot([], [], "-", color=_BLUE, linewidth=1.0)
        (self._mean,) = axes.plot([], [], "+", color=_BLUE, markersize=10, markeredgewidth=2)
        self._ellipse = axes.add_patch(Ellipse((0, 0), 0, 0, fill=False, edgecolor=_BLUE, linewidth=2))
        self._text = axes.text(0.03, 0.04, "", transform=axes.transAxes, fontsize="large", family="monospace")
        axes.set_title(title, fontsize="large")

    def show(self, t: int, generation: Generation, means: list[Any]) -> None:
        """Show the distribution of generation t, its candidates and the way of the mean."""
        self._rest.set_data(*generation.candidates.T)
        self._elites.set_data([], [])
        self._path.set_data(*np.array(means).T)
        self._place(generation.mean, generation.std)
        spread, value = float(generation.std.max()), float(banana(generation.mean))
        self._text.set_text(f"generation {t:2}   std {_short(spread)}   f(mean) {_short(value)}")

    def choose(self, generation: Generation) -> None:
        """Show the elites of a generation."""
        self._elites.set_data(*generation.candidates[generation.elites].T)

    def move(self, old: Generation, new: Generation, share: float) -> None:
        """Show the elites alone, and the distribution on the way to the next one."""
        self._rest.set_data([], [])
        self._place(*(a + share * (b - a) for a, b in ((old.mean, new.mean), (old.std, new.std))))

    def _place(self, mean: Any, std: Any) -> None:
        self._mean.set_data([mean[0]], [mean[1]])
        self._ellipse.set(center=tuple(mean), width=4 * std[0], height=4 * std[1])


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e-")
