"""`workflowlookup key`: shows the public key with which others verify receipts of this installation."""

import argparse
import os

from workflowlookup.cli.output import shown_path, write, write_file, write_json, write_text
from workflowlookup.receipts.keys import key_path, load_or_make_key
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", help="write the public key to this file")
    parser.add_argument("--json", action="store_true", help="print fingerprint and key as JSON")


def run(options: argparse.Namespace, settings: Settings) -> int:  # noqa: ARG001 - a key has no settings
    path = key_path(os.environ)
    key = load_or_make_key(path).public
    if options.output:
        write_file(options.output, key.pem.encode())
    if options.json:
        write_json({"keyId": key.key_id, "publicKey": key.pem, "privateKeyFile": path})
    elif options.output:
        write(f"Wrote the public key {key.key_id} to {shown_path(options.output)}")
    else:
        write(f"fingerprint  {key.key_id}")
        write(f"private key  {shown_path(path)}")
        write_text(key.pem)
    return 0


EXAMPLES = """\
  workflowlookup key                                        show the fingerprint and the public key
  workflowlookup key -o workflowlookup.pem                  for `verify --key` elsewhere"""
