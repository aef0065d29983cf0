"""`workflowlookup receipt`, `verify` and `key`, in a real repository, with real keys."""

import base64
import hashlib
import json
import os
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec
import pytest

from support.command_line import Cli
from support.json_values import Json, JsonObject
from support.make import document, step
from workflowlookup.errors import RunStateError
from workflowlookup.language.document.building import build
from workflowlookup.receipts.envelope import seal
from workflowlookup.receipts.keys import load_key
from workflowlookup.receipts.statement import parse_statement, state_run
from workflowlookup.receipts.verification import journal_problem
from workflowlookup.runs.events import Judgement
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal

RUN = "the-run"
TESTS: JsonObject = {"kind": "command", "name": "tests", "use": "test"}
LINT: JsonObject = {"kind": "command", "name": "lint", "use": "lint"}


class World:
    """A project with a commit, and a journal with a run whose proofs were taken there."""

    def __init__(self, cli: Cli, *init: str) -> None:
        self.cli = cli
        self.data = cli.home / ".local" / "share" / "workflowlookup"
        self.journal = self.data / "runs.sqlite"
        self.key = self.data / "signing-key.pem"
        self.receipt = cli.directory / "receipt.json"
        self.git("init", "-q", "-b", "main", *init)
        (cli.directory / ".gitignore").write_text("/home\n/*.json\n/*.pem\n")
        self.commit = self.change("code.py", "answer = 42\n")

    def git(self, *words: str) -> str:
        names = {
            f"GIT_{who}_{what}": "tests@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(
            ["git", *words], cwd=self.cli.directory, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def change(self, name: str, text: str) -> str:
        """Commit a file; the id of the commit."""
        (self.cli.directory / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def runs(self) -> Runs:
        return Runs(SqliteJournal(str(self.journal)))

    def complete(self, run_id: str = RUN, *, when_unproved: str = "ask", **judgement: Any) -> None:
        """A run with two proofs, of which the last one is judged like this."""
        steps = (step("fix", proof=[LINT, TESTS]), step("sign", requireConfirmation=True))
        workflow = build(document(*steps, identifier="bug-fix", version="1.2.0", whenUnproved=when_unproved))
        with closing(self.runs()) as runs:
            runs.start(workflow, {}, {}, run_id=run_id, by="agent")
            runs.submit(run_id, "fix", "The answer is right now.", {}, by="agent")
            passed = Judgement(
                name="lint",
                kind="command",
                verdict="passed",
                summary="ruff",
                exit_code=0,
                commit=self.commit,
                is_clean=True,
            )
            runs.server_work.take_proof(run_id, "fix", passed)
            last = msgspec.structs.replace(passed, name="tests", summary="make test", **judgement)
            run = runs.server_work.take_proof(run_id, "fix", last)
            if run.open_question is not None:
                runs.confirm(run_id, "fix", how="console", by="judge")
            runs.submit(run_id, "sign", "Signed.", {}, by="agent")
            assert runs.confirm(run_id, "sign", how="console", by="judge").state == "completed"

    def make_receipt(self, *words: str) -> JsonObject:
        """The statement in a new receipt."""
        done = self.cli("receipt", RUN, "-o", str(self.receipt), *words)
        assert done.returncode == 0, done.stderr
        return self.statement()

    def statement(self) -> JsonObject:
        statement: JsonObject = json.loads(base64.b64decode(json.loads(self.receipt.read_bytes())["payload"]))
        return statement

    def verify(self, *words: str) -> tuple[int, str]:
        done = self.cli("verify", str(self.receipt), *words)
        return done.returncode, done.stdout + done.stderr

    def sign(self, statement: Json) -> None:
        """Write a receipt with this statement, signed with the key of the installation."""
        key = load_key(str(self.key))
        assert key is not None
        self.receipt.write_bytes(seal(json.dumps(statement).encode(), key))


@pytest.fixture
def world(cli: Cli) -> World:
    return World(cli)


@pytest.fixture
def proven(world: World) -> World:
    """A world with a receipt of a run whose proofs passed."""
    world.complete()
    world.make_receipt()
    return world


def test_a_receipt_of_a_proven_run_holds(world: World) -> None:
    world.complete()
    statement = world.make_receipt()

    assert world.verify("--commit", "HEAD", "--workflow", "bug-fix") == (
        0,
        f"The receipt holds: run {RUN} of bug-fix 1.2.0, 2 proofs passed, commit {world.commit}.\n",
    )
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [
        {"name": "commit", "digest": {"gitCommit": world.commit}},
        {"name": "tree", "digest": {"gitTree": world.git("rev-parse", "HEAD^{tree}")}},
    ]
    with closing(world.runs()) as runs:
        run = runs.get(RUN)
    predicate = statement["predicate"]
    assert predicate["workflow"] == {"id": "bug-fix", "version": "1.2.0", "sha256": run.hash}
    assert predicate["chain"] == {"length": run.sequence, "head": run.head}
    assert [(one["id"], one["by"]) for one in predicate["steps"]] == [("fix", "agent"), ("sign", "agent")]
    about = {
        "step": "fix",
        "kind": "command",
        "verdict": "passed",
        "exitCode": 0,
        "commit": world.commit,
        "clean": True,
    }
    assert predicate["proofs"] == [
        {**about, "name": "lint", "checked": "ruff"},
        {**about, "name": "tests", "checked": "make test"},
    ]
    (confirmation,) = predicate["confirmations"]
    assert (confirmation["step"], confirmation["answer"], confirmation["by"], confirmation["how"]) == (
        *("sign", "yes"),
        *("judge", "console"),
    )
    assert "answer is right" not in world.receipt.read_text() + json.dumps(statement), "outputs are digests"


def test_another_dsse_and_in_toto_implementation_agree(proven: World) -> None:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from google.protobuf import json_format
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer._key import SSlibKey

    proven.cli("key", "-o", "public.pem")
    pem = (proven.cli.directory / "public.pem").read_bytes()
    envelope = json.loads(proven.receipt.read_text())
    key = SSlibKey.from_crypto(load_pem_public_key(pem), keyid=envelope["signatures"][0]["keyid"])

    assert list(Envelope.from_dict(json.loads(proven.receipt.read_text())).verify([key], 1)) == [key.keyid]
    envelope["payload"] = base64.b64encode(base64.b64decode(envelope["payload"]) + b" ").decode()
    with pytest.raises(VerificationError):
        Envelope.from_dict(envelope).verify([key], 1)
    message = json_format.ParseDict(proven.statement(), StatementMessage())
    Statement.copy_from_pb(message).validate()


def test_the_key_is_made_once_for_its_owner_alone(world: World) -> None:
    shown = world.cli("key", "--json")

    about = json.loads(shown.stdout)
    assert stat.S_IMODE(world.key.stat().st_mode) == 0o600
    assert about["privateKeyFile"] == str(world.key)
    openssl = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"],
        input=about["publicKey"].encode(),
        capture_output=True,
        check=True,
    )
    assert hashlib.sha256(openssl.stdout).hexdigest() == about["keyId"]
    assert json.loads(world.cli("key", "--json").stdout) == about
    assert about["keyId"] in world.cli("key").stdout


def test_a_repository_with_long_ids_has_receipts_too(cli: Cli) -> None:
    world = World(cli, "--object-format=sha256")
    world.complete()

    statement = world.make_receipt()

    (commit,), (tree,) = (subject["digest"].values() for subject in statement["subject"])
    assert (commit, tree) == (world.commit, world.git("rev-parse", "HEAD^{tree}"))
    assert (len(commit), len(tree)) == (64, 64)
    assert world.verify("--commit", "HEAD")[0] == world.verify("--commit", world.commit)[0] == 0


@pytest.mark.parametrize("spoil", ["mode", "content", "link"])
def test_a_key_that_others_may_have_used_is_refused(proven: World, spoil: str) -> None:
    if spoil == "mode":
        proven.key.chmod(0o644)
    elif spoil == "content":
        proven.key.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    else:
        proven.key.rename(proven.data / "elsewhere.pem")
        proven.key.symlink_to("elsewhere.pem")

    for words in (("receipt", RUN), ("verify", str(proven.receipt)), ("key",)):
        done = proven.cli(*words)
        assert (done.returncode, str(proven.key) in done.stderr) == (1, True), words


# ── refusals to make one ────────────────────────────────────────────────────────────────────────────────────────


def test_only_a_completed_run_that_was_not_changed_or_imported_has_a_receipt(world: World) -> None:
    with closing(world.runs()) as runs:
        runs.start(build(document(step("one"))), {}, {}, run_id="waiting")
    assert "only a completed run can have a receipt" in world.cli("receipt", "waiting").stderr

    world.complete()
    exported = world.cli("export", RUN).stdout.encode()
    world.cli("import", "-", "--journal", "other.sqlite", stdin=exported)
    refused = world.cli("receipt", RUN, "--journal", "other.sqlite")
    assert (refused.returncode, "was imported" in refused.stderr) == (1, True)

    with closing(sqlite3.connect(world.journal, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET who = 'judge' WHERE run = ? AND sequence = 3", (RUN,))
    refused = world.cli("receipt", RUN)
    assert (refused.returncode, "Event 3 of run 'the-run' was changed after it was written" in refused.stderr) == (
        1,
        True,
    )
    assert refused.stdout == ""


def test_a_run_with_an_answer_that_nobody_can_verify_has_no_receipt(proven: World) -> None:
    key = load_key(str(proven.key))
    assert key is not None
    with closing(proven.runs()) as runs:
        run, records = runs.get(RUN), runs.history(RUN)
    doubted = msgspec.structs.replace(run, unverified=("The key of ada is not known here.",))

    with pytest.raises(RunStateError) as refused:
        state_run(doubted, records, proven.commit, proven.commit, key.public)
    assert refused.value.remedy == f"The key of ada is not known here. So the run '{RUN}' can have no receipt here."
    assert journal_problem(parse_statement(state_run(run, records, "c", "t", key.public)), doubted) == (
        "The key of ada is not known here."
    )


def test_a_run_with_events_that_have_no_hash_has_no_receipt(world: World) -> None:
    world.complete()
    with closing(sqlite3.connect(world.journal, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET hash = NULL WHERE run = ?", (RUN,))
        connection.execute("UPDATE runs SET hashed = NULL, head = NULL WHERE id = ?", (RUN,))

    refused = world.cli("receipt", RUN, "-o", str(world.receipt))

    assert (refused.returncode, "The events after number 0 have no hash" in refused.stderr) == (1, True)
    assert not world.receipt.exists()


def test_a_commit_that_is_not_there_is_refused(world: World) -> None:
    world.complete()

    for words, problem in ((("--commit", "no-such"), "is not in the repository"), (("--commit", "--all"), "")):
        refused = world.cli("receipt", RUN, *words)
        assert refused.returncode in (1, 2)
        assert problem in refused.stderr


# ── verification ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_receipt_for_another_commit_is_refused(proven: World) -> None:
    other = proven.change("code.py", "answer = 41\n")

    code, text = proven.verify("--commit", "HEAD")
    assert (code, f"It is about commit {proven.commit}, not {other} (HEAD)." in text) == (1, True)
    assert proven.verify("--commit", other)[0] == 1
    assert proven.verify("--commit", "HEAD~1")[0] == 0
    assert proven.verify("--commit", proven.commit)[0] == 0
    assert "is not in the repository" in proven.verify("--commit", "no-such")[1]
    assert "--commit HEAD does that" in proven.verify()[1]


def test_a_repository_cannot_run_anything_while_its_commit_is_looked_up(proven: World) -> None:
    marker = proven.cli.directory / "ran.json"
    for name in ("core.fsmonitor", "core.pager", "core.sshCommand", "alias.rev-parse", "filter.x.clean"):
        proven.git("config", name, f"!touch {marker}" if name.startswith("alias") else f"touch {marker}")

    assert proven.verify("--commit", "HEAD")[0] == 0
    proven.make_receipt()

    assert not marker.exists()


@pytest.mark.parametrize(
    ("judgement", "problem", "flags"),
    [
        ({"verdict": "unproved"}, "Proof 'tests' of step 'fix' was waived", ("--allow-waived",)),
        ({"is_clean": False}, "taken with changes that were not committed", ("--allow-uncommitted",)),
        ({"commit": "0" * 40}, f"The last proof was taken at commit {'0' * 40}", ("--allow-uncommitted",)),
        ({"commit": "", "is_clean": None}, "was not taken in a repository", ("--allow-uncommitted",)),
    ],
)
def test_what_was_not_proven_is_refused_unless_it_is_allowed(
    world: World, judgement: dict[str, Any], problem: str, flags: tuple[str, ...]
) -> None:
    world.complete(**judgement)
    done = world.cli("receipt", RUN, "--commit", "HEAD", "-o", str(world.receipt))

    assert done.stderr.startswith("workflowlookup: `workflowlookup verify` will refuse it: ")
    assert problem in done.stderr
    code, refusal = world.verify("--commit", "HEAD")
    assert (code, problem in refusal) == (1, True)
    assert world.verify("--commit", "HEAD", *flags)[0] == 0


def test_a_receipt_is_refused_if_the_people_that_are_named_did_not_sign(proven: World) -> None:
    proven.make_receipt()

    code, problems = proven.verify("--person", "0" * 16)
    no_people, reason = proven.verify("--person", str(proven.receipt))

    assert (code, "The answer 'yes' to step 'sign' is not signed (--person)." in problems) == (1, True)
    assert (no_people, "is not a file of people" in reason) == (2, True)


def test_a_receipt_says_what_kind_of_word_waived_a_proof(world: World) -> None:
    world.complete(verdict="unproved")
    statement = world.make_receipt()

    (waiver, _) = statement["predicate"]["confirmations"]
    assert (waiver["step"], waiver["reason"], waiver["how"], "signature" in waiver) == (
        *("fix", "unproved"),
        *("console", False),
    )
    problem = "was waived: a person accepted the output without it in the console, not signed"
    assert f"{problem} (--allow-waived)." in world.verify()[1]
    assert f"{problem}.\n" in world.verify("--allow-waived")[1]


def test_a_proof_that_a_declared_value_switched_off_is_in_the_receipt_and_refused(world: World) -> None:
    tests = TESTS | {"condition": {"var": "testFile", "exists": True, "not_equals": "none"}}
    passed = Judgement(name="lint", kind="command", verdict="passed", commit=world.commit, is_clean=True)
    with closing(world.runs()) as runs:
        runs.start(build(document(step("fix", proof=[LINT, tests], produces={"testFile": {}}))), {}, {}, run_id=RUN)
        runs.submit(RUN, "fix", "testFile: none", {})
        assert runs.server_work.take_proof(RUN, "fix", passed).state == "completed"

    (skipped, _) = world.make_receipt()["predicate"]["proofs"]

    assert (skipped["name"], skipped["verdict"]) == ("tests", "skipped")
    assert skipped["reason"].endswith('; testFile is "none".')
    code, text = world.verify()
    assert (code, "Proof 'tests' of step 'fix' was skipped (--allow-waived)." in text) == (1, True)
    code, text = world.verify("--allow-waived")
    assert (code, "Proof 'tests' of step 'fix' was skipped. It applies only if testFile" in text) == (0, True)
    shown = world.cli("run", "show", RUN).stdout
    assert "Proved 1 of 2, 1 skipped" in shown


def test_an_unproved_output_that_was_only_noted_is_never_accepted(world: World) -> None:
    world.complete(verdict="unproved", when_unproved="note")
    world.make_receipt()

    code, said = world.verify("--allow-waived", "--allow-uncommitted")

    assert (code, "Proof 'tests' of step 'fix' could not be taken." in said) == (1, True)


def test_a_receipt_on_standard_output_comes_with_the_same_warning(world: World) -> None:
    world.complete(is_clean=False)
    done = world.cli("receipt", RUN)

    assert (done.returncode, list(json.loads(done.stdout))) == (0, ["payload", "payloadType", "signatures"])
    assert "`workflowlookup verify` will refuse it: The last proof was taken with changes" in done.stderr


def test_a_run_without_proofs_proves_nothing(world: World) -> None:
    with closing(world.runs()) as runs:
        runs.start(build(document(step("one"))), {}, {}, run_id=RUN)
        runs.submit(RUN, "one", "done", {})
    world.make_receipt()

    assert (world.verify("--allow-waived")[0], "nothing is proven" in world.verify()[1]) == (1, True)


def test_another_key_is_trusted_only_if_it_is_named(proven: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    proven.cli("key", "-o", "public.pem")
    fingerprint = json.loads(proven.cli("key", "--json").stdout)["keyId"]
    elsewhere = Cli(tmp_path_factory.mktemp("elsewhere"))
    public, receipt = str(proven.cli.directory / "public.pem"), str(proven.receipt)

    def verify(*words: str) -> tuple[int, str]:
        done = elsewhere("verify", receipt, *words)
        return done.returncode, done.stdout + done.stderr

    assert verify() == (
        2,
        "workflowlookup: This installation has no key of its own. Name the key that you trust with --key.\n",
    )
    elsewhere("key")
    assert "It is not signed by a trusted key" in verify()[1]
    for key in (public, fingerprint, f"sha256:{fingerprint.upper()}"):
        code, text = verify("--key", key, "--commit", proven.commit)
        assert (code, "The run is not in the journal here" in text) == (0, True)
    assert verify("--key", "0" * 64)[0] == 1
    assert verify("--key", receipt) == (
        2,
        f"workflowlookup: {receipt} is not an Ed25519 public key. `workflowlookup key -o FILE` writes one.\n",
    )
    assert verify("--key", "no-such-file")[0] == 1
    assert verify("--key", "0" * 64, "--key", public)[0] == 0


def test_a_receipt_whose_run_was_rewritten_since_is_refused(proven: World) -> None:
    with closing(proven.runs()) as runs:
        runs.delete(RUN)
    proven.complete()

    code, text = proven.verify()
    assert (code, f"The run '{RUN}' in the journal has other events than the receipt says." in text) == (1, True)
    with closing(sqlite3.connect(proven.journal, isolation_level=None)) as connection:
        connection.execute("DELETE FROM events WHERE run = ? AND sequence > 9", (RUN,))
    assert "event 10 was removed after it was written" in proven.verify()[1]


def test_a_receipt_of_the_original_is_right_for_an_imported_run(proven: World) -> None:
    exported = proven.cli("export", RUN).stdout.encode()
    assert proven.cli("import", "-", "--journal", "other.sqlite", stdin=exported).returncode == 0

    assert proven.verify("--journal", "other.sqlite", "--commit", "HEAD") == (
        0,
        f"The receipt holds: run {RUN} of bug-fix 1.2.0, 2 proofs passed, commit {proven.commit}.\n",
    )


def test_the_result_is_for_programs_too(proven: World) -> None:
    valid = json.loads(proven.cli("verify", str(proven.receipt), "--json").stdout)
    refused = proven.cli("verify", str(proven.receipt), "--json", "--workflow", "other")
    broken = proven.cli("verify", "-", "--json", stdin=b"{}")

    assert valid | {"keyId": ""} == {
        "valid": True,
        "problems": [],
        "run": RUN,
        "workflow": "bug-fix",
        "commit": proven.commit,
        "keyId": "",
        "inJournal": True,
    }
    assert (refused.returncode, json.loads(refused.stdout)["problems"]) == (
        1,
        ["It is about workflow 'bug-fix', not 'other'."],
    )
    assert (broken.returncode, json.loads(broken.stdout)["valid"]) == (1, False)


def test_the_hashes_of_a_run_are_checked_without_a_receipt(proven: World) -> None:
    with closing(proven.runs()) as runs:
        run = runs.get(RUN)

    done = proven.cli("verify", RUN[:5])
    assert (done.returncode, done.stdout) == (
        0,
        f"The {run.sequence} events of run {RUN} match their hashes; the last is {run.head}\n",
    )
    with closing(sqlite3.connect(proven.journal, isolation_level=None)) as connection:
        connection.execute("UPDATE events SET hash = NULL WHERE run = ?", (RUN,))
        connection.execute("UPDATE runs SET hashed = NULL, head = NULL WHERE id = ?", (RUN,))
    assert "The events after number 0 have no hash: an older version wrote them" in proven.cli("verify", RUN).stdout
    assert proven.cli("verify", RUN, "--commit", "HEAD").returncode == 2
    missing = proven.cli("verify", "no-such")
    assert (missing.returncode, "There is no file 'no-such', and: There is no run" in missing.stderr) == (1, True)


def test_a_receipt_in_a_note_of_its_commit_is_verified_without_a_checkout(
    proven: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    proven.git("notes", "--ref=workflowlookup", "add", "-F", "receipt.json", "HEAD")
    ci = Cli(tmp_path_factory.mktemp("ci"))
    fingerprint = json.loads(proven.cli("key", "--json").stdout)["keyId"]
    notes = str(ci.directory / "notes")
    proven.git("init", "-q", "--bare", notes)
    reference = "refs/notes/workflowlookup"
    proven.git("-C", notes, "fetch", "-q", str(proven.cli.directory), f"{reference}:{reference}")
    receipt = proven.git("-C", notes, "notes", "--ref=workflowlookup", "show", proven.commit)

    done = ci("verify", "-", "--commit", proven.commit, "--key", fingerprint, stdin=receipt.encode())

    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        f"The receipt holds: run {RUN} of bug-fix 1.2.0, 2 proofs passed, commit {proven.commit}.",
    )


# ── tampering ───────────────────────────────────────────────────────────────────────────────────────────────────


def leaves(value: Json, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values in JSON that are not containers."""
    if isinstance(value, dict):
        return [leaf for name, inner in value.items() for leaf in leaves(inner, (*path, name))]
    if isinstance(value, list):
        return [leaf for index, inner in enumerate(value) for leaf in leaves(inner, (*path, index))]
    return [path]


def with_changed(value: Any, path: tuple[str | int, ...]) -> Any:
    """A copy of JSON with another value at a path."""
    copy = json.loads(json.dumps(value))
    *way, last = path
    inner = copy
    for name in way:
        inner = inner[name]
    before = inner[last]
    inner[last] = not before if isinstance(before, bool) else before + 1 if isinstance(before, int) else f"{before}0"
    return copy


def test_every_single_field_is_covered_by_the_signature(proven: World) -> None:
    envelope, statement = json.loads(proven.receipt.read_text()), proven.statement()

    for path in leaves(statement):
        payload = base64.b64encode(json.dumps(with_changed(statement, path)).encode()).decode()
        proven.receipt.write_text(json.dumps({**envelope, "payload": payload}))
        assert proven.verify()[0] == 1, path
    for path in leaves(envelope):
        proven.receipt.write_text(json.dumps(with_changed(envelope, path)))
        assert proven.verify()[0] == 1, path


def repeated(text: str) -> str:
    return text.replace('"payloadType"', '"payload": "", "payloadType"', 1)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda text: "", "is not a DSSE envelope"),
        (lambda text: "not JSON", "is not a DSSE envelope"),
        (lambda text: "\xff\x00", "is not a DSSE envelope"),
        (lambda text: "[" * 200_000, "is not a DSSE envelope"),
        (lambda text: "[]", "is not a DSSE envelope"),
        (lambda text: "{}", "missing required field"),
        (lambda text: text.replace('"sig"', '"other": 1, "sig"'), "unknown field `other`"),
        (repeated, "a key is there twice"),
        (lambda text: text.replace("vnd.in-toto+json", "json"), "The payload of the receipt is 'application/json'"),
        (lambda text: text.replace('"payload":"', '"payload":"*'), "The payload of the receipt is not base64"),
        (lambda text: text.replace('"sig":"', '"sig":"é'), "The signature of the receipt is not base64"),
        (lambda text: json.dumps({**json.loads(text), "signatures": []}), "has 0 signatures"),
        (
            lambda text: json.dumps({**json.loads(text), "signatures": json.loads(text)["signatures"] * 2}),
            "has 2 signatures",
        ),
        (lambda text: text + " " * (33 << 20), "more than 32 MiB"),
    ],
)
def test_what_is_not_an_envelope_is_refused_with_a_sentence(
    proven: World, spoil: Callable[[str], str], problem: str
) -> None:
    proven.receipt.write_text(spoil(proven.receipt.read_text()))

    code, refusal = proven.verify()

    assert (code, problem in refusal) == (1, True), refusal[:300]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "The statement is 'https://in-toto.io/Statement/v0.1'"),
        (
            {"predicateType": "https://slsa.dev/provenance/v1"},
            "The statement is about 'https://slsa.dev/provenance/v1'",
        ),
        ({"subject": []}, "The subject of the statement is not a commit and its tree"),
        ({"subject": [{"name": "a", "digest": {"sha256": "0"}}] * 2}, "The subject of the statement is not a commit"),
        ({"predicate": {}}, "does not contain a statement about a run"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_a_signed_statement_of_another_kind_is_refused(proven: World, change: JsonObject, problem: str) -> None:
    proven.sign(proven.statement() | change)

    code, refusal = proven.verify()

    assert (code, problem in refusal) == (1, True), refusal


def test_a_statement_that_is_signed_again_is_compared_with_the_journal(proven: World) -> None:
    statement = proven.statement()
    statement["predicate"]["chain"]["length"] += 1
    proven.sign(statement)

    assert "in the journal has other events than the receipt says" in proven.verify()[1]
