"""Takes proofs and snapshots in threads, and makes a verdict of everything that may go wrong.

What is not seen to hold is `failed` or `unproved`, never `passed`.
"""

import asyncio
import contextlib
import functools
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from workflowlookup.language.proof import CommandProof, FileProof, GitProof, HttpProof, Proof
from workflowlookup.language.text import printable, redact, shorten
from workflowlookup.proving.command import take_command
from workflowlookup.proving.contract import CannotJudge, ProofTask, Take, World
from workflowlookup.proving.file_proofs import take_file
from workflowlookup.proving.files import digests, matching
from workflowlookup.proving.git import MAX_SNAPSHOT_FILES, Repositories
from workflowlookup.proving.git_proofs import take_git
from workflowlookup.proving.http_proofs import take_http
from workflowlookup.proving.running import ServerEnds, Stop, Supervisors
from workflowlookup.proving.scratch import Scratch
from workflowlookup.proving.tail import secret_values
from workflowlookup.runs.events import Judgement, Snapshot

log = logging.getLogger(__name__)

T = TypeVar("T")

KINDS: Final[Mapping[type[Proof], Take]] = MappingProxyType(
    {CommandProof: take_command, FileProof: take_file, GitProof: take_git, HttpProof: take_http}
)
MAX_REASON: Final = 1_000
TRUST_REMEDY: Final = "A person can look at it and allow it: `workflowlookup trust`."


class Prover:
    """Takes proofs. One is enough for a server; any number of proofs may be taken at once."""

    def __init__(
        self,
        commands: Callable[[], Mapping[str, Sequence[str]]],
        allows: Callable[[ProofTask], str],
        allowed_hosts: Callable[[], Collection[str]],
    ) -> None:
        """`allows` returns why an entry may not be taken (not trusted); empty if it may."""
        self._commands = commands
        self._allows = allows
        self._allowed_hosts = allowed_hosts
        self._scratch = Scratch()
        self._repositories = Repositories(self._scratch)
        self._supervisors = Supervisors()

    async def take(self, task: ProofTask, on_progress: Callable[[str], None]) -> Judgement:
        """Take a proof. Cancelling it ends everything that it started, before `CancelledError` is raised."""
        loop = asyncio.get_running_loop()

        def report(text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(on_progress, text)

        return await _in_thread(lambda stop: self._take(task, stop, report))

    async def snapshot(self, root: str, globs: Sequence[str]) -> Snapshot:
        """The state of the root. `globs`: the files that proofs look at, also those that git does not know."""
        return await _in_thread(functools.partial(self._snapshot, root, globs))

    def close(self) -> None:
        """Remove what is kept for the next proofs. It may be used again."""
        self._supervisors.close()
        self._scratch.close()

    def _take(self, task: ProofTask, stop: Stop, on_progress: Callable[[str], None]) -> Judgement:
        start = time.monotonic()
        secrets = secret_values(os.environ)
        try:
            judgement = self._judged(task, stop, lambda text: on_progress(redact(text, secrets)))
        except CannotJudge as problem:
            judgement = _unproved(task, str(problem), problem.remedy)
        except ServerEnds:
            raise
        except OSError as problem:
            judgement = _unproved(
                task, f"The proof could not be taken: {problem}.", "Remove the cause, and submit again."
            )
        except Exception as problem:  # a bug of ours must not count as a proof, nor end the run
            log.exception("taking the proof '%s' failed", task.proof.name)
            judgement = _unproved(task, f"The proof could not be taken: {type(problem).__name__}.", "Report this bug.")
        return _clean(judgement, secrets, round(time.monotonic() - start, 3))

    def _judged(self, task: ProofTask, stop: Stop, on_progress: Callable[[str], None]) -> Judgement:
        if not task.root or not os.path.isdir(task.root):
            raise CannotJudge(
                f"The project directory {task.root} does not exist."
                if task.root
                else "The run has no project directory.",
                "Restore it, or start a new run in the project directory.",
            )
        root = os.path.realpath(task.root)
        task = msgspec.structs.replace(task, root=root)
        if reason := self._allows(task):
            raise CannotJudge(reason, TRUST_REMEDY)
        world = World(
            commands=self._commands,
            allowed_hosts=self._allowed_hosts,
            supervisors=self._supervisors,
            repositories=self._repositories,
            scratch=self._scratch,
            stop=stop,
            on_progress=on_progress,
        )
        before = self._state(root, stop, with_clean=False) if isinstance(task.proof, CommandProof) else None
        try:
            judgement = KINDS[type(task.proof)](task, world)
        except CannotJudge as problem:
            judgement = _unproved(task, str(problem), problem.remedy)
        after = self._state(root, stop, with_clean=True)
        judgement = msgspec.structs.replace(
            judgement,
            commit=after.commit,
            is_clean=after.is_clean,
            tree=after.digest,
            at_start=isinstance(task.proof, CommandProof) and task.proof.at_start,
        )
        if task.tree and task.tree != (before or after).digest and judgement.verdict == "passed":
            judgement = msgspec.structs.replace(judgement, verdict="unproved", reason=_CHANGED_BETWEEN, remedy=_WAIT)
        return judgement if before is None else before.compared(after, judgement)

    def _state(self, root: str, stop: Stop, *, with_clean: bool) -> "_TreeState":
        try:
            repository = self._repositories.find(root, stop)
            if repository is None:
                return _TreeState()
            state = repository.state()
            is_clean: bool | None = None
            if with_clean:
                with contextlib.suppress(CannotJudge):
                    is_clean = repository.is_clean()
            return _TreeState(commit=state.commit, is_clean=is_clean, files=repository.tracked_changes())
        except CannotJudge as problem:
            return _TreeState(problem=str(problem))

    def _snapshot(self, root: str, globs: Sequence[str], stop: Stop) -> Snapshot:
        try:
            if not root or not os.path.isdir(root):
                return Snapshot(problem=f"The project directory {root} does not exist.")
            root = os.path.realpath(root)
            repository = self._repositories.find(root, stop)
            if repository is not None:
                return repository.snapshot(globs)
            return Snapshot(files=digests(root, matching(root, globs, stop.is_set), MAX_SNAPSHOT_FILES))
        except CannotJudge as problem:
            return Snapshot(problem=str(problem))
        except ServerEnds:
            raise
        except OSError as problem:
            return Snapshot(problem=f"{problem}.")
        except Exception as problem:
            log.exception("the snapshot of %s failed", root)
            return Snapshot(problem=f"{type(problem).__name__}.")


_CHANGED_BETWEEN: Final = "Files changed after the proof before this one was taken, so they belong to no one state."
_WAIT: Final = "Leave the files alone until all proofs are taken, and submit again."
_REPAIR: Final = "Repair the repository, and submit again."


class _TreeState(msgspec.Struct, frozen=True, kw_only=True):
    """The working tree before or after a proof."""

    commit: str = ""
    is_clean: bool | None = None
    files: Mapping[str, str] = {}
    """SHA-256 of the tracked files that differ from the commit, also in submodules."""
    problem: str = ""

    @property
    def digest(self) -> str:
        """Digest of commit and files; empty outside a repository."""
        content = msgspec.json.encode([self.commit, sorted(self.files.items())])
        return hashlib.sha256(content).hexdigest() if self.commit else ""

    def compared(self, after: "_TreeState", judgement: Judgement) -> Judgement:
        """The judgement; unproved if tracked files changed meanwhile, or if that can no longer be said."""
        if judgement.verdict != "passed" or self.problem:
            return judgement
        if after.problem:
            reason = f"What changed while the proof was taken cannot be said: {after.problem}"
            return msgspec.structs.replace(judgement, verdict="unproved", reason=reason, remedy=_REPAIR)
        changed = sorted(
            name for name in self.files.keys() | after.files.keys() if self.files.get(name) != after.files.get(name)
        )
        if self.commit == after.commit and not changed:
            return judgement
        what = f"{', '.join(changed[:3])} changed" if changed else "The commit changed"
        return msgspec.structs.replace(
            judgement,
            verdict="unproved",
            reason=f"{what} while the proof was taken, so that it belongs to no state of the files.",
            remedy=_WAIT,
        )


def _unproved(task: ProofTask, reason: str, remedy: str) -> Judgement:
    kind = str(task.proof.__struct_config__.tag)
    return Judgement(
        name=task.proof.name, kind=kind, verdict="unproved", summary=_summary(task), reason=reason, remedy=remedy
    )


def _summary(task: ProofTask) -> str:
    try:
        return task.summary()
    except Exception:  # noqa: BLE001 - words are no reason to fail
        return ""


def _clean(judgement: Judgement, secrets: Collection[str], seconds: float) -> Judgement:
    """The judgement with nothing that must not be stored: secrets, control characters, endless texts."""

    def text(value: str, limit: int) -> str:
        return shorten(printable(redact(value, secrets)), limit)

    return msgspec.structs.replace(
        judgement,
        summary=text(judgement.summary, MAX_REASON),
        reason=text(judgement.reason, MAX_REASON),
        remedy=text(judgement.remedy, MAX_REASON),
        tail=text(judgement.tail, 4096),
        measures={
            name: text(value, MAX_REASON) if isinstance(value, str) else value
            for name, value in judgement.measures.items()
        },
        seconds=judgement.seconds or seconds,
    )


async def _in_thread(work: Callable[[Stop], T]) -> T:
    """Do work in a thread of its own, which does not keep the process from exiting. Cancelling waits for its end."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    stop = Stop()

    def deliver(set_result: Callable[..., None], value: object) -> None:
        def resolve() -> None:
            if not future.done():
                set_result(value)

        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(resolve)

    def run() -> None:
        try:
            result = work(stop)
        except ServerEnds:
            pass  # nobody needs a result any more
        except BaseException as problem:  # noqa: BLE001 - it is raised where the result is awaited
            deliver(future.set_exception, problem)
        else:
            deliver(future.set_result, result)
        finally:
            stop.close()

    threading.Thread(target=run, name="proof", daemon=True).start()
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(future, CANCEL_SECONDS)
        raise


CANCEL_SECONDS: Final = 10.0
"""How long cancelling a proof waits for its processes to end."""
