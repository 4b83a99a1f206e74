import errno
import io
import json
import math
import os
from dataclasses import replace

import pytest
import torch

from cem import GenerationRecord, MetricsWriter, ProgressBar
from cem.callbacks import RunPlan


class Terminal(io.StringIO):
    def isatty(self):
        return True


def record(generation, best=1.0, **metrics):
    return GenerationRecord(generation, best, best, best / 2, best / 4, 0.1, 2.0, 2.0 * generation, metrics)


def write(path, generations, start=0):
    writer = MetricsWriter(path)
    writer.on_start(RunPlan(start, None, None))
    for generation in generations:
        writer.on_generation(record(generation, games=generation * 10))
    writer.on_end()


def generations(path):
    return [json.loads(line)["generation"] for line in path.read_text().splitlines()]


class TestMetricsWriter:
    def test_a_line_holds_the_record_and_the_metrics(self, tmp_path):
        write(tmp_path / "m.jsonl", [1])
        assert json.loads((tmp_path / "m.jsonl").read_text()) == {
            "generation": 1,
            "best_fitness": 1.0,
            "generation_best": 1.0,
            "elite_mean": 0.5,
            "elite_threshold": 0.25,
            "std_mean": 0.1,
            "seconds": 2.0,
            "elapsed_s": 2.0,
            "games": 10,
        }

    def test_a_line_ends_with_the_distribution_where_that_is_asked_for(self, tmp_path):
        distribution = (torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.0]))
        told = replace(record(1), distribution=distribution)
        for asked, name in ((True, "with.jsonl"), (False, "without.jsonl")):
            writer = MetricsWriter(tmp_path / name, distribution=asked)
            writer.on_start(RunPlan(0, None, None))
            writer.on_generation(told)
            writer.on_end()
        plain, whole = (json.loads((tmp_path / f"{name}.jsonl").read_text()) for name in ("without", "with"))
        assert whole == {**plain, "mean": [1.0, -2.0], "std": [0.5, 0.0]}

    def test_a_resumed_run_cuts_off_what_it_will_write_again(self, tmp_path):
        write(tmp_path / "m.jsonl", [1, 2, 3, 4, 5])
        write(tmp_path / "m.jsonl", [4, 5, 6], start=3)
        assert generations(tmp_path / "m.jsonl") == [1, 2, 3, 4, 5, 6]

    @pytest.mark.parametrize("torn", ['{"generation": 3, "be', "\xff"])
    def test_a_torn_last_line_is_dropped(self, tmp_path, torn, recwarn):
        write(tmp_path / "m.jsonl", [1, 2])
        with (tmp_path / "m.jsonl").open("a", encoding="latin-1") as file:
            file.write(torn)
        write(tmp_path / "m.jsonl", [3], start=2)
        assert generations(tmp_path / "m.jsonl") == [1, 2, 3]
        assert [path.name for path in tmp_path.iterdir()] == ["m.jsonl"]
        assert not recwarn.list

    @pytest.mark.parametrize("line", ["[]", '{"generation": 2, "be', '{"generation": 9}'])
    def test_of_a_damaged_file_all_readable_lines_are_kept(self, tmp_path, line):
        path = tmp_path / "m.jsonl"
        write(path, [1, 2, 3, 4, 5, 6])
        lines = path.read_text().splitlines()
        damaged = "\n".join([lines[0], line, *lines[2:], ""]).encode("latin-1")
        path.write_bytes(damaged)
        with pytest.warns(RuntimeWarning) as told:
            write(path, [6], start=5)
        assert generations(path) == [1, 3, 4, 5, 6]
        aside = tmp_path / "m.jsonl.damaged"
        assert aside.read_bytes() == damaged
        (warning,) = told
        assert str(warning.message) == f"{path}: line 2 is damaged; the old file is {aside}"

    def test_a_link_is_not_written_through(self, tmp_path):
        (tmp_path / "m.jsonl").symlink_to("mine")
        with pytest.raises(OSError, match=r"of its own, got a link: '.*/m\.jsonl'"):
            write(tmp_path / "m.jsonl", [1])
        assert not (tmp_path / "mine").exists()

    def test_a_file_that_is_gone_is_warned_of(self, tmp_path):
        with pytest.warns(RuntimeWarning, match="m.jsonl: the lines after generation 0 are missing"):
            write(tmp_path / "m.jsonl", [8], start=7)
        assert generations(tmp_path / "m.jsonl") == [8]

    def test_numbers_that_json_has_not_become_null(self, tmp_path):
        writer = MetricsWriter(tmp_path / "m.jsonl")
        writer.on_start(RunPlan(0, None, None))
        writer.on_generation(record(1, best=math.inf, rate=math.nan))
        writer.on_end()

        def refuse(constant):
            raise AssertionError(constant)

        line = json.loads((tmp_path / "m.jsonl").read_text(), parse_constant=refuse)
        assert line["best_fitness"] is None
        assert line["rate"] is None

    def test_a_full_disk_leaves_whole_lines_and_names_the_file(self, tmp_path, monkeypatch):
        writer = MetricsWriter(tmp_path / "m.jsonl")
        writer.on_start(RunPlan(0, None, None))
        writer.on_generation(record(1))
        real_write, calls = os.write, []

        def write_half(descriptor, data):
            calls.append(len(data))
            if len(calls) == 1:
                return real_write(descriptor, data[:7])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", write_half)
        with pytest.raises(OSError, match=r"No space left on device: '.*m.jsonl'"):
            writer.on_generation(record(2))
        monkeypatch.undo()
        assert generations(tmp_path / "m.jsonl") == [1]
        writer.on_generation(record(2))
        writer.on_end()
        assert generations(tmp_path / "m.jsonl") == [1, 2]

    def test_a_checkpoint_waits_for_the_disk(self, tmp_path, monkeypatch):
        writer = MetricsWriter(tmp_path / "m.jsonl")
        writer.on_start(RunPlan(0, None, None))
        synchronised = []
        monkeypatch.setattr(os, "fsync", lambda descriptor: synchronised.append(os.fstat(descriptor).st_ino))
        writer.on_checkpoint(1, {})
        writer.on_end()
        assert synchronised == [(tmp_path / "m.jsonl").stat().st_ino]

    def test_a_metric_with_the_name_of_a_field_is_refused(self):
        with pytest.raises(ValueError, match="expected metrics under names of their own, got seconds"):
            record(1, seconds=3.0).as_dict()


class TestProgressBar:
    def play(self, file, plan, count, every=1, **options):
        bar = ProgressBar(("lines/s",), file=file, **options)
        bar.on_start(plan)
        for generation in range(plan.generation + every, plan.generation + count + 1, every):
            bar.on_generation(record(generation, best=1234.5, **{"lines/s": 12_345_678.0, "other": 1.0}))
        bar.on_end()
        return file.getvalue()

    def test_a_log_gets_the_first_line_and_the_last(self):
        lines = self.play(io.StringIO(), RunPlan(0, 20, None), 20).splitlines()
        assert lines == [
            "generation 1/20, best 1234.5, elites 617.25, 12.3M lines/s",
            "generation 20/20, best 1234.5, elites 617.25, 12.3M lines/s, 00:00 left",
        ]

    def test_a_log_gets_a_line_whenever_one_is_due(self):
        text = self.play(io.StringIO(), RunPlan(3, None, None), 4, interval_s=0.0)
        assert [line.split(",")[0] for line in text.splitlines()] == [f"generation {g}" for g in (4, 5, 6, 7)]
        assert "left" not in text

    def test_the_time_left_is_the_nearer_of_the_two_ends(self):
        assert "00:09 left" in self.play(io.StringIO(), RunPlan(0, 20, 10.0), 1)
        assert "00:02 left" in self.play(io.StringIO(), RunPlan(0, 3, 10.0), 2, interval_s=0.0)

    def test_the_time_left_weighs_generations_by_what_they_cost(self):
        plan = RunPlan(0, 10, None, (1.0,) * 5 + (3.0,) * 5)
        # 2 s a generation; the first of a run says nothing of the others.
        assert "left" not in self.play(io.StringIO(), plan, 1)
        assert "00:30 left" in self.play(io.StringIO(), plan, 5, interval_s=0.0).splitlines()[-1]

    def test_a_long_generation_gets_a_line_in_a_log_when_it_is_asked_for_one(self):
        file = io.StringIO()
        bar = ProgressBar(file=file, interval_s=0.0)
        bar.on_start(RunPlan(4, 20, None))
        bar.tick()
        assert file.getvalue() == "generation 5/20 goes on, 0 s so far\n"

    def test_a_terminal_gets_a_bar(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        text = self.play(Terminal(), RunPlan(2, 10, None), 3)
        assert "\r" in text
        last = text.split("\r")[-1]
        assert "5/10" in last
        assert "best 1234.5, elites 617.25, 12.3M lines/s" in last

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
