"""Linear controllers: validation, JSON on disk, and finding one by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tetris.game.rules import Rules
from tetris.play.controller import PUBLISHED, LinearController, known_names, published, resolve


def _controller() -> LinearController:
    rules = Rules(8, 12, clear_on_overflow=True, pieces="SZ")
    return LinearController(
        "holes,max_height", (-4.0, -0.1), rules, "mine", {"seed": 3, "parents": ["dt20"]}
    )


def test_save_and_load_round_trip(tmp_path: Path) -> None:
    _controller().save(tmp_path / "c.json")
    assert LinearController.load(tmp_path / "c.json") == _controller()
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


def test_weights_are_kept_in_double_precision_and_played_with_15_bits(tmp_path: Path) -> None:
    LinearController("holes", (0.1 + 0.2,)).save(tmp_path / "c.json")
    loaded = LinearController.load(tmp_path / "c.json")
    assert loaded.weights == (0.1 + 0.2,)
    assert loaded.played_weights.tolist() == [19661 / 2**16]


@pytest.mark.parametrize("weights", [np.array([-4.0, -1.0]), torch.tensor([-4.0, -1.0])])
def test_weights_may_be_any_sequence_of_numbers(weights: Any) -> None:
    assert LinearController("holes,wells", weights).weights == (-4.0, -1.0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((float("nan"), 1.0), "finite in float32, got"),
        ((-1e39, 1.0), "finite in float32, got"),
        ((1e-60, 0.0), r"expected weights that are not all 0 in float32, got \(1e-60"),
    ],
)
def test_weights_that_are_no_numbers_in_float32_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearController("holes,wells", weights)
    assert LinearController("holes,wells", (0.0, 0.0)).weights == (0.0, 0.0)


def test_weights_must_fit_the_features() -> None:
    with pytest.raises(ValueError, match=r"expected 9 weights for the features dt .*, got 2"):
        LinearController("dt", (1.0, 2.0))


@pytest.mark.parametrize(
    ("given", "kept"),
    [("DU", "bcts"), (" BCTS", "bcts"), ("Holes, wells", "holes,wells"), ("wells", "wells")],
)
def test_features_have_one_canonical_spelling(given: str, kept: str) -> None:
    count = 8 if kept == "bcts" else len(kept.split(","))
    assert LinearController(given, (1.0,) * count).features == kept


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, '"format": "cem-tetris-controller"'),
        ({"version": 2}, "expected version 1 of the format, got 2"),
        ({"extra": 1}, "expected the keys"),
        ({"weights": [1.0, float("nan")]}, "finite"),
    ],
)
def test_file_with_a_wrong_value_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({**_controller().to_dict(), **change}))
    with pytest.raises(ValueError, match=r"c\.json holds no valid controller: ") as error:
        LinearController.load(path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "name"), [("dt20", "dt20"), ("DT-20", "dt20"), ("dt_10", "dt10")]
)
def test_published_names_may_be_spelt_freely(text: str, name: str) -> None:
    assert resolve(text) is published(name)
    assert published(name).provenance["source"]


def test_resolve_reads_a_file_and_a_run_folder(tmp_path: Path) -> None:
    _controller().save(tmp_path / "controller.json")
    assert resolve(str(tmp_path / "controller.json")) == _controller()
    assert resolve(str(tmp_path)) == resolve(tmp_path) == _controller()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "controller.json").symlink_to(tmp_path / "controller.json")
    with pytest.raises(OSError, match="got a link"):
        resolve(tmp_path / "other")


def test_a_controller_is_itself() -> None:
    assert resolve(_controller()) == _controller()


def test_the_run_that_was_meant_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(
        ValueError, match=r"found no such file or folder; did you mean '.*/mine'\?"
    ):
        resolve(str(tmp_path / "mien"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"expected a controller at .*none\.json, found no such file"
    ):
        resolve(str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match=r"to hold controller\.json, found none"):
        resolve(str(tmp_path))


def test_learned_controllers_come_with_the_package_and_tell_how_they_came_about() -> None:
    names = known_names()[len(PUBLISHED) :]
    assert "bertsekas" in names
    for name in names:
        controller = resolve(name)
        assert controller == resolve(f" {name.upper()} ")
        assert controller.name == name
        assert {
            "command",
            "config",
            "seed",
            "versions",
            "score",
        } <= controller.provenance.keys()
