"""Peers' environments and searches beside ours: what is measured where none is installed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measure import compare_peers

from kernels import CompilerMissingError
from tetris.envs import native


def test_ours_is_measured_alone_where_no_peer_is_installed(
    script: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        native.operators()
    except CompilerMissingError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(compare_peers, "installed", lambda module: False)
    cores, out = os.sched_getaffinity(0), tmp_path / "peers.json"
    ended = script("measure.compare_peers", "--num-envs", 4, "--repeats", 1, "--seconds", 0.01, "--json", out)
    assert ended.status == 0, ended.err
    result = json.loads(out.read_text())
    assert list(result["figures"])[:2] == [
        "peers.ours.4.placements_per_second",
        "peers.ours.1.placements_per_second",
    ]
    assert sum(".generations_per_second" in name for name in result["figures"]) == 2 * len(
        compare_peers.SHAPES
    )
    assert result["data"]["cores"] == 1
    assert os.sched_getaffinity(0) == cores
