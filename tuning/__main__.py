"""Command line: `python -m tuning COMMAND`: learning-rate studies.

Search: run, resume, work. Look: list, show, best, compare. Storage: copy, dashboard."""

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro

from pipelines.cli.parsing import name_first, parse_command
from pipelines.cli.shell import print_answer, run_command_safely, use_data_dir
from pipelines.errors import UserError
from pipelines.runtime.durations import format_duration
from pipelines.runtime.plain_table import plain_table
from tuning import cli
from tuning.cli import PROG

app = tyro.extras.SubcommandApp()
Study = tyro.conf.Positional[str]


@app.command
def run(study: Study) -> None:  # `dispatch` reads its words: here for --help
    """Search schedules for a recipe: `run STUDY --recipe R`; `run STUDY --help` says more."""


@app.command
def resume(study: Study) -> None:  # as `run`
    """Go on with a study: `resume STUDY`; `resume STUDY --help` says more."""


@app.command
def work(study: Study, storage: str | None = None, data_dir: Path | None = None) -> None:
    """Be one more worker of a study that another process leads, here or on another machine."""
    from tuning import study as studies
    from tuning.storage import storage as storages

    use_data_dir(data_dir)
    studies.help_leader(study, storages.resolve_url(storage))


@app.command(name="list")
def list_command(storage: str | None = None, json: bool = False) -> None:
    """List the studies of a storage."""
    from tuning import catalog

    def show(rows: list[dict[str, Any]]) -> None:
        width = max((len(row["study"]) for row in rows), default=0)
        for row in rows:
            trials = f"{row['trials']:>4} trials ({row['published_trials']} published)"
            print(f"{row['study']:<{width}} {trials}  {row['status'].lower():<8}  {row['about']}")
        if not rows:
            print("No study yet.")

    print_answer(catalog.list_studies(storage), json, show)


@app.command
def show(study: Study, storage: str | None = None, json: bool = False) -> None:
    """Print a study: its trials, the best of each family, the gain, and how to train the best."""
    from tuning import catalog

    print_answer(catalog.describe(study, storage), json, _print_study)


@app.command
def best(study: Study, storage: str | None = None) -> None:
    """Print the options of the best trial, to paste after `python -m pipelines run RECIPE`; what it
    gains is said on standard error."""
    from tuning import catalog
    from tuning.analysis import outcome, summary

    document = catalog.describe(study, storage)
    if document["best"] is None:
        state = "has no complete trial" if document["status"] == "FINISHED" else "is not finished"
        raise UserError(
            "A study's best is known once it is finished, with a complete trial. Received: "
            f"{study}, which {state}. Go on with more: {PROG} resume {study} --trials N"
        )
    paste = f"Its options, to paste after python -m pipelines run {document['recipe']}:"
    for sentence in [*outcome.sentences(document), paste]:
        print(_fill(sentence), file=sys.stderr, flush=True)
    print(summary.run_arguments(document["target_scale"], document["best"]))


@app.command
def compare(
    studies: tyro.conf.Positional[tuple[str, ...]],
    storage: str | None = None,
    out: Path | None = None,
    good_pct: float | None = None,
    json: bool = False,
) -> None:
    """Compare studies: best, gain, good region, cost; --out FILE.png draws their best-of-k. With
    --good-pct a trial of any of them is good up to that validation error."""
    from tuning import comparison

    document = comparison.compare(studies, storage, out, good_pct)
    print_answer(document, json, comparison.print_comparison)


@app.command
def copy(
    source: tyro.conf.Positional[str],
    studies: tyro.conf.Positional[tuple[str, ...]] = (),
    storage: str | None = None,
) -> None:
    """Copy studies of another storage, all if none is named, into the one here."""
    from tuning.storage import copies
    from tuning.storage import storage as storages

    copied = copies.copy(source, studies, storages.resolve_url(storage))
    print(f"Copied: {', '.join(copied) or 'nothing, all of it is here'}.")


@app.command
def dashboard(storage: str | None = None, host: str = "127.0.0.1", port: int = 8080) -> None:
    """Serve optuna-dashboard on the same storage."""
    from tuning.storage import serving
    from tuning.storage import storage as storages

    serving.serve_dashboard(storages.resolve_url(storage), host, port)


def _print_study(document: dict[str, Any]) -> None:
    """Print what a study came to, its trials, and the command that trains the best."""
    from pipelines.tracking.mlflow_ui import run_page
    from tuning.analysis import outcome

    finished = document["status"] == "FINISHED"
    counts = outcome.describe_counts(document, document["start"], document["sampler"])
    print(
        f"{document['study']}: {document['recipe']} at {document['scale']} scale, "
        f"{document['space']} by {document['sampler']}\n{counts}"
    )
    if document["reused"]:
        print("Found finished; --force starts it over, a higher goal continues it.")
    _print_trials(document["trials"])
    _print_families(document["families"])
    for sentence in outcome.sentences(document):
        print(_fill(sentence))
    print(f"Its page, while `python -m pipelines ui` runs:\n{run_page(document['run_id'])}")
    if not finished:
        print(f"Not finished; go on with: {PROG} resume {document['study']}")
    elif document["best"] is None:
        print("No trial is complete.")
    else:
        print(f"To train the best:\n{document['repeat']}")


def _print_trials(trials: Sequence[Mapping[str, Any]]) -> None:
    """Print a line a trial: its family of schedules, validation error, time, run, a link."""
    from rich.console import Console

    from pipelines.tracking import mlflow_ui

    table = plain_table("", "family", "validation error", "time", "run", right=["time"])
    for trial in trials:
        run_id, seconds = trial["run_id"], trial["device_s"]
        link = f"[link={mlflow_ui.run_page(run_id)}]{run_id[:8]}[/]" if run_id else ""
        time = "" if seconds is None else format_duration(seconds)
        table.add_row(trial["name"], trial["family"], _format_result(trial), time, link)
    Console(highlight=False).print(table)


def _print_families(families: Sequence[Mapping[str, Any]]) -> None:
    """Print the best trial of each family of schedules, and below the table their settings."""
    from rich.console import Console

    from tuning.analysis import outcome

    table = plain_table(*outcome.COLUMNS)
    for row in families:
        table.add_row(*outcome.cells(row))
    print()
    Console(highlight=False).print(table)
    for row in families:
        print(_fill(f"trial {row['trial']}: {row['settings']}"))
    print()


def _fill(text: str) -> str:
    return textwrap.fill(text, shutil.get_terminal_size().columns, subsequent_indent="  ")


def _format_result(trial: Mapping[str, Any]) -> str:
    """Return `39.03 %`, `62.83 % (pruned)`, or the state of a trial without an error."""
    if trial["val_error_pct"] is None:
        return str(trial["state"].lower())
    ended = " (pruned)" if trial["state"] == "PRUNED" else ""
    ended = " (diverged)" if trial["diverged"] is not None else ended
    return f"{trial['val_error_pct']:.2f} %{ended}"


def dispatch(arguments: list[str]) -> None:
    """Run a command: `run` and `resume` read their own options, tyro knows the others."""
    command, *rest = arguments or [""]
    searches = {"run": cli.run_search, "resume": cli.resume_search}
    if command in searches and rest and not rest[0].startswith("-"):
        print_answer(*searches[command](rest[0], rest[1:]), _print_study)
        return
    if command in searches and rest and not {"-h", "--help"} & set(rest):
        raise name_first(PROG, arguments)
    parse_command(app, arguments, PROG, __doc__)


if __name__ == "__main__":
    sys.exit(run_command_safely(dispatch, sys.argv[1:]))
