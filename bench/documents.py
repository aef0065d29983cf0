"""Realistic workflow documents for the benchmark, the same ones every time.

A document has 6 to 10 steps and 3 to 6 KB of indented JSON: prompts of a few sentences, conditions on some
steps, criteria on most.
"""

import json
from pathlib import Path
from random import Random
from typing import Any, Final

Document = dict[str, Any]

CONTEXT: Final[dict[str, Any]] = {"taskScope": "large", "userExpertise": "expert", "complexity": 0.8}
"""A context in which the generated conditions have something to decide."""

OUTPUT: Final = (
    "Summary: the change is limited to the request parser and its two callers. "
    "Evidence: the failing test passes, the whole suite is green, and the log shows no retries. "
    "Risk: a client that relies on the old, lenient date format is refused from now on. "
    "Next: announce the stricter format and remove the fallback in the following release."
)
"""A step's output that meets the generated criteria."""

_SUBJECTS: Final = ("parser", "login", "invoice", "search", "import", "cache", "schedule", "upload", "report")
_TASKS: Final = ("review", "migration", "refactoring", "investigation", "release", "hardening", "rollout", "audit")
_PHASES: Final = (
    "Understand the request",
    "Map the code",
    "Reproduce the behaviour",
    "List the hypotheses",
    "Choose an approach",
    "Write the failing test",
    "Make the change",
    "Check the edges",
    "Measure the effect",
    "Write the summary",
)
_SENTENCES: Final = (
    "Read the {subject} code before you propose anything, and note the files that you opened.",
    "Name the assumption that would hurt most if it were wrong, and say how you would find out.",
    "Keep every change to the {subject} small enough to be reviewed in one sitting.",
    "Quote the exact message, the line and the input that led to it.",
    "Ask the user when two readings of the {task} are possible; do not choose silently.",
    "Compare at least two approaches by cost, risk and how easily each can be undone.",
    "Run the tests that touch the {subject} and report the ones that you did not run.",
    "Leave generated files and unrelated formatting alone.",
    "State what you verified yourself and what you only believe.",
)
_CONDITIONS: Final[tuple[Document, ...]] = (
    {"var": "taskScope", "equals": "large"},
    {"var": "complexity", "gte": 0.5},
    {"not": {"var": "userExpertise", "equals": "novice"}},
    {"and": [{"var": "taskScope", "not_equals": "small"}, {"var": "complexity", "gt": 0.2}]},
    {"or": [{"var": "taskScope", "equals": "small"}, {"var": "complexity", "lt": 0.3}]},
)
_RULES: Final[tuple[Document, ...]] = (
    {"type": "contains", "value": "Evidence", "message": "Give the evidence for what you claim"},
    {"type": "regex", "pattern": "\\b(risk|impact)\\b", "flags": "i", "message": "Say what is at risk"},
    {"type": "length", "min": 80, "max": 4000, "message": "Write between 80 and 4000 characters"},
    {"type": "contains", "value": "Next", "condition": _CONDITIONS[0], "message": "Large tasks need a next action"},
)


def document(number: int) -> Document:
    """The document with this number; the same number gives the same document."""
    random = Random(number)
    subject, task = random.choice(_SUBJECTS), random.choice(_TASKS)
    phases = sorted(random.sample(range(len(_PHASES)), random.randint(6, 10)))
    return {
        "id": f"{subject}-{task}-{number:05}",
        "name": f"{subject.capitalize()} {task} {number}",
        "description": f"Leads an agent through the {task} of the {subject}, from the request to a checked result.",
        "version": f"1.{number % 10}.0",
        "category": random.choice(("development", "review", "operations")),
        "preconditions": [f"The {subject} builds and its tests can be run"],
        "clarificationPrompts": [f"What must not change in the {subject}?", f"Who decides that the {task} is done?"],
        "metaGuidance": ["One step at a time", "Facts before opinions"],
        "steps": [_step(random, position, phase, subject, task) for position, phase in enumerate(phases)],
    }


def _step(random: Random, position: int, phase: int, subject: str, task: str) -> Document:
    sentences = random.sample(_SENTENCES, random.randint(1, 3))
    step: Document = {
        "id": f"phase-{phase}-" + _PHASES[phase].lower().replace(" ", "-"),
        "title": _PHASES[phase],
        "prompt": " ".join(sentences).format(subject=subject, task=task),
    }
    if position and random.random() < 0.4:
        step["runCondition"] = random.choice(_CONDITIONS)
    if random.random() < 0.2:
        step["requireConfirmation"] = True
    if position == 0 or random.random() < 0.45:
        rules = random.sample(_RULES, random.randint(1, 2))
        step["validationCriteria"] = rules if random.random() < 0.7 else {"and": rules}
    return step


def encode(content: Document) -> str:
    """The document as an author would keep it: indented JSON."""
    return json.dumps(content, indent=2) + "\n"


def write(directory: Path, count: int) -> None:
    """Write `count` documents into `directory`, one file each."""
    directory.mkdir(parents=True)
    for number in range(count):
        content = document(number)
        (directory / f"{content['id']}.json").write_text(encode(content), encoding="utf-8")
