"""The site: all of it is written as Markdown before a build, and what is built is checked after."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import markdown
import pytest
import yaml
from markdown_it import MarkdownIt

from docs import check_site, write_pages
from docs.mathematics import replace_tex, to_mathml
from pipelines.measurement import claim_catalog
from tests.conftest import ROOT

NAVIGATION = '<nav><a href="index.html">Home</a> <a href="how-to/train.html#rates">Train</a></nav>'


def build(site: Path, text: str = "", style: str = "") -> list[str]:
    """Return the problems of a site of two pages and a style sheet."""
    (site / "how-to").mkdir(parents=True)
    (site / "index.html").write_text(f'{NAVIGATION}<h1 id="top">Home</h1>{text}')
    (site / "how-to" / "train.html").write_text('<h2 id="rates">R</h2> <a href="../#top">up</a>')
    (site / "404.html").write_text('<a href="/how-to/train.html">there is no such page</a>')
    (site / "site.css").write_text(style)
    return check_site.problems(site)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<a href="nowhere.html">x</a>', "leads nowhere: nowhere.html"),
        ('<a href="nowhere.md">x</a>', "leads nowhere: nowhere.md"),
        ('<a href="how-to/">x</a>', "leads nowhere: how-to/"),
        ('<a href="how-to/train.html#none">x</a>', "leads to no anchor: how-to/train.html#none"),
        ('<a href="#none">x</a> <meta name="none">', "leads to no anchor: #none"),
        ('<img src="figures/none.png">', "leads nowhere: figures/none.png"),
        ('<script src="https://cdn.example/x.js"></script>', "elsewhere: https://cdn.example/x.js"),
        (r"<p>if \(a &lt; b\)</p>", r"TeX is left: \("),
        ("<p>if $a &lt; b$, then</p>", "TeX is left: $a < b$"),
        (r"<math><mi>\nosuch</mi></math>", r"TeX is left: \nosuch"),
    ],
)
def test_a_site_with_a_fault_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    found = build(tmp_path / "site", text)
    assert found
    assert found[0].startswith("index.html: ")
    assert found[0].endswith(problem)
    command = [sys.executable, "-m", "docs.check_site", str(tmp_path / "site")]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert found[0] in refused.stderr


def test_a_page_outside_of_the_navigation_is_refused(tmp_path: Path) -> None:
    assert build(tmp_path / "good") == []
    (tmp_path / "good" / "lost.html").write_text("<h1>Lost</h1>")
    assert check_site.problems(tmp_path / "good") == ["lost.html: is not in the navigation"]


def test_a_style_sheet_that_loads_from_elsewhere_is_refused(tmp_path: Path) -> None:
    [problem] = build(tmp_path, style="@import '//fonts.example/css';")
    assert problem.startswith("site.css: loads from elsewhere")


@pytest.mark.parametrize(
    "text",
    [
        '<a href="?query#top">x</a> <a href="mailto:me@example.org">y</a> <a href="#">z</a>',
        '<a href="https://arxiv.org/abs/1611.04231">paper</a> <img src="data:image/png;base64,">',
        r"<code>$a$ \alpha</code> <pre>\(</pre> <script>`${a}` \d $b$</script> from $3 to $5",
    ],
)
def test_what_is_no_fault_is_accepted(tmp_path: Path, text: str) -> None:
    assert build(tmp_path, text) == []


@pytest.mark.parametrize(
    ("page", "loaded"),
    [
        ('<script src="https://cdn.example/x.js"></script>', 1),
        ('<link rel="stylesheet" href="//fonts.example/css">', 1),
        ('<img srcset="a.png 1x, https://elsewhere.example/a.png 2x">', 1),
        ("<style>p { background: url(http://elsewhere.example/a.png) }</style>", 1),
        ("<p style=\"background: url('//elsewhere.example/a.png')\">", 1),
        ('<a href="https://arxiv.org/abs/1611.04231">paper</a> <code>url(http://x)</code>', 0),
        ('<link rel="canonical" href="https://near.example/"><img src="a.png">', 0),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_seen(page: str, loaded: int) -> None:
    assert len([*check_site.remote(check_site.Page(page))]) == loaded


def test_the_whole_site_is_written(tmp_path: Path) -> None:
    write_pages.write_site(tmp_path / "site")
    pages = tmp_path / "site" / "pages"
    config = yaml.safe_load((tmp_path / "site" / "mkdocs.yml").read_text())
    listed = [*pages_of(config["nav"])]
    written = {path.relative_to(pages).as_posix(): path.read_text() for path in pages.rglob("*.md")}
    assert sorted(listed) == sorted(written)
    assert {f"claims/{name}.md" for name in claim_catalog.names()} <= written.keys()
    assert all(replace_tex(text, place) == text for place, text in written.items())
    assert '<div class="board">' in written["scoreboard.md"]
    assert "| batchnorm-overfits |" in written["scoreboard.md"]
    assert "claims of the documents:" in written["index.md"]
    assert "keras_models/        the networks" in written["how-to/extend.md"]
    figures = {path.name for path in (pages / "figures").glob("*.png")}
    assert figures == {path.name for path in (ROOT / "figures").iterdir()}
    cards = {path.stem for path in (pages / "figures" / "cards").iterdir()}
    commands = re.findall(r"python -m pipelines run ([\w-]+)", written["index.md"])
    assert cards == set(commands)
    assert len(commands) == 6
    assert (pages / "assets" / "plotly.min.js").is_file()


def pages_of(item: Any) -> Iterator[str]:
    if isinstance(item, str):
        yield item
    else:
        for each in item.values() if isinstance(item, dict) else item:
            yield from pages_of(each)


TEXT = r"""
# Norms

Let $\lVert A \rVert \le 1$ and
$a < b_1 * c_2 * d$, so [$[x](y)$](https://example.org); `$code$` costs $3 and $5.

| norm | of |
|---|---|
| $\lvert x \rvert$ | $A$ |

$$
\begin{aligned} a &= b \\ c &\le d \end{aligned}
$$

- $x_i$ _and_ $y_i$

```
$fenced$
```
"""


@pytest.mark.parametrize("parser", ["Python-Markdown", "CommonMark"])
def test_mathematics_survives_the_parsers_of_markdown(parser: str) -> None:
    text = replace_tex(TEXT, "a.md")
    if parser == "CommonMark":
        html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    else:
        extensions = ["tables", "attr_list", "md_in_html", "pymdownx.superfences"]
        html = markdown.markdown(text, extensions=extensions)
    formulas = [piece.partition("</math>")[0] for piece in text.split("<math")[1:]]
    assert len(formulas) == 8
    shown = [piece.partition("</math>")[0] for piece in html.split("<math")[1:]]
    assert [unescape(each) for each in shown] == [unescape(each) for each in formulas]
    assert "</p>" not in html.partition("Let ")[2].partition("costs")[0]
    assert html.count("<mtr>") == 2
    assert "$code$" in html
    assert "$fenced$" in html
    assert "costs $3 and $5" in html


def test_tex_that_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\\nosuch in a\.md"):
        replace_tex(r"let $\nosuch x$", "a.md")


def test_every_statement_in_tex_can_be_drawn() -> None:
    for name in claim_catalog.names():
        assert to_mathml(claim_catalog.load(name).formula, "block", name).startswith("<math")
