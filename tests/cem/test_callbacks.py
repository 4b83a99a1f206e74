import errno
import io
import json
import math
import os

import pytest
import torch

from cem import GenerationRecord, MetricsWriter, ProgressBar
from cem.run.callbacks import RunPlan
from cem.search.history import parse_record


class Terminal(io.StringIO):
    def isatty(self):
        return True


def record(generation, best=1.0, mean=None, std=None, **metrics):
    seconds = 2.0, 2.0 * generation
    return GenerationRecord(
        generation, best, best, best / 2, best / 4, 0.1, *seconds, mean, std, metrics
    )


def write(path, *records, start=0, **options):
    writer = MetricsWriter(path, **options)
    writer.on_start(RunPlan(start, None, None))
    for each in records:
        writer.on_generation(record(each) if isinstance(each, int) else each)
    writer.on_end()


def generations(path):
    return [json.loads(line)["generation"] for line in path.read_text().splitlines()]


class TestMetricsWriter:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "m.jsonl"

    def test_a_line_holds_the_record_the_metrics_and_the_distribution_if_asked_for(self, path):
        whole = record(
            1, mean=torch.tensor([1.0, -2.0]), std=torch.tensor([0.5, 0.0]), games=10
        )
        write(path, whole)
        plain = {
            **{"generation": 1, "best_fitness": 1.0, "generation_best": 1.0, "elite_mean": 0.5},
            **{
                "elite_threshold": 0.25,
                "std_mean": 0.1,
                "seconds": 2.0,
                "elapsed_s": 2.0,
                "games": 10,
            },
        }
        assert json.loads(path.read_text()) == plain
        write(path, whole, distribution=True)
        assert json.loads(path.read_text()) == {**plain, "mean": [1.0, -2.0], "std": [0.5, 0.0]}

    def test_the_mean_is_within_bounds_and_a_resumed_search_gets_that_before_them(self, path):
        whole = record(1, mean=torch.tensor([4.5]), std=torch.ones(1))
        whole.box = torch.zeros(1), torch.ones(1)
        write(path, whole, distribution=True)
        line = json.loads(path.read_text())
        assert line["mean"] == whole.mean.tolist() < [1.0]
        assert parse_record(line, {}).unbounded_mean.tolist() == [4.5]

    def test_a_resumed_run_cuts_off_what_it_will_write_again(self, path):
        write(path, 1, 2, 3, 4, 5)
        write(path, 4, 5, 6, start=3)
        assert generations(path) == [1, 2, 3, 4, 5, 6]

    @pytest.mark.parametrize("torn", ['{"generation": 3, "be', "\xff"])
    def test_a_torn_last_line_is_dropped(self, path, torn, recwarn):
        write(path, 1, 2)
        with path.open("a", encoding="latin-1") as file:
            file.write(torn)
        write(path, 3, start=2)
        assert generations(path) == [1, 2, 3]
        assert list(path.parent.iterdir()) == [path]
        assert not recwarn.list

    def test_a_damaged_line_before_is_an_error_that_names_it(self, path):
        write(path, 1, 2, 3)
        path.write_text(path.read_text().replace('"generation": 2', '"gen'))
        before = path.read_bytes()
        with pytest.raises(ValueError, match=r"m\.jsonl: line 2 is damaged"):
            write(path, 4, start=3)
        assert path.read_bytes() == before

    def test_numbers_that_json_has_not_become_null(self, path):
        write(path, record(1, best=math.inf, rate=math.nan))
        line = json.loads(path.read_text(), parse_constant=pytest.fail)
        assert line["best_fitness"] is line["rate"] is None

    def test_a_checkpoint_brings_the_lines_before_it_to_the_disk(self, path, monkeypatch):
        writer = MetricsWriter(path)
        writer.on_start(RunPlan(0, None, None))
        synchronised = []
        monkeypatch.setattr(
            os, "fsync", lambda descriptor: synchronised.append(os.fstat(descriptor).st_ino)
        )
        writer.on_checkpoint(1, {})
        writer.on_end()
        assert synchronised == [path.stat().st_ino]


class TestProgressBar:
    def play(self, file, plan, count, **options):
        bar = ProgressBar(("lines/s",), file=file, **options)
        bar.on_start(plan)
        for generation in range(plan.generation + 1, plan.generation + count + 1):
            bar.on_generation(
                record(generation, best=1234.5, **{"lines/s": 12_345_678.0, "other": 1.0})
            )
        bar.on_end()
        return file.getvalue()

    def test_a_log_gets_the_first_line_and_the_last(self):
        lines = self.play(io.StringIO(), RunPlan(0, 20, None), 20).splitlines()
        assert lines == [
            "generation 1/20, best 1234.5, elites 617.25, 12.3M lines/s",
            "generation 20/20, best 1234.5, elites 617.25, 12.3M lines/s, 00:00 left",
        ]

    def test_the_time_left_is_the_nearer_of_the_two_ends_and_weighs_generations_by_their_costs(
        self,
    ):
        assert "00:09 left" in self.play(io.StringIO(), RunPlan(0, 20, 10.0), 1)
        assert "00:02 left" in self.play(io.StringIO(), RunPlan(0, 3, 10.0), 2, interval_s=0.0)
        plan = RunPlan(0, 10, None, (1.0,) * 5 + (3.0,) * 5)
        # 2 s per generation; the first of a run says nothing of the others.
        assert "left" not in self.play(io.StringIO(), plan, 1)
        assert (
            "00:30 left" in self.play(io.StringIO(), plan, 5, interval_s=0.0).splitlines()[-1]
        )

    def test_generations_without_costs_do_not_end_a_run(self):
        plan = RunPlan(0, 10, 10.0, (0.0,) * 10)
        assert "00:09 left" in self.play(io.StringIO(), plan, 2, interval_s=0.0)

    def test_a_long_generation_gets_a_line_in_a_log_when_it_is_asked_for_one(self):
        file = io.StringIO()
        bar = ProgressBar(file=file, interval_s=0.0)
        bar.on_start(RunPlan(4, 20, None))
        bar.tick()
        assert file.getvalue() == "generation 5/20 goes on, 0 s so far\n"
        bar = ProgressBar(file=file)
        bar.on_start(RunPlan(5, 20, None))
        bar.tick()  # less than ten seconds later
        assert file.getvalue().count("\n") == 1

    def test_a_terminal_gets_a_bar(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        text = self.play(Terminal(), RunPlan(2, 10, None), 3)
        assert "\r" in text
        assert "5/10" in text.split("\r")[-1]
        assert "best 1234.5, elites 617.25, 12.3M lines/s" in text.split("\r")[-1]

    @pytest.mark.parametrize("kind", [io.StringIO, Terminal])
    def test_a_terminal_that_was_closed_does_not_end_the_run(self, monkeypatch, kind):
        class Closed(kind):
            def write(self, text):
                raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setenv("TERM", "xterm")
        bar = ProgressBar(file=Closed(), interval_s=0.0)
        bar.on_start(RunPlan(0, 2, None))
        bar.on_generation(record(1))
        bar.tick()
        bar.on_end()
