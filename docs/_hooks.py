"""What mkdocs does beside its plugins: pages from the evidence, MathML, and nothing from elsewhere.

The pages of claims are written when the site is built, from the cards and the evidence; git keeps
none of them.
"""

import html
import importlib.util
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_view import ClaimView, group_by_document
from pipelines.results import claim_pages, counts, scoreboard, web_page
from pipelines.results import markdown as results_md

ROOT = Path(__file__).parents[1]
TEX = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.S)
LOADED = ("stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "manifest")
REMOTE = re.compile(r"\s*(?:https?:)?//", re.I)
REMOTE_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"]?)(?:https?:)?//", re.I)
NAMED_OPERATOR = r'<mo lspace="0.17em" rspace="0.17em">\2</mo>'  # log, max: apart from what follows

board: dict[str, scoreboard.Entry] = {}


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the claims' pages, to the navigation too, their figures, and Plotly's script."""
    for name in claim_catalog.project_names():
        board[name] = scoreboard.project_entry(name)
        figure = _figure(name)
        if figure:
            files.append(File.generated(config, figure, abs_src_path=str(ROOT / figure)))
        address = f"../{figure}" if figure else ""
        page = claim_pages.write_page(board[name], address)
        files.append(File.generated(config, f"claims/{name}.md", content=page))
    for item in config.nav or []:
        if "Claims" in item:
            item["Claims"] = _sections()
    package = importlib.util.find_spec("plotly")
    script = Path(str(package and package.origin)).parent / "package_data" / "plotly.min.js"
    files.append(File.generated(config, "assets/plotly.min.js", abs_src_path=str(script)))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put the scoreboard's numbers into the home page, and the trained networks in their place."""
    if "<!-- trained -->" in markdown:
        table = "\n".join(
            results_md.trained_networks(scoreboard.results_document([*board.values()]))
        )
        return markdown.replace("<!-- trained -->", table)
    return counts.of_claims(_views()).replace_block(markdown)


def on_page_content(content: str, page: Page, **_: Any) -> str:
    """Turn TeX into MathML, and put the scoreboard in its place."""
    if "<!-- scoreboard -->" in content:
        pictures = {name: figure for name in board if (figure := _figure(name))}
        pages = {name: f"claims/{name}.html" for name in board}
        html_board = web_page.render_board(_views(), pictures, pages)
        content = content.replace("<!-- scoreboard -->", html_board)
    return TEX.sub(lambda match: to_mathml(match[2], str(page)), content)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site of which a page loads something from elsewhere."""
    site = Path(config.site_dir)
    remote = [
        f"{path.relative_to(site)}: {address}"
        for path in sorted(site.rglob("*"))
        if path.suffix in (".html", ".css")
        for address in remote_addresses(path.read_text(), is_page=path.suffix == ".html")
    ]
    if remote:
        raise PluginError(
            "A page must load nothing from elsewhere: a reader may be "
            f"offline. Received: {'; '.join(remote[:5])}. Copy it into docs/assets."
        )


def remote_addresses(text: str, is_page: bool = True) -> list[str]:
    """Return what a page or a style sheet loads from elsewhere; links to click are none of it."""
    styles = [match[0] for match in REMOTE_STYLE.finditer(text)]
    if not is_page:
        return styles
    loads = Loads()
    loads.feed(text)
    in_styles = [match[0] for style in loads.styles for match in REMOTE_STYLE.finditer(style)]
    return [address for address in loads.addresses if REMOTE.match(address)] + in_styles


class Loads(HTMLParser):
    """The addresses that a browser loads when it opens a page, and the page's own styles."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.styles: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.in_style = tag == "style"
        self.styles.append(values.get("style", ""))
        keys = {"src", "poster", "srcset", "data"}
        loads = tag == "link" and {*values.get("rel", "").lower().split()} & {*LOADED}
        if loads or tag in ("use", "image"):
            keys |= {"href", "xlink:href"}
        self.addresses += [part for key in keys & values.keys() for part in values[key].split(",")]

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.styles.append(data)


def to_mathml(tex: str, place: str) -> str:
    r"""Return MathML for `\(...\)` or `\[...\]`. Raise PluginError for what cannot be converted."""
    tex = html.unescape(tex).strip()
    display = "block" if tex.startswith("\\[") else "inline"
    source = tex[2:-2].strip().replace("{aligned}", "{split}").replace("{align*}", "{split}")
    mathml = convert(source, display=display)
    unknown = re.findall(r">(\\\w+|&)<", mathml)
    if unknown:
        raise PluginError(
            f"Mathematics must be TeX that becomes MathML. Received: {unknown[0]} in {place}: "
            f"{source[:200]}. Write it with other commands."
        )
    mathml = re.sub(r"<m([oi])>([A-Za-z]{2,})</m\1>", NAMED_OPERATOR, mathml)
    return f'<div class="formula">{mathml}</div>' if display == "block" else mathml


def _sections() -> list[dict[str, list[dict[str, str]]]]:
    """Return the claims' pages by document, those that are measured first."""
    return [
        {title: [{view.name: f"claims/{view.name}.md"} for view in group]}
        for title, group in group_by_document(_views())
    ]


def _views() -> list[ClaimView]:
    return [entry.view for entry in board.values()]


def _figure(name: str) -> str:
    """Return the place of a claim's figure below the root; empty where it has none."""
    figure = f"figures/{name}.png"
    return figure if (ROOT / figure).is_file() else ""
