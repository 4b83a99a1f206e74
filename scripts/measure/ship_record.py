"""Write the record's controller into the package under the name ``best``, where it beats DT-20's.

python scripts/measure/ship_record.py record_training.json record_score.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.files import write_text
from measure.provenance import ROOT, read_result
from tetris import LinearController
from tetris.commands.command_line import Parser, one_line_errors, run

BEST = ROOT / "tetris" / "controllers" / "best.json"


def best_controller(trained: Mapping[str, Any], scored: Mapping[str, Any]) -> LinearController:
    """Return the controller of the record as it comes with the package."""
    controller = LinearController.from_dict(trained["data"]["controller"])
    if tuple(scored["data"]["score"][0]["weights"]) != controller.weights:
        raise ValueError("expected training and score of one controller, got those of two")
    if not scored["data"]["beats"]:
        raise ValueError("expected a controller that beats dt20, got one that does not")
    told = controller.provenance
    provenance = {
        "made_by": told["made_by"],
        "command": trained["data"]["command"],
        **{key: value for key, value in told.items() if key not in ("made_by", "score")},
        "machine": trained["machine"]["gpu"],
        "commit": trained["commit"],
        "score": [
            {key: value for key, value in each.items() if key not in ("features", "weights")}
            for each in scored["data"]["score"]
        ],
        "ratio": scored["data"]["ratio"],
    }
    return LinearController(controller.features, controller.weights, controller.rules, "best", provenance)


def main(argv: Sequence[str] | None = None) -> int:
    """Write it."""
    parser = Parser(description=__doc__, usage="%(prog)s TRAINING SCORE")
    parser.add_argument("training", type=Path, help="the result of record.py train")
    parser.add_argument("score", type=Path, help="the result of record.py score")
    arguments = parser.parse_args(argv)
    with one_line_errors():
        best = best_controller(read_result(arguments.training), read_result(arguments.score))
        write_text(BEST, json.dumps(best.to_dict(), indent=1, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    run(main)
