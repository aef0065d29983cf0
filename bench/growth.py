"""How the cost of one `workflow_next` grows with the document and with what is completed: documents and questions.

A walk of n steps asks n times and sends up to n ids each time, so that a call may cost no more than linearly in them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from client import Peer, Request, direct_calls

SMALL: Final = "small document, 8 steps"
LONG: Final = "500 steps"
TEMPLATES: Final = "500 steps with templates"
LOOPS: Final = "nested loops, 10 x 10 iterations"
MANY: Final = "nested loops, 10 x 1,000 iterations"

CONTEXT: Final[dict[str, Any]] = {
    "ticket": {"id": "T-1", "title": "Fix the parser"},
    "files": [f"src/module_{number}.py" for number in range(10)],
    "taskScope": "large",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One document, and how much of it is completed."""

    label: str
    completed: int
    question: Request


def documents() -> list[dict[str, Any]]:
    """A small document, long ones, and loops in loops."""
    plain = "Read the code before you propose anything, and note the files that you opened."
    filled = "Work on {{ticket.id}} ({{ticket.title}}), beginning with {{files.0}}. " + plain
    return [
        _document("growth-small", [_step(number, plain) for number in range(8)]),
        _document("growth-long", [_step(number, plain) for number in range(500)]),
        _document("growth-templates", [_step(number, filled) for number in range(500)]),
        _document("growth-loops", [_loop("outer", 10, [_loop("inner", 10, [_step(0, filled)])])]),
        _document("growth-many", [_loop("outer", 10, [_loop("inner", 1000, [_step(0, plain)])])]),
    ]


def points() -> list[Point]:
    """What is measured, in the order of the table."""
    long = [f"step-{number}" for number in range(500)]
    loops = [f"step-0@{outer}.{inner}" for outer in range(1, 11) for inner in range(1, 11)]
    many = [f"step-0@{outer}.{inner}" for outer in range(1, 11) for inner in range(1, 1001)]
    return [
        _point(SMALL, "growth-small", long[:4]),
        *(_point(LONG, "growth-long", long[:count]) for count in (0, 125, 250, 499)),
        *(_point(TEMPLATES, "growth-templates", long[:count]) for count in (0, 250, 499)),
        *(_point(LOOPS, "growth-loops", loops[:count]) for count in (0, 50, 99)),
        *(_point(MANY, "growth-many", many[:count]) for count in (0, 1_250, 2_500, 5_000, 9_999)),
    ]


def measure(peer: Peer, rounds: int, calls: int, seconds: float) -> dict[str, dict[int, list[float]]]:
    """Microseconds of a call, the middle of each round; the points take turns."""
    times: dict[str, dict[int, list[float]]] = {}
    for number in range(rounds + 1):
        for point in points():
            pace = peer.pace(point.question, calls, seconds)
            if number:  # the first round only warms up
                times.setdefault(point.label, {}).setdefault(point.completed, []).append(pace.p50_us)
    return times


def _point(label: str, workflow: str, completed: Sequence[str]) -> Point:
    arguments = {"workflowId": workflow, "completedSteps": completed, "context": CONTEXT}
    return Point(label=label, completed=len(completed), question=direct_calls("workflow_next", [arguments]))


def _document(identifier: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": identifier,
        "name": identifier,
        "description": "A document to measure how the cost of a call grows.",
        "version": "1.0.0",
        "steps": steps,
    }


def _step(number: int, prompt: str) -> dict[str, Any]:
    step: dict[str, Any] = {"id": f"step-{number}", "title": f"Step {number}", "prompt": prompt}
    if number % 10 == 9:
        step["runCondition"] = {"var": "taskScope", "equals": "large"}
    return step


def _loop(identifier: str, count: int, body: list[dict[str, Any]]) -> dict[str, Any]:
    loop = {"type": "for", "count": count, "maxIterations": count, "iterationVar": f"{identifier}Round"}
    return {"id": identifier, "type": "loop", "title": identifier, "loop": loop, "body": body}
