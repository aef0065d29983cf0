"""The titles of a run and of its steps in lists: filled in, with the iteration, on one line."""

import re
from collections.abc import Mapping
from typing import Final

from workflowlookup.language.model import Workflow
from workflowlookup.language.navigation import LoopPosition, find_step
from workflowlookup.language.templates import as_words, filler
from workflowlookup.language.text import clip_line
from workflowlookup.language.values import Context, Json
from workflowlookup.runs.run import Run

MAX_TITLE: Final = 120
MAX_SUBJECT: Final = 200
MAX_ITEM: Final = 60
_MAIN_INPUTS: Final = ("goal", "task", "bug", "request", "subject", "title")
"""Inputs that say what a run is about; else the first input that is text does."""


def run_title(run: Run) -> str:
    """The title of the current step, as in "Review src/a.py, 61 of 100"; empty if there is none."""
    return step_title(run.workflow, run.current, run.scope, run.loop) if run.current else ""


def step_title(workflow: Workflow, step_id: str, scope: Context, loop: LoopPosition | None) -> str:
    """The title of a step or loop, with the item and number of its iteration."""
    step = find_step(workflow, step_id)
    if step is None:
        return ""
    title = clip_line(re.sub(r"\{\{[^{}]*\}\}", "…", filler(scope, {})(step.title)), MAX_TITLE)
    if loop is None:
        return title
    item = clip_line(as_words(loop.item), MAX_ITEM) if isinstance(loop.item, str | int | float) else ""
    of = f" of {loop.total}" if isinstance(loop.total, int) else ""
    number = f"{loop.iteration}{of}" if of else f"iteration {loop.iteration}"
    return ", ".join([title, *([item] if item and item not in title else []), number])


def subject_of(inputs: Mapping[str, Json]) -> str:
    """What a run is about: its main input on one line; empty if no input is text."""
    names = [*(name for name in _MAIN_INPUTS if name in inputs), *inputs]
    texts = (inputs[name] for name in names)
    return clip_line(next((text for text in texts if isinstance(text, str) and text.strip()), ""), MAX_SUBJECT)
