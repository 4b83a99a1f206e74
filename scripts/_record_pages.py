"""The model card of docs/results.md: the controller of the record, how it came about and how good it is."""

from __future__ import annotations

from typing import Any

from _markdown import Block, Report, cell, markdown, origin
from _record import BOARD, REFERENCE, measured_record

from tetris.training.curriculum import parse_curriculum

PICTURE_NAME = "record_learning_curve.png"
_NOT_YET = "Not measured yet."


def ratio_cell(ratio: Report) -> str:
    """Return a ratio with its interval."""
    low, high = ratio["ci95"]
    if high is None:
        return f"> {low:.3g}"
    if ratio["value"] is None:
        return f"< {high:.3g}"
    return f"{ratio['value']:.3g} [{low:.3g}, {high:.3g}]"


def weights_table(trained: Report) -> str:
    """Return the features with their weights, the heaviest first."""
    weights = zip(trained["feature_names"], trained["controller"]["weights"], strict=True)
    heaviest = sorted(weights, key=lambda each: -abs(float(each[1])))
    return markdown(["feature", "weight"], [[f"`{name}`", f"{weight:.4f}"] for name, weight in heaviest])


def recipe_text(config: Report) -> str:
    """Return a recipe in a sentence."""
    share = config.get("averaging", 0.0)
    splits = any(stage.split for stage in parse_curriculum(config["curriculum"]))
    split = "; split: fitness by importance splitting" if splits else ""
    last = f"the last {100 * share:g} % of the generations"
    averaged = f", means averaged, most of it over {last}" if share else ""
    return (
        f"preset {config['preset']}, seed {config['seed']}: {config['curriculum']} (board:generations:"
        f"decisions on each of {config['streams']} streams{split}), population {config['population']}, "
        f"{config['elites']} elites, noise {config['noise']}{averaged}"
    )


def commands(trained: Report, scored: Report) -> str:
    """Return the commands that learn and measure it again."""
    measured = scored["score"][0]
    player = "best" if scored["beats"] else "runs/record"
    out = "" if scored["beats"] else " --out runs/record"
    return (
        "```bash\n"
        f"{trained['command']}{out}\n"
        f"python scripts/evaluate_tetris.py {player} {REFERENCE} --board {BOARD} "
        f"--decisions {measured['decisions']} --seed {measured['seed']}\n"
        "```"
    )


def card(trained: Report, scored: Report) -> str:
    """Return the card of a controller from the two parts that measured it."""
    controller: dict[str, Any] = trained["controller"]
    learned, reference = scored["score"]
    count, decisions = len(controller["weights"]), trained["figures"]["record.training_decisions"]
    played = scored["figures"]["record.score_decisions"]
    commit = trained["commit"] or "unknown"
    changed = " with changes" if commit.endswith("+") else ""
    rows = [
        ["what it is", f"linear controller of {count} features (`{controller['features']}`), ten columns"],
        ["learned", f"from nothing, by the cross-entropy method; {recipe_text(trained['config'])}"],
        ["hardware", f"one {trained['machine']['gpu']}"],
        [
            "training",
            f"{trained['figures']['record.training_seconds']:.0f} s in "
            f"{trained['figures']['record.generations']} generations, {decisions:,} decisions",
        ],
        [
            "evaluation",
            f"{learned['seconds']:.0f} s, and {reference['seconds']:.0f} s for {REFERENCE}; "
            f"{learned['decisions']:,} decisions each",
        ],
        ["decisions in all", f"{decisions + played:,}"],
        [f"lines a game on {BOARD}", cell(learned)],
        [f"{REFERENCE}, in the same run", cell(reference)],
        [f"times {REFERENCE}", ratio_cell(scored["ratio"])],
        ["intervals", "apart: it is better" if scored["beats"] else "not apart"],
        ["commit", f"{commit[:12]}{changed}"],
    ]
    title = "`best`, as it comes with the package" if scored["beats"] else "the controller"
    method = (
        f"Both play by the {learned['rule']} rule, pieces {learned['pieces']}, seed {learned['seed']}: the "
        "same pieces, none of which training met. Brackets are 95 % intervals. A score is "
        f"{learned['estimator']}. The interval of the ratio is {scored['ratio']['method']}. The seconds of "
        "training are those of all generations, without the start of the process and what is compiled once "
        "on a machine."
    )
    return "\n\n".join(
        [
            markdown([title, ""], rows),
            method,
            f"![Learning curve of the record]({PICTURE_NAME})",
            weights_table(trained),
            f"The same controller again, at commit {trained['commit'][:12]}, with the same versions on the "
            "same kind of GPU, and its score:",
            commands(trained, scored),
        ]
    )


def model_card(report: Report, file: str) -> str:
    """Return the card, or that there is none yet."""
    found = measured_record(report)
    if found is None:
        return _NOT_YET
    trained, scored = found
    return "\n\n".join([card(trained, scored), origin(trained, file), origin(scored, file)])


def record_sentence(report: Report, file: str) -> str:
    """Return in a sentence what the controller that comes with the package can do; empty without one."""
    found = measured_record(report)
    if found is None or not found[1]["beats"]:
        return ""
    trained, scored = found
    learned, reference = scored["score"]
    return (
        "`python scripts/evaluate_tetris.py best` plays the controller that comes with the package: learned "
        f"from nothing in {trained['figures']['record.training_seconds'] / 60:.1f} minutes on one "
        f"{trained['machine']['gpu']} (`{trained['command']}` at commit {trained['commit'][:12]}), "
        f"{cell(learned)} on {BOARD} (lines a game); "
        f"{REFERENCE}, the best published one of its kind, has {cell(reference)} in the same run: "
        f"{ratio_cell(scored['ratio'])} times as many.\n\n{origin(scored, file)}"
    )


RECORD_BLOCKS: dict[str, Block] = {"model_card": model_card, "record_sentence": record_sentence}
