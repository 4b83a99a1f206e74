import pytest
import torch

from cem import Evaluation
from cem.evaluation import Metrics

FITNESS = torch.zeros(6)


def read(metrics, rates=(), seconds=2.0):
    return Metrics(Evaluation(FITNESS, metrics, rates=rates)).read(seconds)


def test_numbers_and_tensors_become_numbers_in_their_order():
    found = read(
        {
            "stage": 1,
            "mean": torch.tensor(0.5, dtype=torch.float64),
            "games": torch.tensor(2**40 + 1),
            "one": torch.tensor([3]),
            "share": 0.25,
            "grown": torch.tensor(1.5, requires_grad=True),
        }
    )
    assert list(found.items()) == [
        *(("stage", 1), ("mean", 0.5), ("games", 2**40 + 1), ("one", 3), ("share", 0.25), ("grown", 1.5))
    ]
    assert [type(value) for value in found.values()] == [int, float, int, int, float, float]


def test_what_is_counted_is_recorded_per_second_too_after_the_metrics():
    found = read(
        {"lines": torch.tensor(7), "games": torch.tensor(3), "decisions": 10}, ["decisions", "lines"]
    )
    assert list(found.items()) == [
        *(("lines", 7), ("games", 3), ("decisions", 10), ("decisions/s", 5.0), ("lines/s", 3.5))
    ]


def test_a_generation_of_no_time_at_all_has_finite_rates():
    assert read({"lines": 1}, ["lines"], 0.0)["lines/s"] == pytest.approx(1e9)


def test_a_metric_keeps_the_value_it_had():
    total, metrics = torch.tensor(1), {"total": None, "plain": 1}
    metrics["total"] = total
    later = Metrics(Evaluation(FITNESS, metrics))
    total += 5
    metrics["plain"] = 6
    assert later.ready
    assert later.read(1.0) == {"total": 1, "plain": 1}


@pytest.mark.parametrize(
    ("metrics", "rates", "message"),
    [
        ({"x": torch.zeros(2)}, (), r"expected the metric x as one number, got a tensor of shape \(2,\)"),
        ({"x": 1, "y": 2}, ["z"], "expected rates of metrics out of x, y, got 'z'"),
        ({"x": 1, "x/s": 2}, ["x"], "expected no metric x/s beside the rate of x"),
    ],
)
def test_metrics_that_cannot_be_recorded_are_refused(metrics, rates, message):
    with pytest.raises(ValueError, match=message):
        Evaluation(FITNESS, metrics, rates=rates)
