"""`lint` of proofs: what each code finds, and neighbours in which it finds nothing."""

import pytest

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.authoring.lint.checks import lint
from workflowlookup.authoring.lint.proofs import PROOF_CHECKS

NUMBER = {"pattern": "(\\d+) passed", "type": "integer"}


def proved(*proof: JsonObject, **fields: Json) -> JsonObject:
    return document(step(proof=list(proof)), **fields)


def run(*words: str, **fields: Json) -> JsonObject:
    """A proof by a command."""
    return {"kind": "command", "run": list(words), **fields}


def use(**fields: Json) -> JsonObject:
    return {"kind": "command", "use": "test", **fields}


def file(path: str, **fields: Json) -> JsonObject:
    return {"kind": "file", "path": path, **fields}


def git(**fields: Json) -> JsonObject:
    return {"kind": "git", **fields}


FIRST = "steps.0.proof.0"
SECOND = "steps.0.proof.1"

FOUND: dict[str, dict[str, tuple[JsonObject, str]]] = {
    "WL013": {
        "sh": (proved(run("sh", "-c", "make | tail")), f"{FIRST}.run"),
        "bash with more flags": (proved(run("/bin/bash", "-o", "pipefail", "-ec", "make")), f"{FIRST}.run"),
        "cmd": (proved(run("cmd.exe", "/c", "make")), f"{FIRST}.run"),
        "powershell": (proved(run("pwsh", "-Command", "make")), f"{FIRST}.run"),
        "behind env": (proved(run("env", "CI=1", "bash", "-c", "make")), f"{FIRST}.run"),
    },
    "WL014": {
        "in run": (proved(run("make", "{{goal}}")), f"{FIRST}.run.1"),
        "in args": (proved(use(args=["-k", "test_{{name}}"])), f"{FIRST}.args.1"),
    },
    "WL015": {"run without a timeout": (proved(run("make", "test")), FIRST)},
    "WL016": {
        "an absolute path": (proved(run("cat", "/etc/hosts")), f"{FIRST}.run.1"),
        "up": (proved(run("python", "../other/check.py")), f"{FIRST}.run.1"),
        "in an option": (proved(use(args=["--config=/etc/x"])), f"{FIRST}.args.0"),
        "a program above": (proved(run("../tool", "x")), f"{FIRST}.run.0"),
    },
    "WL017": {
        "git push": (proved(run("git", "push", "origin")), f"{FIRST}.run"),
        "npm publish": (proved(run("npm", "publish")), f"{FIRST}.run"),
        "curl -X POST": (proved(run("curl", "-X", "POST", "http://localhost")), f"{FIRST}.run"),
        "curl -XPOST": (proved(run("curl", "-XDELETE", "http://localhost")), f"{FIRST}.run"),
        "rm -rf": (proved(run("rm", "-rf", "build")), f"{FIRST}.run"),
        "docker push": (proved(run("docker", "push", "image")), f"{FIRST}.run"),
        "kubectl apply": (proved(run("kubectl", "apply", "-f", "x.yaml")), f"{FIRST}.run"),
        "terraform apply": (proved(run("timeout", "5", "terraform", "apply")), f"{FIRST}.run"),
        "in a shell": (proved(run("sh", "-c", "make test && git push")), f"{FIRST}.run"),
    },
    "WL018": {
        "true": (proved(run("true")), f"{FIRST}.run"),
        "every exit code": (proved(use(exitCode=list(range(256)))), f"{FIRST}.exitCode"),
        "any file": (proved(file("**/*")), f"{FIRST}.path"),
        "criteria without rules": (proved(file("a", text=[])), f"{FIRST}.text"),
        "what git never tracks": (proved(git(unchanged=[".git/**"])), f"{FIRST}.unchanged"),
        "any branch": (proved(git(branch="^.*$")), f"{FIRST}.branch"),
    },
    "WL019": {
        "exists and does not": (proved(file("a"), file("a", exists=False)), SECOND),
        "the other way round": (proved(file("a", exists=False), file("a", changed="step")), SECOND),
        "changed and unchanged": (proved(git(changed=["a/**"]), git(unchanged=["a/**"])), SECOND),
        "a file that git must not see change": (proved(file("a", changed="run"), git(unchanged=["a"])), SECOND),
        "changed and unchanged in one": (proved(git(changed=["a"], unchanged=["a"])), FIRST),
        "clean and not": (proved(git(clean=True), git(clean=False)), SECOND),
        "passes and fails": (proved(use(), use(exitCode="nonzero")), SECOND),
        "two statuses": (
            proved(
                {"kind": "http", "url": "http://localhost/"},
                {"kind": "http", "url": "http://localhost/", "status": 404},
            ),
            SECOND,
        ),
        "under one condition": (proved(file("a", condition={"var": "x"}), file("a", exists=False)), SECOND),
    },
    "WL020": {
        "nothing else checks": (proved(use(), whenUnproved="note"), "steps.0.proof"),
    },
    "WL021": {
        "a name that no proof has": (
            proved(use(name="tests", measure={"n": NUMBER}, holds={"var": "proof.test.n", "gt": 0})),
            f"{FIRST}.holds",
        ),
        "a measure that it does not take": (
            proved(use(name="tests", measure={"n": NUMBER}, holds={"var": "proof.tests.n", "gt": "{{proof.base.n}}"})),
            f"{FIRST}.holds.gt",
        ),
        "in a prompt, before it is taken": (
            document(step(prompt="Keep {{proof.tests.n}}.", proof=[use(name="tests", measure={"n": NUMBER})])),
            "steps.0.prompt",
        ),
        "in a condition": (
            document(step(), step("two", runCondition={"var": "proof.tests.n", "gt": 0})),
            "steps.1.runCondition",
        ),
    },
}

NOT_FOUND: dict[str, dict[str, JsonObject]] = {
    "WL013": {
        "a script of the project": proved(run("bash", "scripts/check.sh", "-c")),
        "another program with -c": proved(run("python", "-c", "print(1)")),
        "a command of the settings": proved(use()),
    },
    "WL014": {
        "fixed arguments": proved(run("make", "test")),
        "literal braces": proved(run("echo", "{{{{x")),
        "a template in a path": proved(file("{{report}}")),
    },
    "WL015": {"a timeout": proved(run("make", timeout=60)), "a command of the settings": proved(use())},
    "WL016": {
        "inside": proved(run("python", "tools/check.py", "--config=x/y", "a/..b")),
        "an absolute program": proved(run("/usr/bin/make", "test")),
    },
    "WL017": {
        "git status": proved(run("git", "status")),
        "curl of a page": proved(run("curl", "-f", "http://localhost")),
        "kubectl get": proved(run("kubectl", "get", "pods")),
        "a word in an argument": proved(run("grep", "push", "README.md")),
    },
    "WL018": {
        "true that must fail": proved(run("true", exitCode="nonzero")),
        "true at the start": proved(run("true", at="start")),
        "echo with criteria": proved(run("echo", "x", stdout=["y"])),
        "some files": proved(file("src/**")),
        "any file that changed": proved(file("**/*", changed="step")),
        "a branch": proved(git(branch="^fix/.*")),
    },
    "WL019": {
        "different files": proved(file("a"), file("b", exists=False)),
        "different times": proved(git(changed=["a"], since="run"), git(unchanged=["a"], since="step")),
        "different conditions": proved(
            file("a", condition={"var": "x"}), file("a", exists=False, condition={"var": "y"})
        ),
        "against another commit": proved(use(), use(exitCode="nonzero", against={"base": "run"})),
        "a baseline": proved(use(at="start", exitCode="nonzero"), use()),
        "different arguments": proved(use(args=["a"]), use(args=["b"], exitCode="nonzero")),
        "codes in common": proved(use(exitCode=[0, 1]), use(exitCode="nonzero")),
    },
    "WL020": {
        "criteria": document(step(proof=[use()], validationCriteria=["x"]), whenUnproved="note"),
        "a person": document(step(proof=[use()], requireConfirmation=True), whenUnproved="note"),
        "ask": proved(use(), whenUnproved="ask"),
    },
    "WL021": {
        "an earlier proof of the step": proved(
            use(name="base", at="start", measure={"n": NUMBER}),
            use(name="tests", measure={"n": NUMBER}, holds={"var": "proof.tests.n", "gte": "{{proof.base.n}}"}),
        ),
        "an earlier step": document(
            step(proof=[use(name="base", measure={"n": NUMBER})]),
            step("two", prompt="There were {{proof.base.n}}.", runCondition={"var": "proof.base.n", "gt": 0}),
        ),
        "the body of a loop": document(
            loop(
                "again",
                [step(proof=[use(name="tests", measure={"failed": NUMBER})])],
                type="until",
                condition={"var": "proof.tests.failed", "equals": 0},
            )
        ),
        "a variable of that name": document(step(prompt="{{proof.text}}", produces=["proof"])),
    },
}


@pytest.mark.parametrize(
    ("code", "content", "path"),
    [pytest.param(code, *row, id=f"{code} {name}") for code, rows in FOUND.items() for name, row in rows.items()],
)
def test_found(code: str, content: JsonObject, path: str) -> None:
    findings = [finding for finding in lint(content) if finding.code == code]

    assert [".".join(map(str, finding.path)) for finding in findings] == [path]
    assert findings[0].message
    assert findings[0].suggestion


@pytest.mark.parametrize(
    ("code", "content"),
    [pytest.param(code, row, id=f"{code} {name}") for code, rows in NOT_FOUND.items() for name, row in rows.items()],
)
def test_not_found(code: str, content: JsonObject) -> None:
    assert [finding for finding in lint(content) if finding.code == code] == []


def test_every_code_has_rows() -> None:
    assert list(FOUND) == list(NOT_FOUND) == list(PROOF_CHECKS)


def test_a_good_proof_has_no_findings() -> None:
    content = document(
        step(
            prompt="Fix it. End with the line `file: PATH`.",
            produces={"file": {"pattern": "^file: (src/[\\w/]+\\.py)$", "flags": "m"}},
            proof=[
                use(name="base", at="start", measure={"n": NUMBER}),
                use(name="tests", measure={"n": NUMBER}, holds={"var": "proof.tests.n", "gte": "{{proof.base.n}}"}),
                use(name="regression", exitCode="nonzero", against={"base": "run", "with": ["tests/**"]}),
                file("{{file}}", changed="step"),
                git(unchanged=["docs/**"], commits=1),
            ],
        )
    )

    assert lint(content) == []


def test_variables_of_proofs_are_uses() -> None:
    (finding,) = [one for one in lint(proved(file("{{report}}"))) if one.code == "WL003"]

    assert finding.path == ("steps", 0, "proof", 0, "path")
    assert finding.message == "Variable 'report' is used in step 'first-step' and nothing produces it"


def test_criteria_in_proofs_are_checked_like_others() -> None:
    clash = [{"type": "length", "min": 9, "max": 3, "message": "m"}]
    broken = [{"type": "nonsense", "message": "m"}]
    findings = lint(proved(file("a", text=clash), use(stdout=broken)))

    assert [(finding.code, finding.path) for finding in findings] == [
        ("WL005", ("steps", 0, "proof", 0, "text", 0)),
        ("WL009", ("steps", 0, "proof", 1, "stdout", 0, "type")),
    ]
