"""An MCP server by hand, which does what no SDK lets a server do. For tests.

    python raw_server.py [mute]     over standard input and output; mute: it never says a word

`tools/call` of "answer": `line` is sent as it is, with ID in it replaced; of "progress": each of `values` is told.
"""

import json
import os
import subprocess
import sys
import time


def say(line: str) -> None:
    print(line, flush=True)


def reply(number: object, **fields: object) -> None:
    say(json.dumps({"jsonrpc": "2.0", "id": number, **fields}))


def main() -> None:
    if "mute" in sys.argv:
        time.sleep(3600)
    if secret := os.environ.get("RAW_SECRET"):
        print(f"I was given {secret}", file=sys.stderr, flush=True)
        sys.exit(4)
    for line in sys.stdin:
        message = json.loads(line)
        number, params = message.get("id"), message.get("params") or {}
        arguments = params.get("arguments") or {}
        match message["method"], params.get("name"):
            case "initialize", _:
                info = {"name": "raw", "version": "1"}
                about = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
                reply(number, result={**about, "serverInfo": info})
            case "tools/list", _:
                schema = {"type": "object"}
                names = ("answer", "progress", "helper")
                reply(number, result={"tools": [{"name": name, "inputSchema": schema} for name in names]})
            case "tools/call", "answer":
                say(arguments["line"].replace("ID", json.dumps(number)))
            case "tools/call", "progress":
                for value in arguments["values"]:
                    token = json.dumps(params["_meta"]["progressToken"])
                    progress = f'{{"progressToken": {token}, "progress": {value}, "total": 10}}'
                    say(f'{{"jsonrpc": "2.0", "method": "notifications/progress", "params": {progress}}}')
                    time.sleep(0.1)
                reply(number, result={"content": []})
            case "tools/call", "helper":  # leaves a process behind that hears nothing
                quiet = subprocess.DEVNULL
                helper = subprocess.Popen(["sleep", "600"], stdin=quiet, stdout=quiet, stderr=quiet)
                reply(number, result={"content": [], "structuredContent": {"pid": helper.pid}})
            case _, _ if number is not None:
                reply(number, error={"code": -32601, "message": "no such method"})


if __name__ == "__main__":
    main()
