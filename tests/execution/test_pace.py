"""How often a run of another system is asked about."""

import pytest

from workflowlookup.execution.calls import pause_before_asking


def questions(until, interval, answered_in=0.0):
    """The moments of the questions about a run up to the first one after `until`."""
    asked = [pause_before_asking(0.0, interval)]
    while asked[-1] <= until:
        waited = asked[-1] + answered_in
        asked.append(waited + pause_before_asking(waited, interval))
    return asked


@pytest.mark.parametrize("answered_in", [0.0, 0.003])
@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.1, 0.126, 0.5, 3.0, 7.9])
def test_the_end_of_a_run_is_heard_of_within_a_quarter_of_its_time_or_25_ms(seconds, answered_in):
    heard = questions(seconds, interval=2.0, answered_in=answered_in)[-1]

    assert heard - seconds <= max(0.025, 0.25 * seconds) + 2 * answered_in


def test_a_long_run_is_asked_about_at_the_pace_of_its_provider():
    asked = questions(60.0, interval=0.5)

    assert [round(after - before, 6) for before, after in zip(asked[-10:], asked[-9:], strict=False)] == [0.5] * 9


def test_a_run_of_two_seconds_is_asked_about_some_twenty_times():
    assert len(questions(2.0, interval=2.0)) <= 20


def test_no_provider_is_asked_without_a_pause():
    assert pause_before_asking(10.0, interval=0.0) == 0.025
