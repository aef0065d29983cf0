"""A client of a connection in memory: what most tests of the protocol need, without a process."""

import json

from support.json_values import Json, JsonObject
from workflowlookup.protocol.connection import Connection


class MemoryClient:
    """One end of a connection; subclasses make the connection and name what they send."""

    connection: Connection

    def exchange(self, message: JsonObject) -> Json:
        """The reply to a message, or None."""
        reply = self.connection.handle(json.dumps({"jsonrpc": "2.0", **message}).encode())
        return reply and json.loads(reply)

    def sent(self) -> list[Json]:
        """What the server has sent by itself since the last time."""
        messages = [json.loads(message) for message in self.connection.outbox]
        self.connection.outbox.clear()
        return messages
