"""`workflowlookup notify`: who gets notices, and a trial message to them."""

import argparse
import threading

from workflowlookup.cli.output import CommandError, complain, write, write_json, write_records
from workflowlookup.runs.triage import Triage
from workflowlookup.settings import Settings
from workflowlookup.store.journal import now


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these recipients, as in [notify.NAME]")
    parser.add_argument("--test", action="store_true", help="send a trial notice to each; exit code 1 if one fails")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:
    from workflowlookup.notices.delivery import NotSent, send  # noqa: PLC0415 - most people send no notices
    from workflowlookup.notices.messages import Notice  # noqa: PLC0415 - as above

    recipients = [one for one in settings.notify if not options.names or one.name in options.names]
    unknown = sorted(set(options.names) - {one.name for one in recipients})
    if unknown:
        raise CommandError(f"the settings have no [notify.{unknown[0]}].")
    if not recipients:
        complain("nobody gets notices. Add a table [notify.NAME] to your settings: docs/notices.md has examples.")
        return 0
    rows = []
    for one in recipients:
        outcome = ""
        if options.test:
            notice = Notice(
                id=f"trial:{now()}",
                kind=Triage.PERSON,
                run_id="trial",
                workflow_id="trial",
                name="a trial",
                about="This is a trial of workflowlookup notify. No run needs you.",
                step="",
                why="",
                time=now(),
                link=settings.public_url,
            )
            try:
                send(notice, one, threading.Event())
                outcome = "sent"
            except NotSent as problem:
                outcome = f"not sent: {problem}"
        rows.append(
            {
                "name": one.name,
                "form": "mail" if one.is_mail else one.form,
                "events": ", ".join(one.events),
                "workflows": ", ".join(one.workflows),
                "outcome": outcome,
            }
        )
    if options.json:
        write_json({"recipients": rows})
    else:
        write_records(rows, [name for name in rows[0] if name != "outcome" or options.test])
        if not options.test:
            write("`workflowlookup notify --test` sends each a trial notice.")
    return int(any(row["outcome"].startswith("not") for row in rows))


EXAMPLES = """\
  workflowlookup notify               who gets notices, and about what
  workflowlookup notify --test        send a trial notice to each
  workflowlookup notify --test team   only to [notify.team]"""
