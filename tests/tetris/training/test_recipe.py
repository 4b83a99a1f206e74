"""The settings of a training run: presets, layers, curricula, config files."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tetris import Rules
from tetris.play.splitting import BURN_IN
from tetris.training.recipe import (
    SPLIT_COST,
    Recipe,
    fit_to_board,
    make_recipe,
    parse_curriculum,
    read_settings,
)
from tetris.training.settings import CUDA_PRESETS_MULTIPROCESSORS, PRESETS


def _stages(recipe: Recipe) -> list[tuple[str, int, int]]:
    return [(stage.rules.board, stage.generations, stage.decisions) for stage in recipe.stages]


@pytest.mark.parametrize(
    ("preset", "device", "backend"),
    [("quick", "python", "torch"), ("standard", "cpu", "cpu"), ("record", "cuda", "cuda")],
)
def test_presets_are_complete_and_valid(preset: str, device: str, backend: str) -> None:
    recipe = make_recipe(device, {"preset": preset, "device": device})
    assert (recipe.preset, recipe.device, recipe.backend) == (preset, device, backend)
    assert recipe.total_generations >= 10


@pytest.mark.parametrize("preset", ["quick", "standard", "record"])
def test_presets_fill_a_gpu_with_streams_that_get_to_steady_play(preset: str) -> None:
    recipe = make_recipe("cuda", {"preset": preset})
    games = (recipe.population + 1) * recipe.streams / CUDA_PRESETS_MULTIPROCESSORS
    turns = math.ceil(games / 2048)  # at a time on a multiprocessor
    assert 0.98 * turns < games / 2048 <= turns
    assert min(stage.decisions for stage in recipe.stages) >= 2 * BURN_IN


def test_quick_preset_is_the_same_again_on_another_engine_from_its_config(
    tmp_path: Path,
) -> None:
    recipe = make_recipe("cuda")
    assert _stages(recipe) != _stages(make_recipe("cpu"))
    file = tmp_path / "config.json"
    file.write_text(json.dumps(recipe.to_dict()))
    again = asdict(make_recipe("cpu", read_settings(file)))
    assert again == {**asdict(recipe), "device": "cpu"}
    # Nothing is left of another preset.
    assert make_recipe("cpu", again, {"preset": "record"}).preset == "quick"


def test_a_smaller_gpu_has_its_share_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    large = make_recipe("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    small = SimpleNamespace(multi_processor_count=66)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: small)
    recipe = make_recipe("cuda")
    assert 2 * recipe.streams == large.streams
    assert 2 * recipe.score_decisions == large.score_decisions
    assert make_recipe("cuda", {"streams": 7}).streams == 7
    small.multi_processor_count = 20
    assert make_recipe("cuda").streams == 128  # fewer tell little apart


def test_later_layer_beats_earlier_beats_preset() -> None:
    recipe = make_recipe(
        "cpu", {"streams": 3, "seed": 4, "preset": "record"}, {"seed": 5, "preset": "standard"}
    )
    assert (recipe.streams, recipe.seed, recipe.population) == (
        3,
        5,
        PRESETS["standard"]["population"],
    )


@pytest.mark.parametrize(
    ("layers", "stages"),
    [
        ([{"generations": 7, "board": "8x12", "decisions": 50}], [("8x12", 7, 50)]),
        (
            [{"curriculum": " 10x10:22 , 10x12:14:4000", "decisions": 50}],
            [("10x10", 22, 50), ("10x12", 14, 4000)],
        ),
        (
            [{"curriculum": "10x10:2:9", "generations": 3, "decisions": 50}],
            [("10x10", 2, 9), ("10x20", 3, 50)],
        ),
        ([{"curriculum": "10x10:2:9"}, {"generations": 3, "decisions": 4}], [("10x20", 3, 4)]),
        (
            [{"curriculum": "10x6:2:9,10x7:1:9"}, {"board": "8x9"}],
            [("8x6", 2, 9), ("8x9", 1, 9)],
        ),
        (
            [{"curriculum": "8x6:2:9", "generations": 3, "decisions": 50}, {"board": "6x7"}],
            [("6x6", 2, 9), ("6x7", 3, 50)],
        ),
        ([{"decisions": 377}], [("10x10", 8, 377), ("10x20", 20, 377)]),
        ([{"board": "8x12"}], [("8x10", 8, 300), ("8x12", 20, 900)]),
        ([{"board": "10x24"}], [("10x10", 8, 300), ("10x24", 20, 900)]),
        ([{"board": "10x8"}, {"board": "10x24"}], [("10x10", 8, 300), ("10x24", 20, 900)]),
    ],
)
def test_layers_make_these_stages(
    layers: list[dict[str, Any]], stages: list[tuple[str, int, int]]
) -> None:
    assert _stages(make_recipe("cpu", *layers)) == stages


def test_rule_and_pieces_hold_on_every_board() -> None:
    recipe = make_recipe("cpu", {"rule": "original", "pieces": "zs", "board": "8x7"})
    assert {stage.rules for stage in recipe.stages} == {Rules.of(8, 7, "original", "SZ")}


def test_population_keeps_the_share_of_elites() -> None:
    quick = PRESETS["quick"]
    half = make_recipe("cpu", {"population": int(quick["population"]) // 2})
    assert abs(half.elites - int(quick["elites"]) / 2) <= 0.5
    assert make_recipe("cpu", {"population": 3}).elites == 2
    assert make_recipe("cpu", {"population": 30, "elites": 7}).elites == 7
    assert (
        make_recipe("cpu", {"population": 41}).elites == 6
    )  # 10 of 80 are 5.1 of 41, rounded up


def test_texts_are_kept_in_canonical_form() -> None:
    recipe = make_recipe(
        "cpu", {"features": "DU", "noise": "Linear:5,10", "curriculum": " 10X10 : 2 "}
    )
    assert (recipe.features, recipe.noise, recipe.curriculum) == (
        "bcts",
        "linear:5.0,10.0",
        "10x10:2",
    )


def test_a_stage_with_splitting_says_so() -> None:
    recipe = make_recipe(
        "cpu", {"curriculum": "10x10:2:9, 10x20:3:400:split ,10x12:1:split", "decisions": 300}
    )
    assert recipe.curriculum == "10x10:2:9,10x20:3:400:split,10x12:1:split"
    assert [(stage.decisions, stage.split) for stage in recipe.stages] == [
        (9, False),
        (400, True),
        (300, True),
    ]
    assert [stage.cost for stage in recipe.stages] == [9, 400 * SPLIT_COST, 300 * SPLIT_COST]
    assert (
        fit_to_board(recipe.curriculum, 6, 11, ends_there=True)
        == "6x10:2:9,6x11:3:400:split,6x11:1:split"
    )
    assert (
        fit_to_board(recipe.curriculum, 6, 24, ends_there=True)
        == "6x10:2:9,6x20:3:400:split,6x24:1:split"
    )


@pytest.mark.parametrize("text", ["10x10:0", "10x10:2,", "10x10:2:3:splitting"])
def test_curriculum_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a (curriculum|board) as"):
        parse_curriculum(text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset": "quik"}, "quick, standard, record, sz; got 'quik'; did you mean 'quick'"),
        ({"popluation": 3}, "got 'popluation'; did you mean 'population'"),
        ({"averaging": math.nan}, "averaging to be from 0 to 1, got nan"),
        ({"averaging": "0.1"}, "averaging to be a number, got '0.1'"),
        ({"population": "20"}, "population to be an int, got '20'"),
        ({"population": 1}, "population >= 2, got 1"),
        ({"population": 5, "elites": 6}, "elites of the population from 2 to 5, got 6"),
        ({"curriculum": "10x10:9:500,10x6:2:15", "halvings": 4}, "first halving >= 1, got 0"),
        ({"noise": "hyperbolic"}, "expected noise with all its numbers"),
        ({"generations": 1 << 62}, "generations of all stages from 1 to 1000000, got 4611"),
        (
            {
                "curriculum": "10x10:1:9,10x12:1:212:split",
                "streams": 16,
                "halvings": 0,
                "burn_in": 203,
            },
            "split to have at least 213 decisions in the first round on 2 to 8192 streams, "
            "got 212 on 16",
        ),
        (
            {"curriculum": "10x12:1:159:split", "halvings": 2, "burn_in": 100},
            "at least 115 decisions in the first round on 2 to 8192 streams, got 114 on 128",
        ),
        (
            {"features": "bdu", "board": "8x20", "curriculum": "10x10:2"},
            "expected a board of width 8 for the features bdu, got 10x10",
        ),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make_recipe("cpu", settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected an object with settings, got list"),
        ('{"format": "cem-checkpoint"}', "of format cem-tetris-run"),
        ("[" * 100_000, "config.json: "),
    ],
)
def test_config_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_settings(file)


def test_fingerprint_leaves_out_what_changes_nothing() -> None:
    first = make_recipe(
        "cpu", {"generations": 2, "population": 8, "elites": 2, "streams": 1, "decisions": 5}
    )
    same = {**asdict(first), "device": "python", "preset": "record", "score_decisions": 0}
    assert Recipe(**same).fingerprint() == first.fingerprint()
    assert Recipe(**{**same, "seed": 2}).fingerprint() != first.fingerprint()
