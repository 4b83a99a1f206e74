"""Searches on a GPU: the bits of the CPU, no waiting, and generations in a CUDA graph."""

import math

import pytest
import torch
from searches import KINDS, ON_A_GPU, bits, nobody_waits, sphere

from cem import CrossEntropyMethod, Evaluation, MetricsWriter, Trainer
from cem.core.graph import GenerationGraph
from cem.functional import ask, init, tell


def make(
    options="default", mean=(2.0, 2.0, 2.0, 2.0), population_size=48, device="cuda", **more
):
    settings = {"maximize": False, "seed": 3, **KINDS[options], **more}
    return CrossEntropyMethod(
        torch.tensor(mean), 1.0, population_size, device=device, **settings
    )


def step(search, objective=sphere):
    candidates = search.ask()
    search.tell(candidates, objective(candidates, search.generation))


def test_a_graph_is_refused_on_the_cpu():
    search = make(device="cpu", backend="cpu")
    with pytest.raises(
        ValueError, match="expected a search with backend 'cuda' for a CUDA graph, got 'cpu'"
    ):
        search.capture(sphere)
    with pytest.raises(ValueError, match="expected generations >= 1, got 0"):
        search.capture(sphere, 0)
    with pytest.raises(
        ValueError, match="expected a search with backend 'cuda' for a CUDA graph"
    ):
        Trainer(search, sphere, generations=1, graph=True).run()


class TestGraph:
    pytestmark = ON_A_GPU

    @pytest.mark.parametrize(
        ("options", "count"),
        [("default", 1), ("classic", 7), ("transform", 7), ("full paths", 7), ("cma", 7)],
    )
    def test_is_the_generations_one_by_one(self, options, count):
        eager, graph = make(options), make(options)
        graph.ask(9)
        captured = graph.capture(sphere, count)
        for _ in range(14 // count):
            captured()
        for _ in range(14):
            step(eager)
        assert graph.generation == eager.generation == 14
        assert bits(graph) == bits(eager)
        assert torch.equal(graph.ask(), eager.ask())
        assert torch.equal(graph.ask(9), eager.ask(9))

    def test_is_captured_on_the_gpu_of_the_search(self):
        searches = [make(device=f"cuda:{i}") for i in range(torch.cuda.device_count())]
        for search in searches:
            search.capture(sphere)()
            assert bits(search) == bits(searches[0])

    def test_refuses_an_objective_that_changes_its_argument_which_others_may(self):
        def changing(candidates, generation):
            return sphere(candidates.mul_(2), generation)

        eager, pure = make(), make()
        for _ in range(3):
            Trainer(eager, changing, generations=eager.generation + 1).run()
            step(pure, lambda candidates, generation: sphere(2 * candidates, generation))
        assert bits(eager) == bits(pure)
        with pytest.raises(
            ValueError, match="expected a function that leaves its arguments as they are"
        ):
            make().capture(changing)()

    def test_of_a_batch_with_metrics_and_other_candidates_is_the_generations_one_by_one(self):
        def objective(candidates, generation):
            repaired = candidates.round(decimals=1)
            return Evaluation(
                sphere(repaired), {"mean": repaired.mean(), "t": generation}, repaired
            )

        mean = torch.arange(12.0).view(3, 4).tolist()
        eager, graph = (make(mean=mean, seed=[1, 2, 3]) for _ in range(2))
        captured = graph.capture(objective, 3)
        captured()
        evaluation = captured()
        for _ in range(6):
            found = objective(eager.ask(), torch.tensor(eager.generation))
            eager.tell(found.candidates, found.fitness)
        assert bits(graph) == bits(eager)
        assert torch.equal(evaluation.fitness, found.fitness)
        assert torch.equal(evaluation.candidates, found.candidates)
        assert evaluation.metrics["t"].item() == 5
        assert evaluation.metrics["mean"].item() == found.metrics["mean"].item()

    def test_steps_may_be_mixed_with_generations_and_loading(self):
        eager, graph = make("classic"), make("classic")
        captured = graph.capture(sphere, 2)
        for search in (eager, graph):
            step(search)
        state = None
        for turn in range(120):  # beyond the first table of extra variances
            captured()
            step(eager)
            step(eager)
            if turn == 20:
                state = graph.state_dict()
            if turn == 60:
                for search in (eager, graph):
                    step(search)
            if turn == 80:
                for search in (eager, graph):
                    search.load_state_dict(state)
        assert bits(graph) == bits(eager)

    def test_a_replay_does_not_wait_and_a_failed_generation_is_reported_later(self):
        search = make()
        captured = search.capture(sphere, 2)
        captured()
        with nobody_waits():
            captured()
            search.snapshot()
        assert search.statistics()["best_fitness"] >= 0.0
        search = make()
        search.capture(lambda x, t: torch.full_like(x[:, 0], math.nan))()
        with pytest.warns(RuntimeWarning, match="all 48 candidates of generation 0 failed"):
            search.statistics()
        assert search.mean.tolist() == [2.0] * 4

    def test_a_state_of_its_own_is_moved_by_the_functions_graph(self):
        state = init(torch.full((5, 8), 2.0), 1.0, 32, maximize=False, seed=1, device="cuda")
        graph = GenerationGraph(state, sphere, count=4)
        kept = state.distribution.clone()
        once, twice = graph(state), graph(graph(state))
        torch.testing.assert_close(state.distribution, kept, rtol=0, atol=0, equal_nan=True)
        expected = state
        for generation in range(8):
            if generation == 4:
                assert torch.equal(once.distribution, expected.distribution)
            candidates, expected = ask(expected)
            expected = tell(expected, candidates, sphere(candidates))
        assert torch.equal(twice.distribution, expected.distribution)
        assert torch.equal(twice.record, expected.record)
        assert torch.equal(graph(state, replays=2).distribution, expected.distribution)
        assert graph.fits(twice)
        assert not graph.fits(twice._replace(seed=twice.seed.clone()))

    @pytest.mark.parametrize(("generations", "every", "lines"), [(30, 4, 8), (150, 1, 150)])
    def test_a_trainer_runs_it(self, tmp_path, generations, every, lines):
        outcomes = []
        for graph in (False, True):
            folder = tmp_path / str(graph)
            folder.mkdir()
            search = make("classic")
            result = Trainer(
                search,
                lambda x, t: Evaluation(sphere(x), {"worst": sphere(x).max()}),
                generations=generations,
                callbacks=[MetricsWriter(folder / "metrics.jsonl")],
                record_every=every,
                graph=graph,
            ).run()
            assert (result.reason, result.generation) == ("finished", generations)
            written = (folder / "metrics.jsonl").read_text().splitlines()
            figures = [
                line.split('"seconds"')[0] + line.split('"worst"')[1] for line in written
            ]
            outcomes.append((bits(search), figures))
        assert outcomes[0] == outcomes[1]
        assert len(outcomes[0][1]) == lines

    def test_one_that_ends_within_the_records_of_a_graph_has_the_state_of_its_last(self):
        searches = [make(), make()]
        for graph, search in enumerate(searches):

            def at_103(record):
                if record.generation == 103:
                    raise StopIteration

            trainer = Trainer(
                search, lambda x, t: sphere(x), callbacks=[at_103], graph=bool(graph)
            )
            assert trainer.run().generation == search.generation == 103
            step(search)
        assert bits(searches[0]) == bits(searches[1])


class TestOnAGpu:
    pytestmark = ON_A_GPU

    def test_ask_and_tell_do_not_wait(self):
        for options in ("classic", "transform", "full paths", "cma"):
            search = make(options)
            step(search)
            with nobody_waits():
                for _ in range(70):  # beyond the first table of extra variances
                    step(search)

    @pytest.mark.parametrize(
        ("options", "dtype"), [("default", torch.float64), ("classic", torch.float32)]
    )
    def test_a_search_has_the_bits_of_the_cpu(self, options, dtype):
        found, expected = make(options, dtype=dtype), make(options, dtype=dtype, device="cpu")
        for _ in range(20):
            candidates = expected.ask()
            torch.testing.assert_close(found.ask().cpu(), candidates, rtol=1e-5, atol=1e-5)
            fitness = sum((candidates[..., i] - i).abs() for i in range(4))
            fitness[3] = math.nan
            expected.tell(candidates, fitness)
            found.tell(candidates.cuda(), fitness.cuda())
            assert torch.equal(found.mean.cpu(), expected.mean)
            assert torch.equal(found.std.cpu(), expected.std)
            assert torch.equal(found.averaged_mean.cpu(), expected.averaged_mean)
