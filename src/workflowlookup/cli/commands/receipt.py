"""`workflowlookup receipt RUN`: writes a signed receipt of a completed run, which `verify` checks elsewhere."""

import argparse
import os

from workflowlookup.cli.output import complain, shown_path, write, write_bytes, write_file
from workflowlookup.cli.services import find_run, open_services, user_name
from workflowlookup.errors import RunStateError
from workflowlookup.logs import audit
from workflowlookup.receipts.commits import Commit, find_commit
from workflowlookup.receipts.envelope import seal
from workflowlookup.receipts.keys import key_path, load_or_make_key
from workflowlookup.receipts.statement import parse_statement, state_run
from workflowlookup.receipts.verification import hash_problem, proof_problems
from workflowlookup.runs.events import ProofTaken, Record
from workflowlookup.runs.run import Run
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id of a completed run, or a unique prefix of it")
    parser.add_argument(
        "--commit",
        metavar="REV",
        help="the commit it is about (default: the one that was proven last, or HEAD if that had uncommitted changes)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to this file")


def run(options: argparse.Namespace, settings: Settings) -> int:
    services = open_services(settings)
    runs = services.runs
    folded = runs.get(find_run(runs, options.run))
    revision = runs.journal.revision(folded.id)
    if problem := hash_problem(folded, revision.hashed if revision else 0):
        raise RunStateError(f"{problem} So the run '{folded.id}' can have no receipt.", runId=folded.id)
    records = runs.history(folded.id)
    key = load_or_make_key(key_path(os.environ))
    commit = _commit(folded, records, options.commit)
    payload = state_run(folded, records, commit.commit, commit.tree, key.public, people=services.people.all_keys())
    audit("receipt", by=user_name(), run=folded.id, workflow=folded.workflow.id)
    receipt = seal(payload, key)
    if options.output:
        write_file(options.output, receipt)
        write(f"Wrote the receipt of run {folded.id} for commit {commit.commit} to {shown_path(options.output)}")
    else:
        write_bytes(receipt)
    for problem in proof_problems(parse_statement(payload), allows_waived=False, allows_uncommitted=False):
        complain(f"`workflowlookup verify` will refuse it: {problem}")
    return 0


def _commit(folded: Run, records: list[Record], revision: str | None) -> Commit:
    directory = folded.root if os.path.isdir(folded.root) else os.getcwd()
    if revision is None:
        taken = [record.event.judgement for record in records if isinstance(record.event, ProofTaken)]
        last = next((judgement for judgement in reversed(taken) if not judgement.at_start), None)
        revision = last.commit if last is not None and last.commit and last.is_clean else "HEAD"
    return find_commit(directory, revision)


EXAMPLES = """\
  workflowlookup receipt 9f2c -o receipt.json               for the commit that was proven
  workflowlookup receipt 9f2c --commit main -o receipt.json
  workflowlookup verify receipt.json --commit HEAD          what CI does with it"""
