import pytest

from cem import describe_variance_schedule, parse_variance_schedule
from cem.core.variance_schedule import NamedSchedule, extend_table


@pytest.mark.parametrize(
    ("text", "schedule", "expected"),
    [
        ("none", NamedSchedule(), [0, 0, 0, 0]),
        ("constant:2.5", NamedSchedule("constant", (2.5,)), [2.5, 2.5, 2.5, 2.5]),
        (
            "linear",
            NamedSchedule("linear", (5.0, 10.0)),
            [5, 4.5, 0, 0],
        ),  # Szita & Lorincz 2006: max(5 - t / 10, 0)
        (" Linear:1e-2,30 ", NamedSchedule("linear", (0.01, 30.0)), [0.01, 0, 0, 0]),
        (
            "hyperbolic:3",
            NamedSchedule("hyperbolic", (3.0,)),
            [3, 3 / 6, 3 / 51, 3 / (10**9 + 1)],
        ),
    ],
)
def test_text_names_a_schedule_that_follows_its_formula(text, schedule, expected):
    assert (
        parse_variance_schedule(text)
        == parse_variance_schedule(describe_variance_schedule(schedule))
        == schedule
    )
    assert [schedule(t) for t in (0, 5, 50, 10**9)] == pytest.approx(expected, abs=0)


@pytest.mark.parametrize("text", ["", "linear:5,10,3", "constant:x"])
def test_text_that_names_no_schedule_is_refused_with_the_known_forms(text):
    with pytest.raises(
        ValueError, match=r"expected a schedule of the form none, constant:A.*got"
    ):
        parse_variance_schedule(text)


def test_a_variance_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"expected A finite and >= 0, got"):
        NamedSchedule("constant", (-1.0,))


def test_a_custom_schedule_is_described_by_its_qualified_name():
    assert describe_variance_schedule(parse_variance_schedule).endswith(
        ".parse_variance_schedule"
    )


def test_a_constant_variance_is_that_of_all_generations():
    assert extend_table([], NamedSchedule("constant", (2.5,)), 3) == [2.5]  # the last one holds
