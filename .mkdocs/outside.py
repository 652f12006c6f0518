"""Pages of the site that live outside docs/, and links that lead there.

On GitHub a page may link to any file of the repository. On the site README.md, CONTRIBUTING.md, SECURITY.md and
CHANGELOG.md are pages, and any other linked file becomes a page that shows it. A link to a file that does not exist
stays as it is, and the strict build refuses it.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PAGES = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)\s#]+)")
FENCED_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages from outside and one for each other file that a page links to."""
    root = Path(config.config_file_path).parent
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(root / name).read_text()))
    linked = {source for file in files.documentation_pages() for source in sources(file, root)}
    for source in sorted(linked):
        files.append(File.generated(config, f"source/{source}.md", content=listing(root / source, source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns links of the repository into links of the site."""
    root = Path(config.config_file_path).parent
    here = page.file.src_uri

    def of_site(match: re.Match[str]) -> str:
        target = in_repository(match[1], here)
        return posixpath.relpath(site_path(target), posixpath.dirname(here)) if (root / target).exists() else match[1]

    return outside_of_code(lambda text: LINK.sub(of_site, text), markdown)


def sources(file: File, root: Path) -> set[str]:
    """Files outside docs/ that a page links to and that are no pages yet."""
    text = FENCED_CODE.sub("", file.content_string)
    targets = {in_repository(link, file.src_uri) for link in LINK.findall(text)}
    return {target for target in targets if site_path(target).startswith("source/") and (root / target).is_file()}


def in_repository(link: str, page: str) -> str:
    """Where a link of a page leads, from the root of the repository."""
    home = "" if page in PAGES.values() else posixpath.join("docs", posixpath.dirname(page))
    return posixpath.normpath(posixpath.join(home, link))


def site_path(target: str) -> str:
    """Where a file of the repository stands on the site."""
    inside = target.removeprefix("docs/")
    return PAGES.get(target, inside if inside != target else f"source/{target}.md")


def listing(path: Path, name: str) -> str:
    """A page that shows a file; the search leaves it out."""
    fence = "`" * 4
    return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n{fence}{path.suffix[1:]}\n{path.read_text()}\n{fence}\n"


def outside_of_code(change: Callable[[str], str], markdown: str) -> str:
    """Applies a change to all but fenced code."""
    parts, end = [], 0
    for code in FENCED_CODE.finditer(markdown):
        parts += [change(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(markdown[end:])])
