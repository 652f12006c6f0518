"""The documentation as a site: it builds strictly, holds every page, asks for nothing, and can be searched."""

import functools
import http.server
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest

import swell

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium")
PATIENCE_MS = 60_000
COPIED = ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md")
LINKED = ("src", "benchmarks", ".mkdocs")


def build(root, site):
    """What `make docs` does, from another directory into another one."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", root / "mkdocs.yml", "-d", site]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=environment, cwd=site.parent, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("docs") / "site"
    done = build(ROOT, directory)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture
def copy(tmp_path):
    """The repository as far as the site needs it, to be broken."""
    root = tmp_path / "copy"
    shutil.copytree(ROOT / "docs", root / "docs")
    for name in COPIED:
        shutil.copy(ROOT / name, root / name)
    for name in LINKED:
        (root / name).symlink_to(ROOT / name)
    return root


def pages_of(nav):
    """The files that a navigation names, at any depth."""
    for entry in nav:
        for target in entry.values():
            yield from [target] if isinstance(target, str) else pages_of(target)


class _AnyTag(yaml.SafeLoader):
    """Reads mkdocs.yml and passes over the functions that it names."""


_AnyTag.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
NAV = list(pages_of(yaml.load((ROOT / "mkdocs.yml").read_text(), _AnyTag)["nav"]))


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("docs/index.md", "[gone](no-such-page.md)"),
        ("docs/index.md", "[gone](quickstart.md#no-such-heading)"),
        ("docs/results/speed.md", "[gone](../../benchmarks/no_such_file.py)"),
        ("CHANGELOG.md", "[gone](docs/no-such-page.md)"),
        ("docs/reference.md", "::: swell.NoSuchName"),
    ],
)
def test_a_broken_link_fails_the_build(copy, tmp_path, page, link):
    with (copy / page).open("a") as file:
        file.write(f"\n\n{link}\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    assert re.search(r"no[-_ ]?such", done.stderr, flags=re.IGNORECASE)


def test_a_page_that_the_navigation_forgets_fails_the_build(copy, tmp_path):
    (copy / "docs" / "forgotten.md").write_text("# Forgotten\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    assert "forgotten.md" in done.stderr


@pytest.mark.parametrize("page", NAV)
def test_every_page_of_the_navigation_is_built(site, page):
    html = site / re.sub(r"README\.md$", "index.md", page).replace(".md", ".html")
    assert "<h1" in html.read_text()


def test_a_linked_source_file_becomes_a_page(site):
    (link,) = set(re.findall(r'href="([^"]*plain_pqn[^"]*)"', (site / "results" / "speed.html").read_text()))
    assert "import" in (site / "results" / link).resolve().read_text()


class Loaded(HTMLParser):
    """Addresses that a page loads by itself; what a reader may click does not count."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag == "link" and named.get("rel") in ("canonical", "next", "prev"):
            return
        sources = ("src", "srcset", "data", "poster") + (
            ("href", "xlink:href") if tag in ("link", "use", "image") else ()
        )
        self.addresses += [named[name] for name in sources if named.get(name)]


def loaded_by(text, suffix):
    if suffix == ".css":
        return re.findall(r"""(?:url\(|@import)\s*["']?([^"')]+)""", text)
    page = Loaded()
    page.feed(text)
    return page.addresses


def test_no_page_and_no_style_loads_anything_from_outside(site):
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    outside = {
        (path.relative_to(site).as_posix(), address)
        for path in files
        for address in loaded_by(path.read_text(), path.suffix)
        if re.match(r"(?:[a-z]+:)?//", address)
    }
    assert len(files) > len(NAV)
    assert outside == set()


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        ('<script src="https://a.example/x.js"></script>', ".html"),
        ('<link rel="stylesheet" href="//a.example/x.css">', ".html"),
        ("@font-face { src: url('https://a.example/x.woff2') }", ".css"),
    ],
)
def test_what_is_loaded_from_outside_is_noticed(text, suffix):
    assert any("//a.example" in address for address in loaded_by(text, suffix))


def test_the_reference_has_every_public_name_once():
    text = (ROOT / "docs" / "reference.md").read_text()
    assert sorted(re.findall(r"^(?:::: swell\.|### )(\w+)$", text, flags=re.MULTILINE)) == sorted(swell.__all__)


@pytest.fixture(scope="module")
def address(site):
    """The site on a port of this machine: its search fetches the index, which a file may not."""
    handler = functools.partial(_Silent, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def front_page(address):
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_context(viewport={"width": 1200, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.requests, page.complaints = [], []
        page.on("request", lambda request: page.requests.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(f"{address}/index.html")
        yield page
        chromium.close()


def colours(png):
    """How many different bytes a PNG has once it is unpacked; a blank picture has a handful."""
    data, position = b"", 8
    while position < len(png):
        (length,) = struct.unpack(">I", png[position : position + 4])
        if png[position + 4 : position + 8] == b"IDAT":
            data += png[position + 8 : position + 8 + length]
        position += length + 12
    return len(set(zlib.decompress(data)))


def test_the_front_page_is_drawn(front_page):
    assert front_page.title() == "Swell"
    assert front_page.get_by_role("heading", name="Two commands").is_visible()
    assert front_page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert colours(front_page.screenshot()) > 100


def test_a_blank_picture_is_told_from_a_page(front_page):
    blank = front_page.context.new_page()
    assert colours(blank.screenshot()) < 10
    blank.close()


@pytest.mark.parametrize(
    ("words", "page"), [("AdaptiveScaler", "reference.html"), ("behavioral divergence", "signals.html")]
)
def test_the_search_finds(front_page, words, page):
    box = front_page.locator(".md-search__input")
    box.click()
    box.fill("")
    box.press_sequentially(words)  # the theme listens to keys
    front_page.locator(f'.md-search-result__link[href*="{page}"]').first.wait_for(state="attached")


def test_the_page_asks_only_this_machine_and_complains_about_nothing(front_page, address):
    assert len(front_page.requests) > 3
    assert [url for url in front_page.requests if not url.startswith((address, "data:", "blob:"))] == []
    assert front_page.complaints == []


@pytest.mark.parametrize("page", ["index", "reference", "results/abs-minatar/index"])
def test_a_phone_needs_no_sideways_scrolling(front_page, address, page):
    phone = front_page.context.new_page()
    phone.set_viewport_size({"width": 375, "height": 800})
    phone.goto(f"{address}/{page}.html")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 375
    phone.close()
