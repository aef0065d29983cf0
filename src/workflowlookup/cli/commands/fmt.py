"""`workflowlookup fmt PATH…`: documents in one form, whoever wrote them. What they mean never changes."""

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Iterator

from workflowlookup.authoring.layout import CannotLayOut, encoded, json_text, ordered, refuse_repeats
from workflowlookup.authoring.yaml_layout import comments_of, follow, has_anchors, read_tree, yaml_text
from workflowlookup.cli.configuration import replace_text
from workflowlookup.cli.documents import PATHS_HELP, documents_in, hint_at, paths_or_project, places_in
from workflowlookup.cli.output import complain, refuse, shown_path, write, write_diff
from workflowlookup.errors import StorageError, WorkflowLookupError
from workflowlookup.language.text import plural
from workflowlookup.language.values import Json
from workflowlookup.library.files import is_document_name, parse_document, read_bytes
from workflowlookup.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="*", help=f"a document, or a directory of them {PATHS_HELP}")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if something would change")
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")


def run(options: argparse.Namespace, _: Settings) -> int:
    is_dry = options.check or options.diff
    changed = failed = total = 0
    for path, root in _documents(paths_or_project(options.paths)):
        total += 1
        try:
            data, _signature = read_bytes(path, root)
            wanted = formatted(data, os.path.splitext(path)[1], parse_document(data, path))
            if wanted == data:
                continue
            changed += 1
            if options.diff:
                write_diff(path, data.decode(), wanted.decode())
            else:
                write("would change " if is_dry else "formatted ", (shown_path(path), "bold"))
            if not is_dry:
                replace_text(path, data.decode(), wanted.decode(), keep_copy=False)
        except CannotLayOut as reason:
            failed += 1
            complain(f"{shown_path(path)} was not touched, because {reason}.")
        except WorkflowLookupError as refusal:  # the other documents do not suffer
            failed += 1
            refuse(refusal)
            if not os.path.lexists(path):
                complain(hint_at(path))
    verb = "would change" if is_dry else "formatted"
    write(f"{plural(total, 'document')}, ", (f"{changed} {verb}", "yellow" if changed else "green"))
    return int(failed > 0 or (options.check and changed > 0))


def _documents(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each document with the directory that it must lie in. Raises our refusals."""
    for path in paths:
        if os.path.isdir(path):
            for place in places_in(path):
                files, refusal = documents_in(place)
                if refusal:
                    raise refusal
                yield from ((file, place) for file in files)
        elif os.path.exists(path) and not is_document_name(os.path.basename(path)):
            raise StorageError(f"{path} is not a workflow document, by its name.", file=path)
        else:
            yield path, os.path.dirname(os.path.realpath(path))


def formatted(data: bytes, extension: str, document: Json) -> bytes:
    """The text of a document in its one form. Raises `CannotLayOut`."""
    text = data.decode("utf-8-sig").replace("\r\n", "\n")
    if extension == ".json":
        refuse_repeats(text)
        return encoded(json_text(ordered(document)), extension, document)
    return encoded(formatted_yaml(text, ordered(document)), extension, document)


def formatted_yaml(text: str, document: Json) -> str:
    """YAML laid out anew, in the order of the document, with every comment. Raises `CannotLayOut`."""
    tree = read_tree(text)
    if not has_anchors(text):  # what is used must stay below what it refers to
        follow(tree, document)
    wanted = yaml_text(tree)
    if Counter(" ".join(comments_of(text)).split()) != Counter(" ".join(comments_of(wanted)).split()):
        raise CannotLayOut("a comment would be lost")
    return wanted


EXAMPLES = """\
  workflowlookup fmt                             every document of the project
  workflowlookup fmt --check                     for CI: exit code 1 if something would change
  workflowlookup fmt --diff my-workflow.yaml     what would change"""
