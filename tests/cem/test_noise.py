import pytest

from cem import describe_noise, parse_noise
from cem.noise import ConstantNoise, HyperbolicNoise, LinearNoise, NoNoise


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (NoNoise(), [0, 0, 0]),
        (ConstantNoise(4.0), [4, 4, 4]),
        (LinearNoise(5.0, 10.0), [5, 4.5, 0]),  # Szita & Lorincz 2006: max(5 - t / 10, 0)
        (HyperbolicNoise(20.0), [20, 20 / 6, 20 / 61]),
    ],
)
def test_schedules_follow_their_formula_at_generations_0_5_and_60(schedule, expected):
    assert [schedule(t) for t in (0, 5, 60)] == pytest.approx(expected, abs=0)


def test_linear_noise_reaches_zero_exactly_and_stays():
    noise = LinearNoise(5.0, 10.0)
    assert noise(49) > 0
    assert [noise(50), noise(51), noise(10**9)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("none", NoNoise()),
        ("constant:2.5", ConstantNoise(2.5)),
        ("linear", LinearNoise(5.0, 10.0)),
        (" Linear:1e-2,30 ", LinearNoise(0.01, 30.0)),
        ("hyperbolic:3", HyperbolicNoise(3.0)),
    ],
)
def test_text_names_a_schedule(text, schedule):
    assert parse_noise(text) == schedule


@pytest.mark.parametrize(
    "schedule", [NoNoise(), ConstantNoise(0.1), LinearNoise(1 / 3, 7), HyperbolicNoise(2)]
)
def test_description_reads_back_as_the_same_schedule(schedule):
    assert parse_noise(describe_noise(schedule)) == schedule


@pytest.mark.parametrize("text", ["", "linear:5,10,3", "constant:x"])
def test_text_that_names_no_schedule_is_refused_with_the_known_forms(text):
    with pytest.raises(ValueError, match=r"expected a noise schedule of the form none, constant:A.*got"):
        parse_noise(text)


def test_the_schedule_that_was_meant_is_named():
    with pytest.raises(ValueError, match=r"got 'linar:5,10'; did you mean 'linear'\?"):
        parse_noise("linar:5,10")


@pytest.mark.parametrize("a", [-1.0, float("nan")])
def test_a_variance_that_is_none_is_refused(a):
    with pytest.raises(ValueError, match=r"expected a of the noise finite and >= 0, got"):
        ConstantNoise(a)


def quartered(generation):
    return 0.25


def test_a_custom_schedule_is_described_by_its_qualified_name():
    assert describe_noise(quartered).endswith(".quartered")
