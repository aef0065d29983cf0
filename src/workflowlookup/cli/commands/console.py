"""`workflowlookup console`: opens the library and the runs of this machine in the browser."""

import argparse
import contextlib
import errno
import os
import socket
import sys
import webbrowser
from typing import Final

from workflowlookup import extras
from workflowlookup.app import make_console, serve_console
from workflowlookup.cli.arguments import whole_number
from workflowlookup.cli.input import agent_environment
from workflowlookup.cli.output import CommandError, complain, write, write_hint
from workflowlookup.cli.services import user_name
from workflowlookup.settings import Settings

PORT: Final = 8788


def add_arguments(parser: argparse.ArgumentParser) -> None:
    port = f"port to listen at (default: {PORT}, or another if it is in use)"
    parser.add_argument("--port", metavar="N", type=whole_number(0, 65_535), help=port)
    parser.add_argument("--no-open", action="store_true", help="print the URL and open no browser")


def run(options: argparse.Namespace, settings: Settings) -> int:
    extras.require(extras.HTTP)
    try:
        listener = _listen(options.port)
    except OSError as problem:
        message = f"port {options.port or PORT} cannot be used: {problem.strerror}. Choose another with --port."
        raise CommandError(message) from problem
    port = listener.getsockname()[1]
    agent = agent_environment(os.environ)
    console = make_console(settings, person=user_name(), port=port, is_agent=bool(agent))
    host, reserved = _reserve_name(port)
    address = f"http://{host}:{port}{console.entry_path}"
    write(address)
    write_hint("This URL works once, in the browser that opens it first. Ctrl-C stops the console.")
    if agent:
        complain(
            f"{agent} in the environment shows that an agent started the console: it can read and run, not confirm"
        )
    sys.stdout.flush()
    if not options.no_open and _has_browser():
        webbrowser.open(address)
    with reserved or contextlib.nullcontext(), contextlib.suppress(KeyboardInterrupt):
        serve_console(console, listener, settings)
    return 0


def _reserve_name(port: int) -> tuple[str, socket.socket | None]:
    """The host name for the URL: `localhost`, where browsers have passkeys. It may also mean ::1, so the port is
    reserved there, or somebody else could get the key in the URL; if it is taken, the address in numbers.
    """
    try:
        reserved = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return "localhost", None
    try:
        reserved.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        reserved.bind(("::1", port))
    except OSError as problem:
        reserved.close()
        return "127.0.0.1" if problem.errno == errno.EADDRINUSE else "localhost", None
    return "localhost", reserved


def _listen(port: int | None) -> socket.socket:
    """A loopback socket at this port; without one, at the default port or any free one."""
    try:
        return socket.create_server(("127.0.0.1", PORT if port is None else port))
    except OSError as problem:
        if port is not None or problem.errno != errno.EADDRINUSE:
            raise
        return socket.create_server(("127.0.0.1", 0))


def _has_browser() -> bool:
    """Whether a browser would open in a window of its own, not in this terminal."""
    has_screen = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return has_screen and sys.stdout.isatty()


EXAMPLES = """\
  workflowlookup console                        open the browser
  workflowlookup console --no-open --port 9000  print the URL to open"""
