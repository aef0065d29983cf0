"""The tools' answers for commands: the same handlers, and so the same words, as on the wire."""

from typing import Any

import msgspec

from workflowlookup.app import make_services
from workflowlookup.cli.output import write_json
from workflowlookup.runs.run import Run
from workflowlookup.settings import Settings
from workflowlookup.tools.contract import NO_CLIENT, Handler, ServerServices
from workflowlookup.tools.run_answers import answer


def ask(handler: Handler, settings: Settings, arguments: msgspec.Struct) -> dict[str, Any]:
    """A tool's answer as plain JSON values. Raises what the tool raises."""
    return plain(handler(make_services(settings), arguments, NO_CLIENT))


def plain(value: object) -> dict[str, Any]:
    """An answer as plain JSON values; some parts of it may be encoded already."""
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return decoded


def write_run(services: ServerServices, run: Run) -> None:
    """The state of a run as JSON."""
    write_json(plain(answer(services, run, NO_CLIENT)))
