"""`workflowlookup witness`: takes the proofs of your runs on a server over HTTP, in this project."""

import argparse
import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import Callable
from typing import Any, Final

import msgspec

from workflowlookup.app import commands_of
from workflowlookup.cli.commands.trust import ask_about
from workflowlookup.cli.input import person_terminal
from workflowlookup.cli.output import CommandError, complain, shown_path, write
from workflowlookup.cli.witness import (
    OK,
    Unreachable,
    Witness,
    WitnessClient,
    entries_of,
    refusal_in,
    say,
    trusted_file,
)
from workflowlookup.language.document.checking import errors_in
from workflowlookup.repository import find_root_of_run
from workflowlookup.settings import Settings

TOKEN: Final = "WORKFLOWLOOKUP_TOKEN"  # noqa: S105 - the name of a variable
MAX_TOKEN_BYTES: Final = 16 << 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server", metavar="URL", required=True, help="the server, such as https://workflows.example.com"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"file with a token of scope witness, NAME+witness for runs of NAME; read again when the server refuses "
        f"it (default: {TOKEN}, or a question)",
    )
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        help="certificates (PEM) to trust in place of those of the system, for a server with a private authority",
    )
    parser.add_argument(
        "--run", metavar="RUN", action="append", default=[], help="take only the proofs of this run; may be repeated"
    )
    parser.add_argument(
        "--client-root",
        metavar="PATH",
        action="append",
        default=[],
        type=_absolute_path,
        help="another path by which clients know this project, such as in a container; may be repeated",
    )
    parser.add_argument(
        "--once", action="store_true", help="end when nothing more is due; exit code 1 if something did not pass"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--trust", metavar="WORKFLOW", help="show what this workflow of the server would run here, and allow it"
    )
    action.add_argument("--revoke", metavar="WORKFLOW", help="nothing that this workflow brings may run here any more")


def _absolute_path(text: str) -> str:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"'{text}' must be an absolute path")
    return text


def run(options: argparse.Namespace, settings: Settings) -> int:
    if options.revoke:
        return _revoke(WitnessClient(options.server, lambda: "").url, options.revoke, settings)
    client = WitnessClient(options.server, _token_reader(options.token_file), options.ca_file)
    if not client.is_private:
        complain(f"{client.url} is not https: others on the way can read the token and change what is proven.")
    if options.trust:
        return _trust(client, options.trust, settings)
    root, _ = find_root_of_run(settings.root, os.environ, settings.directory)
    if not os.path.isdir(root):
        raise CommandError(f"{root} is not a directory. Name the project with --root DIR.", 2)
    witness = Witness(
        client,
        root,
        commands=lambda: commands_of(settings, root),
        allowed_hosts=lambda: settings.proof_hosts,
        trust=settings.trust.store(),
        runs=options.run,
        client_roots=options.client_root,
    )
    say(f"Witness for {client.url} in {shown_path(root)}. Ctrl-C ends it.")
    try:
        asyncio.run(_run(witness, is_once=options.once))
    finally:
        witness.close()
    return int(options.once and not witness.is_satisfied)


async def _run(witness: Witness, *, is_once: bool) -> None:
    """Take proofs until a signal comes; what was started is ended before this returns."""
    work = asyncio.create_task(witness.run(once=is_once))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        work.cancel()
        witness.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        await work


def _token_reader(path: str | None) -> Callable[[], str]:
    """Reads the token: each time from a file, in which another program may renew it, otherwise once."""
    if path is not None:
        return lambda: _token(path)
    token = _token(None)
    return lambda: token


def _token(path: str | None) -> str:
    """The token, from a file that only its owner can read, the environment or the terminal."""
    if path is not None:
        try:
            with open(path, encoding="ascii") as stream:
                if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077:
                    complain(f"others on this machine can read {shown_path(path)}: `chmod 600` prevents that")
                token = stream.read(MAX_TOKEN_BYTES).strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise CommandError(f"{path} cannot be read: {problem}", 2) from problem
    elif token := os.environ.pop(TOKEN, "").strip():  # commands that prove something do not get it
        pass
    else:
        with person_terminal("enter a token") as terminal:
            token = (terminal.ask_secret("Token with the scope witness:") or "").strip()
    if not token or not token.isprintable() or not token.isascii() or " " in token:
        raise CommandError("there is no token: `workflowlookup token create NAME+witness --scope witness`", 2)
    return token


def _trust(client: WitnessClient, workflow_id: str, settings: Settings) -> int:
    """Show what a workflow of the server would run here, and trust what a person agrees to."""
    try:
        status, body = client.post("workflow", {"workflow": workflow_id})
    except Unreachable as problem:
        raise CommandError(f"{client.url} cannot be reached: {problem}") from problem
    if status != OK:
        raise refusal_in(status, body, client.url)
    try:
        document: Any = msgspec.json.decode(body)
    except msgspec.DecodeError as problem:
        raise CommandError(f"{client.url} sent something that is not a document: {problem}") from problem
    if errors_in(document) or document["id"] != workflow_id:
        raise CommandError(f"the document that {client.url} sent for '{workflow_id}' is not valid here")
    store = settings.trust.store()
    entries = [entry for entry in entries_of(client.url, document) if store.pins(entry) is None]
    if not entries:
        write("Nothing in this workflow needs your trust.")
        return 0
    question = "\nMay a witness on this machine run this whenever the server asks for it?"
    with person_terminal("trust what a server's workflow brings") as terminal:
        trusted = ask_about(terminal, store, entries, question)
    write(f"Trusted: {len(trusted)}. Not trusted: {len(entries) - len(trusted)}.")
    return int(len(trusted) < len(entries))


def _revoke(url: str, workflow_id: str, settings: Settings) -> int:
    file = trusted_file(url, workflow_id)
    revoked = settings.trust.store().revoke(lambda record: record.file == file)
    write(f"No longer trusted: {len(revoked)}.")
    return 0


EXAMPLES = """\
  workflowlookup witness --server https://workflows.example.com      in the project, until Ctrl-C
  workflowlookup witness --server URL --token-file FILE --once       in a CI job
  workflowlookup witness --server URL --trust release-check          allow what that workflow runs"""
