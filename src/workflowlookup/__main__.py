"""`python -m workflowlookup` does what the command `workflowlookup` does."""

from workflowlookup.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
