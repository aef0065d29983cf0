"""`workflowlookup token create|list|revoke`: manages access tokens for a server over HTTP."""

import argparse
import re
from collections.abc import Iterable
from typing import Final

from workflowlookup.access import EVERYTHING, SCOPES
from workflowlookup.app import make_tokens
from workflowlookup.cli.arguments import age
from workflowlookup.cli.input import refuse_agents
from workflowlookup.cli.output import CommandError, complain, write, write_json, write_table
from workflowlookup.cli.services import ago, has_journal, user_name
from workflowlookup.language.text import plural
from workflowlookup.logs import audit
from workflowlookup.settings import Settings
from workflowlookup.store.journal import Token, now
from workflowlookup.store.tokens import PREFIX, TokenProblem

EXPIRES: Final = "90d"
NEVER: Final = "never"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["create", "list", "revoke"], help="what to do")
    parser.add_argument("which", metavar="NAME", nargs="?", help="name of the token, for create and revoke")
    parser.add_argument("--name", metavar="NAME", help="the same as NAME")
    parser.add_argument(
        "--scope",
        metavar="SCOPE",
        action="append",
        default=[],
        help=f"what it allows: {', '.join(SCOPES)}; every scope includes read, and admin all but witness (default: "
        "read); may be repeated",
    )
    parser.add_argument(
        "--workflows",
        metavar="GLOB",
        action="append",
        default=[],
        help="for which workflows: patterns of ids such as docs-* (default: all); may be repeated",
    )
    parser.add_argument(
        "--expires", metavar="AGE", type=_life, default=EXPIRES, help=f"12h, 30d, {NEVER} (default: {EXPIRES})"
    )
    parser.add_argument(
        "--person", action="store_true", help="the token belongs to a person, who may confirm where only a person may"
    )
    parser.add_argument("--json", action="store_true", help="print the tokens as JSON")


def _life(text: str) -> float | None:
    """A lifetime in seconds; None for no end."""
    return None if text.strip().lower() == NEVER else age(text) / 1000


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.action == "list":
        return _list(options, settings)
    if options.which and options.name and options.which != options.name:
        raise CommandError(f"give only one name: either {options.which} or --name {options.name}", 2)
    name = options.name or options.which
    if not name:
        raise CommandError(f"a name is required: workflowlookup token {options.action} --name NAME", 2)
    try:
        return _create(name, options, settings) if options.action == "create" else _revoke(name, options, settings)
    except TokenProblem as problem:
        raise CommandError(str(problem)) from problem


def _create(name: str, options: argparse.Namespace, settings: Settings) -> int:
    if options.person:
        refuse_agents("create a token for a person")
    secret, token = make_tokens(settings).create(
        name,
        _words(options.scope or ["read"]),
        _words(options.workflows or EVERYTHING),  # an empty value, as of an unset variable, does not mean all
        seconds=options.expires,
        is_person=options.person,
        by=user_name(),
    )
    audit("token create", by=user_name(), token=name, kind=token.kind, scopes=token.scopes, workflows=token.workflows)
    if options.json:
        write_json({"token": secret, **_view(token)})
        return 0
    write(secret)
    complain("the token is shown only this once. Send it as `Authorization: Bearer TOKEN`.")
    return 0


def _revoke(name: str, options: argparse.Namespace, settings: Settings) -> int:
    make_tokens(settings).revoke(name)
    audit("token revoke", by=user_name(), token=name)
    if options.json:
        write_json({"revoked": name})
    else:
        write(f"The token '{name}' is refused from now on.")
    return 0


def _list(options: argparse.Namespace, settings: Settings) -> int:
    tokens = make_tokens(settings).all_tokens() if has_journal(settings) else []
    if options.json:
        write_json({"tokens": [_view(token) for token in tokens]})
    elif tokens:
        rows = [_row(token) for token in tokens]
        write_table(("name", "token", "for", "scopes", "workflows", "created", "state"), rows)
    else:
        complain("there are no tokens. `workflowlookup token create --name NAME --scope run` creates one.")
    return 0


def _row(token: Token) -> tuple[str, ...]:
    created = f"{ago(token.created)}{f' by {token.maker}' if token.maker else ''}"
    scopes, workflows = ", ".join(token.scopes), ", ".join(token.workflows)
    holder = "a person" if token.kind == "person" else "an agent"
    return token.name, f"{PREFIX}{token.id}…", holder, scopes, workflows, created, _state(token)


def _state(token: Token) -> str:
    state = token.state(now())
    if state != "valid" or token.expires is None:
        return state
    days = round((token.expires - now()) / 86_400_000)
    return f"valid for {plural(days, 'day')}" if days else "valid for less than a day"


def _view(token: Token) -> dict[str, object]:
    return {
        "name": token.name,
        "id": PREFIX + token.id,
        "kind": token.kind,
        "scopes": token.scopes,
        "workflows": token.workflows,
        "created": token.created,
        "expires": token.expires,
        "revoked": token.revoked,
        "by": token.maker,
        "state": token.state(now()),
    }


def _words(values: Iterable[str]) -> list[str]:
    return [word for value in values for word in re.split(r"[,\s]+", value) if word]


EXAMPLES = """\
  workflowlookup token create --name ci-bot --scope run --workflows 'docs-*' --expires 30d
  workflowlookup token create --name ada --scope run --scope confirm --person    for a person
  workflowlookup token create --name ada+witness --scope witness                  proves the runs of ada
  workflowlookup token list                                                       never shows a secret
  workflowlookup token revoke ci-bot                                              refused from now on"""
