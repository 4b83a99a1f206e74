"""The pictures of the pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pages import cem_pictures, gpu_pictures, literature_blocks, pictures, result_files, search_movie

pytest.importorskip("matplotlib")

from kernels import CompilerMissingError

PROJECT = Path(__file__).parents[3]


def test_every_picture_is_a_png(tmp_path: Path) -> None:
    pictures.draw_sampling(result_files.load("h200/sampling"), tmp_path / "a.png")
    pictures.draw_targets(result_files.load_all("time_to_target"), tmp_path / "b.png")
    pictures.draw_searches(literature_blocks.experiments("10x10"), tmp_path / "c.png")
    pictures.draw_returns(result_files.load("epyc-2core/planner"), tmp_path / "d.png")
    for picture in ("a.png", "b.png", "c.png", "d.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_the_moving_picture_shows_every_step_of_a_generation(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason='needs Pillow: pip install -e ".[watch]"')
    search_movie.write_movie(tmp_path / "a.gif", 2)
    with image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 2 * 4 + 1  # draw, elites, two of the way; the end
    with image.open(PROJECT / "docs" / "search.gif") as gif:
        assert gif.size == (900, 440)


def test_the_moving_picture_shows_a_collapse_beside_the_default() -> None:
    textbook, default = (search_movie.generations(30, each)[-1] for each in search_movie.PANELS.values())
    assert textbook.std.max() < 1e-6 < 5 < search_movie.banana(textbook.mean)
    assert search_movie.banana(default.mean) < 1e-2


def test_the_steps_of_a_generation_are_drawn(tmp_path: Path) -> None:
    cem_pictures.draw_generation(tmp_path / "a.png")
    cem_pictures.draw_stages(tmp_path / "b.png")
    for picture in ("a.png", "b.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_the_rules_end_as_the_page_says() -> None:
    spread, value = (
        {rule: cem_pictures.collapse(rule)[i][:, -1] for rule in cem_pictures.RULES} for i in (0, 1)
    )
    assert all(
        value[rule].min() > 1 for rule in ("textbook", "smoothed")
    )  # every search has stopped on the way
    assert value["default"].max() < 1e-4 < np.median(spread["default"]) * 10
    assert np.median(value["extra"]) < 1e-4
    assert np.median(spread["extra"]) < 1e-6  # it has collapsed after its variance ended


def test_of_noisy_answers_the_average_is_best() -> None:
    errors = {name: np.median(each[:, -1]) for name, each in cem_pictures.noisy_errors().items()}
    assert 2 * errors["averaged"] < 1.2 * errors["mean"] < errors["best"]


def test_the_gpu_engine_is_drawn(tmp_path: Path) -> None:
    gpu_pictures.draw_board(tmp_path / "a.png")
    gpu_pictures.draw_multiprocessor(tmp_path / "b.png")
    gpu_pictures.draw_generation(tmp_path / "c.png")
    for picture in ("a.png", "b.png", "c.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_a_word_is_a_column_from_the_floor() -> None:
    assert gpu_pictures.word([True, False, True, True]) == 0xB0000000


def test_splitting_has_streams_at_every_level() -> None:
    try:
        plain, split = (gpu_pictures.stream_levels(each) for each in (False, True))
    except CompilerMissingError as error:
        pytest.skip(str(error))
    assert plain[10:].sum() < 0.5
    reached = split[split > 0]
    assert len(reached) > 20
    assert reached.max() < 2 * reached.min()
