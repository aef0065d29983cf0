"""`workflowlookup token`."""

import json
import re

import pytest

from support.command_line import Cli

TOKEN = re.compile(r"wl_[A-Za-z0-9_-]{43}")


def listed(cli: Cli) -> list[dict[str, object]]:
    tokens: list[dict[str, object]] = json.loads(cli("token", "list", "--json").stdout)["tokens"]
    return tokens


def test_a_token_is_shown_once(cli: Cli) -> None:
    made = cli("token", "create", "--name", "ci-bot", "--scope", "run", "--workflows", "docs-*", "--expires", "30d")

    assert made.returncode == 0
    assert TOKEN.fullmatch(made.stdout.strip())
    assert "shown only this once" in made.stderr
    (token,) = listed(cli)
    assert token["name"] == "ci-bot"
    assert token["scopes"] == ["run"]
    assert token["workflows"] == ["docs-*"]
    assert token["kind"] == "agent"
    assert token["state"] == "valid"
    shown = cli("token", "list").stdout
    assert made.stdout.strip() not in shown + json.dumps(token)
    assert f"wl_{made.stdout[3:11]}…" in shown
    assert "valid for 30 days" in shown
    for file in cli.home.rglob("*"):
        assert not file.is_file() or made.stdout.strip().encode() not in file.read_bytes()


def test_an_agent_cannot_create_a_token_of_a_person(cli: Cli) -> None:
    words = ("token", "create", "ada", "--scope", "confirm")

    refused = cli(*words, "--person", CLAUDECODE="1")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "CLAUDECODE in the environment shows that an agent runs this command" in refused.stderr
    assert listed(cli) == []
    assert cli(*words, CLAUDECODE="1").returncode == 0


def test_scopes_and_patterns_may_be_repeated(cli: Cli) -> None:
    words = ("--scope", "run,confirm", "--scope", "read", "--workflows", "a-*", "--workflows", "b-?", "--person")
    made = json.loads(cli("token", "create", "ada", *words, "--expires", "never", "--json").stdout)

    assert TOKEN.fullmatch(made["token"])
    assert made["scopes"] == ["confirm", "read", "run"]
    assert made["workflows"] == ["a-*", "b-?"]
    assert (made["kind"], made["expires"]) == ("person", None)


def test_it_is_revoked_by_its_name(cli: Cli) -> None:
    cli("token", "create", "ci-bot")

    done = cli("token", "revoke", "ci-bot")

    assert (done.returncode, done.stdout) == (0, "The token 'ci-bot' is refused from now on.\n")
    assert [token["state"] for token in listed(cli)] == ["revoked"]
    assert cli("token", "revoke", "ci-bot").returncode == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("create",), 2),
        (("revoke",), 2),
        (("create", "a", "--name", "b"), 2),
        (("create", "a", "--expires", "soon"), 2),
        (("make", "a"), 2),
        (("create", "a", "--scope", "everything"), 1),
        (("create", "a b"), 1),
        (("create", "a", "--workflows", "[a]"), 1),
        (("create", "a", "--workflows", ""), 1),
        (("create", "a", "--scope", ""), 1),
        (("create", "a", "--expires", "0d"), 1),
    ],
)
def test_invalid_token_arguments_are_refused(cli: Cli, words: tuple[str, ...], code: int) -> None:
    done = cli("token", *words)

    assert (done.returncode, done.stdout) == (code, "")
    assert "wl_" not in done.stderr


def test_listing_creates_no_journal(cli: Cli) -> None:
    done = cli("token", "list")

    assert (done.returncode, done.stdout) == (0, "")
    assert "there are no tokens" in done.stderr
    assert list(cli.home.rglob("*.sqlite")) == []
