"""Who may import whom, read from the syntax trees: no module of the project is imported here."""

import ast
import graphlib
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

PACKAGES = ("theory", "keras_models", "pipelines", "tuning")
ONLY = {  # beside the standard library and itself
    "theory": {"numpy", "scipy"},
    "keras_models": {"keras", "numpy", "scipy"},
}
ALSO = {"theory.memorizer": {"keras_models"}}  # for its Keras model, when that is asked for
ORDER = (  # of folders and of the modules beside them: what is imported stands further down
    "docs",
    "benchmarks",
    "pipelines.__main__",
    "tuning.__main__",
    "tuning.cli",
    "tuning.comparison",
    "tuning.study",
    "tuning.execution",
    "tuning.catalog",
    "tuning.analysis",
    "tuning.storage",
    "tuning.plan",
    "tuning.search",
    "tuning.optuna_log",
    "pipelines.cli",
    "pipelines.api",
    "pipelines.scheduling",
    "pipelines.results",
    "pipelines.claims",
    "pipelines.measurement",
    "pipelines.running",
    "pipelines.training",
    "pipelines.recipes",
    "pipelines.data",
    "pipelines.tracking.bundles",
    "pipelines.tracking",
    "pipelines.runtime",
    "theory",
    "keras_models",
    "pipelines.errors",
)
MOST_MODULES = 14  # in a folder of pipelines and tuning
DOORS = {  # library: the folders whose modules may import it
    "mlflow": "pipelines.tracking",
    "tensorflow_datasets": "pipelines.data",
    "optuna": "tuning",
    "optuna_dashboard": "tuning.storage",
    "grpc": "tuning.storage",
    "distributed": "pipelines.measurement",
    "dbos": "pipelines.scheduling",
}
HEAVY = {
    "keras",
    "matplotlib",
    "pandas",
    "rich",
    "scipy",
    "sklearn",
    "sqlalchemy",
    "tensorflow",
    *DOORS,
}
SAYS_SO = "at the top: import this module inside the functions"  # in the module's docstring
JUNK_DRAWERS = {"util", "utils", "helpers", "misc", "common"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


FOLDERS = (*PACKAGES, "benchmarks", "docs")
PATHS = {module_name(p): p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")}
TREES = {name: ast.parse(path.read_text(), str(path)) for name, path in PATHS.items()}


def package_of(name: str) -> str:
    return name.partition(".")[0]


def packages(targets: set[str]) -> set[str]:
    return {package_of(target) for target in targets}


def targets(name: str, node: ast.AST) -> Iterator[str]:
    """Dotted names that one statement of a module imports; none for other nodes."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        here = [*name.split("."), *["__init__"] * (PATHS[name].name == "__init__.py")]
        base = here[: len(here) - node.level] if node.level else []
        source = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{source}.{alias.name}" for alias in node.names)


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run when a module is imported: not in functions, not under TYPE_CHECKING."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    yield node
    for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    for child in node.orelse if for_types else ast.iter_child_nodes(node):
        yield from executed(child)


def anywhere(name: str) -> set[str]:
    """Everything the module imports, inside functions and for type checkers too."""
    return {target for node in ast.walk(TREES[name]) for target in targets(name, node)}


def at_import(name: str) -> set[str]:
    """What importing the module imports directly."""
    return {target for node in executed(TREES[name]) for target in targets(name, node)}


def first_party(imported: set[str]) -> set[str]:
    """The project's modules among dotted names; `a.b.c` means `a.b` where c is no module."""
    return {t if t in TREES else t.rpartition(".")[0] for t in imported} & TREES.keys()


def heavy(name: str) -> set[str]:
    """Heavy libraries that importing the module loads, itself or through other modules."""
    seen: set[str] = set()
    todo, found = {name}, set()
    while todo:
        seen.add(each := todo.pop())
        found |= packages(at_import(each)) & HEAVY
        todo |= first_party(at_import(each)) - seen
    return found


def test_the_reader_sees_what_python_would_import() -> None:
    # A reader that finds nothing would pass every rule below.
    assert packages(set(TREES)) == set(FOLDERS)
    assert {"pipelines.tracking.tracked_run", "pipelines.training.train"} <= first_party(
        anywhere("pipelines.running.run")
    )
    assert "pipelines.training.train" not in first_party(at_import("pipelines.running.run"))
    assert first_party(at_import("keras_models.mlp")) == {"keras_models._blocks"}
    assert heavy("pipelines.training.train") == {"keras"}
    assert heavy("pipelines.training.multi_machine") == {"keras", "tensorflow"}
    assert "matplotlib" in packages(anywhere("pipelines.recipes.lr")) - packages(
        at_import("pipelines.recipes.lr")
    )


def test_theory_and_networks_import_only_what_they_may() -> None:
    too_much = {}
    for name in TREES:
        own, imported = package_of(name), packages(anywhere(name)) - sys.stdlib_module_names
        allowed = ONLY.get(own, imported) | {own} | ALSO.get(name, set())
        too_much[name] = imported - allowed
    assert {name: libraries for name, libraries in too_much.items() if libraries} == {}


def rank(name: str) -> int:
    """The place in ORDER of the module, or of the innermost folder that it is in."""
    own = [each for each in ORDER if f"{name}.".startswith(f"{each}.")]
    assert own, f"{name} has no place in ORDER"
    return ORDER.index(max(own, key=len))


def folder_of(name: str) -> str:
    return name if PATHS[name].name == "__init__.py" else name.rpartition(".")[0]


IMPORTS = {
    (name, imported)
    for name in TREES
    for imported in first_party(anywhere(name)) - {name}
    if imported != "pipelines"  # its version
    if PATHS[imported].read_text()  # an empty __init__.py gives nothing
}


def test_imports_run_downwards_only() -> None:
    assert [pair for pair in IMPORTS if rank(pair[0]) > rank(pair[1])] == []


def test_a_private_module_is_imported_in_its_folder_only() -> None:
    private = [(a, b) for a, b in IMPORTS if b.rpartition(".")[2].startswith("_")]
    assert private
    outside = [(a, b) for a, b in private if not f"{a}.".startswith(f"{folder_of(b)}.")]
    assert [(a, b) for a, b in outside if not b.endswith(".__main__")] == []


def test_no_circles_among_modules() -> None:
    graph: dict[str, set[str]] = {name: set() for name in TREES}
    for name, imported in IMPORTS:
        graph[name].add(imported)
    order = list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle
    assert len(order) == len(TREES)


def test_a_folder_has_few_modules() -> None:
    counts = Counter(folder_of(name) for name in TREES if PATHS[name].name != "__init__.py")
    most = {folder: n for folder, n in counts.items() if folder.startswith(("pipelines", "tuning"))}
    assert {folder: n for folder, n in most.items() if n > MOST_MODULES} == {}


def test_a_library_is_imported_in_its_folder_only() -> None:
    users = {
        library: {name for name in TREES if library in packages(anywhere(name))}
        for library in DOORS
    }
    assert all(users.values())
    for library, folder in DOORS.items():
        product = {name for name in users[library] if package_of(name) in PACKAGES}
        assert {name for name in product if not name.startswith(f"{folder}.")} == set()


@pytest.mark.parametrize("folder", [*FOLDERS, "tests"])
def test_what_is_imported_is_declared(folder: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    if folder != "tests":
        del extras["dev"]
    lines = sum(extras.values(), project["dependencies"])
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    trees = [ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {alias.name for x in nodes if isinstance(x, ast.Import) for alias in x.names}
    imported |= {x.module or "" for x in nodes if isinstance(x, ast.ImportFrom) and not x.level}
    libraries = packages(imported) - sys.stdlib_module_names - {*FOLDERS, "tests"}
    providers = packages_distributions()
    names = {
        each: {canonicalize_name(p) for p in providers.get(each, [each])} for each in libraries
    }
    assert {each for each in libraries if not names[each] & declared} == set()


def test_heavy_libraries_load_late_except_in_modules_that_say_so() -> None:
    product = [name for name in TREES if package_of(name) in PACKAGES]
    loud = {name: heavy(name) for name in product if heavy(name)}
    models = {name for name in loud if name.startswith("keras_models.")}
    assert [name for name in models if loud[name] != {"keras"}] == []
    saying = {name for name in product if SAYS_SO in (ast.get_docstring(TREES[name]) or "")}
    assert loud.keys() - models == saying


def test_init_files_are_empty_but_for_the_architectures_and_the_version() -> None:
    inits = {name for name in TREES if PATHS[name].name == "__init__.py"}
    assert {name for name in inits if PATHS[name].read_text()} == {"keras_models", "pipelines"}
    assert re.fullmatch('__version__ = "[0-9.]+"\n', PATHS["pipelines"].read_text())


def test_library_code_does_not_assert() -> None:
    found = [(n, x.lineno) for n in TREES for x in ast.walk(TREES[n]) if isinstance(x, ast.Assert)]
    assert found == []


def test_no_junk_drawers() -> None:
    assert [n for n in TREES if JUNK_DRAWERS & {part.strip("_") for part in n.split(".")}] == []
