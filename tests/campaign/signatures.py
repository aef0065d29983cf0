"""Attempts with genuine signatures and genuine trust: used again for something else than the person meant."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from unittest import mock

from campaign.attacker import RUN, Attacker, Attempt
from campaign.journal import append, recompute, rows_of
from support.json_values import JsonObject
from workflowlookup.people.keys import create_key
from workflowlookup.people.store import PeopleStore, PersonKey, new_key
from workflowlookup.runs.signing import text_to_sign
from workflowlookup.settings import read_settings
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.trust import digests_of

PASSPHRASE = "correct horse battery"


class Person:
    """Somebody who signs what they have read, on the same account as the agent."""

    def __init__(self, attacker: Attacker) -> None:
        self._attacker = attacker
        self._people = PeopleStore(str(attacker.settings.parent))
        private = create_key(PASSPHRASE)
        self._key: PersonKey = new_key("ada", private.public, int(time.time() * 1000))
        self._people.add(self._key, None, private)

    def answer(self, run_id: str, *, agrees: bool = True) -> JsonObject:
        """Answer the open question of a run; the event as it is stored."""
        with closing(Runs(SqliteJournal(str(self._attacker.journal)), people=self._people)) as runs:
            text = text_to_sign(runs.get(run_id), agrees=agrees)
            signature = self._people.sign(self._key, PASSPHRASE, text)
            (runs.confirm if agrees else runs.deny)(run_id, how="key", signature=signature, by="ada")
        bodies = (json.loads(body) for *_, body in rows_of(self._attacker, run_id))
        answer: JsonObject = [body for body in bodies if body["event"].startswith("confirmation-")][-1]
        return answer


def nonce_of(attacker: Attacker, run_id: str) -> str:
    bodies = (json.loads(body) for *_, body in rows_of(attacker, run_id))
    return str([body for body in bodies if body["event"] == "confirmation-asked"][-1].get("nonce", ""))


def replay(attacker: Attacker, answer: JsonObject, *following: str, **changes: str) -> None:
    """Append the answer to the run, as the answer to its own question, with a chain that matches."""
    append(attacker, json.dumps({**answer, "question": nonce_of(attacker, RUN), **changes}), *following)
    recompute(attacker)


def of_another_run(attacker: Attacker) -> None:
    person = Person(attacker)
    attacker.begin("agreed", "r2")
    attacker.submit(run="r2")
    attacker.submit()
    replay(attacker, person.answer("r2"), '{"event":"completed"}')


def of_another_question(attacker: Attacker) -> None:
    """The whole event of another run, with the id of its question."""
    person = Person(attacker)
    attacker.begin("agreed", "r2")
    attacker.submit(run="r2")
    attacker.submit()
    answer = person.answer("r2")
    replay(attacker, answer, '{"event":"completed"}', question=str(answer["question"]))


def of_another_output(attacker: Attacker) -> None:
    """The output is changed after the person has agreed to it."""
    person = Person(attacker)
    attacker.submit("I repaired it.")
    person.answer(RUN)
    attacker.crash()
    attacker.sql("UPDATE events SET body = replace(body, 'I repaired it.', 'I removed it.') WHERE run = 'r1'")
    recompute(attacker)


def of_a_refusal(attacker: Attacker) -> None:
    """A signed no, made a yes."""
    person = Person(attacker)
    attacker.submit()
    person.answer(RUN, agrees=False)
    attacker.crash()
    attacker.sql(
        "UPDATE events SET kind = 'confirmation-given', body = replace(body, 'confirmation-denied', 'confirmation-given') "
        "WHERE run = 'r1' AND kind = 'confirmation-denied'"
    )
    recompute(attacker)


def of_another_step(attacker: Attacker) -> None:
    person = Person(attacker)
    attacker.submit()
    answer = person.answer(RUN)
    attacker.call("workflow_submit", runId=RUN, stepId="deploy", output="All tests pass now.")
    replay(attacker, answer, '{"event":"completed"}', stepId="deploy")


# ── trust ───────────────────────────────────────────────────────────────────────────────────────────────────────


def trusted(attacker: Attacker) -> None:
    """The user trusts the command that the project's settings have now."""
    attacker.settings.write_text("")
    attacker.project.write("workflowlookup.toml", '[commands]\ntest = ["make", "-s", "test"]\n')
    environment = {**os.environ, **attacker.variables}
    with mock.patch.dict(os.environ, environment):
        settings = read_settings({}, environment, directory=str(attacker.root))
    assert settings.ignored, "nothing is to be trusted"
    settings.trust.store().trust(digests_of(settings.ignored), by="ada", time=int(time.time() * 1000))


def changed_after_trust(attacker: Attacker) -> None:
    trusted(attacker)
    attacker.project.write("workflowlookup.toml", '[commands]\ntest = ["echo", "9 passed"]\n')


def added_after_trust(attacker: Attacker) -> None:
    trusted(attacker)
    attacker.project.write("workflowlookup.toml", '[commands]\ntest = ["make", "-s", "-n", "test"]\nx = ["true"]\n')


def unchanged_after_trust(attacker: Attacker) -> None:
    """Trust itself counts: the command runs, and the tests fail."""
    trusted(attacker)


def attempts() -> Iterator[Attempt]:
    replays: dict[str, Callable[[Attacker], None]] = {
        "of another run": of_another_run,
        "of another run, with its question": of_another_question,
        "of another output": of_another_output,
        "of a refusal": of_a_refusal,
        "of another step": of_another_step,
    }
    for name, attack in replays.items():
        yield Attempt(
            kind="replayed signatures",
            name=name,
            workflow="twice" if attack is of_another_step else "agreed",
            attack=attack,
            submits=False,
            expected="shown",
            reason="does not match its signature",
        )
    untrusted: dict[str, Callable[[Attacker], None]] = {
        "the trusted command changed": changed_after_trust,
        "the trusted command got an argument": added_after_trust,
    }
    for name, attack in untrusted.items():
        yield Attempt(kind="trust", name=name, attack=attack, reason="not trusted, because it came with a repository")
    yield Attempt(
        kind="trust",
        name="the command as it is trusted",
        attack=unchanged_after_trust,
        reason="Proof 'suite' .* failed",
    )


SIGNATURES = [*attempts()]
