"""Say which type a value has, and fail the test when it has another."""

from typing import TypeVar

from workflowlookup.runs.events import Cancelled, EndUnknown, Failed
from workflowlookup.runs.run import Run

T = TypeVar("T")


def not_none(value: T | None) -> T:
    assert value is not None
    return value


def instance_of(kind: type[T], value: object) -> T:
    assert isinstance(value, kind), value
    return value


def end_of(run: Run) -> Failed | EndUnknown | Cancelled:
    """How a run ended that did not complete."""
    assert run.end is not None
    return run.end


def failure_of(run: Run) -> Failed:
    return instance_of(Failed, run.end)
