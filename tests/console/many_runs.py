"""2,000 runs over four weeks, made by a seed: loops of 100, refusals, questions, failures, cancellations and calls.

`python tests/console/many_runs.py JOURNAL` writes them to a journal, to look at them in the console.
"""

import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from console.story import DAY, HOUR, MINUTE, StoryClock, release
from support.json_values import Json
from support.make import document, loop, step
from support.narrowing import not_none
from workflowlookup.app import make_catalog
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.runs.run import Run
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.settings import read_settings
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

COUNT = 2_000
DAYS = 28
FILES = [f"src/part_{number // 10:02d}/module_{number:03d}.py" for number in range(100)]
BUNDLED = ("bug-investigation", "feature-implementation", "incident-review")
GOALS = (
    "Ship 2.4.0 before the conference",
    "The export loses umlauts",
    "Login takes nine seconds since Monday",
    "Upgrade the database driver",
    "Rename the settings of the cache",
    "Write the guide for administrators",
    "Remove the old importer",
)
AGENTS = ("claude-code", "codex", "gemini-cli")
REVIEW = document(
    step("plan", title="Read what changed", prompt="List the files that changed."),
    loop(
        "each-file",
        [
            step(
                "review",
                title="Review {{file}}",
                prompt="Review {{file}}.",
                validationCriteria=[{"type": "contains", "value": "reviewed", "message": "Say that it is reviewed."}],
            ),
        ],
        type="forEach",
        items="files",
        itemVar="file",
        maxIterations=100,
    )
    | {"title": "Review each file"},
    step("sum-up", title="Sum up what was found", prompt="Sum it up."),
    identifier="review-all",
    name="Review every file",
)
FILING = document(
    step("plan", title="Describe the problem", prompt="Describe it."),
    step(
        "file",
        title="File an issue",
        call={"server": "tracker", "tool": "create_issue", "arguments": {"title": "{{goal}}"}, "saveAs": "issue"},
    ),
    step("tell", title="Tell those who wait", prompt="Tell them."),
    identifier="filing",
    name="File an issue",
)


class Crowd:
    """Agents and people at work. Each run has a time of its own, so runs overlap."""

    def __init__(self, journal: SqliteJournal, now: int, seed: int) -> None:
        self.luck = random.Random(seed)
        self.clock = StoryClock(now)
        self.end = now
        self.runs = Runs(journal, clock=self.clock, new_id=lambda: f"{self.luck.getrandbits(48):012x}")

    def wait(self, minutes: float) -> None:
        """Never beyond the present."""
        passed = int(self.luck.lognormvariate(0, 0.5) * minutes * MINUTE)
        self.clock.now = min(self.clock.now + passed, self.end)

    def start(self, workflow: Workflow, **context: Json) -> Run:
        goal = self.luck.choice(GOALS)
        return self.runs.start(workflow, {"goal": goal}, context, by=self.luck.choice(AGENTS))

    def submit(self, run: Run, output: str, minutes: float = 3, **context: Json) -> Run:
        self.wait(minutes)
        return self.runs.submit(run.id, run.current, output, context, by=run.by)

    def answer(self, run: Run) -> Run:
        self.wait(40)
        if self.luck.random() < 0.8:
            return self.runs.confirm(run.id, run.current, how="console", note="Fine.", by="mira")
        return self.runs.deny(run.id, run.current, how="console", note="Wait for Monday.", by="mira")

    def stop(self, run: Run) -> Run:
        self.wait(20)
        return self.runs.cancel(run.id, "It is no longer needed.", by="mira")


def _release(crowd: Crowd, workflow: Workflow) -> Run:
    """A release: refused, asked for, denied, exhausted or published."""
    run, fate = crowd.start(workflow, isPublic=True, isBreaking=False), crowd.luck.random()
    if crowd.luck.random() < 0.3:
        run = crowd.submit(run, "Several things were improved.")
    run = crowd.submit(run, "- the console is new\n- 14 bugs are fixed")
    if fate < 0.05:
        return crowd.stop(run)
    for _ in range(4 if fate < 0.1 else crowd.luck.choice((0, 0, 1, 3 if fate > 0.95 else 0))):
        run = crowd.submit(run, "All fine.")
    if fate < 0.1 or fate > 0.95:
        return crowd.answer(run) if run.waiting_for == "confirmation" and fate > 0.02 else run
    run = crowd.submit(run, "$ make test\n1932 passed in 61.20s", platforms=["linux", "macos"])
    while run.waiting_for == "output":
        run = crowd.submit(run, "Tag v2.4.0 is ready to be pushed.")
        if run.is_over or run.waiting_for == "confirmation":
            break
    if run.waiting_for == "confirmation" and fate > 0.13:
        run = crowd.answer(run)
    return crowd.submit(run, "Posted to the list.") if run.waiting_for == "output" else run


def _review(crowd: Crowd, workflow: Workflow, files: Sequence[str], done: int) -> Run:
    """A review of files, of which some are done."""
    run = crowd.start(workflow, files=list(files))
    run = crowd.submit(run, f"{len(files)} files changed.")
    for number in range(done):
        if number % 12 == 11:
            run = crowd.submit(run, "Looks fine.", 0.3)
        run = crowd.submit(run, f"{files[number]} reviewed: nothing to complain about.", 0.5)
    return crowd.submit(run, "Two findings.") if done == len(files) else run


def _file(crowd: Crowd, workflow: Workflow) -> Run:
    """A call of the server: it ends, fails, or is under way."""
    run, fate = crowd.submit(crowd.start(workflow), "It loses umlauts."), crowd.luck.random()
    if fate < 0.03:
        return run
    crowd.runs.server_work.begin_call(run.id, "file")
    crowd.wait(1)
    if fate < 0.05:
        return run
    if fate < 0.12:
        failure = CallFailure(reason="The tracker answered 503.", is_final=True)
        return crowd.runs.server_work.fail_call(run.id, "file", failure)
    run = crowd.runs.server_work.finish_call(run.id, "file", "issue 12", {"number": 12})
    return crowd.submit(run, "Told them.")


def _any(crowd: Crowd, workflow: Workflow) -> Run:
    """A bundled workflow with whatever the agent writes: most are refused, and many are given up."""
    run = crowd.start(workflow)
    for _ in range(crowd.luck.choice((0, 1, 2, 3, 4))):
        if run.waiting_for == "output":
            run = crowd.submit(run, "Not reproduced. I tried three times on an idle machine.", 6)
    return run if run.is_over or crowd.luck.random() < 0.1 else crowd.stop(run)


def write_many_runs(
    place: Path, now: int, bundled: Sequence[Workflow], count: int = COUNT, seed: int = 19
) -> dict[str, str]:
    """The ids of some of them, by name."""
    journal = SqliteJournal(str(place))
    crowd = Crowd(journal, now, seed)
    old, new, review, filing = map(build, (release("1.0.0"), release("1.1.0"), REVIEW, FILING))
    kinds: tuple[Callable[[int], Run], ...] = (
        lambda age: _release(crowd, new if age < 12 * DAY else old),
        lambda age: _release(crowd, new if age < 12 * DAY else old),
        lambda _: _review(crowd, review, FILES[:3], crowd.luck.choice((3, 3, 3, 2))),
        lambda _: _file(crowd, filing),
        lambda _: _any(crowd, crowd.luck.choice(bundled)),
    )
    named: dict[str, str] = {}
    with not_none(journal.group()):
        for number in range(count - 4):
            age = int((1 - number / count) * DAYS * DAY) + crowd.luck.randrange(HOUR)
            crowd.clock.now = now - age
            crowd.luck.choice(kinds)(age)
        for name, done in {"half way": 61, "long": 100}.items():
            crowd.clock.now = now - 5 * HOUR
            named[name] = _review(crowd, review, FILES, done).id
        crowd.clock.now = now - 2 * HOUR
        run = crowd.submit(crowd.start(new, isPublic=False, isBreaking=False), "- 14 bugs are fixed")
        run = crowd.submit(run, "$ make test\n1932 passed in 61.20s", platforms=[])
        named["asks"] = crowd.submit(run, "Tag v2.4.0 is ready to be pushed.").id
        crowd.clock.now = now - 6 * MINUTE
        named["fresh"] = crowd.start(new, isPublic=True).id
    crowd.runs.close()
    return named


if __name__ == "__main__":
    catalog = make_catalog(read_settings({"project": "false"}, {}, directory="/"))
    names = write_many_runs(Path(sys.argv[1]), time.time_ns() // 1_000_000, [catalog.get(one) for one in BUNDLED])
    sys.stdout.write(f"{names}\n")
