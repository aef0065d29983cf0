"""The settings about notices: `[notify.NAME]` says who is told about which events of which workflows.

`${NAME}` in an address or a secret stays unexpanded here; it is expanded when a notice is sent.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

EventKind = Literal["person", "failed", "stuck"]
"""The groups of the triage that notices are sent for."""
MAIL_TO: Final = "mailto:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_HEADER_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f]+")


class Recipient(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who gets notices, in the form of a table `[notify.NAME]`."""

    to: Annotated[str, Meta(min_length=1)]
    """The URL of a webhook, or `mailto:` and an address."""
    form: Literal["json", "slack", "teams"] = "json"
    """What a webhook gets."""
    events: tuple[EventKind, ...] = ("person", "failed", "stuck")
    workflows: tuple[str, ...] = ("*",)
    """Patterns of workflow ids."""
    secret: str = ""
    """Signs the body of a webhook: `X-Workflowlookup-Signature: sha256=…`, an HMAC."""
    with_output: bool = False
    """Whether the output that a person is asked about is in the notice."""
    allow_private: bool = False
    """Whether the host may have an address of this machine or its own network."""
    smtp: str = ""
    """For e-mail: `smtps://USER:PASSWORD@HOST:465`, or `smtp://HOST:25`, with STARTTLS if the server offers it."""
    sender: str = ""
    """For e-mail: the address in `From`."""
    name: str = ""

    @property
    def is_mail(self) -> bool:
        return self.to.startswith(MAIL_TO)

    def wants(self, kind: str, workflow_id: str) -> bool:
        return kind in self.events and any(fnmatchcase(workflow_id, pattern) for pattern in self.workflows)

    def __repr__(self) -> str:
        return f"Recipient({self.name})"


def read_recipients(table: Mapping[str, Any]) -> tuple[Recipient, ...]:
    """The recipients of a table `notify`. Raises `ValueError` saying what was expected."""
    recipients = []
    for name, value in table.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"tables with names of 1 to 32 letters, digits, '.', '_' and '-'; found '{name[:40]}'")
        try:
            recipient = msgspec.convert(value, Recipient)
        except msgspec.ValidationError as problem:
            raise ValueError(f"tables of recipients; [notify.{name}]: {problem}") from None
        if fault := _fault_of(recipient):
            raise ValueError(f"tables of recipients; [notify.{name}] {fault}")
        recipients.append(msgspec.structs.replace(recipient, name=name))
    return tuple(recipients)


def _fault_of(recipient: Recipient) -> str:
    """What is wrong with a recipient; empty if nothing is."""
    if not recipient.is_mail:
        is_url = re.match(r"https?://|\$\{", recipient.to)
        return "" if is_url else "needs `to`: a URL that begins with https:// or http://, or mailto: and an address"
    if not recipient.smtp or not recipient.sender:
        return "sends e-mail, which also needs `smtp` (the server) and `sender` (the address in From)"
    if not _HEADER_TEXT.fullmatch(recipient.to + recipient.sender):
        return "has an address with line breaks or control characters"
    return ""
