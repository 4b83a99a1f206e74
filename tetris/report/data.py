"""The data of a report: the values of its charts, the rows of its tables, its game."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import accumulate, count, groupby, islice
from typing import Any, NamedTuple

from markupsafe import Markup

from tetris.evaluation import DEFAULT_SEED
from tetris.evaluation.comparison import (
    BEST_PUBLISHED,
    LEARNED,
    PUBLISHED_SCORES,
    Game,
    Score,
    count_text,
    game_of,
    interval_text,
    paper_text,
    published_score,
)
from tetris.game.decisions import play
from tetris.game.hidden_units import is_inside_unit
from tetris.game.piece_stream import PieceStream
from tetris.record.numbers import format_lines
from tetris.record.replay import Replay
from tetris.training.run_folder import RunRecord, board

GAME_DECISIONS = 300
"""The placements of a report's game. With `dt` they take a third of a second in Python."""

_CURVES = (
    "generation_best",
    "elite_mean",
    "elite_threshold",
    "learned_mean_fitness",
    "std_mean",
)


def chart_values(run: RunRecord) -> dict[str, Any]:
    """Return the data of the charts of a training run, to be written as JSON for a web page.

    A decision is the placement of one piece. A stage is a part of the training on one board.

    Returns:
        A dictionary. All lists except "stages" and "score" have one value per generation.

        "name": The name of the run.
        "group": A text. It is the same for two runs only if they differ at most in their seed.
        "stages": A dictionary for each stage: its "board", such as "10x20"; "place", the index
            of its first generation in the lists; and "dt20", the lines per game of the best
            published controller on that board.
        "board": The board of each generation.
        "generation": The number of each generation.
        "decisions", "seconds": The decisions and the time since the beginning of the run.
        "speed": The speed of each generation in decisions per second.
        "score": The score after training: the lines per game, then the lower and the upper end
            of their 95 % interval. None if there is no score.
        "generation_best", "elite_mean", "elite_threshold", "learned_mean_fitness", "std_mean":
            The metrics of these names, or None for generations without the metric.
    """
    metrics = run.metrics  # One record per generation.
    stages = []
    place = 0  # The index of the first generation of a stage.
    numbered_boards = [(record["stage"], board(record)) for record in metrics]
    for (_, board_name), generations in groupby(numbered_boards):
        reference_score = _round_for_chart(dt20_score(run, board_name))
        stages.append({"board": board_name, "place": place, "dt20": reference_score})
        place += len(list(generations))
    speeds = []
    for record in metrics:
        # The lower limit prevents a division by zero.
        speed = record["decisions"] / max(record["seconds"], 1e-9)
        speeds.append(_round_for_chart(speed))
    decisions = [record["decisions"] for record in metrics]
    curves = {}
    for key in _CURVES:
        curves[key] = [_round_for_chart(record[key]) for record in metrics]
    return {
        "name": run.name,
        "group": seedless(run),
        "stages": stages,
        "board": [board(record) for record in metrics],
        "generation": [record["generation"] for record in metrics],
        "decisions": list(accumulate(decisions)),
        "seconds": [_round_for_chart(record["elapsed_s"]) for record in metrics],
        "speed": speeds,
        "score": _final_score(run),
        **curves,
    }


def _final_score(run: RunRecord) -> list[float | None] | None:
    """Return the score of the learned controller on the last board of its training.

    The three numbers are the lines per game, and the lower and the upper end of their 95 %
    interval. The result is None if the controller has no score on this board.
    """
    score = learned_scores(run).get(board(run.metrics[-1]))
    return [score["lines_per_game"], *score["ci95"]] if score else None


def learned_scores(run: RunRecord) -> dict[str, Score]:
    """Return the score of the learned controller on each board, by the board.

    An estimate comes after a played score, and takes precedence over it.
    """
    return {score["board"]: score for score in run.scores if score["controller"] == LEARNED}


def _round_for_chart(value: float | None) -> float | None:
    """Return a value rounded to five digits, which are enough for a chart."""
    return None if value is None else float(f"{value:.5g}")


def recorded_game(run: RunRecord) -> Replay:
    """Let a run's controller play `GAME_DECISIONS` placements; return them as a replay."""
    rules = run.recipe.rules
    player = run.controller.player(rules, run.recipe.lookahead)
    game = play(PieceStream(rules, DEFAULT_SEED, stream=0), player, rules)
    placements = islice(game, GAME_DECISIONS)
    return Replay.of(
        placements, rules, DEFAULT_SEED, 0, run.controller, lookahead=player.lookahead
    )


def seedless(run: RunRecord) -> str:
    """Return the settings of a run except its seed, as a text.

    Runs that differ only in their seed have the same text.
    """
    return " ".join(
        f"{name}={value}" for name, value in run.recipe.to_dict().items() if name != "seed"
    )


def with_distinct_names(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Return runs; a number is added to a name that several of them have."""
    taken = [run.name for run in runs]
    distinct = []
    for run in runs:
        name = run.name
        if taken.count(name) > 1:
            numbered_names = (f"{run.name} ({number})" for number in count(1))
            name = next(name for name in numbered_names if name not in taken)
            taken.append(name)
        distinct.append(replace(run, name=name))
    return distinct


def dt20_score(run: RunRecord, board_name: str) -> float | None:
    """Return the lines per game of dt20 in the game of the run on a board; None if unknown."""
    width, height = map(int, board_name.split("x"))
    rules = replace(run.recipe.rules, width=width, height=height)
    score = published_score(BEST_PUBLISHED, rules, run.recipe.lookahead)
    return score["lines_per_game"] if score else None


def weight_bars(run: RunRecord) -> list[tuple[str, str, list[float]]]:
    """Return the rows of a horizontal bar chart of a run's learned weights, largest first.

    The weight 0 is in the middle of the chart, at 50 %, and the largest weight reaches its
    edge. A whisker extends from the end of a bar to both sides, by the standard deviation of
    the search in the last generation.

    Returns:
        A tuple for each weight: its name, its weight as text, and four numbers in percent of
        the chart's width: the left end and the width of the bar, then the left end and the
        width of the whisker.
    """
    stds = run.metrics[-1]["std"]
    # Each item is a tuple of name, weight and standard deviation. The length of the weights
    # inside of a hidden unit means nothing beside that of others.
    weights = [
        item
        for item in zip(run.weight_names, run.controller.weights, stds, strict=True)
        if not is_inside_unit(item[0])
    ]
    largest_first = sorted(weights, key=lambda item: -abs(item[1]))
    _, largest, _ = largest_first[0]
    unit = 50 / (abs(largest) or 1.0)  # The width of a weight of 1. All weights may be 0.
    bars = []
    for name, weight, std in largest_first:
        bar = [50 + unit * min(weight, 0.0), unit * abs(weight)]
        whisker = [50 + unit * (weight - std), 2 * unit * std]
        bars.append((name, f"{weight:+.3f}", bar + whisker))
    return bars


class Table(NamedTuple):
    """A table of the page. The page escapes all cells except those of the type `Markup`.

    Attributes:
        label: The name of the table.
        header: The cells of the first row.
        rows: The cells of the other rows. The first cell of a row is its header.
    """

    label: str
    header: Sequence[object]
    rows: Sequence[Sequence[object]]


def score_tables(scored: Sequence[tuple[str, Score]]) -> list[Table]:
    """Return a table of scores for each combination of board, rule, pieces and lookahead.

    ``scored`` has pairs: the label of a controller, and a score of it.
    """
    games: dict[Game, list[tuple[str, Score]]] = {}
    for label, score in scored:
        games.setdefault(game_of(score), []).append((label, score))
    return [_score_table(game, rows) for game, rows in games.items()]


def _score_table(game: Game, scored: Sequence[tuple[str, Score]]) -> Table:
    """Return a table that compares the scores of controllers on the same board and rules.

    Args:
        game: Four texts: the board, such as "10x20"; the name of the rule that ends a game; the
            name of the distribution of pieces; and a phrase about the lookahead, which is empty
            without lookahead.
        scored: A pair of label and score for each row of the table.
    """
    board_name, rule, pieces, lookahead_phrase = game
    literature = _lines_of_literature(game)
    header = ["controller", "lines per game", "95 % interval", "from", "decisions"]
    if literature:
        header.append("literature, about")
    rows = []
    for label, score in scored:
        controller = score["controller"]
        name_cell = label
        if controller == LEARNED:  # Show the label in bold letters.
            name_cell = Markup("<strong>{}</strong>").format(label)
        row = [
            name_cell,
            format_lines(score["lines_per_game"]),
            interval_text(score),
            count_text(score),  # The number of games, such as "1,009 games", or of estimates.
            f"{score['decisions']:,}",
        ]
        if literature:
            row.append(literature.get(controller, "–"))
        rows.append(row)
    # The phrase is empty or begins with a comma.
    title = f"Board {board_name}, {rule} rule, pieces {pieces}{lookahead_phrase}"
    return Table(title, header, rows)


def _lines_of_literature(game: Game) -> dict[str, str]:
    """Return the lines per game in the literature, by controller, for a `_score_table`.

    The scores in the literature were all measured by the same rules. There are none for others.
    """
    board_name, *rules = game
    if rules != ["published", "uniform", ""]:
        return {}
    return {
        controller: paper_text(*scores_by_board[board_name])
        for controller, scores_by_board in PUBLISHED_SCORES.items()
        if board_name in scores_by_board
    }


def weight_table(runs: Sequence[RunRecord]) -> Table:
    """Return a table of learned weights, with one row per feature and one column per run.

    The weight vector of a run has length 1.
    """
    features = dict.fromkeys(feature for run in runs for feature in run.weight_names)
    columns = [dict(zip(run.weight_names, run.controller.weights, strict=True)) for run in runs]
    rows = []
    for feature in features:
        weights = (f"{column[feature]:.4f}" if feature in column else "–" for column in columns)
        rows.append([feature, *weights])
    return Table("Learned weights", ["feature", *(run.name for run in runs)], rows)


def cost_table(runs: Sequence[RunRecord]) -> Table:
    """Return a table of the time and the speed of training runs, with one row per run."""
    header = [
        "run",
        "engine",
        "generations",
        "wall time [s]",
        "decisions",
        "decisions/s",
        "lines/s",
    ]
    rows = []
    for run in runs:
        seconds = max(run.seconds, 1e-9)  # The lower limit prevents a division by zero.
        lines = sum(record["lines"] for record in run.metrics)
        rows.append(
            [
                run.name,
                run.recipe.device,
                f"{run.generations} of {run.recipe.total_generations}",
                f"{seconds:,.1f}",
                f"{run.decisions:,}",
                f"{run.decisions / seconds:,.0f}",
                f"{lines / seconds:,.0f}",
            ]
        )
    return Table("What the runs cost", header, rows)


def settings_tables(runs: Sequence[RunRecord]) -> tuple[Table, Table]:
    """Return two tables of the settings of runs, with one row per setting.

    The versions of packages count as settings. The first table has the settings that differ
    between the runs, with one column of values per run. The second table has the settings that
    are the same in all runs, with a single column of values. A dash means that a run does not
    have the setting.
    """
    settings_by_run = []
    all_names: dict[str, None] = {}  # A dict keeps the order in which names were added.
    for run in runs:
        settings = asdict(run.recipe)
        for package, version in run.controller.provenance.get("versions", {}).items():
            settings[f"version of {package}"] = version
        settings_by_run.append(settings)
        all_names |= dict.fromkeys(settings)
    different_rows = []
    equal_rows = []
    for name in all_names:
        values = [_setting_text(settings.get(name)) for settings in settings_by_run]
        if len(set(values)) > 1:
            different_rows.append([name, *values])
        else:
            equal_rows.append([name, values[0]])
    header = ["setting", *(run.name for run in runs)]
    differences = Table("What differs", header, different_rows)
    # The page folds the second table, and shows its label as the summary.
    label = "What is the same" if len(runs) > 1 else "Settings and versions"
    return differences, Table(label, ["setting", "value"], equal_rows)


def _setting_text(value: object) -> str:
    """Return a value as the text of a cell; a dash if there is no value."""
    return "–" if value in ("", None) else str(value).replace(",", ", ")


def start_table(runs: Sequence[RunRecord]) -> Table:
    """Return a table of when, where and how runs were started, with one row per start."""
    keys = ("date", "hardware", "commit", "command")
    rows = []
    for run in runs:
        for start in run.starts:
            rows.append([run.name, *(str(start.get(key) or "–") for key in keys)])
    return Table("Starts of the run", ["run", *keys], rows)
