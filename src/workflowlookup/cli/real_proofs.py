"""Proofs for `workflowlookup test --real`: taken in the project directory, with the user's commands and trust."""

import asyncio
import functools

from workflowlookup.app import commands_of, locate_run, make_consent
from workflowlookup.authoring.rehearsed_proofs import TakeProof
from workflowlookup.execution.proof_runner import why_not_trusted
from workflowlookup.language.model import PromptStep, Workflow
from workflowlookup.language.navigation import split_instance
from workflowlookup.language.proof import AnyProof
from workflowlookup.language.values import Context
from workflowlookup.proving.contract import ProofTask
from workflowlookup.proving.prover import Prover
from workflowlookup.runs.events import Judgement, Snapshot
from workflowlookup.runs.proofs.due import snapshot_globs
from workflowlookup.settings import Settings


class RealProofs:
    """Takes the proofs of rehearsals, one after the other."""

    def __init__(self, settings: Settings) -> None:
        self.root = locate_run(settings).root
        self._consent = make_consent(lambda: settings)
        self._prover = Prover(
            lambda: commands_of(settings, self.root),
            lambda task: self._refusals[task.run_id],
            lambda: settings.proof_hosts,
        )
        self._refusals: dict[str, str] = {}
        """By the id of a task: why it may not be taken; empty if it may."""

    def begin(self, workflow: Workflow) -> TakeProof:
        """For one case: a function that takes a proof. What has changed since the run or the step began, has changed
        since now.
        """
        proofs = [proof for step in workflow.every_step if isinstance(step, PromptStep) for proof in step.proofs]
        snapshot = asyncio.run(self._prover.snapshot(self.root, snapshot_globs(proofs)))
        return functools.partial(self._take, workflow, snapshot)

    def _take(
        self, workflow: Workflow, snapshot: Snapshot, instance_id: str, proof: AnyProof, context: Context
    ) -> Judgement:
        step_id = split_instance(instance_id)[0]
        task_id = f"{workflow.id}/{step_id}/{proof.name}"
        self._refusals[task_id] = why_not_trusted(self._consent, workflow, step_id, proof)
        task = ProofTask(
            run_id=task_id,
            proof=proof,
            context=context,
            root=self.root,
            run_snapshot=snapshot,
            step_snapshot=snapshot,
        )
        return asyncio.run(self._prover.take(task, lambda _: None))

    def close(self) -> None:
        self._prover.close()
