"""Write the whole site as Markdown, with what cards and evidence say, for any builder of sites.

`python -m docs.write_pages` fills the folder .site: pages/ and mkdocs.yml, which has the claims in
its navigation. git keeps none of it. A builder makes HTML of it, `docs.check_site` checks that.
"""

import importlib.util
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml
from matplotlib.text import Text

from docs.mathematics import replace_tex
from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_view import group_by_document
from pipelines.results import claim_pages, counts, markdown, scoreboard, web_page
from pipelines.tracking import tracked_run

ROOT = Path(__file__).parents[1]
WRITTEN = ROOT / ".site"
CARD = re.compile(r"figures/cards/([\w-]+)\.png")  # of the home page
NO_PAGES = shutil.ignore_patterns("*.py", "__pycache__")

Board = Mapping[str, scoreboard.Entry]


def write_site(folder: Path) -> None:
    """Write mkdocs.yml and pages/ into a new folder."""
    board = {name: scoreboard.project_entry(name) for name in claim_catalog.project_names()}
    pages = folder / "pages"
    shutil.copytree(ROOT / "docs", pages, ignore=NO_PAGES)
    package = importlib.util.find_spec("plotly")
    script = Path(str(package and package.origin)).parent / "package_data" / "plotly.min.js"
    shutil.copy(script, pages / "assets")
    figures = copy_figures(board, pages / "figures")
    (pages / "figures" / "cards").mkdir()
    for name in CARD.findall((pages / "index.md").read_text()):
        draw_card(board[name], pages / "figures" / "cards" / f"{name}.png")
    (pages / "claims").mkdir()
    for name, entry in board.items():
        figure = f"../{figures[name]}" if name in figures else ""
        (pages / "claims" / f"{name}.md").write_text(claim_pages.write_page(entry, figure))
    inserted = insertions(board, figures)
    numbers = counts.of_claims(entry.view for entry in board.values())
    for path in pages.rglob("*.md"):
        text = numbers.replace_block(path.read_text())
        for mark, insertion in inserted.items():
            text = text.replace(mark, insertion)
        path.write_text(replace_tex(text, str(path.relative_to(pages))))
    (folder / "mkdocs.yml").write_text(configuration(board))


def copy_figures(board: Board, folder: Path) -> dict[str, str]:
    """Copy the figures of claims; return the address of each, from the home page."""
    folder.mkdir()
    paths = [ROOT / "figures" / f"{name}.png" for name in board]
    found = [path for path in paths if path.is_file()]
    for path in found:
        shutil.copy(path, folder)
    return {path.stem: f"figures/{path.name}" for path in found}


def draw_card(entry: scoreboard.Entry, file: Path) -> None:
    """Draw the first panel of a claim's figure, so small that its words can be read on a card."""
    run = entry.project.recorded if entry.project else None
    if not (run and run.plan):
        raise ValueError(f"A card needs a measured claim. Received: {entry.name}. Name another.")
    figure = run.draw(run.plan)
    panel, *others = figure.axes
    for each in others:
        each.remove()
    panel.set_subplotspec(figure.add_gridspec()[0])
    for legend in [*figure.legends]:
        legend.remove()
        labels = [text.get_text() for text in legend.texts]
        figure.legend(legend.legend_handles, labels, loc="outside lower center")
    for text in figure.findobj(Text):
        text.set_fontsize(min(text.get_fontsize(), 8))
    figure.set_size_inches(4, 3.4)
    figure.savefig(file, **tracked_run.FIGURE_STYLE | {"dpi": 200})


def insertions(board: Board, figures: Mapping[str, str]) -> dict[str, str]:
    """Return what stands in pages in the place of each mark."""
    views = [entry.view for entry in board.values()]
    addresses = {name: f"claims/{name}.html" for name in board}
    networks = markdown.trained_networks(scoreboard.results_document([*board.values()]))
    return {
        "<!-- scoreboard -->": web_page.render_board(views, figures, addresses),
        "<!-- trained -->": "\n".join(networks),
    }


def configuration(board: Board) -> str:
    """Return mkdocs.yml with the claims' pages by document, those that are measured first."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    groups = group_by_document([entry.view for entry in board.values()])
    sections = [
        {title: [{view.name: f"claims/{view.name}.md"} for view in group]}
        for title, group in groups
    ]
    config["nav"] = [{"Claims": sections} if "Claims" in item else item for item in config["nav"]]
    text: str = yaml.safe_dump(config, sort_keys=False)
    return text


if __name__ == "__main__":
    shutil.rmtree(WRITTEN, ignore_errors=True)
    write_site(WRITTEN)
