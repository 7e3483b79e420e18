"""Digests of the code that a number depends on, by what it does and not by where it stands.

From a definition one follows the names that it uses to other definitions of the project. Their
syntax trees, without docstrings, imports and the words of errors, make the digest: to move or
reformat a file, or to rename a module, a definition or a variable, changes nothing; another
constant does. A change of this digest, or of Keras's backend, makes every result that was measured
before one of other code.
"""

import ast
import functools
import importlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.runtime import backend
from pipelines.runtime.provenance import ROOT, digest

PACKAGES = ("pipelines", "theory", "keras_models", "tuning")
MODELS = "keras_models"  # found by name when one is built: all of them belong to every training
FOUND_BY_NAME = {  # what a definition imports when it is called
    ("pipelines.data.datasets", "get"): (
        "pipelines.data.generated",
        "pipelines.data.photographs",
        "pipelines.data.pictures",
    )
}
TRAINING = (
    "pipelines.run:prepare",
    "pipelines.run:_splits",
    "pipelines.run:_train_and_record",
    "pipelines.training.multi_machine:",
)
SILENT = (  # modules and folders that check, show, record or survive: no number depends on them
    "keras_models._arguments",
    "pipelines.errors",
    "pipelines.measurement.claim",
    "pipelines.measurement.experiment",
    "pipelines.measurement.verdict",
    "pipelines.recipes.catalog",  # the settings of a run tell its recipe apart
    "pipelines.resume",
    "pipelines.run",
    "pipelines.run_options",
    "pipelines.runtime",
    "pipelines.tracking",
    "pipelines.training.checkpoints",
    "tuning.analysis.importances",
    "tuning.analysis.figures",
    "tuning.catalog",
    "tuning.optuna_log",
    "tuning.plan",
    "tuning.storage",
)
FOLLOWED = {  # definitions of silent modules that numbers depend on
    ("pipelines.measurement.experiment", "Bench"),
    ("pipelines.measurement.experiment", "numbers"),
}
FOLDERS = ("pipelines.claims",)  # whose modules may be in folders elsewhere, too
ROUNDS = 12  # of telling definitions apart by what they refer to
MARK = "\0"
NAMED = (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
UNWRITTEN = {"ctx", "type_comment", "kind"}  # fields of a syntax tree that mean nothing here
SCOPES = (
    *(ast.FunctionDef, ast.Lambda),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
Place = tuple[str, str]  # a module and the name of a definition in it; empty: all of it


@dataclass
class Module:
    """What the top level of a file defines, and what the names mean that it imports."""

    name: str
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, Place] = field(default_factory=dict)
    package: str = ""
    """Where its relative imports begin."""


@functools.cache
def training() -> str:
    """Return the digest of the code that trains, whatever the recipe."""
    return digest_of(training_definitions().values())


def digest_of(texts: Iterable[str], backend_name: str | None = None) -> str:
    """Return the digest of definitions, and of a backend of Keras (None: the one in use)."""
    return digest([*sorted(set(texts)), backend_name or backend.name()])


@functools.cache
def training_definitions(root: Path = ROOT) -> dict[Place, str]:
    """Return the definitions that the numbers of any training come from, as text."""
    models = [f"{MODELS}.{path.stem}:" for path in (root / MODELS).glob("[a-z]*.py")]
    return Reach(root).definitions([*TRAINING, *models])


class Reach:
    """The definitions that some roots reach, in the tree of files below a folder.

    Those of modules in `silent` are not followed. Keywords in `without` are left out of the calls
    of `makers`, and of those that a root is made by.
    """

    def __init__(
        self,
        root: Path,
        silent: Iterable[str] = SILENT,
        without: Iterable[str] = (),
        makers: Iterable[Place] = (),
    ) -> None:
        self.root, self.silent = root, tuple(silent)
        self.without, self.makers = set(without), set(makers)
        self.roots: set[Place] = set()
        self.silenced: set[Place] = set()
        """Definitions that were reached and not followed."""

    def definitions(self, roots: Iterable[str]) -> dict[Place, str]:
        """Return every definition reached from `module:name`, as text in which no name matters."""
        todo: list[Place] = [(root.partition(":")[0], root.partition(":")[2]) for root in roots]
        self.roots = set(todo)
        templates: dict[Place, list[str | Place]] = {}
        while todo:
            module, name = place = todo.pop()
            if not name:
                todo += [(module, each) for each in self.module(module).definitions]
            elif place not in templates:
                writer = Writer(self, self.module(module), name)
                templates[place] = writer.template()
                todo += [*writer.references, *writer.modules]
                todo += [(kind, "") for kind in FOUND_BY_NAME.get(place, ())]
        return _label(templates)

    def is_silent(self, place: Place) -> bool:
        """Return whether a definition is not followed."""
        inside = any(f"{place[0]}.".startswith(f"{name}.") for name in self.silent)
        return inside and place not in FOLLOWED

    def module(self, name: str) -> Module:
        """Return the module of that name, which there must be."""
        module = self.find(name)
        if module is None:
            raise LookupError(f"There is no module {name} below {self.root}.")
        return module

    def find(self, name: str) -> Module | None:
        """Return the project's module of that name; None for any other."""
        return _find(self.root, name)

    def resolve(self, module: str, name: str) -> Place | None:
        """Return where a name of a module is defined; None if nowhere in the project.

        A name that a module has imported is looked up where it comes from.
        """
        definer = self.find(module)
        if definer is None:
            return None
        if name in definer.definitions:
            return module, name
        if self.find(f"{module}.{name}"):
            return f"{module}.{name}", ""
        return self.resolve_import(definer.imports.get(name))

    def resolve_import(self, source: Place | None) -> Place | None:
        """Return where that is defined which an import names; None if nowhere in the project."""
        if source is None:
            return None
        if source[1]:
            return self.resolve(*source)
        return source if self.find(source[0]) else None


def _label(templates: Mapping[Place, Sequence[str | Place]]) -> dict[Place, str]:
    """Return the texts of definitions with a digest in place of every definition referred to.

    In a first round all that is referred to looks alike; each further round tells definitions apart
    by what they refer to, one step further.
    """
    labels = dict.fromkeys(templates, "")
    for _ in range(ROUNDS):
        texts = {
            place: "".join(x if isinstance(x, str) else f"<{labels[x]}>" for x in parts)
            for place, parts in templates.items()
        }
        labels = {place: digest(text) for place, text in texts.items()}
    return texts


@functools.cache
def _find(root: Path, name: str) -> Module | None:
    if name.partition(".")[0] not in PACKAGES:
        return None
    above, _, last = name.rpartition(".")
    folders = [root.joinpath(*above.split("."))]
    if above in FOLDERS and root == ROOT:
        folders += map(Path, importlib.import_module(above).__path__)
    for folder in folders:
        file, package = folder / f"{last}.py", folder / last / "__init__.py"
        if package.is_file():
            return read(package.read_text(), Module(name, package=name))
        if file.is_file():
            return read(file.read_text(), Module(name, package=above))
    return None


def read(text: str, module: Module) -> Module:
    """Return the module with what its text defines and imports."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Import | ast.ImportFrom | ast.If):  # if TYPE_CHECKING
            module.imports |= imports(statement, module.package)
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            module.definitions[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for node in (node for target in targets for node in ast.walk(target)):
                if isinstance(node, ast.Name):
                    module.definitions[node.id] = statement
    return module


def imports(tree: ast.AST, package: str) -> dict[str, Place]:
    """Return what the names mean that are imported anywhere in a syntax tree."""
    names: dict[str, Place] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or module] = (module, "")
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*above * bool(node.level), *filter(None, [node.module])])
            names |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
    return names


def variables(scope: ast.AST) -> set[str]:
    """Return the names that a function or comprehension binds itself, without its parameters."""
    names, todo = set[str](), list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, NAMED) and node.name:
            names.add(node.name)
        if not isinstance(node, (*SCOPES, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)
    return names


def parameters(scope: ast.AST) -> set[str]:
    """Return the names of the parameters of a function."""
    arguments = getattr(scope, "args", None)
    return (
        {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)}
        if arguments
        else set()
    )


class Writer:
    """A definition as text, the same for every version of Python, and what it refers to.

    Variables are numbered in the order in which they appear, and names of definitions are left out:
    to rename them changes nothing. Parameters, attributes and keywords keep their names.
    """

    def __init__(self, reach: Reach, module: Module, name: str) -> None:
        self.reach, self.module, self.name = reach, module, name
        self.definition = module.definitions[name]
        self.local = imports(self.definition, module.package)
        self.scopes: list[tuple[set[str], dict[str, int]]] = []
        """Of the functions that the text is in: parameters, and numbers of variables."""
        self.references: list[Place] = []
        self.modules: set[Place] = set()
        """Those that the definition hands on as a whole."""
        self.count = 0

    def template(self) -> list[str | Place]:
        """Return the text, cut where another definition of the project is referred to."""
        pieces = self.text(self.definition).split(MARK)
        return [x for pair in itertools.zip_longest(pieces, self.references) for x in pair if x]

    def text(self, node: object) -> str:
        """Return a syntax tree as text, with a mark for each of the `references`."""
        if not isinstance(node, ast.AST):
            return self._list(node) if isinstance(node, list) else repr(node)
        constant = node.value if isinstance(node, ast.Expr) else None
        is_text = isinstance(constant, ast.Constant) and isinstance(constant.value, str)
        if isinstance(node, ast.Import | ast.ImportFrom) or is_text:  # a docstring
            return ""
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            return f"Raise({self.text(node.exc.func)})"
        if isinstance(node, ast.Name | ast.Attribute) and (place := self.place(node)):
            return self._refer(place)
        if isinstance(node, ast.Name):
            in_class = isinstance(self.definition, ast.ClassDef) and not self.scopes
            is_field = in_class and isinstance(node.ctx, ast.Store)  # bound outside of methods
            return f"Name({node.id if is_field else self._spell(node.id)})"
        name = self._spell(node.name) if isinstance(node, NAMED) and node.name else ""
        if isinstance(node, SCOPES):
            numbers = dict.fromkeys(variables(node), 0)
            self.scopes.append((parameters(node), numbers))
        fields = [
            f"{key}={self.text(value)}"
            for key, value in self._fields(node)
            if value not in (None, []) and key not in UNWRITTEN
        ]
        if isinstance(node, SCOPES):
            self.scopes.pop()
        return f"{type(node).__name__}({' '.join(filter(None, [name, *fields]))})"

    def _list(self, nodes: list[object]) -> str:
        return "[" + " ".join(filter(None, map(self.text, nodes))) + "]"

    def _refer(self, place: Place) -> str:
        """Return the mark of another definition, or what stands for one that is not followed."""
        if self.reach.is_silent(place):
            self.reach.silenced.add(place)
            return "silent"
        if not place[1]:
            self.modules.add(place)
            return "module"
        self.references.append(place)
        return MARK

    def _spell(self, name: str) -> str:
        """Return a variable's number, or the name itself of anything else."""
        for named, numbers in reversed(self.scopes):
            if name in named:
                return name
            if name in numbers:
                if not numbers[name]:
                    self.count += 1
                    numbers[name] = self.count
                return str(numbers[name])
        if name in self.module.definitions:  # a definition where it is defined
            return "this" if name == self.name else "another"
        return name

    def _fields(self, node: ast.AST) -> Iterator[tuple[str, Any]]:
        """Yield the fields of a node, without the keywords that are left out."""
        for name, value in ast.iter_fields(node):
            if name == "name" and isinstance(node, NAMED):
                continue
            if name == "keywords" and isinstance(node, ast.Call) and self._is_cut(node):
                yield name, [each for each in value if each.arg not in self.reach.without]
            else:
                yield name, value

    def place(self, node: ast.expr) -> Place | None:
        """Return where a name, or a name in modules, is defined; None for anything else."""
        if isinstance(node, ast.Name):
            inner = any(node.id in {*named, *numbers} for named, numbers in self.scopes)
            if inner or isinstance(node.ctx, ast.Store):
                return None
            if node.id in self.local:
                return self.reach.resolve_import(self.local[node.id])
            return self.reach.resolve(self.module.name, node.id)
        above = self.place(node.value) if isinstance(node, ast.Attribute) else None
        if not isinstance(node, ast.Attribute) or above is None or above[1]:
            return None
        return self.reach.resolve(above[0], node.attr)

    def _is_cut(self, call: ast.Call) -> bool:
        """Return whether keywords are left out of this call."""
        is_root = (self.module.name, self.name) in self.reach.roots
        return bool(self.reach.without) and (is_root or self.place(call.func) in self.reach.makers)
