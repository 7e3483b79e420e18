"""Digests of the code that a number depends on: whole modules, without their words.

From a module one follows its imports to other modules of the project, but for those that check,
show or record. A module counts as its syntax tree without docstrings, imports, the words of errors
and what a claim says of itself. So to move or reformat a file, or to write another card, changes
nothing; another name or definition does, also one that no number depends on. What was measured
before is of other code then: it is measured anew where that does not take long.
"""

import ast
import functools
import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from pipelines.runtime import backend
from pipelines.runtime.places import ROOT
from pipelines.runtime.provenance import COMMANDS, digest

PACKAGES = (*COMMANDS, "theory", "keras_models")
MODELS = "keras_models"  # found by name when one is built: all of them belong to every training
TRAINING = (
    "pipelines.data.datasets",
    "pipelines.training.multi_machine",
    "pipelines.training.train",
)
FOUND_BY_NAME: Mapping[str, tuple[str, ...]] = {  # what a module imports by what a recipe names
    "pipelines.data.datasets": (
        "pipelines.data.generated",
        "pipelines.data.own.stored",
        "pipelines.data.photographs",
        "pipelines.data.pictures",
    )
}
SILENT = (  # modules and folders that check, show, record or survive: no number depends on them
    "keras_models._arguments",
    "pipelines.claims._arm_figure",
    "pipelines.claims._figures",
    "pipelines.claims._table2_quotations",
    "pipelines.claims.li_yuan._figures",
    "pipelines.errors",
    "pipelines.measurement",
    "pipelines.recipes",  # the settings of a run tell its recipe apart
    "pipelines.running",
    "pipelines.runtime",
    "pipelines.tracking",
    "pipelines.training.checkpoints",
    "pipelines.training.tf_config",
    "tuning.analysis.figures",
    "tuning.analysis.importances",
    "tuning.catalog",
    "tuning.optuna_log",
    "tuning.plan",
    "tuning.storage",
)
FOLLOWED = ("pipelines.measurement.grid", "pipelines.recipes.lr")  # silent folders, but for these
CLAIMS = "pipelines.claims"  # whose modules may be in folders elsewhere, too
CLAIM_MAKERS = ("Theorem", "Experiment", "compare", "table_cell", "tuning_claim")
WORDS_OF_CLAIMS = {  # what a claim says, shows and is judged by, not what is measured
    *("about", "card", "charts", "costs", "decided_by", "expect", "extra_metrics", "family"),
    *("figure", "limits", "formula", "network", "price", "printed", "reported", "says", "scales"),
    *("seeds", "shown", "source", "unjudged_scales", "unstable", "words"),
}

# Names that recorded digests have otherwise: the digests stay as they were.
FORMER = {"Hidden": ast.parse("tyro.conf.Suppress", mode="eval").body}


@functools.cache
def training() -> str:
    """Return the digest of the code that trains, whatever the recipe."""
    return digest_of(modules(training_roots()))


def training_roots(root: Path = ROOT) -> list[str]:
    """Return the modules from which all that trains is reached."""
    return [*TRAINING, *(f"{MODELS}.{path.stem}" for path in (root / MODELS).glob("[a-z]*.py"))]


def digest_of(texts: Mapping[str, str], backend_name: str | None = None) -> str:
    """Return the digest of modules, and of a backend of Keras (None: the one in use)."""
    return digest([*sorted(texts.values()), backend_name or backend.name()])


def modules(
    roots: Iterable[str],
    root: Path = ROOT,
    followed: Iterable[str] = FOLLOWED,
    elsewhere: Mapping[str, Path] = MappingProxyType({}),
) -> dict[str, str]:
    """Return by name the modules below a folder that are reached from roots, as text.

    `elsewhere` are the files of roots that are no modules of the project.
    """
    texts: dict[str, str] = {}
    todo = list(roots)
    while todo:
        name = todo.pop()
        path = None if name in texts else elsewhere.get(name) or find(name, root)
        if path is None:
            continue
        texts[name], imported = _read(path, name)
        reached = [*imported, *FOUND_BY_NAME.get(name, ())]
        todo += [each for each in reached if each in followed or not is_silent(each)]
    return texts


@functools.cache
def is_silent(name: str) -> bool:
    """Return whether no number depends on a module, or on what is defined in it."""
    return any(f"{name}.".startswith(f"{each}.") for each in SILENT)


def find(name: str, root: Path = ROOT) -> Path | None:
    """Return the file of a module of the project; None of any other name."""
    package, _, rest = name.partition(".")
    if package not in PACKAGES:
        return None
    folders = [root / package]
    if name.startswith(f"{CLAIMS}.") and root == ROOT:
        folders = [*map(Path, importlib.import_module(CLAIMS).__path__)]
        rest = name.removeprefix(f"{CLAIMS}.")
    paths = (folder.joinpath(*rest.split(".")).with_suffix(".py") for folder in folders)
    return next(filter(Path.is_file, paths), None)


@functools.cache
def _read(path: Path, name: str) -> tuple[str, list[str]]:
    """Return a module as text, and what it imports of the project."""
    bare = _Bare(name)
    text = ast.dump(bare.visit(ast.parse(path.read_text())))
    return text, [each for each in bare.imported if each.startswith(PACKAGES)]


class _Bare(ast.NodeTransformer):
    """Takes from a module's syntax tree what no number depends on, and keeps what it imports.

    That is modules, or names in them, inside of functions, too.
    """

    def __init__(self, module: str) -> None:
        self.module = module
        self.imported: list[str] = []

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return FORMER.get(node.id, node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        self.imported += [alias.name for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self.module.split(".")[: -node.level] if node.level else []
        source = ".".join([*above, *filter(None, [node.module])])
        self.imported += [source, *(f"{source}.{alias.name}" for alias in node.names)]

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Raise(node.exc.func if isinstance(node.exc, ast.Call) else node.exc)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in CLAIM_MAKERS:
            node.keywords = [each for each in node.keywords if each.arg not in WORDS_OF_CLAIMS]
        return self.generic_visit(node)
