"""Refusals of a command line in words: what is wrong, what was received, what was meant."""

import difflib
import types
import typing
from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_origin

import cyclopts
from cyclopts import App

RULES = {int: "a whole number", float: "a number", bool: "True or False", types.NoneType: "None"}
LISTS = {int: "whole numbers", float: "numbers"}
UNIONS = (typing.Union, types.UnionType)

MEANT = {  # our options, and what other programs of the field call them
    "accumulate": "accumulation-steps gradient-accumulation-steps grad-accum grad-accumulation",
    "augment": "augmentation data-augmentation aug",
    "batch-size": "bs batch b minibatch mini-batch train-batch-size per-device-batch-size",
    "checkpoint-every": "ckpt-every save-every save-steps save-freq checkpoint-freq",
    "data": "dataset data-set ds",
    "data-dir": "data-root data-path data-folder root dataset-dir datadir",
    "devices": "gpus gpu num-gpus n-gpus ngpus num-devices device",
    "ema": "ema-decay model-ema",
    "epochs": "epoch num-epochs n-epochs num-train-epochs max-epochs e",
    "force": "overwrite rerun no-cache f",
    "hours": "timeout time-limit max-hours",
    "label-smoothing": "smoothing ls",
    "learning-rate": "lr base-lr initial-lr init-lr max-lr peak-lr eta",
    "max-minutes": "timeout time-limit max-time minutes",
    "model": "arch architecture net network m",
    "momentum": "beta beta1 mom",
    "new-run": "no-resume fresh restart",
    "out": "output output-dir out-dir o save-dir",
    "precision": "dtype amp fp16 bf16 mixed-precision half",
    "recipe": "config cfg",
    "run": "train fit measure optimize search",
    "sampler": "optimizer algorithm search-alg",
    "schedule": "scheduler lr-scheduler lr-schedule sched lr-scheduler-type lr-policy",
    "seed": "random-seed manual-seed rng-seed",
    "seeds": "num-seeds n-seeds nseeds repeats runs trials",
    "serve": "start daemon up",
    "size": "image-size img-size input-size resolution",
    "steps": "iterations iters num-steps max-steps max-iters train-steps n-steps",
    "test-every": "eval-every eval-steps eval-freq",
    "train-examples": "max-train-samples num-examples subset limit",
    "trials": "num-trials n-trials ntrials max-trials",
    "warmup": "warmup-steps warmup-epochs warmup-ratio warmup-iters",
    "weight-decay": "wd l2 decay weightdecay",
    "workers": "num-workers n-jobs jobs j nproc processes",
}


def suggest(word: str, choices: Iterable[str]) -> str:
    """Return ` Did you mean --learning-rate?`; empty where nothing is near."""
    bare = {choice.lstrip("-"): choice for choice in choices}
    asked = word.lstrip("-").replace("_", "-")
    meant = [ours for ours, theirs in MEANT.items() if ours in bare and asked in theirs.split()]
    near = meant or difflib.get_close_matches(asked, bare, n=1)
    return f" Did you mean {bare[near[0]]}?" if near else ""


def describe(error: cyclopts.CycloptsError, app: App, rest: Sequence[str], usage: str) -> str:
    """Return in ordinary words what is wrong and what to do."""
    see = f"See: {usage} --help"
    message = str(error)
    match error:
        case cyclopts.UnknownOptionError():
            name = (error.token.keyword or error.token.value).partition("=")[0]
            message = _describe_unknown(name, app, rest)
        case cyclopts.CoercionError():
            return _describe_value(error)
        case cyclopts.MissingArgumentError():
            name = error.keyword or error.argument.name  # type: ignore[union-attr]
            if not name.startswith("-"):
                name = name.upper()
                return f"{name} must be given. Received: nothing. Write: {usage} {name}"
            message = f"{name} needs a value after it. Received: none."
        case cyclopts.UnknownCommandError() | cyclopts.UnusedCliTokensError():
            message = _describe_word((error.unused_tokens or rest)[0], app, rest)
    return f"{message} {see}"


def _describe_word(word: str, app: App, rest: Sequence[str]) -> str:
    """Return that a word says nothing where it stands."""
    names = [name for name in app if not name.startswith("-")]
    if word.startswith("-"):
        return _describe_unknown(word, app, rest)
    if word in names:
        return f"{word} must stand before its options."
    if names and rest[:1] == [word]:
        return f"There is no command {word!r}.{suggest(word, names)}"
    return f"No option takes the word {word!r}."


def _describe_unknown(name: str, app: App, rest: Sequence[str]) -> str:
    """Return that an option is not known, and what may have been meant."""
    later = [app[word] for word in rest if word in app and not word.startswith("-")]
    if name in [each for command in later for each in _option_names(command)]:
        return f"{name} must stand after the command."
    return f"There is no option {name}.{suggest(name, _option_names(app))}"


def _option_names(app: App) -> list[str]:
    if app.default_command is None:
        return []
    shown = [each for each in app.assemble_argument_collection() if each.show]
    return [name for each in shown for name in each.names if name.startswith("--")]


def _describe_value(error: cyclopts.CoercionError) -> str:
    """Return what an option takes and what it was given."""
    argument: Any = error.argument
    given = " ".join(token.value for token in argument.tokens)
    given = given or getattr(error.token, "value", "")
    name = argument.name
    if choices := argument.get_choices():
        rule = f"one of: {', '.join(choices)}"
        return f"{name} must be {rule}. Received: {given!r}.{suggest(given, choices)}"
    kinds = get_args(argument.hint) if get_origin(argument.hint) in UNIONS else (argument.hint,)
    rules = [
        LISTS.get(get_args(each)[0], "words")
        if get_origin(each) is tuple
        else RULES.get(each, "a word")
        for each in kinds
    ]
    return f"{name} must be {' or '.join(rules)}. Received: {given!r}."
