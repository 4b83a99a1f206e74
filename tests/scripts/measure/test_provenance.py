"""Result files: what a measurement was made with, and what they are refused for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from measure import provenance
from measure.provenance import COMMIT, RESULTS, command, commit, machine_name, read_result, write_result

KEYS = ["commit", "dirty", "date", "command", "machine", "versions", "figures", "data"]


def test_a_result_says_what_it_was_measured_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(COMMIT, "abc+")
    monkeypatch.setattr("sys.argv", ["/else/where/bench.py", "--json", "x.json", "--seeds", "3"])
    path = tmp_path / "speed.json"
    series = {"-seed1": [{"generation": 1}, {"generation": 2}]}
    write_result(path, {"a": 1.0}, {"b": [2]}, "cpu", series)
    result = read_result(path)
    assert list(result) == KEYS
    assert (result["commit"], result["dirty"]) == ("abc", True)
    assert result["command"] == "python bench.py --seeds 3"
    assert result["versions"]["torch"] == str(torch.__version__)
    assert {"processor", "vectors", "cores", "threads", "load_average"} <= result["machine"].keys()
    assert (result["figures"], result["data"]) == ({"a": 1.0}, {"b": [2]})
    lines = (tmp_path / "speed-seed1.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == series["-seed1"]


def test_a_script_of_the_checkout_is_named_from_its_root(monkeypatch: pytest.MonkeyPatch) -> None:
    script = provenance.ROOT / "scripts" / "measure" / "run.py"
    inside, outside = str(provenance.ROOT / "runs" / "x"), "/else/where/mdptetris"
    monkeypatch.setattr("sys.argv", [str(script), "a b", "--keep", inside, outside])
    assert command() == "python scripts/measure/run.py 'a b' --keep runs/x mdptetris"


def test_a_result_that_was_written_makes_no_checkout_dirty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@y", *words], cwd=tmp_path, check=True)

    result, source = tmp_path / "benchmarks" / "result.json", tmp_path / "source.py"
    result.parent.mkdir()
    result.touch()
    source.touch()
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    monkeypatch.delenv(COMMIT, raising=False)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    result.write_text("{}")
    assert commit()[1] is False
    source.write_text("1")
    assert commit()[1] is True


def test_without_git_nobody_knows_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object, **options: object) -> object:
        raise FileNotFoundError("git")

    monkeypatch.delenv(COMMIT, raising=False)
    monkeypatch.setattr(subprocess, "run", missing)
    assert commit() == (None, True)


@pytest.mark.parametrize(
    ("here", "name"),
    [
        ({"gpu": "NVIDIA H200"}, "h200"),
        ({"gpu": "NVIDIA GeForce RTX 3070"}, "rtx-3070"),
        ({"processor": "AMD EPYC", "cores": 2}, "epyc-2core"),
        ({"processor": "Intel(R) Xeon(R) Processor", "cores": 16}, "xeon-16core"),
        ({"processor": "unheard of", "architecture": "riscv64", "cores": 4}, "riscv64-4core"),
    ],
)
def test_results_are_filed_under_the_machine(
    monkeypatch: pytest.MonkeyPatch, here: dict[str, object], name: str
) -> None:
    monkeypatch.setattr(provenance, "machine", lambda device: here)
    assert machine_name() == name


@pytest.mark.parametrize("text", ["{", "[]", '{"figures": {}}'])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="expected a result file"):
        read_result(path)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: path.stem)
def test_committed_results_name_commit_command_and_machine(path: Path) -> None:
    result = read_result(path)
    assert list(result) == KEYS
    assert len(result["commit"]) == 40
    assert result["command"].startswith("python scripts/")
    assert {"processor", "cores"} <= result["machine"].keys()
    assert all(isinstance(value, (int, float)) for value in result["figures"].values())
