"""Hooks of MkDocs: pages from the Markdown files at the root of the repository, and the list of decisions.

On the site the README is `index.md`, and all of them are beside the pages of `docs/`. A link to a file of the
repository that the site does not have becomes plain text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
AT_ROOT = {
    "README.md": "index.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "VERSIONING.md")},
}
_LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the entry Decisions of the navigation."""
    decisions = next(part["Decisions"] for group in config.nav or [] for part in _parts(group) if "Decisions" in part)
    decisions += [f"decisions/{path.name}" for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    return config


def _parts(group: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of a section of the navigation; none of a single page."""
    (entries,) = group.values()
    return entries if isinstance(entries, list) else []


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root."""
    for source, target in AT_ROOT.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Rewrite the links of a page from paths in the repository to paths on the site."""
    here = page.file.src_uri
    folder = "" if here in AT_ROOT.values() else posixpath.dirname(f"docs/{here}")

    def rewrite(link: re.Match[str]) -> str:
        mark, text, path, anchor = link.groups(default="")
        target = posixpath.normpath(posixpath.join(folder, path))
        on_site = AT_ROOT.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(on_site) is None and (ROOT / target).exists():
            return text
        return f"{mark}[{text}]({posixpath.relpath(on_site, posixpath.dirname(here) or '.')}{anchor})"

    return _LINK.sub(rewrite, markdown)
