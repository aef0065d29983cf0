"""What is shown of an output: failing tests first, in at most two kilobytes."""

import pytest

from workflowlookup.language.text import redact
from workflowlookup.proving.tail import MAX_TAIL_BYTES, plain, secret_values, tail

NOISE = "\n".join(f"collecting something that matters to nobody, number {number}" for number in range(200))
FAILURES = {
    "pytest": (
        "FAILED tests/test_app.py::test_double - assert 5 == 6",
        "E       assert 5 == 6",
        "1 failed, 211 passed in 3.02s",
    ),
    "unittest": (
        "FAIL: test_double (tests.test_app.TestApp.test_double)",
        "AssertionError: 5 != 6",
        "FAILED (failures=1)",
    ),
    "go": ("--- FAIL: TestDouble (0.00s)", "    app_test.go:7: 5", "FAIL\tapp\t0.002s"),
    "cargo": (
        "test doubles ... FAILED",
        "thread 'doubles' panicked at tests/app.rs:2:17:",
        "test result: FAILED. 0 passed; 1 failed",
    ),
    "node": ("✖ doubles (1.2ms)", "  AssertionError [ERR_ASSERTION]: 5 == 6", "# fail 1"),
    "tap": ("not ok 3 - doubles",),
    "jest": ("FAIL src/app.test.js", "  ● app \u203a doubles", "Tests:       1 failed, 3 passed, 4 total"),
    "vitest": (" FAIL  src/app.test.ts > doubles", "   \u00d7 doubles 3ms", "AssertionError: expected 5 to be 6"),
    "mocha": ("  1 failing", "  1) app doubles:"),
    "maven": (
        "[ERROR] AppTest.doubles:7 expected: <6> but was: <5>",
        "[ERROR] Tests run: 3, Failures: 1, Errors: 0, Skipped: 0",
    ),
    "make": ("make: *** [Makefile:3: test] Error 1",),
    "compiler": ("src/main.c:3:5: error: expected ';'", "error[E0308]: mismatched types"),
}


@pytest.mark.parametrize("runner", FAILURES)
def test_failing_tests_come_first(runner: str) -> None:
    lines = FAILURES[runner]

    shown = tail(f"{NOISE}\n" + f"\n{NOISE}\n".join(lines) + f"\n{NOISE}")

    before, _, after = shown.partition("…")
    assert all(line.strip() in before for line in lines)
    assert after.endswith("number 199")
    assert len(shown.encode()) <= MAX_TAIL_BYTES


def test_a_short_output_is_shown_as_it_is() -> None:
    assert tail("one\n\ntwo  \n") == "one\n\ntwo"
    assert tail("") == ""


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "é" * 100_000, "\n" * 100_000, "FAILED a::b\n" * 10_000, "E  x\n" * 5000 + "é" * 5000]
)
def test_it_is_never_longer(text: str) -> None:
    assert len(tail(text).encode()) <= MAX_TAIL_BYTES


def test_terminal_sequences_are_removed() -> None:
    data = b"\x1b[1;31mred\x1b[m \x1b]8;;http://x\x07link\x1b]8;;\x1b\\ \x1b(B\x1bM 50%\r100%\r\nend\x1b"

    assert plain(data) == "100%\nend\N{REPLACEMENT CHARACTER}"


def test_secrets() -> None:
    environment = {
        "GITHUB_TOKEN": "ghp_123456",
        "DB_PASSWORD": "tops3cret",
        "AWS_SECRET_ACCESS_KEY": "abc/def",
        "SSH_KEY": "key-material",
        "SHORT_TOKEN": "abc",
        "KEYBOARD": "qwertz-layout",
        "PWD": "/home/someone",
        "PATH": "/usr/bin",
    }

    secrets = secret_values(environment)

    assert secrets == {"ghp_123456", "tops3cret", "abc/def", "key-material"}
    assert redact("token ghp_123456, tops3cret!", secrets) == "token …, …!"
