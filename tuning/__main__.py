"""Command line: `python -m tuning COMMAND`: learning-rate studies."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from pipelines.cli.parsing import (
    DataDir,
    Json,
    add_command,
    call,
    call_named,
    command,
    name_parameter,
    new_app,
    options_of,
)
from pipelines.cli.shell import print_answer, run_process, use_data_dir
from pipelines.errors import UserError
from pipelines.runtime.durations import format_duration
from pipelines.runtime.plain_table import plain_table, print_prose, wrap_prose
from tuning import cli
from tuning.cli import PROG
from tuning.plan import StudyPlan

app = new_app(
    PROG,
    """Search learning-rate schedules, in studies of Optuna.

    Search: run, resume, work. Look: list, show, best, compare. Storage: copy, dashboard.""",
)
STUDY_TEXT = "Name of the study; `list` shows them."
Study = Annotated[str, Parameter(help=STUDY_TEXT)]
Studies = Annotated[str, Parameter(help="Names of studies; `list` shows them.")]
Storage = Annotated[
    str | None,
    Parameter(
        help="Where studies are kept: journal:///FILE, postgresql://..., or grpc://HOST:PORT "
        "(None: OPTUNA_STORAGE, else a journal beside MLflow's database)."
    ),
]


STUDY = name_parameter(STUDY_TEXT, "study")
run_app = new_app(
    f"{PROG} run",
    """Search schedules for a recipe until the study has so many finished trials.

    Started again, it goes on. Every setting of the recipe can be overridden as in `python -m
    pipelines run`: `run STUDY --recipe R --help` lists them with their values.""",
)
add_command(run_app, print, [STUDY, *cli.run_options(StudyPlan())])
app.command(run_app, name="run")


def resume(study: str, **values: Any) -> None:
    """Go on with a study that is there, as it was planned.

    --trials and --hours raise its goal.
    """
    print_answer(*cli.resume_search(study, **values), _print_study)


add_command(app, resume, [STUDY, *options_of(cli.Length())], "resume")


@command(app)
def work(study: Study, /, *, storage: Storage = None, data_dir: DataDir = None) -> None:
    """Be one more worker of a study that another process leads, here or on another machine."""
    from tuning import study as studies
    from tuning.storage import storage as storages

    use_data_dir(data_dir)
    studies.help_leader(study, storages.resolve_url(storage))


@command(app, "list")
def list_command(*, storage: Storage = None, json: Json = False) -> None:
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


@command(app)
def show(study: Study, /, *, storage: Storage = None, json: Json = False) -> None:
    """Print a study: its trials, the best of each family, the gain, and how to train the best."""
    from tuning import catalog

    print_answer(catalog.describe(study, storage), json, _print_study)


@command(app)
def best(study: Study, /, *, storage: Storage = None) -> None:
    """Print the options of the best trial, to paste after `python -m pipelines run RECIPE`.

    What it gains is said on standard error.
    """
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
        print(wrap_prose(sentence, after="  "), file=sys.stderr, flush=True)
    print(summary.run_arguments(document["target_scale"], document["best"]))


@command(app)
def compare(
    *studies: Studies,
    storage: Storage = None,
    out: Annotated[
        Path | None, Parameter(help="File of a picture of their best of k trials: FILE.png.")
    ] = None,
    good_pct: Annotated[
        float | None,
        Parameter(help="Validation error, in percent, up to which a trial of any of them is good."),
    ] = None,
    json: Json = False,
) -> None:
    """Compare studies: best, gain, good region, cost."""
    from tuning import comparison

    document = comparison.compare(studies, storage, out, good_pct)
    print_answer(document, json, comparison.print_comparison)


@command(app)
def copy(
    source: Annotated[str, Parameter(help="The storage to copy from, as for --storage.")],
    /,
    *studies: Studies,
    storage: Storage = None,
) -> None:
    """Copy studies of another storage, all if none is named, into the one here."""
    from tuning.storage import copies
    from tuning.storage import storage as storages

    copied = copies.copy(source, studies, storages.resolve_url(storage))
    print(f"Copied: {', '.join(copied) or 'nothing, all of it is here'}.")


@command(app)
def dashboard(
    *,
    storage: Storage = None,
    host: Annotated[str, Parameter(help="Address at which it is served.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port at which it is served.")] = 8080,
) -> None:
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
        f"{document['space']} by {document['sampler']}{outcome.describe_budget(document['budget'])}"
        f"\n{counts}"
    )
    if document["reused"]:
        print("Found finished; --force starts it over, a higher goal continues it.")
    _print_trials(document["trials"])
    _print_families(document["families"])
    for sentence in outcome.sentences(document):
        print_prose(sentence, after="  ")
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
        print_prose(f"trial {row['trial']}: {row['settings']}", after="  ")
    print()


def _format_result(trial: Mapping[str, Any]) -> str:
    """Return `39.03 %`, `62.83 % (pruned)`, or the state of a trial without an error."""
    if trial["val_error_pct"] is None:
        return str(trial["state"].lower())
    ended = " (pruned)" if trial["state"] == "PRUNED" else ""
    ended = " (diverged)" if trial["diverged"] is not None else ended
    return f"{trial['val_error_pct']:.2f} %{ended}"


def dispatch(words: list[str]) -> None:
    """Run a command. `run` reads its words against a recipe, once the study is named."""
    if words[:1] == ["run"]:
        call_named(_run, run_app, words[1:])
    else:
        call(app, words)


def _run(study: str, words: list[str]) -> None:
    print_answer(*cli.run_search(study, words), _print_study)


if __name__ == "__main__":
    sys.exit(run_process(dispatch))
