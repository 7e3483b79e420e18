"""Command lines read by cyclopts, whose refusals become errors like all others: a sentence, code 2.

A `command` is a function with typed parameters; or its options are known only when it is called, as
those of a recipe are: then they are a list of `Option`, which `parse` reads.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import shlex
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import cyclopts
from cyclopts import App, Group, Parameter

from pipelines.cli import refusals
from pipelines.errors import UserError
from pipelines.recipes.settings import HIDDEN

HELP = ("--help", "-h")
ADDED = ("grid",)
OPTIONS = "Options"  # the panel of --help for what belongs to the command itself

DATA_TEXT = "Folder of prepared data sets (default: TFDS_DATA_DIR, else ~/tensorflow_datasets)."
Json = Annotated[bool, Parameter(help="Print one JSON document on standard output.")]
DataDir = Annotated[Path | None, Parameter(help=DATA_TEXT)]


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a command: a field of its settings, or an argument of one of them."""

    name: str
    kind: Any
    default: Any
    text: str
    """What --help says of it."""
    panel: str = OPTIONS
    choices: Sequence[str] = ()
    """Words that --help names where the kind does not, others being allowed."""
    typed: str = ""
    """The option as it is typed, where it is not its name."""

    def parameter(self) -> inspect.Parameter:
        """Return it as a parameter of a function."""
        listed = f" [choices: {', '.join(self.choices)}]" if self.choices else ""
        about = Parameter(
            name=f"--{(self.typed or self.name).replace('_', '-')}",
            help=self.text + listed,
            group=_panel(self.panel),
            metavar="NAME" if self.choices else None,
            consume_multiple=True if self.default else 1,  # none of them only where that says more
        )
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[self.kind, about],
        )


DATA_DIR = Option("data_dir", Path | None, None, DATA_TEXT)


def options_of(settings: Any, panel: str = OPTIONS) -> list[Option]:
    """Return the options that are the fields of a dataclass, with the values that it has."""
    hints = typing.get_type_hints(type(settings), include_extras=True)
    texts = describe_fields(type(settings))
    return [
        Option(
            each.name,
            hints[each.name],
            getattr(settings, each.name),
            texts.get(each.name, ""),
            panel,
            typed=each.metadata.get("option", ""),
        )
        for each in dataclasses.fields(settings)
        if HIDDEN not in getattr(hints[each.name], "__metadata__", ())
    ]


def describe_fields(kind: type) -> dict[str, str]:
    """Return by name what the text below a field of a dataclass says of it."""
    texts = {}
    for each in filter(dataclasses.is_dataclass, reversed(kind.__mro__)):
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        for pair in pairwise(tree.body):  # type: ignore[attr-defined]
            match pair:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts[name] = " ".join(text.split())
    return texts


@functools.cache
def _panel(title: str) -> Group:
    """Return a panel of --help; they stand in the order in which they are first asked for."""
    return Group.create_ordered(title)


def take(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the values that are fields of a dataclass."""
    names = {each.name for each in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def command(app: App, name: str = "", **settings: Any) -> Callable[[Any], Any]:
    """Return a decorator that makes a function a command of a program."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        typed = name or function.__name__.replace("_", "-")
        add_command(app, function, None, typed)
        for key, value in settings.items():
            setattr(app[typed], key, value)
        return function

    return register


def add_command(
    app: App,
    function: Callable[..., Any],
    takes: Iterable[inspect.Parameter | Option] | None = None,
    name: str = "",
) -> None:
    """Make a function a command of a program; without a name, what the program itself does.

    It takes what is listed (None: its own parameters), and is called with what is given of that.
    """
    takes = inspect.signature(function).parameters.values() if takes is None else takes
    parameters = [each.parameter() if isinstance(each, Option) else each for each in takes]

    def called(*given: Any, **values: Any) -> Any:
        return function(*given, **values)

    called.__name__, called.__doc__ = function.__name__, _flow(function.__doc__ or "")
    called.__signature__ = inspect.Signature([*map(_read_by_us, parameters)])  # type: ignore[attr-defined]
    prog = " ".join(filter(None, [app.name[0], name]))
    deeper = "" if name or all(each.startswith("-") for each in app) else "[COMMAND]"
    names = filter(None, [deeper, *map(_placeholder, parameters)])
    usage = " ".join([f"Usage: {prog}", *names, "[OPTIONS]"])
    if name:
        app.command(called, name=name, usage=usage)
    else:
        app.default(called)
        app.usage = usage


def name_parameter(
    text: str, label: str = "name", choices: Iterable[str] = ()
) -> inspect.Parameter:
    """Return the parameter for a name before the options, which Tab completes to the choices."""
    about = Parameter(help=text, choices=[*choices] or None, show_choices=False)
    annotation = Annotated[str, about]
    return inspect.Parameter(label, inspect.Parameter.POSITIONAL_ONLY, annotation=annotation)


def _read_by_us(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter whose words `_value_of` reads: cyclopts takes 1.5 for a whole number.

    Of an option that is repeated the last one counts; those of ADDED add up.
    """
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return parameter
    kind = parameter.annotation
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind

    def convert(_: Any, tokens: Sequence[Any]) -> Any:
        begins = [i for i, token in enumerate(tokens) if token.index == 0]
        last = begins[-1] if begins and parameter.name not in ADDED else 0
        return _value_of(plain, [token.value for token in tokens[last:]])

    return parameter.replace(annotation=Annotated[kind, Parameter(converter=convert)])


def _placeholder(parameter: inspect.Parameter) -> str:
    """Return the place of a name on a command line: NAME, [NAME] or [NAMES...]."""
    label = parameter.name.upper()
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"[{label}...]"
    if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
        return ""
    return label if parameter.default is parameter.empty else f"[{label}]"


def parse(options: Iterable[Option], words: Sequence[str], prog: str, text: str) -> dict[str, Any]:
    """Return the values of the options that the words of a command line give.

    Print the help of the command, and end it, where they ask for it. Raise UserError where they are
    wrong.
    """
    if wants_help(words):
        words = ["--help"]
    values = call(_app_of(options, prog, text), words)
    if values is None:  # the help is printed
        raise SystemExit(0)
    return dict(values)


def parse_known(
    options: Iterable[Option], words: Sequence[str], prog: str
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of these options, and the words that say other things."""
    app = _app_of(options, prog, "", help_flags=[])
    with _sentences(app, words):
        _, bound, rest, _ = app.parse_known_args(_hyphenate(words))
    return dict(bound.kwargs), rest


def _app_of(options: Iterable[Option], prog: str, text: str, **settings: Any) -> App:
    options = list(options)
    names = [option.name for option in options]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(
            f"A setting must have another name than every option of the command. Received: {twice}."
            " Rename the setting, or the argument of your own network."
        )

    def values(**values: Any) -> dict[str, Any]:
        return values

    app = new_app(prog, text, **settings)
    add_command(app, values, options)
    return app


def new_app(prog: str, text: str, **settings: Any) -> App:
    """Return an App for the commands of a program, or for the options of one."""
    app = App(
        name=prog,
        help=_flow(text),
        help_format="plaintext",
        usage=f"Usage: {prog} COMMAND",
        help_formatter=_format_panel,
        group_parameters=_panel(OPTIONS),
        group_arguments=_panel(OPTIONS),
        default_parameter=Parameter(
            allow_repeating=True,  # the last one counts
            negative_iterable=(),
            show_default=_show,
        ),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        **({"version_flags": []} | settings),
    )
    for flag in (*app.help_flags, *app.version_flags):
        app[flag].group = (_panel(OPTIONS),)
    if app.help_flags:
        app["--help"].help = "Show this text."
    return app


def _flow(text: str) -> str:
    """Return a text whose paragraphs and items are single lines, which a terminal wraps."""
    flowed: list[str] = []
    for before, line in pairwise(["", *inspect.cleandoc(text).splitlines()]):
        if before and line and not line.startswith(("- ", "    ")):
            flowed[-1] += f" {line.strip()}"
        else:
            flowed.append(line)
    return "\n".join(flowed)


def _format_panel(console: Any, options: Any, panel: Any) -> None:
    """Print a panel of --help, without the `--no-x` of a flag that is not set."""
    from cyclopts.help import DefaultFormatter

    entries = [
        entry.copy(negative_names=(), default=None) if entry.default == "" else entry
        for entry in panel.entries
    ]
    DefaultFormatter()(console, options, panel.copy(entries=entries))


def _show(default: Any) -> str:
    """Return a default as --help shows it; empty where that says nothing."""
    if default is None or isinstance(default, bool):
        return "yes" if default else ""
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def call(app: App, words: Sequence[str]) -> Any:
    """Return what the function of a command returns, called as the words say."""
    words = _hyphenate(words)
    if not words and app.default_command is None:
        see = f"See: {app.name[0]} --help"
        raise UserError(f"A command must be named. Received: none. {see}")
    with _sentences(app, words):
        return app(words, exit_on_error=False, print_error=False)


def call_named(function: Callable[[str, list[str]], Any], app: App, words: list[str]) -> Any:
    """Call a function with the name that the words begin with, and with those after it.

    It reads them itself. Where no name stands there the App prints its help, or refuses the words.
    """
    if words and not words[0].startswith("-"):
        return function(words[0], words[1:])
    if words and not wants_help(words):
        raise UserError(
            f"The name must stand before the options. Received: {shlex.join(words)}. Write: "
            f"{app.name[0]} NAME, and then the options."
        )
    return call(app, words)


def wants_help(words: Iterable[str]) -> bool:
    """Return whether the words of a command line ask for its help."""
    return bool({*HELP} & {*words})


def _hyphenate(words: Sequence[str]) -> list[str]:
    """Return the words with `--batch_size` as `--batch-size`."""
    parts = [word.partition("=") if word.startswith("--") else ("", "", word) for word in words]
    return [name.replace("_", "-") + sign + value for name, sign, value in parts]


def _value_of(kind: Any, words: Sequence[str]) -> Any:
    """Return the value that words say; ValueError where they are none of that kind."""
    kinds = get_args(kind) if get_origin(kind) in refusals.UNIONS else (kind,)
    if types.NoneType in kinds and [*words] == ["None"]:
        return None
    for each in kinds:
        with contextlib.suppress(ValueError):
            return _plain_value(each, words)
    raise ValueError


def _plain_value(kind: Any, words: Sequence[str]) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_value_of(get_args(kind)[0], [word]) for word in words)
    [word] = words
    if get_origin(kind) is Literal and word not in get_args(kind):
        raise ValueError
    if kind is bool:
        return {"true": True, "yes": True, "false": False, "no": False}.get(word.lower(), word)
    return word if kind in (str, Any) or get_origin(kind) is Literal else kind(word)


@contextlib.contextmanager
def _sentences(app: App, words: Sequence[str]) -> Any:
    """Raise as UserError what cyclopts refuses."""
    try:
        yield
    except cyclopts.CycloptsError as error:
        chain, apps, rest = app.parse_commands(words)
        usage = " ".join([app.name[0], *chain])
        raise UserError(refusals.describe(error, apps[-1], rest, usage)) from None
