"""The checks of `lint` for proofs: what a command may do, what can never fail, and what contradicts itself.

Like all checks of `lint` they report only what the document shows: which commands a project has is not known here.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from workflowlookup.authoring.lint.subject import (
    Findings,
    LintCheck,
    LintSubject,
    LocatedStep,
    texts_in,
    variables_in,
    variables_in_templates,
)
from workflowlookup.language.conditions import describe
from workflowlookup.language.document.findings import Severity
from workflowlookup.language.document.parts import conditions_in
from workflowlookup.language.document.proof_checks import leaves_root
from workflowlookup.language.formats.schemas import PathTo, show, suggest
from workflowlookup.language.model import PromptStep
from workflowlookup.language.proof import AnyProof, CommandProof, FileProof, GitProof, HttpProof

ALL_EXIT_CODES: Final = 256
_SHELLS: Final = frozenset({*("sh", "bash", "zsh", "dash", "ksh", "fish"), *("cmd", "powershell", "pwsh")})
_SHELL_FLAG: Final = re.compile(r"-[a-z]*c[a-z]*|/c|-command|-encodedcommand", re.IGNORECASE)
_WRAPPERS: Final = frozenset({"env", "sudo", "doas", "nice", "nohup", "time", "timeout", "xargs", "npx"})
_ANY: Final = frozenset[str]()
_EFFECTS: Final[Mapping[str, frozenset[str]]] = {
    "git": frozenset({"push", "commit", "reset", "clean", "checkout", "restore", "merge", "rebase"}),
    "gh": frozenset({"create", "merge", "close", "delete", "edit", "upload", "comment"}),
    "npm": frozenset({"publish", "unpublish", "deprecate"}),
    "pnpm": frozenset({"publish"}),
    "yarn": frozenset({"publish"}),
    "cargo": frozenset({"publish", "yank"}),
    "uv": frozenset({"publish"}),
    "poetry": frozenset({"publish"}),
    "twine": frozenset({"upload"}),
    "gem": frozenset({"push", "yank"}),
    "docker": frozenset({"push", "rm", "rmi", "prune", "kill"}),
    "podman": frozenset({"push", "rm", "rmi", "prune", "kill"}),
    "kubectl": frozenset({"apply", "create", "delete", "patch", "replace", "scale", "drain"}),
    "helm": frozenset({"install", "upgrade", "uninstall", "rollback"}),
    "terraform": frozenset({"apply", "destroy", "import"}),
    "tofu": frozenset({"apply", "destroy", "import"}),
    "pulumi": frozenset({"up", "destroy"}),
    "curl": frozenset({"POST", "PUT", "PATCH", "DELETE", "-d", "--data", "--data-binary", "-F", "--form", "-T"}),
    "wget": frozenset({"--post-data", "--post-file", "--method=POST", "--method=PUT", "--method=DELETE"}),
    "rm": _ANY,
    "rmdir": _ANY,
    "mv": _ANY,
    "dd": _ANY,
    "mkfs": _ANY,
    "shutdown": _ANY,
    "sudo": _ANY,
    "doas": _ANY,
    "ssh": _ANY,
    "scp": _ANY,
    "rsync": _ANY,
    "ansible-playbook": _ANY,
    "sendmail": _ANY,
}
"""By program: the words that make it change something outside; none if every use of it does."""
_ALWAYS_SUCCEED: Final = frozenset({"true", ":", "echo", "printf", "pwd", "date"})
_WHOLE_TREE: Final = frozenset({".", "*", "**", "**/*", "./", "./*", "./**", "./**/*"})
_EVERY_NAME: Final = re.compile(r"\^?(\.[*+]?\??)?\$?")


def _proofs(subject: LintSubject) -> Iterator[tuple[LocatedStep, PathTo, AnyProof]]:
    for located in subject.steps:
        step = subject.workflow.steps[located.id]
        for index, proof in enumerate(step.proofs if isinstance(step, PromptStep) else ()):
            yield located, (*located.path, "proof", index), proof


def _commands(subject: LintSubject) -> Iterator[tuple[LocatedStep, PathTo, CommandProof]]:
    for located, path, proof in _proofs(subject):
        if isinstance(proof, CommandProof):
            yield located, path, proof


def _program(word: str) -> str:
    return re.split(r"[/\\]", word)[-1].lower().removesuffix(".exe")


def _unwrapped(words: Sequence[str]) -> Sequence[str]:
    """The command without `env`, `timeout 5` and the like in front of it."""
    while words and _program(words[0]) in _WRAPPERS - {"sudo", "doas"}:
        words = list(itertools.dropwhile(lambda word: re.match(r"-|\w+=|[\d.]+[smhd]?$", word), words[1:]))
    return words


def _script(words: Sequence[str]) -> str | None:
    """The text that a shell executes; None if the command is no shell with a text."""
    words = _unwrapped(words)
    if not words or _program(words[0]) not in _SHELLS:
        return None
    for index, word in enumerate(words[1:], 1):
        if _SHELL_FLAG.fullmatch(word):
            return " ".join(words[index + 1 :])
        if not word.startswith(("-", "+", "/")) and words[index - 1] not in ("-o", "+o"):
            return None  # a script of the project, and its arguments
    return None


# ── commands ────────────────────────────────────────────────────────────────────────────────────────────────────


def shells(subject: LintSubject) -> Findings:
    for located, path, proof in _commands(subject):
        if _script(proof.run) is not None:
            yield (
                (*path, "run"),
                f"Proof '{proof.name}' of step '{located.id}' runs a shell, which hides what is executed",
                "Write the program and its arguments one by one, or put the script into a file of the project",
            )


def templates_in_commands(subject: LintSubject) -> Findings:
    for located, path, proof in _commands(subject):
        for field, words in (("run", proof.run), ("args", proof.args)):
            for index, word in enumerate(words):
                if variables_in_templates(word) and not (field == "run" and index == 0):
                    yield (
                        (*path, field, index),
                        f"Proof '{proof.name}' of step '{located.id}' runs with {show(word)}, chosen by an agent",
                        "Write a fixed argument, or capture the value with an enum or a pattern that allows no option",
                    )


def missing_timeouts(subject: LintSubject) -> Findings:
    for located, path, proof in _commands(subject):
        entry = located.step["proof"][path[-1]]
        if proof.run and "timeout" not in entry:
            yield (
                path,
                f"Proof '{proof.name}' of step '{located.id}' has no timeout: it may take {proof.timeout:g} seconds",
                "Add 'timeout' with the seconds that the command may take",
            )


def outer_paths(subject: LintSubject) -> Findings:
    for located, path, proof in _commands(subject):
        for field, words in (("run", proof.run), ("args", proof.args)):
            for index, word in enumerate(words):
                value = word.partition("=")[2] if word.startswith("-") else word
                is_program = field == "run" and index == 0
                if leaves_root(value) and not (is_program and ".." not in value) and not value.startswith("//"):
                    yield (
                        (*path, field, index),
                        f"Proof '{proof.name}' of step '{located.id}' uses {show(word)}, which is outside the root",
                        "Use a path inside the project: other machines do not have this one",
                    )


def effects(subject: LintSubject) -> Findings:
    for located, path, proof in _commands(subject):
        words = _unwrapped(proof.run)
        script = _script(words)
        parts = re.split(r"[;&|\n]+", script) if script is not None else []
        for command in [words, *(_unwrapped(part.split()) for part in parts)]:
            if command and _has_effect(command):
                yield (
                    (*path, "run"),
                    f"Proof '{proof.name}' of step '{located.id}' changes something by {show(' '.join(command))}",
                    "Prove by looking: a proof is taken again and again, and must leave no trace",
                )
                break


def _has_effect(words: Sequence[str]) -> bool:
    telling = _EFFECTS.get(_program(words[0]))
    if telling is None:
        return False
    given = {part for word in words[1:] for part in (word, word.removeprefix("-X"), word.partition("=")[0])}
    return telling is _ANY or not telling.isdisjoint(given)


# ── proofs that prove nothing ───────────────────────────────────────────────────────────────────────────────────


def idle_proofs(subject: LintSubject) -> Findings:
    for located, path, proof in _proofs(subject):
        for field, why in _why_idle(proof, located.step["proof"][path[-1]]):
            yield (
                (*path, *field),
                f"Proof '{proof.name}' of step '{located.id}' can never fail: {why}",
                "Check something that is false before the step is done",
            )


def _why_idle(proof: AnyProof, entry: Mapping[str, object]) -> Iterator[tuple[PathTo, str]]:
    for field in proof.criteria:
        if entry.get(field) == []:
            yield (field,), f"'{field}' has no rules"
    match proof:
        case CommandProof() if proof.at_start or proof.holds is not None or proof.stdout or proof.stderr:
            return
        case CommandProof(exit_codes=codes) if codes is not None and len(set(codes)) == ALL_EXIT_CODES:
            yield ("exitCode",), "every exit code is right"
        case CommandProof(run=[program, *_], exit_codes=codes) if _program(program) in _ALWAYS_SUCCEED:
            if codes is not None and 0 in codes:
                yield ("run",), f"{show(program)} always ends with exit code 0"
        case FileProof(path=glob, exists=True, changed=None, text=None, json=None) if glob in _WHOLE_TREE:
            yield ("path",), f"{show(glob)} matches any file"
        case GitProof(unchanged=globs) if hidden := [glob for glob in globs if glob.split("/")[0] == ".git"]:
            yield ("unchanged",), f"git tracks no file that matches {show(hidden[0])}"
        case GitProof(branch=pattern) if pattern and _EVERY_NAME.fullmatch(pattern):
            yield ("branch",), f"every name matches {show(pattern)}"


def contradictory_proofs(subject: LintSubject) -> Findings:
    by_step: dict[PathTo, list[tuple[LocatedStep, PathTo, AnyProof]]] = {}
    for located, path, proof in _proofs(subject):
        by_step.setdefault(located.path, []).append((located, path, proof))
    for members in by_step.values():
        subject.budget.charge(len(members) ** 2)
        for (located, _, first), (_, path, second) in itertools.combinations_with_replacement(members, 2):
            if first.condition is not None and second.condition is not None and first.condition != second.condition:
                continue
            why = _contradiction(first, second) or _contradiction(second, first)
            if why:
                when = first.condition or second.condition
                both = f"Proofs '{first.name}' and '{second.name}' of step '{located.id}' exclude each other"
                alone = f"Proof '{first.name}' of step '{located.id}' can never hold"
                yield (
                    path,
                    f"{alone if first is second else both}: {why}" + (f", when {describe(when)}" if when else ""),
                    "Change or remove one of them: no output of the step can be accepted",
                )


def _contradiction(first: AnyProof, second: AnyProof) -> str:
    match first, second:
        case FileProof(path=one, exists=True), FileProof(path=other, exists=False) if one == other:
            return f"{show(one)} must exist and must not"
        case FileProof(path=path, changed=since), GitProof(unchanged=globs) if since == second.since and path in globs:
            return f"{show(path)} must change and must not"
        case GitProof(clean=True), GitProof(clean=False):
            return "the working tree must be clean and must not"
        case GitProof(changed=changed), GitProof(unchanged=unchanged) if first.since == second.since:
            return next((f"{show(glob)} must change and must not" for glob in changed if glob in unchanged), "")
        case CommandProof(), CommandProof() if _same_command(first, second):
            ones, others = first.exit_codes, second.exit_codes
            if ones is not None and (set(ones).isdisjoint(others) if others is not None else set(ones) == {0}):
                return "the same command cannot end with both exit codes"
        case HttpProof(), HttpProof() if (first.url, first.method) == (second.url, second.method):
            return "the same URL cannot answer with both statuses" if first.status != second.status else ""
    return ""


def _same_command(first: CommandProof, second: CommandProof) -> bool:
    if first.at_start or second.at_start:
        return False
    fields = ("use", "run", "args", "cwd", "env", "against")
    return all(getattr(first, field) == getattr(second, field) for field in fields)


# ── the workflow ────────────────────────────────────────────────────────────────────────────────────────────────


def unproved_and_unchecked(subject: LintSubject) -> Findings:
    if subject.document.get("whenUnproved") != "note":
        return
    for located in subject.steps:
        step = subject.workflow.steps[located.id]
        if isinstance(step, PromptStep) and step.proofs and not step.requirements and not step.may_ask_person:
            yield (
                (*located.path, "proof"),
                f"Only proofs check step '{located.id}', and with whenUnproved 'note' any output passes without them",
                "Add 'validationCriteria', or write whenUnproved 'ask' or 'refuse'",
            )


def unmeasured_values(subject: LintSubject) -> Findings:
    """`proof.NAME.MEASURE` that no proof of this or an earlier step measures."""
    if "proof" in subject.contract or "proof" in subject.produced:
        return
    measured: set[str] = set()
    for located in subject.steps:
        step = subject.workflow.steps[located.id]
        proofs = step.proofs if isinstance(step, PromptStep) else ()
        own = {f"proof.{proof.name}.{name}" for proof in proofs for name in _measures(proof)}
        first = [proof for proof in proofs if isinstance(proof, CommandProof) and proof.at_start]
        at_start = {f"proof.{proof.name}.{name}" for proof in first for name in _measures(proof)}
        body = _measured_below(subject, located) if "loop" in located.step else set()
        for path, name in _measure_uses(located):
            is_proof = path[len(located.path) : len(located.path) + 1] == ("proof",)
            available = measured | body | (own if is_proof else at_start)
            if not any(name == one or name.startswith(f"{one}.") for one in available):
                written = suggest(name, sorted(available))
                yield (
                    path,
                    f"{written} is used in step '{located.id}', and no proof measures it before",
                    "Add it to 'measure' of a command with that name, in this or an earlier step",
                )
        measured |= own


def _measures(proof: AnyProof) -> Iterator[str]:
    if isinstance(proof, CommandProof):
        yield from proof.measures


def _measured_below(subject: LintSubject, loop: LocatedStep) -> set[str]:
    """What the steps of a loop measure: its condition is evaluated after them."""
    return {
        f"proof.{proof.name}.{name}"
        for located, _, proof in _proofs(subject)
        if loop.step in located.loops
        for name in _measures(proof)
    }


def _measure_uses(located: LocatedStep) -> Iterator[tuple[PathTo, str]]:
    step = located.step
    named = [(path, name) for path, condition in conditions_in(step, located.path) for name in variables_in(condition)]
    named += [
        ((*located.path, "loop", "condition"), name) for name in variables_in(step.get("loop", {}).get("condition", {}))
    ]
    for index, entry in enumerate(step.get("proof", ())):
        named += [((*located.path, "proof", index, "holds"), name) for name in variables_in(entry.get("holds", {}))]
    plain = {key: value for key, value in step.items() if key != "body"}
    named += [(path, name) for path, text in texts_in(plain, located.path) for name in variables_in_templates(text)]
    yield from ((path, name) for path, name in named if name.startswith("proof."))


PROOF_CHECKS: Final[Mapping[str, LintCheck]] = {
    "WL013": LintCheck(name="shell-in-proof", find=shells, description="A proof runs a shell with a script as text."),
    "WL014": LintCheck(
        name="template-in-command",
        find=templates_in_commands,
        description="An argument of a command contains a variable, whose value an agent may choose.",
    ),
    "WL015": LintCheck(
        name="no-timeout",
        find=missing_timeouts,
        description="A command of a proof has no timeout of its own.",
        severity=Severity.NOTE,
    ),
    "WL016": LintCheck(
        name="path-outside-root",
        find=outer_paths,
        description="An argument of a command is a path outside the root of the project.",
    ),
    "WL017": LintCheck(
        name="effect-in-proof",
        find=effects,
        description="A command of a proof changes something outside, such as `git push`.",
    ),
    "WL018": LintCheck(name="idle-proof", find=idle_proofs, description="A proof, or a part of one, can never fail."),
    "WL019": LintCheck(
        name="contradictory-proofs",
        find=contradictory_proofs,
        description="Two proofs of a step cannot both hold.",
    ),
    "WL020": LintCheck(
        name="unproved-unchecked",
        find=unproved_and_unchecked,
        description="Only proofs check a step, and `whenUnproved: note` accepts outputs without them.",
    ),
    "WL021": LintCheck(
        name="unmeasured-value",
        find=unmeasured_values,
        description="`proof.NAME.MEASURE` is used, and no proof before measures it.",
    ),
}
