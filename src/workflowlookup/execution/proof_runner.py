"""Takes the snapshots and proofs of runs with `proving`, as far as this server can see their root.

Nothing here is durable: the driver stores each judgement, and takes again what a process that died did not store.
"""

import contextlib
import functools
import hashlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from workflowlookup.language.model import Workflow
from workflowlookup.language.proof import AnyProof, CommandProof, HttpProof
from workflowlookup.runs.events import Judgement, Snapshot
from workflowlookup.runs.proofs.due import Due, SnapshotDue, last_tree, scope_with_output
from workflowlookup.runs.proofs.witnessing import may_be_witnessed
from workflowlookup.runs.run import Run
from workflowlookup.trust import (
    COMMAND,
    IMPORTED,
    NO_CONSENT,
    PROOF_COMMAND,
    PROOF_REQUEST,
    Consent,
    TrustEntry,
    host_of,
    how_to_trust,
)
from workflowlookup.web import is_loopback_name

if TYPE_CHECKING:
    from workflowlookup.proving.contract import ProofTask
    from workflowlookup.proving.prover import Prover

log = logging.getLogger(__name__)

UNSEEN: Final = "this server cannot see the files of the project"
USE_WITNESS: Final = (
    "Tell the user: `workflowlookup witness --server URL`, where the files are, takes the proofs. It needs a token "
    "with the scope witness and the name NAME+witness, where NAME is the name of the token that started the run."
)
NOT_WITNESSED: Final = "this server cannot see the files of the project, and no witness took the proof in time"
FAULT: Final = "this is a fault of the server, whose log says more"

Commands = Callable[[str], Mapping[str, Sequence[str]]]
"""By root: the commands that the settings of that project define."""


class ProofRunner:
    """Takes snapshots and proofs. For the worker's loop."""

    def __init__(  # noqa: PLR0913 - what it depends on
        self,
        commands: Commands = lambda _: {},
        allowed_hosts: Callable[[], Collection[str]] = tuple,
        consent: Consent = NO_CONSENT,
        machine: str = "",
        witness_seconds: Callable[[], float] = lambda: 0.0,
        *,
        ignored: Callable[[str], Sequence[TrustEntry]] = lambda _: (),
    ) -> None:
        """`machine` identifies this machine: the root of a run that was started on another one is not here.
        `witness_seconds`: how long to wait for a witness that takes the proofs of such a run. `ignored`, by root: what
        the settings of that project have and the user does not trust.
        """
        self._ignored = ignored
        self._witness_seconds = witness_seconds
        self._commands = commands
        self._allowed_hosts = allowed_hosts
        self._consent = consent
        self._machine = machine
        self._provers: dict[str, Prover] = {}
        self._runs: dict[str, Run] = {}
        """By id: the runs of which a proof is being taken."""
        self._words: dict[str, str] = {}
        """By run: what its prover reported last."""

    async def snapshot(self, run: Run, due: SnapshotDue) -> Snapshot:
        """A snapshot of the root of a run."""
        if problem := self._why_unseen(run):
            return Snapshot(problem=problem)
        try:
            return await self._prover(run.root).snapshot(run.root, due.globs)
        except Exception:  # broad on purpose: a bug of ours leaves something unproved, not the run unattended
            log.exception("the snapshot of %s for run %s failed", run.root, run.id)
            return Snapshot(problem=FAULT)

    async def take(self, run: Run, proof: AnyProof) -> Judgement:
        """Take a proof of a run. What cannot be judged is `unproved`."""
        if problem := self._why_unseen(run):
            return unproved(proof, problem, USE_WITNESS)
        from workflowlookup.proving.contract import ProofTask  # noqa: PLC0415 - with the first proof

        step_snapshot = run.step_snapshot[1] if run.step_snapshot and run.step_snapshot[0] == run.current else None
        task = ProofTask(
            run_id=run.id,
            proof=proof,
            context=scope_with_output(run),
            root=run.root,
            run_snapshot=run.run_snapshot,
            step_snapshot=step_snapshot,
            tree=last_tree(run),
        )
        self._runs[run.id] = run
        try:
            return await self._prover(run.root).take(task, lambda words: self._words.update({run.id: words}))
        except Exception:  # broad on purpose: as above
            log.exception("proof '%s' of run %s failed", proof.name, run.id)
            return unproved(proof, FAULT, "Tell the user.")
        finally:
            self._runs.pop(run.id, None)
            self._words.pop(run.id, None)

    def witness_seconds(self, run: Run) -> float:
        """How long to wait for a witness; 0 if the server sees the files itself, or nobody can be the witness."""
        return self._witness_seconds() if may_be_witnessed(run) else 0.0

    def words(self, run: Run, due: Due, seconds: float) -> str:
        """What is being looked at, and for how long: `make test, 41 s`."""
        name = "the files of the project" if isinstance(due, SnapshotDue) else due.name
        if may_be_witnessed(run):
            is_claimed = run.proving is not None and run.proving.claim is not None
            return f"{name}, {'by a witness' if is_claimed else 'waiting for a witness'}, {seconds:.0f} s"
        return self._words.get(run.id) or f"{name}, {seconds:.0f} s"

    def close(self) -> None:
        """Remove what the provers hold for the next proofs."""
        for prover in self._provers.values():
            prover.close()

    def _prover(self, root: str) -> "Prover":
        """The prover for a root: each project has commands of its own."""
        from workflowlookup.proving.prover import Prover  # noqa: PLC0415 - with the first proof

        if root not in self._provers:
            self._provers[root] = Prover(lambda: self._commands(root), self._why_not_allowed, self._allowed_hosts)
        return self._provers[root]

    def _why_unseen(self, run: Run) -> str:
        if not run.root:
            return NOT_WITNESSED if self.witness_seconds(run) else UNSEEN
        return "" if run.machine == self._machine else f"{UNSEEN}, because the run was started on another machine"

    def _why_not_allowed(self, task: "ProofTask") -> str:
        """Why an entry may not be taken, because it came with a repository; empty if it may."""
        run = self._runs[task.run_id]
        workflow = msgspec.structs.replace(run.workflow, origin=run.origin)
        command = task.proof.use if isinstance(task.proof, CommandProof) else ""
        if command and command not in self._commands(task.root):
            entries = (*self._ignored(task.root), *self._consent.ignored())
            ignored = [entry for entry in entries if (entry.kind, entry.name) == (COMMAND, command)]
            if ignored:
                file = ignored[0].file
                return f"not trusted, because it came with a repository: {ignored[0]}. {how_to_trust([file])}"
        return why_not_trusted(self._consent, workflow, run.step.id, task.proof)


def why_not_trusted(consent: Consent, workflow: Workflow, step_id: str, proof: AnyProof) -> str:
    """Why a proof may not be taken, because it came with a repository; empty if it may."""
    kind = _kind_to_trust(proof)
    entry = consent.untrusted_proof(workflow.origin, workflow.document, step_id, kind) if kind else None
    if entry is None:
        return ""
    if entry.file == IMPORTED:
        return f"not trusted, because the run was imported: {entry}. Start the workflow here with workflow_start."
    return f"not trusted, because it came with a repository: {entry}. {how_to_trust([entry.file])}"


def _kind_to_trust(proof: AnyProof) -> str:
    """The kind of the entry that a proof belongs to; empty if it needs no trust."""
    match proof:
        case CommandProof() if proof.run or proof.args or proof.env:
            return PROOF_COMMAND
        case HttpProof() if not is_loopback_name(host_of(proof.url)):
            return PROOF_REQUEST
    return ""


def unproved(proof: AnyProof, reason: str, remedy: str) -> Judgement:
    """The judgement of a proof that cannot be taken here."""
    kind = str(proof.__struct_config__.tag)
    return Judgement(name=proof.name, kind=kind, verdict="unproved", reason=f"{reason}.", remedy=remedy)


@functools.cache
def machine_id() -> str:
    """Identifies this machine among those that share a journal."""
    name = os.uname().nodename
    with contextlib.suppress(OSError, ValueError), open("/etc/machine-id", encoding="ascii") as stream:
        name = stream.read(64).strip() or name
    return hashlib.sha256(f"workflowlookup {name}".encode()).hexdigest()[
        :16
    ]  # the id itself must not leave the machine
