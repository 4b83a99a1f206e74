"""Result files of the kernels' benchmarks, and the report that is made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from _machine import KERNELS, kernel_digest, machine
from _results import merged, open_report, read_report, read_result, stale_parts


def part(name: str, date: str = "2026-01-01", gpu: str = "A", **figures: float) -> dict[str, Any]:
    return {
        "benchmark": name,
        "device": "cuda",
        "date": date,
        "machine": {"gpu": gpu},
        "versions": {"torch": date},
        "operators": ["normal"],
        "sources": f"digest of {name}",
        "figures": figures,
    }


def test_a_report_has_the_figures_of_its_parts_and_the_machine_of_the_newest() -> None:
    report = merged({}, {"a": part("a", "2026-01-02", x=1.0), "b": part("b", "2026-01-01", y=2.0)})
    assert report["figures"] == {"x": 1.0, "y": 2.0}
    assert report["versions"] == {"torch": "2026-01-02"}
    assert report["sources"] == {"a": "digest of a", "b": "digest of b"}


def test_a_part_measured_again_replaces_the_old_one_and_leaves_the_others() -> None:
    report = merged({}, {"a": part("a", x=1.0, gone=3.0), "b": part("b", y=2.0)})
    again = merged(report, {"a": part("a", "2026-02-01", x=5.0)})
    assert again["figures"] == {"x": 5.0, "y": 2.0}
    assert again["parts"]["b"] == report["parts"]["b"]


def test_parts_of_two_gpus_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a report of one GPU or processor, got parts of A and B"):
        merged({"parts": {"a": part("a")}}, {"b": part("b", gpu="B")})


def test_a_part_measured_with_other_sources_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("_results.part_digest", lambda part: "digest of a")
    assert stale_parts({"a": part("a"), "b": part("b")}) == ["b"]


@pytest.mark.parametrize("file", ["normal/op.cpp", "normal/op.cu", "normal/op.py", "philox.h", "common.cuh"])
def test_the_digest_changes_with_what_shapes_the_speed(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    assert (KERNELS / file).is_file()
    before, read = kernel_digest("normal"), Path.read_bytes
    monkeypatch.setattr(
        Path, "read_bytes", lambda path: read(path) + (b" " if path == KERNELS / file else b"")
    )
    assert kernel_digest("normal") != before


def test_the_digest_is_of_the_operators_named() -> None:
    assert kernel_digest("sigmoid") != kernel_digest("sigmoid", "vector_add")
    with pytest.raises(ValueError, match=r"expected an operator out of .*sigmoid.*, got 'sigmod'"):
        kernel_digest("sigmod")


def test_a_result_of_another_benchmark_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(part("operators")))
    with pytest.raises(ValueError, match="expected a result of sampling, found none"):
        read_result(path, "sampling")
    assert read_result(path, "operators")["figures"] == {}


def test_a_result_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text('{"benchmark": "sampling", "figures": {}}')
    with pytest.raises(ValueError, match="found none with device, machine, versions"):
        read_result(path, "sampling")


@pytest.mark.parametrize("text", ["[]", "{}", '{"parts": 3}', "3", "", "x", '{"parts": {"a": {}}}', "\xff"])
@pytest.mark.parametrize("of_parts", [True, False])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, of_parts: bool) -> None:
    path = tmp_path / "report.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=rf"^{path}: expected a re(port|sult)"):
        read_report(path, of_parts=of_parts)


def test_a_report_of_another_processor_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert open_report(path, "cpu") == {}
    report = merged({}, {"a": {**part("a"), "machine": machine()}})
    path.write_text(json.dumps(report))
    assert open_report(path, "cpu") == report
    assert read_report(path) == report
    with pytest.raises(ValueError, match=r"expected a report of scripts/cpu_report\.py, found none"):
        read_report(path, of_parts=False)
    other = {**machine(), "vectors": "AVX1024"}
    with pytest.raises(ValueError, match=r"one GPU or processor, got parts of .*, AVX1024"):
        merged(report, {"b": {**part("b"), "machine": other}})
    path.write_text(json.dumps(merged({}, {"a": {**part("a"), "machine": other}})))
    with pytest.raises(ValueError, match=r"found one of .*, AVX1024; name another with --out"):
        open_report(path, "cpu")
    path.write_text(json.dumps(merged({}, {"a": {**part("a"), "machine": {"processor": "Abacus"}}})))
    with pytest.raises(ValueError, match="found one of Abacus; name another with --out"):
        open_report(path, "cpu")
