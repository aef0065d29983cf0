"""`workflowlookup verify RECEIPT|RUN`: checks a receipt and everything that it says, or the hashes of a run."""

import argparse
import os
import re
import sys
from typing import Final

from workflowlookup.cli.input import STANDARD_INPUT
from workflowlookup.cli.output import CommandError, complain, write, write_json
from workflowlookup.cli.services import find_run, has_journal, open_services
from workflowlookup.errors import RunDamaged, RunNotFound, StorageError, WorkflowLookupError
from workflowlookup.language.text import plural
from workflowlookup.people.store import MAX_BYTES as MAX_PEOPLE_BYTES
from workflowlookup.people.store import active_keys
from workflowlookup.receipts.commits import find_commit
from workflowlookup.receipts.envelope import MAX_BYTES, Sealed, unseal
from workflowlookup.receipts.keys import (
    FINGERPRINT,
    MAX_KEY_BYTES,
    PublicKey,
    key_path,
    key_with_fingerprint,
    load_key,
    parse_public_key,
)
from workflowlookup.receipts.statement import Statement, parse_statement
from workflowlookup.receipts.verification import (
    confirmation_problems,
    hash_problem,
    journal_problem,
    person_problems,
    proof_problems,
    waiver,
)
from workflowlookup.runs.events import describe_kind
from workflowlookup.settings import Settings

_PERSON_ID: Final = re.compile(r"[0-9a-f]{16}")
_COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "receipt", metavar="RECEIPT|RUN", help="a file from `receipt`, - for standard input; or a run in the journal"
    )
    parser.add_argument("--commit", metavar="REV", help="the commit that the receipt must be about, such as HEAD")
    parser.add_argument(
        "--key",
        metavar="FILE|FINGERPRINT",
        action="append",
        default=[],
        help="a public key that is trusted, or its SHA-256 (default: that of this installation); may be repeated",
    )
    parser.add_argument(
        "--person",
        metavar="ID|FILE",
        action="append",
        default=[],
        help="the key of a person by its id, or a file of people (people.json): every yes in the receipt must be "
        "signed by one of these, and there must be one; may be repeated",
    )
    parser.add_argument("--workflow", metavar="ID", help="the workflow that must have been followed")
    parser.add_argument(
        "--allow-waived", action="store_true", help="accept proofs without which a person accepted an output"
    )
    parser.add_argument(
        "--allow-uncommitted",
        action="store_true",
        help="accept proofs that were taken with uncommitted changes, or before the commit was made",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    is_file = options.receipt == STANDARD_INPUT or os.path.lexists(options.receipt)
    try:
        result = _verify_receipt(options, settings) if is_file else _verify_run(options, settings)
    except RunNotFound as refusal:
        raise CommandError(f"There is no file {options.receipt!r}, and: {refusal.remedy}") from None
    except WorkflowLookupError as refusal:
        if not options.json:
            raise
        result = {"valid": False, "problems": [refusal.remedy or str(refusal)]}
    if options.json:
        write_json(result)
    return int(not result["valid"])


def _verify_run(options: argparse.Namespace, settings: Settings) -> dict[str, object]:
    """Check the hashes of a run in the journal."""
    for flag in ("commit", "key", "person", "workflow", "allow_waived", "allow_uncommitted"):
        if getattr(options, flag):
            raise CommandError(
                f"--{flag.replace('_', '-')} is about a receipt, and {options.receipt!r} is not a file", 2
            )
    runs = open_services(settings).runs
    folded = runs.get(find_run(runs, options.receipt))
    revision = runs.journal.revision(folded.id)
    hashed = revision.hashed if revision else 0
    problem = hash_problem(folded, hashed)
    problems = [problem] if problem else []
    if not options.json:
        write(
            f"The {plural(folded.sequence, 'event')} of run {folded.id} match their hashes; the last is {folded.head}"
        )
        if problems:
            write(problems[0])
    chain = {"length": folded.sequence, "hashed": hashed, "head": folded.head}
    return {"valid": not problems, "problems": problems, "run": folded.id, **chain}


def _verify_receipt(options: argparse.Namespace, settings: Settings) -> dict[str, object]:
    sealed = unseal(_read(options.receipt, MAX_BYTES + 1))
    statement = parse_statement(sealed.payload)
    problems: list[str] = []
    if not _is_trusted(sealed, statement, options.key):
        problems.append(
            f"It is not signed by a trusted key, but by {sealed.key_id[:64]!r}, or the signature is wrong. "
            "If you trust that key, name it with --key."
        )
    if options.commit:
        problems += _commit_problems(statement, options.commit)
    workflow = statement.predicate.workflow
    if options.workflow and workflow.id != options.workflow:
        problems.append(f"It is about workflow '{workflow.id}', not '{options.workflow}'.")
    problems += proof_problems(
        statement, allows_waived=options.allow_waived, allows_uncommitted=options.allow_uncommitted
    )
    is_here, problem = _journal_problem(statement, settings)
    problems += [problem] if problem else []
    problems += confirmation_problems(statement, is_in_journal=is_here)
    if options.person:
        problems += person_problems(statement, _people(options.person))
    if not options.json:
        _write(statement, problems, is_compared=bool(options.commit), is_here=is_here)
    return {
        "valid": not problems,
        "problems": problems,
        "run": statement.predicate.run.id,
        "workflow": workflow.id,
        "commit": statement.commit,
        "keyId": sealed.key_id,
        "inJournal": is_here,
    }


def _read(path: str, limit: int) -> bytes:
    """The first bytes of a file. Raises `StorageError`."""
    try:
        if path == STANDARD_INPUT:
            return b"" if sys.stdin is None else sys.stdin.buffer.read(limit)
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError as problem:
        raise StorageError(f"{path} cannot be read: {problem.strerror}.", file=path) from problem


def _is_trusted(sealed: Sealed, statement: Statement, names: list[str]) -> bool:
    if names:
        keys = [_key(name, statement) for name in names]
    else:
        own = load_key(key_path(os.environ))
        if own is None:
            raise CommandError("This installation has no key of its own. Name the key that you trust with --key.", 2)
        keys = [own.public]
    return any(key is not None and sealed.is_signed_by(key) for key in keys)


def _key(name: str, statement: Statement) -> PublicKey | None:
    if match := FINGERPRINT.fullmatch(name):
        return key_with_fingerprint(match[1].lower(), statement.predicate.installation.public_key)
    key = parse_public_key(_read(name, MAX_KEY_BYTES))
    if key is None:
        raise CommandError(f"{name} is not an Ed25519 public key. `workflowlookup key -o FILE` writes one.", 2)
    return key


def _people(names: list[str]) -> dict[str, str]:
    """The keys of people that were named: by id the public part, or empty if only the id was given."""
    people: dict[str, str] = {}
    for name in names:
        if _PERSON_ID.fullmatch(name) and not os.path.lexists(name):
            people.setdefault(name, "")
            continue
        try:
            people |= {key.id: key.public for key in active_keys(_read(name, MAX_PEOPLE_BYTES))}
        except ValueError as problem:
            raise CommandError(f"{name} is not a file of people: {problem}", 2) from problem
    return people


def _commit_problems(statement: Statement, revision: str) -> list[str]:
    if _COMMIT_ID.fullmatch(revision):
        return [] if revision == statement.commit else [f"It is about commit {statement.commit}, not {revision}."]
    commit = find_commit(os.getcwd(), revision)
    if commit == (statement.commit, statement.tree):
        return []
    return [f"It is about commit {statement.commit}, not {commit.commit} ({revision})."]


def _journal_problem(statement: Statement, settings: Settings) -> tuple[bool, str]:
    """Whether the run is in the journal here, and what is wrong with it."""
    if not has_journal(settings):
        return False, ""
    try:
        return True, journal_problem(statement, open_services(settings).runs.get(statement.predicate.run.id))
    except RunNotFound:
        return False, ""
    except RunDamaged as damage:
        return True, journal_problem(statement, damage)


def _write(statement: Statement, problems: list[str], *, is_compared: bool, is_here: bool) -> None:
    predicate = statement.predicate
    if problems:
        complain("the receipt does not hold.")
        for problem in problems:
            complain(problem)
        return
    proven = sum(not proof.at_start and proof.verdict == "passed" for proof in predicate.proofs)
    write(
        f"The receipt holds: run {predicate.run.id} of {predicate.workflow.id} {predicate.workflow.version}, "
        f"{plural(proven, 'proof')} passed, commit {statement.commit}."
    )
    for proof in predicate.proofs:
        if proof.waived:
            write(f"{waiver(statement, proof)}.")
        elif proof.verdict == "skipped":
            write(f"Proof '{proof.name}' of step '{proof.step}' was skipped. {proof.reason}")
    for answer in predicate.confirmations:
        if answer.signature is not None and answer.signer is not None:
            signer = f"{answer.signature.person} (key {answer.signature.key})"
            write(f"Step '{answer.step}': '{answer.answer}' is signed by {signer}{describe_kind(answer.how)}.")
    if not is_compared:
        write("Which commit you have was not compared: --commit HEAD does that.")
    if not is_here:
        write("The run is not in the journal here, so its events were not compared.")


EXAMPLES = """\
  workflowlookup verify receipt.json --commit HEAD --key ci/workflowlookup.pem
  workflowlookup verify receipt.json --key ci/workflowlookup.pem --person 4f0c2a91d3b7e865
  workflowlookup verify receipt.json --workflow bug-investigation --json
  workflowlookup verify 9f2c                                the hashes of a run in the journal"""
