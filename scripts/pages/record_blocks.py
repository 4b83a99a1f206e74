"""The controller that ships as ``best``: the model card of docs/results.md and README's sentence."""

from __future__ import annotations

from pages.result_files import Result, load, load_all, with_provenance
from pages.wording import count, markdown, ratio, score

BOARD, REFERENCE = "10x20", "dt20"


def record_claim() -> str:
    """Return in a sentence what the controller that ships can do."""
    trained, scored = _results()
    learned, reference = scored.data["score"]
    words = (
        "The controller that ships as `best`, learned from nothing in "
        f"{trained.figures['record.training_seconds'] / 60:.0f} minutes on one {trained.hardware}, clears "
        f"{score(learned)} lines a game on {BOARD}, played. {REFERENCE} clears {score(reference)} in the "
        f"same run: `best` is {ratio(scored.data['ratio'])} times as good."
    )
    return with_provenance(words, scored)


def model_card() -> str:
    """Return how the controller came about and how good it is."""
    trained, scored = _results()
    config, figures = trained.data["config"], trained.figures
    learned, reference = scored.data["score"]
    features = len(trained.data["controller"]["weights"])
    others = load_all("best_scores")
    boards = [
        each for result in others for each in result.data["measurements"] if each["controller"] == "best"
    ]
    rows = [
        ["controller", f"linear, {features} features (`{config['features']}`), boards ten columns wide"],
        ["training", f"preset {config['preset']}, seed {config['seed']}, from nothing"],
        [
            "curriculum",
            f"`{config['curriculum']}` (board:generations:decisions a stream, {config['streams']} streams)",
        ],
        ["search", f"population {config['population']}, {config['elites']} elites, noise {config['noise']}"],
        [
            "training time",
            f"{figures['record.training_seconds']:.0f} s on one {trained.hardware}: "
            f"{figures['record.generations']:.0f} generations, "
            f"{count(figures['record.training_decisions'])} decisions",
        ],
        [f"lines a game on {BOARD}", f"{score(learned)}, {learned['games']:,} games"],
        [f"{REFERENCE} in the same run", f"{score(reference)}, {reference['games']:,} games"],
        [f"times {REFERENCE}", ratio(scored.data["ratio"])],
        *([f"lines a game on {each['board']}", f"{score(each)}, {each['games']:,} games"] for each in boards),
        ["commit", trained.commit[:7]],
    ]
    method = (
        f"Scores: the {learned['rule']} rule, pieces {learned['pieces']}, seed {learned['seed']}, "
        f"{count(learned['decisions'])} decisions each, the same pieces for both, none met in training. "
        "Brackets are exact 95 % intervals; the ratio's is that of Przyborowski & Wilenski (1940) with "
        "Clopper & Pearson (1934). The training time is that of all generations, without imports and "
        "compilation."
    )
    commands = (
        f"```bash\n{trained.data['command']}\n"
        f"python scripts/evaluate_tetris.py best {REFERENCE} --board {BOARD} --decisions "
        f"{learned['decisions']} --seed {learned['seed']}\n```"
    )
    parts = (
        markdown(["`best`", ""], rows),
        method,
        "At that commit, on such a GPU, these commands learn the same controller and score it:",
        commands,
        "All weights, the heaviest first:",
        _weights(trained),
    )
    return with_provenance("\n\n".join(parts), trained, scored, *others)


def _results() -> tuple[Result, Result]:
    return load("h200/record_training"), load("h200/record_score")


def _weights(trained: Result) -> str:
    weights = zip(trained.data["feature_names"], trained.data["controller"]["weights"], strict=True)
    heaviest = sorted(weights, key=lambda each: -abs(float(each[1])))
    return "; ".join(f"`{name}` {weight:.4f}" for name, weight in heaviest)
