"""Proofs of kind `command`: runs a program, and judges how it ended and what it printed."""

import contextlib
import errno
import os
import shlex
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from workflowlookup.language.conditions import CompiledCondition, describe, walk
from workflowlookup.language.formats.patterns import BadPattern, Budget, TooSlow, extract_last
from workflowlookup.language.proof import CommandProof, Measure
from workflowlookup.language.templates import fill_values, filler
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Json, as_number, assign, brief, lookup
from workflowlookup.proving.contract import MAX_SUMMARY, CannotJudge, ProofTask, World, may_be_cut, unmet_criteria
from workflowlookup.proving.files import digest, shown
from workflowlookup.proving.running import Command, Ended
from workflowlookup.proving.tail import plain, tail
from workflowlookup.proving.worktree import Worktree, temporary_worktree
from workflowlookup.runs.events import Judgement

PASSED_ON: Final = ("PATH", "HOME", "LANG", "TMPDIR")
"""The environment variables that every command gets."""
_MAX_PROGRAM_FILES: Final = 16


def take_command(task: ProofTask, world: World) -> Judgement:
    """Take the proof. Raises `CannotJudge` before the command runs, and `ServerEnds`."""
    proof = task.proof
    assert isinstance(proof, CommandProof)
    words = _words(task, world)
    summary = shorten(shlex.join(words), MAX_SUMMARY)
    if proof.against is None:
        return _judge(task, world, words, task.root, summary)
    with temporary_worktree(task, world) as worktree:
        copied = ", ".join(map(task.fill, proof.against.copied)) or "nothing copied"
        at = f"{summary} (at {worktree.commit[:12]} with {copied})"
        judgement = _judge(task, world, words, worktree.directory, shorten(at, MAX_SUMMARY))
        if judgement.verdict == "passed" and proof.exit_codes is None:
            judgement = _with_control(judgement, task, world, words, worktree)
        return msgspec.structs.replace(judgement, digests=worktree.digests)


def _with_control(
    judgement: Judgement, task: ProofTask, world: World, words: Sequence[str], worktree: Worktree
) -> Judgement:
    """A failure at another commit proves something only if the command passes there with the whole change: otherwise it
    may fail for another reason, such as dependencies that a fresh checkout lacks.
    """
    worktree.copy_whole_change()
    proof = task.proof
    assert isinstance(proof, CommandProof)
    expected = CommandProof(name=proof.name, cwd=proof.cwd, env=proof.env, timeout=proof.timeout)
    control = _judge(msgspec.structs.replace(task, proof=expected), world, words, worktree.directory, judgement.summary)
    if control.verdict == "passed":
        return judgement
    return msgspec.structs.replace(
        control,
        verdict="unproved",
        reason="It also fails in the temporary copy with the whole change, so its failure without it proves nothing. "
        + control.reason,
        remedy="Have the command work in a fresh checkout: it installs what it needs, or finds it outside the project.",
    )


def _words(task: ProofTask, world: World) -> list[str]:
    proof = task.proof
    assert isinstance(proof, CommandProof)
    command: Sequence[str] = proof.run
    if proof.use:
        commands = world.commands()
        if proof.use not in commands or not commands[proof.use]:
            raise CannotJudge(
                f"The settings define no command '{proof.use}'.",
                "Define it in the settings: `workflowlookup init` suggests one, such as "
                f'[commands] {proof.use} = ["make", "{proof.use}"].',
            )
        return [*commands[proof.use], *(task.fill(argument) for argument in proof.args)]
    return [command[0], *(task.fill(argument) for argument in (*command[1:], *proof.args))]


def _judge(task: ProofTask, world: World, words: Sequence[str], root: str, summary: str) -> Judgement:
    proof = task.proof
    assert isinstance(proof, CommandProof)
    cwd = _inside(root, proof.cwd)
    environment = {name: world.environment[name] for name in (*PASSED_ON, *proof.env) if name in world.environment}
    program = _program(words[0], cwd, root, task.root, environment.get("PATH", os.defpath))
    before = _file_digests(task.root, root, cwd, [program, *words[1:]])
    try:
        ended = world.supervisors.run(
            Command(program=program, arguments=words, cwd=cwd, environment=environment, seconds=proof.timeout),
            world.stop,
            lambda seconds: world.on_progress(f"{summary}, {seconds:.0f} s"),
        )
    except ValueError as problem:
        raise CannotJudge(f"The command cannot be run: {problem}.", "Remove it from the command.") from problem
    if ended.error:
        raise _not_started(words[0], cwd, ended)
    after = _file_digests(task.root, root, cwd, [program, *words[1:]])
    verdict = _verdict(task, ended)
    changed = [name for name in before if before[name] != after.get(name)]
    if changed and verdict.verdict == "passed":
        verdict = msgspec.structs.replace(
            verdict,
            verdict="unproved",
            reason=f"{changed[0]} changed while the command ran, so that its result belongs to neither version.",
            remedy="Have the command leave its own files alone, and do not edit files while it runs.",
        )
    return msgspec.structs.replace(verdict, summary=summary, program=shown(program), digests=after)


# ── what is run ─────────────────────────────────────────────────────────────────────────────────────────────────


def _inside(root: str, cwd: str) -> str:
    """The real working directory. Raises `CannotJudge` if it is not a directory inside the root."""
    real = os.path.realpath(os.path.join(root, cwd))
    if os.path.isabs(cwd) or not (f"{real}/".startswith(f"{os.path.realpath(root).rstrip('/')}/")):
        raise CannotJudge(f"The directory '{shown(cwd)}' is outside the root.", "Use a directory of the project.")
    if not os.path.isdir(real):
        raise CannotJudge(f"The directory '{shown(cwd)}' does not exist.", "Create it, or correct `cwd`.")
    return real


def _program(name: str, cwd: str, root: str, project: str, search_path: str) -> str:
    """The absolute path of the program: on PATH, or relative to the working directory if it has a slash.

    In a temporary worktree, a program that the commit has not, such as one of a virtual environment, is the project's.
    """
    if os.path.isabs(name):
        return name
    if "/" in name:
        path = os.path.normpath(os.path.join(cwd, name))
        own = os.path.join(project, os.path.relpath(path, os.path.realpath(root)))
        return own if not os.path.lexists(path) and os.path.lexists(own) else path
    absolute = os.pathsep.join(path for path in search_path.split(os.pathsep) if os.path.isabs(path))
    program = shutil.which(name, path=absolute)
    if program is not None:
        return program
    if file := shutil.which(name, mode=os.F_OK, path=absolute):
        raise _not_executable(file)
    raise _missing(name, "on the PATH of the server")


def _missing(name: str, where: str) -> CannotJudge:
    return CannotJudge(f"The program '{shown(name)}' does not exist {where}.", "Install it, or correct the command.")


def _not_executable(name: str) -> CannotJudge:
    return CannotJudge(
        f"The program '{shown(name)}' cannot be executed: permission denied.",
        f"Make it executable: `chmod +x {name}`.",
    )


def _not_started(name: str, cwd: str, ended: Ended) -> CannotJudge:
    if ended.failed_call == "chdir":
        return CannotJudge(f"{cwd} cannot be entered: {os.strerror(ended.error)}.", "Restore the directory.")
    match ended.error:
        case errno.ENOENT | errno.ENOTDIR:
            return _missing(name, "(or the interpreter that its first line names)")
        case errno.EACCES | errno.EPERM:
            return _not_executable(name)
        case errno.ENOEXEC:
            return CannotJudge(
                f"'{shown(name)}' is not a program of this system.", "Give the script a first line such as #!/bin/sh."
            )
        case errno.E2BIG:
            return CannotJudge("The arguments of the command are too long.", "Shorten the values in its templates.")
        case other:
            return CannotJudge(f"'{shown(name)}' cannot be started: {os.strerror(other)}.", "Remove the cause.")


def _file_digests(project: str, root: str, cwd: str, words: Sequence[str]) -> Mapping[str, str]:
    """The SHA-256 of the files in the root that the command names, by path from the root."""
    real = os.path.realpath(root)
    digests: dict[str, str] = {}
    if real != os.path.realpath(project):  # a temporary worktree, which has digests of its own
        return digests
    for word in words:
        path = os.path.relpath(os.path.join(cwd, word.partition("::")[0]), real) if "\0" not in word else ".."
        if len(digests) < _MAX_PROGRAM_FILES and not path.startswith("..") and os.path.isfile(os.path.join(real, path)):
            with contextlib.suppress(CannotJudge, OSError):
                digests[shown(path)] = digest(real, path)
    return digests


# ── how it ended ────────────────────────────────────────────────────────────────────────────────────────────────


def _verdict(task: ProofTask, ended: Ended) -> Judgement:
    proof = task.proof
    assert isinstance(proof, CommandProof)
    judgement = Judgement(
        name=proof.name,
        kind="command",
        verdict="passed",
        exit_code=ended.exit_code,
        seconds=round(ended.seconds, 3),
        tail=tail(plain(ended.both.data)),
    )
    budget = Budget()
    measures: dict[str, Json] = {}
    unmeasured: CannotJudge | None = None
    try:
        for name, measure in proof.measures.items():
            measures[name] = _measured(name, measure, ended, budget)
    except CannotJudge as problem:
        unmeasured = problem
    judgement = msgspec.structs.replace(judgement, measures=measures)
    try:
        for reason, remedy in _faults(task, ended, budget):
            return msgspec.structs.replace(judgement, verdict="failed", reason=reason, remedy=remedy)
        if unmeasured is not None:
            raise unmeasured
        for reason, remedy in _unmet(task, measures, budget):
            return msgspec.structs.replace(judgement, verdict="failed", reason=reason, remedy=remedy)
    except CannotJudge as problem:
        return msgspec.structs.replace(judgement, verdict="unproved", reason=str(problem), remedy=problem.remedy)
    return judgement


def _faults(task: ProofTask, ended: Ended, budget: Budget) -> Iterator[tuple[str, str]]:
    """Why it failed, each with a remedy."""
    proof = task.proof
    assert isinstance(proof, CommandProof)
    code = ended.exit_code
    if ended.timed_out:
        yield (
            f"It did not end within {proof.timeout:g} s, and was killed.",
            "Make it faster or find out what it waits for; the author can raise `timeout`.",
        )
        return
    if code is None:
        raise CannotJudge("The process was killed from outside before it ended.", "Submit again.")
    expected = proof.exit_codes
    if code not in expected if expected is not None else code <= 0:
        wanted = "another code than 0" if expected is None else " or ".join(map(str, expected))
        ending = f"was ended by signal {-code} ({_signal_name(-code)})" if code < 0 else f"ended with exit code {code}"
        remedy = "Fix what the output shows, and submit again." if code else "The command has to fail here; it did not."
        yield f"It {ending}; {wanted} is needed.", remedy
    for name, criteria, stream in (("stdout", proof.stdout, ended.stdout), ("stderr", proof.stderr, ended.stderr)):
        if criteria is not None:
            if not stream.is_whole and not may_be_cut(criteria):
                raise CannotJudge(
                    f"{name} is {stream.size:,} bytes long and was cut, so that its criteria cannot be judged.",
                    "Have the command print less.",
                )
            yield from unmet_criteria(criteria, plain(stream.data).rstrip("\n"), name, task, budget)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _measured(name: str, measure: Measure, ended: Ended, budget: Budget) -> Json:
    """The value of a measure. Raises `CannotJudge` if there is none."""
    for stream in (ended.stdout, ended.stderr):
        try:
            text = extract_last(measure.pattern, "m", plain(stream.end), budget)
        except (BadPattern, TooSlow) as problem:
            raise CannotJudge(
                f"The measure '{name}' could not be read: {str(problem) or 'its pattern took too long'}.",
                "Ask the author.",
            ) from problem
        if text is not None:
            break
    else:
        raise CannotJudge(
            f"The output has nothing that the measure '{name}' could be read from ({measure.pattern}).",
            "Have the command print it.",
        )
    if measure.type == "string":
        return text
    number = as_number(text.replace(",", "").replace("_", ""))
    if number is None or (measure.type == "integer" and number != int(number)):
        raise CannotJudge(
            f"The measure '{name}' is '{shorten(text, 50)}', which is not of type {measure.type}.", "Ask the author."
        )
    return int(number) if measure.type == "integer" else number


def _unmet(task: ProofTask, measures: Mapping[str, Json], budget: Budget) -> Iterator[tuple[str, str]]:
    """Why `holds` does not hold."""
    proof = task.proof
    assert isinstance(proof, CommandProof)
    if proof.holds is None:
        return
    earlier = task.context.get("proof")
    own = {**(earlier if isinstance(earlier, Mapping) else {}), proof.name: measures}
    context = assign(task.context, {"proof": own})
    unset: dict[str, None] = {}
    condition = CompiledCondition(fill_values(dict(proof.holds), context, filler(context, unset)))
    if unset:
        raise CannotJudge(
            f"{', '.join(unset)} is not set, so that nothing can be compared with it.",
            "Have the proof that measures it taken first.",
        )
    try:
        holds = condition.holds(context, budget)
    except TooSlow as problem:
        raise CannotJudge("Evaluating `holds` took too long.", "Ask the author to simplify it.") from problem
    if not holds:
        names = dict.fromkeys(str(part["var"]) for part in walk(condition) if "var" in part)
        values = ", ".join(f"{name} is {brief(lookup(context, name))}" for name in names)
        yield f"This does not hold: {describe(condition)} ({values}).", "Change the project so that it holds."
