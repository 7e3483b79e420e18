"""Check a built site, whatever built it, before it is shown: `python -m docs.check_site FOLDER`.

Every link and anchor leads somewhere, every page stands in the navigation of the home page, nothing
is loaded from elsewhere (a reader may be offline), and no TeX is left in what is read.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

LOADED = ("stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "manifest")
REMOTE = re.compile(r"\s*(?:https?:)?//", re.I)
REMOTE_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"]?)(?:https?:)?//", re.I)
TEX = re.compile(r"\$\$|\\(?:[A-Za-z]+|[()\[\]])|(?<!\$)\$(?![\s$])[^$]*\S\$(?!\d)")
NOT_READ = ("code", "pre", "script", "style")  # a backslash or a dollar is no TeX there
HOME, NOT_FOUND = "index.html", "404.html"  # the latter stands in no navigation


class Page(HTMLParser):
    """What a page has: anchors, links, those of its navigation, loaded addresses, styles, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.navigation: list[str] = []
        self.loaded: list[str] = []
        self.styles: list[str] = []
        self.read: list[str] = []
        self.inside: Counter[str] = Counter()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        if tag in (*NOT_READ, "nav"):
            self.inside[tag] += 1
        self.anchors.add(values.get("id", ""))
        self.styles.append(values.get("style", ""))
        if tag in ("a", "area") and "href" in values:
            self.links.append(values["href"])
            self.navigation += [values["href"]] * (self.inside["nav"] > 0)
        keys = {"src", "poster", "srcset", "data"}
        loads = tag == "link" and {*values.get("rel", "").lower().split()} & {*LOADED}
        if loads or tag in ("use", "image"):
            keys |= {"href", "xlink:href"}
        for key in keys & values.keys():
            parts = values[key].split(",") if key == "srcset" else [values[key]]
            self.loaded += [part.split()[0] for part in parts if part.strip()]

    def handle_endtag(self, tag: str) -> None:
        self.inside[tag] -= 1

    def handle_data(self, data: str) -> None:
        if self.inside["style"] > 0:
            self.styles.append(data)
        elif not any(self.inside[tag] > 0 for tag in NOT_READ):
            self.read.append(data)


def problems(site: Path) -> list[str]:
    """Return all that is wrong with a site, one line each."""
    pages = {
        path.relative_to(site).as_posix(): Page(path.read_text())
        for path in sorted(site.rglob("*.html"))
    }
    found = [
        f"{place}: {each}"
        for place, page in pages.items()
        for each in (*remote(page), *dead_links(place, pages, site), *left_tex(page))
    ]
    for path in sorted(site.rglob("*.css")):
        styles = REMOTE_STYLE.findall(path.read_text())
        found += [f"{path.relative_to(site)}: loads from elsewhere: {each}" for each in styles]
    if HOME not in pages:
        return [*found, f"{HOME}: is missing"]
    listed = {target(HOME, link)[0] for link in pages[HOME].navigation}
    missing = pages.keys() - listed - {NOT_FOUND}
    return [*found, *(f"{place}: is not in the navigation" for place in sorted(missing))]


def remote(page: Page) -> Iterator[str]:
    """Yield what a page loads from elsewhere; links to click are none of it."""
    addresses = [address for address in page.loaded if REMOTE.match(address)]
    styles = [match[0] for style in page.styles for match in REMOTE_STYLE.finditer(style)]
    yield from (f"loads from elsewhere: {each}" for each in (*addresses, *styles))


def dead_links(place: str, pages: Mapping[str, Page], site: Path) -> Iterator[str]:
    """Yield the links and loaded addresses of a page that lead to no file or no anchor."""
    for link in dict.fromkeys([*pages[place].links, *pages[place].loaded]):
        if urlsplit(link).scheme or REMOTE.match(link):
            continue
        path, anchor = target(place, link)
        if not (site / path).is_file():
            yield f"leads nowhere: {link}"
        elif anchor and path in pages and anchor not in pages[path].anchors:
            yield f"leads to no anchor: {link}"


def target(place: str, link: str) -> tuple[str, str]:
    """Return the file below the site's folder to which a link of a page leads, and the anchor."""
    parts = urlsplit(urljoin(f"/{place}", link))
    path = unquote(parts.path).removeprefix("/")
    return path + HOME * (not path or path.endswith("/")), unquote(parts.fragment)


def left_tex(page: Page) -> Iterator[str]:
    """Yield TeX in the text of a page: what no script turns into mathematics."""
    yield from (f"TeX is left: {match[0][:80]}" for match in TEX.finditer("".join(page.read)))


if __name__ == "__main__":
    if found := problems(Path(sys.argv[1])):
        sys.exit("\n".join(["The site is refused.", *found[:20]]))
