"""A library and a journal as a team would have them after some weeks, for tests and for the pictures in the docs."""

import random
from pathlib import Path

from support.clocks import FixedClock
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow
from workflowlookup.runs.run import Run
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR

CHANGES = [{"type": "contains", "value": "- ", "message": "List every change on a line that starts with '- '."}]
PASSED = [
    {"type": "contains", "value": "passed", "message": "Show the line of the test run that says how many passed."},
    {"type": "length", "min": 20, "message": "Say what was run, and where."},
]


def release(version: str) -> JsonObject:
    """Version 1.1.0 checks links too, and is stricter about tests."""
    links = step(
        "links",
        title="Follow every link",
        prompt="Open each link of the release notes.",
        runCondition={"var": "isPublic", "equals": True},
    )
    return document(
        step(
            "changes",
            title="Collect the changes",
            prompt="List what changed since the last tag.",
            validationCriteria=CHANGES,
        ),
        step(
            "tests",
            title="Run all tests",
            prompt="Run them, and quote the summary.",
            validationCriteria=PASSED,
            maxAttempts=4,
            whenExhausted="ask",
        ),
        step(
            "migration",
            title="Write the migration guide",
            prompt="Say what users must do.",
            runCondition={"var": "isBreaking", "equals": True},
        ),
        loop(
            "each-platform",
            [
                step(
                    "package",
                    title="Build and try the package",
                    prompt="Build it for {{platform}}, install it, start it.",
                )
            ],
            type="forEach",
            items="platforms",
            itemVar="platform",
        )
        | {"title": "On each platform"},
        *([links] if version != "1.0.0" else []),
        step("publish", title="Publish", prompt="Tag, push, publish.", requireConfirmation=True),
        step("announce", title="Announce it", prompt="Tell those who wait for it."),
        identifier="release",
        name="Release a version",
        description="From the list of changes to the announcement; a person agrees before anything is published.",
        version=version,
        category="delivery",
    )


class StoryClock(FixedClock):
    def pass_(self, milliseconds: float) -> None:
        self.now += int(milliseconds)


class Team:
    """Agents and people who run workflows, at a pace of their own."""

    def __init__(self, place: Path, now: int, seed: int = 7) -> None:
        self.clock = StoryClock(now)
        self.luck = random.Random(seed)
        self.runs = Runs(SqliteJournal(str(place)), clock=self.clock, new_id=self._new_id)
        self.old, self.new = build(release("1.0.0")), build(release("1.1.0"))

    def _new_id(self) -> str:
        return f"{self.luck.getrandbits(48):012x}"

    def start(self, workflow: Workflow, **context: Json) -> Run:
        return self.runs.start(workflow, {"tag": "v2.4.0"}, context, by="claude-code")

    def wait(self, minutes: float) -> None:
        self.clock.pass_(self.luck.lognormvariate(0, 0.5) * minutes * MINUTE)

    def submit(self, run: Run, step_id: str, output: str, minutes: float = 2, **context: Json) -> Run:
        self.wait(minutes)
        return self.runs.submit(run.id, step_id, output, context, by="claude-code")

    def collect(self, run: Run) -> Run:
        if self.luck.random() < 0.4:
            run = self.submit(run, "changes", "Several things were improved.", 3)
        return self.submit(run, "changes", "- runs can be watched\n- the console is new\n- 14 bugs are fixed", 4)

    def check(self, run: Run) -> Run:
        for _ in range(self.luck.choice([0, 0, 0, 1, 1, 2])):
            run = self.submit(run, "tests", self.luck.choice(["All fine.", "I ran the whole suite on my machine."]), 6)
        return self.submit(run, "tests", "$ make test\n1932 passed in 61.20s", 9, platforms=["linux", "macos"])

    def fall_short(self, run: Run) -> Run:
        return self.submit(run, "tests", f"{self.luck.randrange(900, 1900)} tests are green, the others will be.", 3)

    def go_on(self, run: Run) -> Run:
        """Through whatever comes until a person is asked."""
        outputs = {
            "migration": "Rename `journal_path` to `journal` in workflowlookup.toml.",
            "package": "Built, installed into an empty environment, started: answers initialize in 61 ms.",
            "links": "41 links, all alive.",
            "publish": "Tag v2.4.0 is ready to be pushed.\n\n- wheel: 412 kB\n- signed by the release key\n- changelog checked by two people",
        }
        while run.waiting_for == "output" and run.current.partition("@")[0] in outputs:
            run = self.submit(run, run.current, outputs[run.current.partition("@")[0]], 5)
        return run

    def answer(self, run: Run, *, agrees: bool, note: str = "") -> Run:
        self.wait(25)
        tell = self.runs.confirm if agrees else self.runs.deny
        return tell(run.id, run.current, how="console", note=note, by="mira")


def furnish_library(directory: Path) -> None:
    """Two sound documents, one that is broken, and one that hides a bundled one."""
    write(directory, release("1.1.0"))
    write(
        directory,
        document(
            step("read", title="Read it"),
            identifier="code-review",
            name="Code review, our way",
            description="What we look at before we merge.",
            category="development",
        ),
    )
    write(directory, {"id": "half-done", "name": "Half done", "steps": [{"id": "one"}]})


def furnish_journal(place: Path, now: int, bundled: Workflow | None = None) -> dict[str, str]:
    """Weeks of runs; by name, those that tests look for."""
    team = Team(place, now - 29 * DAY)
    named: dict[str, str] = {}
    for day in range(29):
        team.clock.now = now - (29 - day) * DAY + 9 * HOUR
        for _ in range(team.luck.choice([0, 1, 1, 2, 3] if day % 7 < 5 else [0, 0, 1])):
            _one_of_many(team, team.new if day > 16 else team.old)
            if bundled is not None and team.luck.random() < 0.5:
                run = team.start(bundled)
                team.submit(run, run.current, "Not reproduced. I tried three times on an idle machine.", 4)
                if team.luck.random() < 0.7:
                    team.wait(30)
                    team.runs.cancel(run.id, "It was not a bug.", by="mira")
    team.clock.now = now - 3 * HOUR
    denied = team.go_on(team.check(team.collect(team.start(team.new, isPublic=False, isBreaking=False))))
    denied = team.answer(denied, agrees=False, note="Not on a Friday. Move the tag to Monday's commit.")
    named["denied"] = denied.id
    team.clock.now = now - 2 * HOUR
    failed = team.collect(team.start(team.new, isPublic=True))
    for _ in range(4):
        failed = team.fall_short(failed)
    named["exhausted"] = failed.id
    team.clock.now = now - 70 * MINUTE
    held = team.go_on(team.check(team.collect(team.start(team.new, isPublic=True, isBreaking=False))))
    named["held"] = held.id
    team.clock.now = now - 6 * MINUTE
    named["fresh"] = team.start(team.new, isPublic=True).id
    team.runs.close()
    return named


def _one_of_many(team: Team, workflow: Workflow) -> None:
    run = team.start(workflow, isPublic=team.luck.random() < 0.6, isBreaking=team.luck.random() < 0.3)
    run = team.collect(run)
    if team.luck.random() < 0.12:
        team.runs.cancel(run.id, "The release is put off.", by="mira")
        return
    if team.luck.random() < 0.12:
        while run.waiting_for == "output":
            run = team.fall_short(run)
        team.answer(run, agrees=False, note="Red is red.")
        return
    run = team.go_on(team.check(run))
    if team.luck.random() < 0.2:
        run = team.go_on(team.answer(run, agrees=False, note="Wait for the translation."))
    if team.luck.random() < 0.1:
        team.runs.cancel(run.id, "Superseded.", by="mira")
        return
    run = team.answer(run, agrees=True)
    team.submit(run, "announce", "Posted to the list and the forum.", 3)
