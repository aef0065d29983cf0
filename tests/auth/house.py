"""The real server over HTTP with something to hide, and tokens for it."""

import time

from auth.secretive import World
from support.web import WebClient, WebServer
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens


class House:
    """A server that has tokens, its journal, and those who come."""

    def __init__(self, directory, *flags, is_open=False):
        self.world = World(directory)
        journal = self.world.runs.journal.path
        self.tokens = Tokens(SqliteJournal(journal))
        self.secrets = {}
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
            directory, "--journal", journal, "--log-level", "debug", *flags, directory=self.world.library
        )
        self._clients = []

    def let_in(self, name, scopes, workflows=("docs-*",), seconds=600, **more):
        self.secrets[name] = self.tokens.create(name, scopes, workflows, seconds=seconds, **more)[0]

    def client(self, name=None, **headers):
        said = {"authorization": f"Bearer {self.secrets[name]}"} if name else {}
        client = WebClient(self.server.url, **said, **headers)
        self._clients.append(client)
        return client

    def close(self):
        for client in self._clients:
            client.close()
        self.server.stop()
        self.tokens.close()
        self.world.close()
        log = self.server.log()
        assert [name for name, secret in self.secrets.items() if secret in log] == []
        assert "Traceback" not in log, log
