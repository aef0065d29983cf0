"""Sends one notice to one recipient: a webhook or an e-mail. Every failure is a `NotSent` that says why."""

import contextlib
import email.message
import email.utils
import hashlib
import hmac
import os
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from workflowlookup.checked_http import (
    HTTP_ERRORS,
    AddressRefused,
    addresses_of,
    connect,
    cutting,
    is_public,
    request,
    resolve,
)
from workflowlookup.language.text import redact, shorten
from workflowlookup.notices.config import MAIL_TO, Recipient
from workflowlookup.notices.messages import Notice, body_of, text_of
from workflowlookup.providers.secrets import VariableNotSet, fill_variables, secrets_in

SECONDS: Final = 10.0
"""Time for one attempt."""
SMTP_READY: Final = 220
SIGNATURE_HEADER: Final = "X-Workflowlookup-Signature"


class NotSent(Exception):
    """A notice that was not sent."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        """`is_final`: another attempt cannot succeed."""
        super().__init__(reason)
        self.is_final = is_final


def send(
    notice: Notice, recipient: Recipient, stop: threading.Event, environment: Mapping[str, str] = os.environ
) -> None:
    """Send a notice. Raises `NotSent`, whose text has no secret."""
    texts = (recipient.to, recipient.secret, recipient.smtp)
    secrets = secrets_in(texts, (recipient.secret,), environment)
    at = f"[notify.{recipient.name}]"
    try:
        to, secret, smtp = (fill_variables(text, at, environment) for text in texts)
        if recipient.is_mail:
            _send_mail(notice, recipient, to, smtp, stop)
        else:
            _post(notice, recipient, to, secret, stop)
    except VariableNotSet as problem:
        raise NotSent(str(problem)) from None
    except AddressRefused as problem:
        raise NotSent(redact(str(problem), secrets)) from None
    except NotSent as problem:
        raise NotSent(redact(str(problem), secrets), is_final=problem.is_final) from None
    except (*HTTP_ERRORS, smtplib.SMTPException, ValueError) as problem:
        words = str(problem) or type(problem).__name__
        raise NotSent(redact(shorten(words, 200), secrets)) from None


def _post(notice: Notice, recipient: Recipient, url: str, secret: str, stop: threading.Event) -> None:
    deadline = time.monotonic() + SECONDS
    target = resolve(url, deadline)
    _check_addresses(target.host, target.addresses, recipient)
    body = body_of(notice, recipient.form)
    headers = {"Content-Type": "application/json", "Idempotency-Key": notice.id}
    if secret:
        digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers[SIGNATURE_HEADER] = f"sha256={digest}"
    answer = request("POST", target, deadline, stop, body=body, headers=headers)
    if not 200 <= answer.status < 300:
        to = ", a redirect, which is not followed" if 300 <= answer.status < 400 else ""
        is_final = 400 <= answer.status < 500 and answer.status not in (408, 425, 429)
        raise NotSent(f"{target.host} answered with status {answer.status}{to}", is_final=is_final)


def _check_addresses(host: str, addresses: Sequence[str], recipient: Recipient) -> None:
    """Raises `NotSent` for an address of this machine or its network, unless the settings allow it."""
    for address in addresses:
        if not recipient.allow_private and not is_public(address):
            message = (
                f"{host} has the address {address}, which is of this machine or its network. "
                f"If that is meant, set allow_private = true in [notify.{recipient.name}]"
            )
            raise NotSent(message, is_final=True)


def _send_mail(notice: Notice, recipient: Recipient, to: str, smtp: str, stop: threading.Event) -> None:
    parts = urlsplit(smtp)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise NotSent(f"smtp of [notify.{recipient.name}] must be smtp://HOST:PORT or smtps://HOST:PORT", is_final=True)
    is_secure = parts.scheme == "smtps"
    port = parts.port or (465 if is_secure else 25)
    deadline = time.monotonic() + SECONDS
    addresses = addresses_of(parts.hostname, port, deadline)
    _check_addresses(parts.hostname, addresses, recipient)
    server = smtplib.SMTP()
    with cutting(deadline, stop, lambda: server.sock):
        server.sock = connected = connect(addresses, port, deadline)
        with contextlib.closing(server):
            if is_secure:
                _encrypt(server, connected, parts.hostname)
            _expect(server.getreply(), smtplib.SMTPConnectError)
            server.ehlo()
            if not is_secure and server.has_extn("starttls"):
                _expect(server.docmd("STARTTLS"), smtplib.SMTPResponseException)
                _encrypt(server, connected, parts.hostname)
                server.ehlo()
            if parts.username is not None:
                if not isinstance(server.sock, ssl.SSLSocket):
                    raise NotSent("The SMTP server offers no TLS, so the password was not sent", is_final=True)
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(_message(notice, recipient, to))
            with contextlib.suppress(OSError):  # it has the message
                server.quit()


def _encrypt(server: smtplib.SMTP, connected: socket.socket, host: str) -> None:
    """Begin TLS on the connection of a server. What is buffered is dropped: anybody may have sent it."""
    server.sock = ssl.create_default_context().wrap_socket(connected, server_hostname=host)
    server.file = None


def _expect(reply: tuple[int, bytes], failure: type[smtplib.SMTPResponseException]) -> None:
    """Raises this failure unless a server is ready."""
    if reply[0] != SMTP_READY:
        raise failure(*reply)


def _message(notice: Notice, recipient: Recipient, to: str) -> email.message.EmailMessage:
    message = email.message.EmailMessage()
    message["Subject"] = notice.headline
    message["From"] = recipient.sender
    message["To"] = to.removeprefix(MAIL_TO)
    message["Date"] = email.utils.formatdate()
    message["Message-ID"] = f"<{hashlib.sha256(notice.id.encode()).hexdigest()[:32]}@workflowlookup>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(text_of(notice))
    return message
