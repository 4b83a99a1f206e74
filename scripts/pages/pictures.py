"""The pictures of docs/*.md. Those of measurements are drawn from the result files."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure.discrete import VALUES, Pairs
from measure.provenance import RESULTS
from measure.sampling import draw_sizes
from PIL import Image
from torch import Tensor

from cem import CEMConfig, CrossEntropyMethod, rare_event_probability
from cem.core.state import tables_of
from cem.families import Categorical, Family, Permutation
from cem.rare import Exponential
from pages.result_files import load
from pages.score_blocks import median_run
from tetris import published
from tetris.envs.key_press_env import DROP, LEFT, NOTHING, RIGHT, ROTATE, KeyPressTetrisEnv
from tetris.game.decisions import choose
from tetris.game.pieces import PIECES
from tetris.report.learning_curve import COLORS, draw_runs, new_figure, save_figure
from tetris.training.recipe import make_recipe
from tetris.training.run_folder import RunRecord, read_records
from tetris.training.settings import SETTINGS
from tetris.view.images import save_gif

_BLACK, _VERMILION, _BLUE = COLORS[:3]
_GENERATIONS = (0, 5, 10, 20, 30)  # The generations that docs/spaces.md shows.


def draw_sampling(picture: Path) -> None:
    """Draw the times of sampling methods over the dimension, and below them our speed-ups."""
    figure = new_figure(13.0, 7.0)
    result = load("h200/sampling")
    columns = [("latency", "ours"), ("latency", "shared"), ("graph", "ours")]
    draw_sizes(figure, result.data["article"], columns)
    size = f"{result.data['samples']:,} samples, float32, {result.hardware}"
    figure.suptitle(size, x=0.01, ha="left", fontsize="medium")
    save_figure(figure, picture)


def draw_training(series: Path, run: Mapping[str, Any], picture: Path) -> None:
    """Draw the learning curve of a training run.

    Args:
        series: The file with the records of the run's generations.
        run: The description of the run, with its settings.
        picture: The file to write.
    """
    # The configuration also has the version of its format, which is no setting.
    settings = {key: value for key, value in run["config"].items() if key in SETTINGS}
    # The names of two keys in older files, and their present names.
    old_keys = {"elite_worst": "elite_threshold", "mean_fitness": "learned_mean_fitness"}
    metrics = []
    for record in read_records(series):
        metrics.append({old_keys.get(key, key): value for key, value in record.items()})
    recipe = make_recipe(settings["device"], settings)
    draw_runs([RunRecord(series.stem, recipe, metrics, published("best"))], picture)


def draw_choices(picture: Path) -> None:
    """Draw the probabilities of the values of 40 parameters in five generations of a search.

    Each panel shows one generation. Its columns are the parameters and its rows are the values.
    The darker a cell, the more probable the value. The values of each parameter are shifted
    cyclically, so that the right value is in the bottom row.
    """
    problem = Pairs(seed=100)
    figure = new_figure(10.0, 2.1)  # The size in inches.
    # The cost depends on pairs of parameters. This order puts the two columns of a pair side by
    # side.
    parameters = problem.pairs.reshape(-1)
    right_values = torch.tensor(problem.right[parameters])
    # The values of each parameter in the order of the rows, shape (parameters, VALUES).
    shifted_values = (right_values.unsqueeze(1) + torch.arange(VALUES)) % VALUES
    panels = figure.subplots(1, len(_GENERATIONS), sharey=True)
    family = Categorical((VALUES,) * len(parameters))
    tables, _ = _search(
        family, function=lambda candidates: problem(candidates.numpy()), population=30
    )
    for axes, generation, table in zip(panels, _GENERATIONS, tables, strict=True):
        # A table has the probabilities, with a row for each parameter.
        probabilities = table[parameters].gather(1, shifted_values)
        image = axes.imshow(
            probabilities.T.numpy(), "Blues", vmin=0, vmax=1, origin="lower", aspect="auto"
        )
        axes.set_title(f"generation {generation}", loc="left", fontsize="medium")
        axes.set_xlabel("parameter")
    panels[0].set(ylabel="value", yticks=[0], yticklabels=["right"])
    figure.colorbar(image, ax=list(panels), location="right", label="probability")
    save_figure(figure, picture)


def draw_route(picture: Path) -> None:
    """Draw how a search finds a short round trip through 12 cities.

    Five panels show one generation each: the more probable a connection of two cities, the
    wider the line between them. The last panel shows the best route.
    """
    cities = torch.rand(12, 2, generator=torch.Generator().manual_seed(1))
    distance = torch.cdist(cities, cities)
    figure = new_figure(10.0, 1.3)

    def length(routes: Any) -> Any:
        """Return the lengths of closed routes, each a permutation of the cities."""
        next_cities = routes.roll(-1, -1)
        return distance[routes.long(), next_cities.long()].sum(-1)

    tables, best = _search(Permutation(len(cities)), length, population=200)
    panels = figure.subplots(1, len(_GENERATIONS) + 1)
    for axes, generation, table in zip(panels[:-1], _GENERATIONS, tables, strict=True):
        axes.set_title(f"generation {generation}", loc="left", fontsize="medium")
        _draw_connections(axes, cities, table)
    best_axes = panels[-1]
    closed_route = torch.cat([best, best[:1]]).long()
    best_axes.plot(*cities[closed_route].T, color=_VERMILION)
    best_axes.set_title(f"best: {float(length(best)):.2f}", loc="left", fontsize="medium")
    for axes in panels:
        axes.plot(*cities.T, "o", color=_BLACK, markersize=3)
        axes.set(xticks=[], yticks=[], aspect="equal")
    save_figure(figure, picture)


def _draw_connections(axes: Any, cities: Tensor, table: Tensor) -> None:
    """Draw a line between each pair of cities, shape (12, 2), as wide as it is probable.

    Row 0 of the table has the probabilities of the first city. Row i + 1 has those of the city
    after city i.
    """
    # A route can follow a line in either direction, so the probabilities of both are added.
    probability = table[1:] + table[1:].T
    for pair in torch.combinations(torch.arange(len(cities))):  # All pairs of cities.
        strength = min(1.0, float(probability[tuple(pair)]))
        axes.plot(*cities[pair].T, color=_BLUE, alpha=strength, linewidth=2.5 * strength)


def draw_key_presses(picture: Path) -> None:
    """Write a GIF in which the controller "best" presses keys to place 40 pieces."""
    env = KeyPressTetrisEnv(height=12, pieces_known=3, render_mode="rgb_array")
    player = published("best").player(env.rules)
    observation, _ = env.reset(seed=3)
    frames = [env.render()]
    for _ in range(40):
        piece = int(observation["piece"])
        placement = choose(env.rows, piece, player, env.rules)
        # A piece begins in the middle. Rotating it moves it to the left if the new orientation
        # is too wide for the space to the right. It stays there.
        shapes = PIECES[piece]  # One for each orientation.
        middle = (env.rules.width - shapes[0].width) // 2
        column = min(middle, env.rules.width - max(shape.width for shape in shapes))
        sideways = RIGHT if placement.column > column else LEFT
        keys = [ROTATE] * placement.orientation
        keys += [sideways] * abs(placement.column - column)
        keys += [DROP, NOTHING]  # After each drop the movie stands still for a step.
        for key in keys:
            observation, *_ = env.step(key)
            frames.append(env.render())
    images = (Image.fromarray(frame).quantize(colors=64) for frame in frames)
    save_gif(picture, images, env.metadata["render_fps"])


def draw_card(picture: Path) -> None:
    """Draw the preview of links to the site: the end of the clip on 1,200 x 630 pixels."""
    with Image.open(picture.with_name("evolution.gif")) as clip:
        clip.seek(clip.n_frames - 1)
        last = clip.convert("RGB")
    last.thumbnail((1160, 590))
    card = Image.new("RGB", (1200, 630), last.getpixel((0, 0)))
    card.paste(last, ((1200 - last.width) // 2, (630 - last.height) // 2))
    card.save(picture)


def _shortest_path(x: Any) -> Any:
    """Return the lengths of the shortest paths over a bridge with five edges of lengths x."""
    a, b, c, d, e = x.unbind(-1)
    return torch.stack([a + d, a + c + e, b + e, b + c + d]).amin(0)


def draw_levels(picture: Path) -> None:
    """Draw how the cross-entropy method estimates a small probability.

    The event is that the shortest path over a bridge is longer than 2. The method raises a
    level in several iterations until it is 2. Each panel shows one iteration: a histogram of
    the lengths of shortest paths, drawn from the distribution of this iteration. The part above
    the iteration's level is filled, and the next distribution is fitted to this part. The last
    panel shows the last distribution, whose samples give the estimate of the probability.
    """
    final_level = 2.0
    bridge = Exponential([0.25, 0.4, 0.1, 0.3, 0.2])  # The mean lengths of the five edges.
    event = rare_event_probability(bridge, _shortest_path, level=final_level, seed=1)
    # Each iteration drew from one distribution, found a level, and fitted the next distribution
    # to the samples above it. The last distribution is shown with the final level.
    distributions = [bridge, *event.members]
    levels = [*event.levels, final_level]
    figure = new_figure(10.0, 1.8)
    panels = figure.subplots(1, len(levels), sharex=True, sharey=True)
    bins = 80
    bin_width = 0.05
    edges = torch.arange(bins + 1) * bin_width  # From 0 to 4.
    upper_edges = edges[1:]
    for axes, distribution, level in zip(panels, distributions, levels, strict=True):
        lengths = _shortest_path(distribution.sample(1 << 20, seed=1))  # About a million.
        density = lengths.histc(bins, 0.0, bins * bin_width) / (bin_width * len(lengths))
        axes.stairs(density, edges, color=_BLUE)
        # The bin that contains the level is filled, too.
        density_above = torch.where(upper_edges > level, density, 0.0)
        axes.stairs(density_above, edges, color=_VERMILION, fill=True, alpha=0.7)
        axes.axvline(final_level, color=_BLACK, linestyle=":")
        axes.set_title(f"level {level:.2f}", loc="left", fontsize="medium")
        axes.set(xlabel="shortest path", xlim=(0, 4), yticks=[])
    panels[0].set_ylabel("density")
    panels[-1].set_title("final samples", loc="left", fontsize="medium")
    save_figure(figure, picture)


def _search(family: Family, function: Any, population: int) -> tuple[list[Any], Any]:
    """Minimise a function of discrete parameters, and record their probabilities.

    Args:
        family: The distribution of the candidates.
        function: Returns the costs of candidates, shape (population,).
        population: The number of candidates in a generation.

    Returns:
        The tables of probabilities at the start of each of the `_GENERATIONS`.
        The best candidate.
    """
    # The search has only discrete parameters, so the mean of the normal ones is empty.
    no_normal_parameters = torch.zeros(0)
    config = CEMConfig.cma(families=[family])
    search = CrossEntropyMethod(
        no_normal_parameters, 1.0, population, maximize=False, config=config, seed=1
    )
    tables = []
    for generation in range(_GENERATIONS[-1] + 1):
        if generation in _GENERATIONS:
            # `tables_of` returns a pair (family, table) for each family: here only one. The
            # table is stored as a vector, which gets its rows again.
            _, table = tables_of(search.state)[0]
            tables.append(table.unflatten(0, family.rows))
        candidates = search.ask()
        search.tell(candidates, function(candidates))
    return tables, search.best


_RECORD = load("h200/record_training").data

_MEDIAN = median_run(load("epyc-2core/training").data["runs"])
_MEDIAN_SERIES = RESULTS / f"epyc-2core/training-seed{_MEDIAN['seed']}.jsonl"
PICTURES: dict[str, Callable[[Path], None]] = {
    "card.png": draw_card,
    "sampling.png": draw_sampling,
    "record_learning_curve.png": partial(
        draw_training, RESULTS / "h200/record_training.jsonl", _RECORD
    ),
    "learning_curve.png": partial(draw_training, _MEDIAN_SERIES, _MEDIAN),
    "choices.png": draw_choices,
    "route.png": draw_route,
    "gymnasium.gif": draw_key_presses,
    "levels.png": draw_levels,
}
