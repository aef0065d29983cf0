"""The command `workflowlookup`, also started by `python -m workflowlookup`."""

import sys


def main() -> int:
    """Run the command line and return the exit code."""
    if sys.argv[1:2] == ["hook"]:
        from workflowlookup.cli.hook_entry import run_hook  # noqa: PLC0415 - clients start it before each use of a tool

        return run_hook(sys.argv[2:])
    try:
        import signal  # noqa: PLC0415 - not before the working directory is off the path
    except KeyboardInterrupt:
        return 130
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback if Ctrl-C comes during an import
    from workflowlookup.cli.main import main as run  # noqa: PLC0415

    return run()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory: we must not import modules of a repository
    raise SystemExit(main())
