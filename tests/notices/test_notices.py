"""Notices: runs that need somebody are announced to real receivers, once, and nothing of that changes a run."""

import contextlib
import hashlib
import hmac
import json
import socket
import socketserver
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from support.client import Start
from support.clocks import FixedClock
from support.command_line import Cli
from support.json_values import JsonObject
from support.make import document, settings_file, step, write
from support.receivers import Mailbox, Webhook, serving, webhook
from workflowlookup.checked_http import is_public
from workflowlookup.language.document.building import build
from workflowlookup.notices.config import Recipient, read_recipients
from workflowlookup.notices.delivery import NotSent, send
from workflowlookup.notices.messages import Notice, body_of
from workflowlookup.notices.notifier import LOOK_BACK_MILLISECONDS, RETRY_SECONDS, Notifier
from workflowlookup.runs.run import Run
from workflowlookup.runs.triage import STUCK_MILLISECONDS, STUCK_REFUSALS, Triage
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

ASKING = build(document(step("write"), step("sign", requireConfirmation=True), name="Release", identifier="release"))
STRICT = build(
    document(
        step("write", validationCriteria=[{"type": "length", "min": 99, "message": "Too short."}]), identifier="strict"
    )
)
START = 10 * LOOK_BACK_MILLISECONDS


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(START)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


MakeRuns = Callable[[], Runs]


@pytest.fixture
def make_runs(tmp_path: Path, clock: FixedClock) -> Iterator[MakeRuns]:
    """Each stands for a process with the same journal."""
    made: list[Runs] = []

    def make() -> Runs:
        made.append(Runs(SqliteJournal(str(tmp_path / "runs.sqlite")), clock=clock))
        return made[-1]

    yield make
    for runs in made:
        runs.close()


@pytest.fixture
def runs(make_runs: MakeRuns) -> Runs:
    return make_runs()


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with webhook() as made:
        yield made


def recipient(to: str, **fields: object) -> Recipient:
    (made,) = read_recipients({"team": {"to": to, "allow_private": True, **fields}})
    return made


def notifier(runs: Runs, clock: FixedClock, *recipients: Recipient) -> Notifier:
    return Notifier(runs, recipients, public_url="https://flows.example", clock=clock)


def ask(runs: Runs, output: str = "Version 2.4.0") -> Run:
    """A run that waits for a person."""
    run = runs.start(ASKING, {"goal": "Publish\n2.4.0"}, {}, by="claude-code")
    run = runs.submit(run.id, "write", "done", {})
    return runs.submit(run.id, "sign", output, {})


def test_a_run_that_needs_a_person_is_announced_once_by_one_of_two_servers(
    make_runs: MakeRuns, runs: Runs, clock: FixedClock, hook: Webhook
) -> None:
    to_team = recipient(hook.url, secret="s3cret-key")
    first, second = notifier(make_runs(), clock, to_team), notifier(make_runs(), clock, to_team)
    run = ask(runs)
    before = runs.journal.read(run.id)

    for each in (first, second, first, second):
        each.poll()

    (got,) = hook.drain()
    assert json.loads(got.body) == {
        "id": f"{run.id}:person:{START}",
        "event": "person",
        "headline": "A run needs a person: Release",
        "run": run.id,
        "workflow": "release",
        "name": "Release",
        "about": "Publish 2.4.0",
        "step": "Title sign",
        "why": "",
        "time": START,
        "link": f"https://flows.example/runs/{run.id}",
    }
    digest = hmac.new(b"s3cret-key", got.body, hashlib.sha256).hexdigest()
    assert got.headers["X-Workflowlookup-Signature"] == f"sha256={digest}"
    assert got.headers["Idempotency-Key"] == f"{run.id}:person:{START}"
    assert runs.journal.read(run.id) == before


def test_a_second_question_of_the_same_run_is_announced_too(
    make_runs: MakeRuns, runs: Runs, clock: FixedClock, hook: Webhook
) -> None:
    team_notifier = notifier(make_runs(), clock, recipient(hook.url))
    run = ask(runs)
    team_notifier.poll()
    runs.deny(run.id, how="console")
    clock.now += 1_000
    runs.submit(run.id, "sign", "Version 2.4.1", {})
    team_notifier.poll()

    assert len(hook.drain()) == 2


def test_stuck_and_failed_runs_are_announced_with_the_reason(runs: Runs, clock: FixedClock, hook: Webhook) -> None:
    team_notifier = notifier(runs, clock, recipient(hook.url))
    refused = runs.start(STRICT, {}, {})
    for number in range(STUCK_REFUSALS):
        runs.submit(refused.id, "write", f"short {number}", {})
    slow = runs.start(ASKING, {}, {})
    paused = runs.start(ASKING, {}, {})
    runs.pause(paused.id)
    failed = runs.start(ASKING, {}, {}, timeout=1)
    clock.now += STUCK_MILLISECONDS + 1
    team_notifier.poll()

    got = {(body["event"], body["run"]): body["why"] for body in (json.loads(one.body) for one in hook.drain())}
    assert got == {
        ("stuck", refused.id): "3 times refused",
        ("stuck", slow.id): "no progress",
        ("failed", failed.id): "",
    }


def test_what_failed_long_before_a_server_started_is_not_announced(
    runs: Runs, clock: FixedClock, hook: Webhook
) -> None:
    failed = runs.start(ASKING, {}, {}, timeout=1)
    clock.now += 2_000
    assert runs.get(failed.id).is_over
    clock.now += LOOK_BACK_MILLISECONDS + 1
    notifier(runs, clock, recipient(hook.url)).poll()

    assert hook.drain() == []


def test_a_receiver_gets_only_the_events_and_workflows_that_it_wants(
    runs: Runs, clock: FixedClock, hook: Webhook
) -> None:
    others = [recipient(hook.url, events=["failed"]), recipient(hook.url, workflows=["strict", "rel"])]
    ask(runs)
    for other in others:
        notifier(runs, clock, other).poll()

    assert hook.drain() == []


def test_a_receiver_that_fails_is_tried_again_and_then_given_up(
    make_runs: MakeRuns, runs: Runs, clock: FixedClock
) -> None:
    with webhook(500, 503, 204) as recovering, webhook(500) as broken, webhook(410) as gone, webhook(302) as moved:
        urls = {"a": recovering.url, "b": broken.url, "c": gone.url, "d": moved.url}
        recipients = read_recipients({name: {"to": url, "allow_private": True} for name, url in urls.items()})
        team_notifier = notifier(make_runs(), clock, *recipients)
        run = ask(runs)
        for _ in range(len(RETRY_SECONDS) + 2):
            team_notifier.poll()
            team_notifier.poll()  # nothing is due yet
            clock.now += 1_000 * max(RETRY_SECONDS)

        counts = [len(hook.drain()) for hook in (recovering, broken, gone, moved)]
    assert counts[0] == 3
    assert counts[1] == len(RETRY_SECONDS) + 1
    assert counts[2] == 1
    assert counts[3] == len(RETRY_SECONDS) + 1  # a redirect is not followed
    assert runs.get(run.id).sequence == run.sequence


def test_a_receiver_that_fails_is_tried_once_in_a_poll_and_delays_nobody(
    make_runs: MakeRuns, runs: Runs, clock: FixedClock, hook: Webhook
) -> None:
    with webhook(500) as broken:
        urls = {"broken": broken.url, "sound": hook.url}
        recipients = read_recipients({name: {"to": url, "allow_private": True} for name, url in urls.items()})
        for _ in range(3):
            ask(runs)
        notifier(make_runs(), clock, *recipients).poll()

        assert (len(broken.drain()), len(hook.drain())) == (1, 3)


def test_a_notice_that_a_dead_server_did_not_send_is_sent_by_another(
    make_runs: MakeRuns, runs: Runs, clock: FixedClock, hook: Webhook
) -> None:
    ask(runs)
    to_team = recipient(hook.url)
    dead = notifier(make_runs(), clock, to_team)
    dead._scan()
    (pending,) = runs.journal.due_notices(clock.now, 9)
    assert runs.journal.claim_notice(pending, clock.now + 60_000)
    other = notifier(make_runs(), clock, to_team)
    other.poll()
    assert hook.drain() == []

    clock.now += 60_000
    other.poll()
    assert len(hook.drain()) == 1


def test_a_new_question_is_announced_however_many_others_wait(
    make_runs: MakeRuns, runs: Runs, clock: FixedClock, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflowlookup.notices.notifier.MAX_RUNS", 1)
    team_notifier = notifier(make_runs(), clock, recipient(hook.url))
    asked = []
    for _ in range(2):
        asked.append(ask(runs).id)
        team_notifier.poll()
        clock.now += 1_000

    assert [json.loads(one.body)["run"] for one in hook.drain()] == asked


def test_an_answered_question_is_not_announced_any_more(runs: Runs, clock: FixedClock) -> None:
    with webhook(500, 204) as hook:
        team_notifier = notifier(runs, clock, recipient(hook.url))
        run = ask(runs)
        team_notifier.poll()
        runs.confirm(run.id, how="console")
        clock.now += 1_000 * max(RETRY_SECONDS)
        team_notifier.poll()
        assert len(hook.drain()) == 1


def test_outputs_are_sent_only_where_the_settings_say_so(runs: Runs, clock: FixedClock, hook: Webhook) -> None:
    ask(runs, output="The \u202eoutput")
    notifier(runs, clock, recipient(hook.url, form="slack")).poll()
    (plain,) = hook.drain()
    assert b"output" not in plain.body

    (other,) = read_recipients({"other": {"to": hook.url, "allow_private": True, "with_output": True}})
    notifier(runs, clock, other).poll()
    (full,) = hook.drain()
    assert json.loads(full.body)["output"] == "The \N{REPLACEMENT CHARACTER}output"


NOTICE = Notice(
    id="r1:person:1",
    kind=Triage.PERSON,
    run_id="r1",
    workflow_id="release",
    name="<!channel> *Release* [x](http://evil)",
    about="`rm` & <@U1>",
    step="s",
    why="",
    time=1,
    link="https://flows.example/runs/r1",
)


def test_texts_of_agents_have_no_meaning_in_chats() -> None:
    slack = json.loads(body_of(NOTICE, "slack"))
    text = slack["blocks"][0]["text"]["text"]
    assert "<!" not in text
    assert "<@" not in text
    assert "*Release*" not in text
    assert text.startswith("*<https://flows.example/runs/r1|A run needs a person: ")

    card = json.loads(body_of(NOTICE, "teams"))["attachments"][0]["content"]
    assert card["actions"] == [
        {"type": "Action.OpenUrl", "title": "Open the run", "url": "https://flows.example/runs/r1"}
    ]
    assert r"\[x\]\(http://evil\)" in card["body"][0]["text"]


def test_a_notice_arrives_by_mail(runs: Runs, clock: FixedClock) -> None:
    mailbox = Mailbox()
    with serving(mailbox):
        to_ops = recipient("mailto:ops@example.com", smtp=mailbox.url, sender="flows@example.com")
        run = ask(runs)
        notifier(runs, clock, to_ops).poll()
        message = mailbox.messages.get_nowait()
    assert "Subject: A run needs a person: Release" in message
    assert "To: ops@example.com" in message
    assert f"https://flows.example/runs/{run.id}" in message


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"allow_private": False}, "which is of this machine or its network.*allow_private"),
        ({"to": "${NO_SUCH_VARIABLE}"}, "needs the environment variable NO_SUCH_VARIABLE"),
        ({"to": "http://user:pw@127.0.0.1/"}, "contains a user name or password"),
        ({"to": "http://127.0.0.1:1/"}, "refused"),
        ({"to": "mailto:a@b.example", "smtp": "smtp://u:hunter2@127.0.0.1:1", "sender": "x@b.example"}, "refused"),
    ],
)
def test_why_a_notice_was_not_sent_is_said_without_secrets(fields: JsonObject, why: str) -> None:
    to = fields.pop("to", "http://127.0.0.1:1/hook")
    with pytest.raises(NotSent, match=why) as problem:
        send(NOTICE, recipient(to, secret="hunter2", **fields), Event(), {})
    assert "hunter2" not in str(problem.value)


def test_a_mail_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    mailbox, lookup, asked = Mailbox(), socket.getaddrinfo, list[str]()

    def lookup_once(host: str, *words: Any, **options: Any) -> Any:
        asked.append(host)
        return lookup("127.0.0.1" if asked == ["mail.example"] else host, *words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup_once)
    with serving(mailbox):
        smtp = mailbox.url.replace("127.0.0.1", "mail.example")
        send(NOTICE, recipient("mailto:ops@example.com", smtp=smtp, sender="flows@example.com"), Event())
    assert "Subject: A run" in mailbox.messages.get_nowait()
    assert asked.count("mail.example") == 1


def test_a_mail_server_that_answers_for_ever_is_cut() -> None:
    stop = Event()

    class Flood(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"220-not yet\r\n" * 1_000)
                    stop.set()

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Flood)
    smtp = f"smtp://127.0.0.1:{server.server_address[1]}"
    to_ops = recipient("mailto:ops@example.com", smtp=smtp, sender="flows@example.com")
    with serving(server), pytest.raises(NotSent):
        send(NOTICE, to_ops, stop)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "0.0.0.0", "169.254.169.254", "100.64.0.1", "224.0.0.1"),
        *("::1", "::ffff:10.0.0.1", "::10.0.0.1", "fe80::1%eth0", "fec0::1", "fc00::1", "ff02::1"),
        *("64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "2002:7f00:1::1"),
    ],
)
def test_an_address_of_this_machine_or_its_network_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700:4700::1111"])
def test_an_address_of_another_network_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"team": {"to": "ftp://x"}}, "needs `to`"),
        ({"team": {}}, "missing required field `to`"),
        ({"team": {"to": "https://x", "events": ["all"]}}, "events"),
        ({"team": {"to": "https://x", "even": []}}, "unknown field `even`"),
        ({"team": {"to": "mailto:a@b"}}, "also needs `smtp`"),
        ({"team": {"to": "mailto:a@b\nBcc: c@d", "smtp": "smtp://h", "sender": "x@y"}}, "line breaks"),
        ({"a b": {"to": "https://x"}}, "names of 1 to 32"),
        ({"team": 3}, "Expected `object`"),
    ],
)
def test_a_recipient_that_cannot_be_used_is_refused_with_the_reason(table: JsonObject, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_recipients(table)


# ── settings, the command and servers ───────────────────────────────────────────────────────────────────────────

TABLE = """
public_url = "https://flows.example"

[notify.team]
to = "{url}"
allow_private = true
"""


def test_a_server_announces_a_run_that_waits_for_a_person(tmp_path: Path, start: Start, hook: Webhook) -> None:
    settings_file(tmp_path).write_text(TABLE.format(url=hook.url))
    library = tmp_path / "library"
    write(library, document(step("sign", requireConfirmation=True)))
    server = start(directory=library)
    run = server.start_run()
    server.submit(run, "sign")

    got = json.loads(hook.received.get(timeout=60).body)
    assert (got["event"], got["run"]) == ("person", run["runId"])


def test_the_command_tries_each_recipient_and_tells_which_failed(tmp_path: Path, cli: Cli, hook: Webhook) -> None:
    closed = TABLE.format(url=hook.url) + '[notify.closed]\nto = "http://127.0.0.1:1"\nallow_private = true\n'
    (cli.own / "workflowlookup.toml").write_text(closed)
    listed, tried, one = cli("notify"), cli("notify", "--test"), cli("notify", "--test", "--json", "team")

    assert (listed.returncode, hook.received.qsize()) == (0, 2)
    assert "person, failed, stuck" in listed.stdout
    assert tried.returncode == 1
    assert "refused" in tried.stdout
    assert [row["outcome"] for row in json.loads(one.stdout)["recipients"]] == ["sent"]
    assert "no [notify.nobody]" in cli("notify", "nobody").stderr


def test_a_repository_cannot_name_recipients(tmp_path: Path, cli: Cli, hook: Webhook) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "workflowlookup.toml").write_text(TABLE.format(url=hook.url).replace("public_url", "# public_url"))

    tried = cli("notify", "--test")

    assert "nobody gets notices" in tried.stderr
    assert "has an effect only in your own settings file" in cli("doctor").stdout
    assert hook.drain() == []
