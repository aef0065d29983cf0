"""`python -m workflowlookup` does what the command `workflowlookup` does."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working directory: a repository must not bring modules that we import

    from workflowlookup.cli.main import main

    raise SystemExit(main())
