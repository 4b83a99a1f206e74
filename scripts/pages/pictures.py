"""The pictures of docs/*.md; measurements are drawn from their result files."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure.discrete import VALUES, Pairs
from measure.provenance import RESULTS
from measure.sampling import draw_sizes
from PIL import Image

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
    """Draw the time of a call by the dimension, and below it the speed-up of ours."""
    figure = new_figure(13.0, 7.0)
    result = load("h200/sampling")
    columns = [("latency", "ours"), ("latency", "shared"), ("graph", "ours")]
    draw_sizes(figure, result.data["article"], columns)
    size = f"{result.data['samples']:,} samples, float32, {result.hardware}"
    figure.suptitle(size, x=0.01, ha="left", fontsize="medium")
    save_figure(figure, picture)


def draw_training(series: Path, run: Mapping[str, Any], picture: Path) -> None:
    """Draw the learning curve of a measured run from the series of its generations."""
    settings = {key: value for key, value in run["config"].items() if key in SETTINGS}
    old_keys = {"elite_worst": "elite_threshold", "mean_fitness": "learned_mean_fitness"}
    metrics = []
    for record in read_records(series):
        metrics.append({old_keys.get(key, key): value for key, value in record.items()})
    recipe = make_recipe(settings["device"], settings)
    draw_runs([RunRecord(series.stem, recipe, metrics, published("best"))], picture)


def draw_choices(picture: Path) -> None:
    """Draw the probabilities of the values of 40 parameters in five generations.

    The right value of each parameter is at the bottom.
    """
    problem = Pairs(100)
    figure = new_figure(10.0, 2.1)
    order = problem.pairs.reshape(-1)
    rows = [[*range(right, VALUES), *range(right)] for right in problem.right[order]]
    panels = figure.subplots(1, len(_GENERATIONS), sharey=True)
    tables, _ = _search(Categorical((VALUES,) * len(order)), lambda x: problem(x.numpy()), 30)
    for axes, generation, table in zip(panels, _GENERATIONS, tables, strict=True):
        values = table[order].gather(1, torch.tensor(rows)).T.numpy()
        image = axes.imshow(values, "Blues", vmin=0, vmax=1, origin="lower", aspect="auto")
        axes.set_title(f"generation {generation}", loc="left", fontsize="medium")
        axes.set_xlabel("parameter")
    panels[0].set(ylabel="value", yticks=[0], yticklabels=["right"])
    figure.colorbar(image, ax=list(panels), location="right", label="probability")
    save_figure(figure, picture)


def draw_route(picture: Path) -> None:
    """Draw the probabilities of ways between 12 cities, and the best route."""
    cities = torch.rand(12, 2, generator=torch.Generator().manual_seed(1))
    distance = torch.cdist(cities, cities)
    figure = new_figure(10.0, 1.3)

    def length(tours: Any) -> Any:
        return distance[tours.long(), tours.long().roll(-1, -1)].sum(-1)

    tables, best = _search(Permutation(len(cities)), length, 200)
    *panels, best_panel = figure.subplots(1, len(_GENERATIONS) + 1)
    for axes, generation, table in zip(panels, _GENERATIONS, tables, strict=True):
        axes.set_title(f"generation {generation}", loc="left", fontsize="medium")
        # Row 0 of the table is for the first city, row i + 1 for the city after i. Both
        # directions count.
        probability = table[1:] + table[1:].T
        for i, j in torch.combinations(torch.arange(len(cities))).tolist():
            strength = min(1.0, float(probability[i, j]))
            axes.plot(*cities[[i, j]].T, color=_BLUE, alpha=strength, linewidth=2.5 * strength)
    best_panel.plot(*cities[torch.cat([best, best[:1]]).long()].T, color=_VERMILION)
    best_panel.set_title(f"best: {float(length(best)):.2f}", loc="left", fontsize="medium")
    for axes in (*panels, best_panel):
        axes.plot(*cities.T, "o", color=_BLACK, markersize=3)
        axes.set(xticks=[], yticks=[], aspect="equal")
    save_figure(figure, picture)


def draw_key_presses(picture: Path) -> None:
    """Draw dt20's placements of 40 pieces, made by pressing keys, as `rgb_array` shows them."""
    env = KeyPressTetrisEnv(height=12, pieces_known=3, render_mode="rgb_array")
    player = published("dt20").player(env.rules)
    observation, _ = env.reset(seed=3)
    frames = [env.render()]
    for _ in range(40):
        piece = int(observation["piece"])
        after = choose(env.rows, piece, player, env.rules)
        shapes = PIECES[piece]
        # A turned piece moves left where it would stick out on the right.
        column = min((10 - shapes[0].width) // 2, *(10 - shape.width for shape in shapes))
        side = RIGHT if after.column > column else LEFT
        keys = [ROTATE] * after.orientation + [side] * abs(after.column - column)
        for key in [*keys, DROP, NOTHING]:
            observation, *_ = env.step(key)
            frames.append(env.render())
    images = (Image.fromarray(frame).quantize(64) for frame in frames)
    save_gif(picture, images, env.metadata["render_fps"])


def _shortest_path(x: Any) -> Any:
    """Return the lengths of shortest paths over the tutorial's bridge with edges x."""
    a, b, c, d, e = x.unbind(-1)
    return torch.stack([a + d, a + c + e, b + e, b + c + d]).amin(0)


def draw_levels(picture: Path) -> None:
    """Draw the distribution of the shortest path at each level, and its upper part."""
    bridge = Exponential([0.25, 0.4, 0.1, 0.3, 0.2])
    event = rare_event_probability(bridge, _shortest_path, 2.0, seed=1)
    members = (bridge, *event.members)
    levels = (*event.levels, event.levels[-1])
    figure = new_figure(10.0, 1.8)
    panels = figure.subplots(1, len(levels), sharex=True, sharey=True)
    width = 0.05
    for axes, member, level in zip(panels, members, levels, strict=True):
        lengths = _shortest_path(member.sample(1 << 20, seed=1))
        density = lengths.histc(80, 0.0, 80 * width) / (width * len(lengths))
        edges = torch.arange(81) * width
        axes.stairs(density, edges, color=_BLUE)
        above = torch.where(edges[1:] > level, density, 0.0)
        axes.stairs(above, edges, color=_VERMILION, fill=True, alpha=0.7)
        axes.axvline(levels[-1], color=_BLACK, linestyle=":")
        axes.set_title(f"level {level:.2f}", loc="left", fontsize="medium")
        axes.set(xlabel="shortest path", xlim=(0, 4), yticks=[])
    panels[0].set_ylabel("density")
    panels[-1].set_title("final samples", loc="left", fontsize="medium")
    save_figure(figure, picture)


def _search(family: Family, function: Any, size: int) -> tuple[list[Any], Any]:
    """Return a family's parameters in some generations of a search, and the best candidate."""
    config = CEMConfig.cma(families=[family])
    search = CrossEntropyMethod(
        torch.zeros(0), 1.0, size, maximize=False, config=config, seed=1
    )
    tables = list[Any]()
    for t in range(_GENERATIONS[-1] + 1):
        if t in _GENERATIONS:
            tables += [table.unflatten(0, family.rows) for _, table in tables_of(search.state)]
        candidates = search.ask()
        search.tell(candidates, function(candidates))
    return tables, search.best


_RECORD = load("h200/record_training").data
_RECORD_SERIES = RESULTS / "h200/record_training.jsonl"
_MEDIAN = median_run(load("epyc-2core/training").data["runs"])
_MEDIAN_SERIES = RESULTS / f"epyc-2core/training-seed{_MEDIAN['seed']}.jsonl"
PICTURES: Mapping[str, Callable[[Path], None]] = {
    "sampling.png": draw_sampling,
    "record_learning_curve.png": partial(draw_training, _RECORD_SERIES, _RECORD),
    "learning_curve.png": partial(draw_training, _MEDIAN_SERIES, _MEDIAN),
    "choices.png": draw_choices,
    "route.png": draw_route,
    "gymnasium.gif": draw_key_presses,
    "levels.png": draw_levels,
}
