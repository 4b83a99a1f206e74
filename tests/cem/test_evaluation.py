import pytest
import torch

from cem import CrossEntropyMethod, Evaluation

FITNESS = torch.zeros(6)


def queued(metrics, rates=()):
    search = CrossEntropyMethod([0.0], 1.0, 6, maximize=False)
    return search.snapshot(Evaluation(FITNESS, metrics, rates=rates))


def read(metrics, rates=(), seconds=2.0):
    return queued(metrics, rates).metrics(seconds)


def test_numbers_and_tensors_become_numbers_in_their_order_with_the_rates_after_them():
    found = read(
        {
            "stage": 1,
            "mean": torch.tensor(0.5, dtype=torch.float64, requires_grad=True),
            "games": torch.tensor(2**40 + 1),
            "one": torch.tensor([3]),
        },
        ["one", "stage"],
    )
    assert list(found.items()) == [
        *(
            ("stage", 1),
            ("mean", 0.5),
            ("games", 2**40 + 1),
            ("one", 3),
            ("one/s", 1.5),
            ("stage/s", 0.5),
        )
    ]
    assert [type(value) for value in found.values()] == [int, float, int, int, float, float]
    assert read({"lines": 1}, ["lines"], 0.0)["lines/s"] == pytest.approx(1e9)  # no time at all


def test_a_metric_keeps_the_value_it_had():
    total, metrics = torch.tensor(1), {"plain": 1}
    metrics["total"] = total
    later = queued(metrics)
    total += 5
    metrics["plain"] = 6
    assert later.ready
    assert later.metrics(1.0) == {"total": 1, "plain": 1}


def test_a_metric_with_the_name_of_a_rate_is_refused():
    with pytest.raises(ValueError, match="expected no metric x/s beside the rate of x"):
        Evaluation(FITNESS, {"x": 1, "x/s": 2}, rates=["x"])


@pytest.mark.parametrize("metric", [None, FITNESS])
def test_a_metric_that_is_no_number_is_named(metric):
    with pytest.raises(TypeError, match="expected a number for metric 'loss', got "):
        read({"loss": metric})
