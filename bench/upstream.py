"""Other systems as the benchmark needs them: as little time of their own as can be, and known.

python upstream.py http PORT COUNT SECONDS   a service with COUNT workflows, each of which takes SECONDS
python upstream.py mcp                       an MCP server on standard input and output with the one tool `echo`
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

SCHEMA: Final = {
    "type": "object",
    "properties": {"service": {"type": "string", "description": "Which service."}, "count": {"type": "integer"}},
    "required": ["service"],
}


class Service(BaseHTTPRequestHandler):
    """Runs are told by the time of their beginning, which is in their id."""

    protocol_version = "HTTP/1.1"
    workflows: bytes
    seconds: float

    def do_GET(self) -> None:
        if self.path == "/workflows":
            self._send(self.workflows)
            return
        begun = float(self.path.rpartition("/")[2])
        is_done = time.time() - begun >= self.seconds
        self._send(json.dumps({"status": "COMPLETED" if is_done else "RUNNING", "output": {"ok": is_done}}).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self._send(json.dumps({"runId": f"{time.time():.6f}"}).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing: it would cost time."""

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve_http(port: int, count: int, seconds: float) -> None:
    about = "Does what a service needs done, and tells what became of it. " * 2
    Service.workflows = json.dumps(
        [{"id": f"job-{n}", "name": f"Job {n}", "description": about, "inputSchema": SCHEMA} for n in range(count)]
    ).encode()
    Service.seconds = seconds
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(("127.0.0.1", port), Service).serve_forever()


def serve_mcp() -> None:
    tool = {"name": "echo", "inputSchema": {"type": "object"}}
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        match message.get("method"):
            case "initialize":
                result: Any = {"protocolVersion": message["params"]["protocolVersion"], **about}
            case "tools/list":
                result = {"tools": [tool]}
            case "tools/call":
                given = message["params"].get("arguments") or {}
                result = {"content": [{"type": "text", "text": json.dumps(given)}], "structuredContent": given}
            case _ if "id" in message:
                error = {"code": -32601, "message": "Method not found"}
                os.write(1, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n")
                continue
            case _:
                continue
        os.write(1, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")


if __name__ == "__main__":
    if sys.argv[1] == "mcp":
        serve_mcp()
    else:
        serve_http(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
