"""How often a run of another system is asked about."""

import pytest

from workflowlookup.execution.call_runner import pause_before_poll


def questions(until: float, *, interval: float = 2.0, answered_in: float = 0.0) -> list[float]:
    """When a run is asked about, from its beginning up to the first question after `until`."""
    pauses = [pause_before_poll(0.0, 0.0, interval)]
    while pauses[-1] <= until:
        pauses.append(pauses[-1] + answered_in + pause_before_poll(pauses[-1], answered_in, interval))
    return pauses


@pytest.mark.parametrize("answered_in", [0.0, 0.003, 0.012])
@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.0999, 0.1, 0.126, 0.5, 3.0, 7.9])
def test_a_run_is_asked_about_within_25_ms_of_its_end_or_5_percent_of_its_time(
    seconds: float, answered_in: float
) -> None:
    late = questions(seconds, answered_in=answered_in)[-1] - seconds

    assert late <= max(0.025, 0.05 * seconds) + 1e-9


@pytest.mark.parametrize("seconds", [39.0, 41.0, 600.0])
def test_a_long_run_is_asked_about_within_2_seconds_of_its_end(seconds: float) -> None:
    assert questions(seconds)[-1] - seconds <= 2.0


@pytest.mark.parametrize("answered_in", [0.0, 0.1])
def test_a_long_run_is_asked_about_at_the_pace_of_its_provider(answered_in: float) -> None:
    times = questions(60.0, interval=0.5, answered_in=answered_in)

    assert times[-1] - times[-101] == pytest.approx(100 * 0.5)


def test_a_run_of_two_seconds_is_asked_about_at_most_sixty_times() -> None:
    assert len(questions(2.0)) <= 60


@pytest.mark.parametrize("interval", [0.0, 2.0])
def test_a_slow_provider_is_polled_less_often(interval: float) -> None:
    assert pause_before_poll(60.0, 5.0, interval) == max(interval, 0.025) / 2
