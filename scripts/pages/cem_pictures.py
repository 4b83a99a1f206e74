"""The pictures of docs/cem_in_pictures.md: real searches of the optimiser, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cem import CrossEntropyMethod
from pages.search_movie import TEXTBOOK, Generation, banana, draw_function, generations
from tetris.report.figures import COLORS, new_figure, save_figure

SHOWN = 9
"""The generation whose steps are drawn, of the search with the defaults."""

STAGES = (0, 2, 5, 10, 20, 30)
"""The generations of that search that are drawn side by side."""

SEEDS, GENERATIONS = range(1, 41), 60
RULES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "textbook": ("textbook", TEXTBOOK),
    "smoothed": ("and std_smoothing=0.4", {**TEXTBOOK, "std_smoothing": 0.4}),
    "extra": ("and extra variance, falling to 0 at 40", {**TEXTBOOK, "extra_variance": "linear:0.02,2000"}),
    "default": ("default: variance about the old mean", {}),
}
"""The searches whose collapse is compared: label and options."""

NOISE_DIM, NOISE_POPULATION, NOISE_GENERATIONS = 10, 100, 150
NOISY: Mapping[str, Any] = {
    "elite_fraction": 0.5,
    "mean_averaging": 0.2,
    "extra_variance": "hyperbolic:1",
}
"""The settings that docs/optimiser.md names for noisy fitness."""

ANSWERS: Mapping[str, str] = {
    "best": "the luckiest candidate",
    "mean": "mean of the distribution",
    "averaged": "averaged_mean",
}

_GREY, (_BLACK, _VERMILION, _BLUE, _PURPLE, _GREEN, _ORANGE, _) = "0.35", COLORS
_STYLES: Mapping[str, dict[str, Any]] = {
    "textbook": {"color": _VERMILION, "linestyle": ":"},
    "smoothed": {"color": _ORANGE, "linestyle": "-."},
    "extra": {"color": _GREEN, "linestyle": "--"},
    "default": {"color": _BLUE, "linestyle": "-"},
    "best": {"color": _VERMILION, "linestyle": ":"},
    "mean": {"color": _GREEN, "linestyle": "--"},
    "averaged": {"color": _BLUE, "linestyle": "-"},
}


def draw_cem_pictures(folder: Path) -> None:
    """Draw every picture of the page into a folder."""
    draw_generation(folder / "cem_generation.png")
    draw_stages(folder / "cem_search.png")
    draw_collapse(folder / "cem_collapse.png")
    draw_noise(folder / "cem_noise.png")


def draw_generation(picture: Path) -> None:
    """Draw the four steps of one generation side by side."""
    old, new = generations(SHOWN + 1, {})[SHOWN:]
    order = np.argsort(banana(old.candidates), kind="stable")
    x, y = old.candidates[order].T
    figure = new_figure(11.0, 2.9)
    panels = figure.subplots(1, 4)
    middle, half = old.mean, 1.25 * np.abs(old.candidates - old.mean).max()
    for axes, title in zip(panels, ("1. sample", "2. rank", "3. elites", "4. update"), strict=True):
        draw_function(axes)
        axes.set_title(title, loc="left", fontsize="medium")
        axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    sample, rank, elites, update = panels
    _draw_distribution(sample, old, linestyle="-")
    sample.plot(x, y, "o", color=_GREY, markersize=4)
    shown = rank.scatter(x, y, c=np.arange(1, len(order) + 1), cmap="viridis_r", s=22)
    figure.colorbar(
        shown, ax=list(panels), location="right", ticks=[1, len(order) // 2, len(order)], label="rank"
    )
    count = len(old.elites)
    elites.plot(x[count:], y[count:], "o", color="0.6", markersize=2.5)
    weights = np.log(count + 0.5) - np.log(np.arange(1, count + 1))  # docs/optimiser.md, "log"
    elites.scatter(x[:count], y[:count], s=10 + 90 * weights / weights[0], color=_VERMILION, alpha=0.8)
    _draw_distribution(update, old, linestyle="--")
    _draw_distribution(update, new, linestyle="-")
    update.plot(x[:count], y[:count], "o", color=_VERMILION, markersize=3)
    update.annotate("", new.mean, old.mean, arrowprops={"arrowstyle": "->", "color": _BLACK})
    save_figure(figure, picture)


def draw_stages(picture: Path) -> None:
    """Draw the search from the first generation to the last."""
    search = generations(STAGES[-1] + 1, {})
    figure = new_figure(9.0, 5.8)
    for axes, t in zip(figure.subplots(2, 3).flat, STAGES, strict=True):
        draw_function(axes)
        axes.plot(*search[t].candidates.T, "o", color=_GREY, markersize=2.5)
        axes.plot(*search[t].candidates[search[t].elites].T, "o", color=_VERMILION, markersize=3)
        axes.plot(*np.array([each.mean for each in search[: t + 1]]).T, "-", color=_BLUE, linewidth=1.0)
        _draw_distribution(axes, search[t], linestyle="-")
        axes.set_title(f"generation {t}", loc="left", fontsize="medium")
    save_figure(figure, picture)


def collapse(rule: str) -> tuple[Any, Any]:
    """Return the greatest standard deviation and the mean's value after each generation, by seed.

    Two arrays of shape (seeds, generations).
    """
    searches = [generations(GENERATIONS, RULES[rule][1], seed)[1:] for seed in SEEDS]
    spread = np.array([[each.std.max() for each in search] for search in searches])
    return spread, np.array([[banana(each.mean) for each in search] for search in searches])


def draw_collapse(picture: Path) -> None:
    """Draw how wide the distribution is and how good its mean, for each rule."""
    figure = new_figure(9.0, 3.8)
    spreads, values = figure.subplots(1, 2)
    for rule, (label, _) in RULES.items():
        for axes, numbers in zip((spreads, values), collapse(rule), strict=True):
            low, middle, high = np.quantile(numbers, (0.25, 0.5, 0.75), axis=0)
            times = np.arange(1, GENERATIONS + 1)
            axes.fill_between(times, low, high, color=_STYLES[rule]["color"], alpha=0.15, linewidth=0)
            axes.plot(times, middle, label=label, **_STYLES[rule])
    spreads.set_ylabel("standard deviation")
    values.set_ylabel("value of the mean, 0 at the optimum")
    for axes in (spreads, values):
        axes.set(xlim=(1, GENERATIONS), xlabel="generation", yscale="log")
        axes.grid(axis="y", color="0.9")
    spreads.set_ylim(1e-8, 2.0)
    values.set_ylim(1e-11, 50.0)
    figure.legend(*spreads.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    save_figure(figure, picture)


def noisy_errors() -> dict[str, Any]:
    """Return how far each answer is from the optimum after each generation, by seed, on a noisy sphere.

    Arrays of shape (seeds, generations) by the names of `ANSWERS`. The noise is normal with a standard
    deviation of 1, and new for every candidate.
    """
    errors: dict[str, list[list[float]]] = {name: [] for name in ANSWERS}
    for seed in SEEDS:
        start = np.full(NOISE_DIM, 2.0)
        search = CrossEntropyMethod(start, 1.0, NOISE_POPULATION, maximize=False, seed=seed, **NOISY)
        noise, rows = np.random.default_rng(seed), {name: list[float]() for name in ANSWERS}
        for _ in range(NOISE_GENERATIONS):
            candidates = search.ask()
            search.tell(np.square(candidates).sum(-1) + noise.standard_normal(NOISE_POPULATION))
            answers = {"best": search.best, "mean": search.mean, "averaged": search.averaged_mean}
            for name, answer in answers.items():
                rows[name].append(float(np.linalg.norm(answer)))
        for name, row in rows.items():
            errors[name].append(row)
    return {name: np.array(rows) for name, rows in errors.items()}


def draw_noise(picture: Path) -> None:
    """Draw how far each answer is from the optimum where fitness is noisy."""
    figure = new_figure(6.5, 3.6)
    axes = figure.subplots()
    times = np.arange(1, NOISE_GENERATIONS + 1)
    for name, numbers in noisy_errors().items():
        low, middle, high = np.quantile(numbers, (0.25, 0.5, 0.75), axis=0)
        axes.fill_between(times, low, high, color=_STYLES[name]["color"], alpha=0.15, linewidth=0)
        axes.plot(times, middle, label=ANSWERS[name], **_STYLES[name])
    axes.set(xlim=(1, NOISE_GENERATIONS), xlabel="generation", yscale="log")
    axes.set_ylabel("distance from the optimum")
    axes.grid(axis="y", color="0.9", which="both")
    axes.legend()
    save_figure(figure, picture)


def _draw_distribution(axes: Any, generation: Generation, linestyle: Any) -> None:
    """Draw the mean and the ellipse of two standard deviations."""
    from matplotlib.patches import Ellipse

    size = {"width": 4 * generation.std[0], "height": 4 * generation.std[1]}
    shape = Ellipse(tuple(generation.mean), **size, fill=False, edgecolor=_BLUE, linewidth=1.8)
    shape.set_linestyle(linestyle)
    axes.add_patch(shape)
    axes.plot(*generation.mean, "+", color=_BLUE, markersize=9, markeredgewidth=2)
