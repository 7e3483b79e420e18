"""Command lines read by tyro, whose refusals become errors like all others: a sentence, code 2.

tyro hands over what is wrong as an object (`tyro._errors`) and knows every option of a command
(`tyro._parsers`, `SubcommandApp._build_union`). None is public, so they are used in this module
alone; its tests fail where a new version of tyro has changed them.
"""

import difflib
import itertools
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import tyro
from tyro import _errors
from tyro._parsers import ParserSpecification

from pipelines.errors import UserError

NO_DEFAULT: Any = tyro.MISSING_NONPROP
TYPES = {"INT": "a whole number", "FLOAT": "a number"}  # keys: tyro's words in --help
LISTS = {"INT": "whole numbers", "FLOAT": "numbers"}


def parse(
    kind: Any,
    words: Sequence[str],
    *,
    prog: str,
    default: Any = NO_DEFAULT,
    description: str | None = None,
) -> Any:
    """Return what the words of a command line say, as `kind`. Raise UserError where it is wrong."""

    def refuse(event: _errors.ParseErrorEvent) -> None:
        commands, options = _names(kind, default, words)
        command = next((word for word in words if word in commands), None)
        usage = f"{prog} {command}" if command else prog
        if message := _describe(event, words, commands if not command else [], options, usage):
            raise UserError(message)

    with _errors.on_parse_error(refuse):
        return tyro.cli(kind, args=words, prog=prog, default=default, description=description)


def parse_known(kind: Any, words: Sequence[str], prog: str) -> tuple[Any, list[str]]:
    """Return what the words say of the options of `kind`, and the words that say other things."""

    def refuse(event: _errors.ParseErrorEvent) -> None:
        if message := _describe(event, words, [], [], prog):
            raise UserError(message)

    with _errors.on_parse_error(refuse):
        return tyro.cli(kind, args=words, return_unknown_args=True, add_help=False)


def parse_command(
    app: tyro.extras.SubcommandApp, words: Sequence[str], prog: str, description: str | None
) -> Any:
    """Return what the function of a command returns, called as the words say."""
    return parse(app._build_union(use_underscores=False), words, prog=prog, description=description)


def name_first(prog: str, words: Sequence[str]) -> UserError:
    """Return the error for a command whose options stand before the name that it takes."""
    return UserError(
        f"The name must stand before the options. Received: {shlex.join(words)}. Write: {prog} "
        f"{words[0]} NAME, and then the options."
    )


def _names(kind: Any, default: Any, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the commands there are, and the options of the one that the words name."""
    spec: Any = ParserSpecification.from_callable_or_type(
        kind,
        markers=set(),
        description=None,
        parent_classes=set(),
        default_instance=default,
        intern_prefix="",
        extern_prefix="",
        subcommand_prefix="",
        support_single_arg_types=False,
        prog_suffix="",
    )
    groups = spec.subparsers_from_intern_prefix.values()
    commands = {name: each for group in groups for name, each in group.parser_from_name.items()}
    chosen = next((commands[word] for word in words if word in commands), None)
    arguments = (chosen.evaluate() if chosen else spec).get_args_including_children()
    shown = [each.arg.lowered for each in arguments if not each.arg.is_suppressed()]
    options = [name for each in shown for name in each.name_or_flags if name.startswith("-")]
    return list(commands), options


def _describe(
    event: _errors.ParseErrorEvent,
    words: Sequence[str],
    commands: Sequence[str],
    options: Sequence[str],
    usage: str,
) -> str:
    """Return in ordinary words what is wrong and what to do; empty of what is not known here."""
    message, see = "", f"See: {usage} --help"
    match event:
        case _errors.UnrecognizedArgs():
            message = f"{_describe_unknown(event.tokens, commands, options)} {see}"
        case _errors.MissingArgs():
            names = " ".join(each.arg.display_name().upper() for each in event.missing_arguments)
            message = f"{names} must be given. Received: nothing. Write: {usage} {names}"
        case _errors.MissingSubcommand():
            message = f"A command must be named. Received: none. {see}"
        case _errors.BadValue():
            message = f"{_option(event.argument)} needs a value after it. Received: none. {see}"
        case _errors.InvalidChoice():
            rule = f"{_option(event.argument)} must be one of: {', '.join(event.choices)}."
            hint = _suggest(event.value, event.choices)
            message = f"{rule} Received: {event.value!r}.{hint}"
        case _errors.InstantiationFailure():
            message = _describe_value(event, words)
    return message


def _describe_unknown(
    tokens: Sequence[str], commands: Sequence[str], options: Sequence[str]
) -> str:
    """Return which command, options or words are not known, and what may have been meant."""
    if commands and not tokens[0].startswith("-"):
        return f"There is no command {tokens[0]!r}.{_suggest(tokens[0], commands)}"
    sentences = []
    for before, token in itertools.pairwise(["", *tokens]):
        name = token.partition("=")[0]
        if name in options:
            sentences.append(f"{name} must stand after the command.")
        elif name.startswith("-"):
            sentences.append(f"There is no option {name}.{_suggest(name, options)}")
        elif not before.startswith("-"):  # else it was meant for an option that is not known
            sentences.append(f"No option takes the word {token!r}.")
    return " ".join(sentences)


def _describe_value(event: _errors.InstantiationFailure, words: Sequence[str]) -> str:
    """Return what an option takes and what it was given; of a rule of ours, its own sentence."""
    if event.argument is None:
        return str(event.message)
    name, metavar = _option(event.argument), str(event.argument.lowered.metavar)
    if many := re.match(r"\[(\w+) \[", metavar):  # [FLOAT [FLOAT ...]]
        kind = LISTS.get(many[1], f"words: {metavar}")
    else:  # {None}|INT
        kinds = [TYPES.get(each, each.strip("{}")) for each in metavar.split("|")]
        kind = " or ".join(sorted(kinds, key=lambda each: each == "None"))
    return f"{name} must be {kind}. Received: {_given(name, words) or event.message}."


def _given(option: str, words: Sequence[str]) -> str:
    """Return the words that follow an option on the command line."""
    for number, word in enumerate(words):
        name, _, value = word.partition("=")
        if name.replace("_", "-") == option:
            rest = [value] if value else words[number + 1 :]
            end = next((i for i, each in enumerate(rest) if each.startswith("--")), len(rest))
            return repr(" ".join(rest[:end]))
    return ""


def _option(argument: Any) -> str:
    """Return an option as it is typed, or the name of what is typed without one."""
    return str(argument.display_name()).partition(",")[0].partition("/")[0]


def _suggest(word: str, choices: Iterable[str]) -> str:
    """Return ` Did you mean --learning-rate?`; empty where nothing is near."""
    bare = {choice.lstrip("-"): choice for choice in choices}
    near = difflib.get_close_matches(word.lstrip("-"), bare, n=1)
    return f" Did you mean {bare[near[0]]}?" if near else ""
