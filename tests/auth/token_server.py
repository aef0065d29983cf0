"""The real server over HTTP with something to hide, and tokens for it."""

import time
from collections.abc import Sequence
from pathlib import Path

from auth.secretive import Deployment
from support.web import WebClient, WebServer
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens


class TokenServer:
    """A server that has tokens, its journal, and those who come."""

    def __init__(self, directory: Path, *flags: str, is_open: bool = False) -> None:
        self.deployment = Deployment(directory)
        journal = self.deployment.journal.path
        self.tokens = Tokens(SqliteJournal(journal))
        self.secrets: dict[str, str] = {}
        if not is_open:
            self.let_in("ci-bot", ["read", "run"])
            self.let_in("reader", ["read"])
            self.let_in("other", ["admin"], ["other-*"])
            self.let_in("root", ["admin"], ["*"])
            self.let_in("gone", ["admin"], ["*"])
            self.tokens.revoke("gone")
            self.let_in("late", ["admin"], ["*"], seconds=0.001)
            time.sleep(0.01)
            root = self.secrets["root"]
            self.secrets["tampered"] = root[:-1] + ("A" if root[-1] != "A" else "B")
        self.server = WebServer(
            directory, "--journal", journal, "--log-level", "debug", *flags, directory=self.deployment.library
        )
        self._clients: list[WebClient] = []

    def let_in(
        self,
        name: str,
        scopes: Sequence[str],
        workflows: Sequence[str] = ("docs-*",),
        seconds: float = 600,
        *,
        is_person: bool = False,
    ) -> None:
        self.secrets[name] = self.tokens.create(name, scopes, workflows, seconds=seconds, is_person=is_person)[0]

    def client(self, name: str | None = None, **headers: str) -> WebClient:
        authorization = {"authorization": f"Bearer {self.secrets[name]}"} if name else {}
        client = WebClient(self.server.url, **authorization, **headers)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.server.stop()
        self.tokens.close()
        self.deployment.close()
        log = self.server.log()
        assert [name for name, secret in self.secrets.items() if secret in log] == []
        assert "Traceback" not in log, log
