"""Command line: `near-identity COMMAND`, or `python -m pipelines COMMAND`.

Measure: list, show, run, sweep, quickstart. Search: tune. Compare: report, reference, compare,
evaluate, watch, ui, register. At their times: pipeline, schedule. Look after: data, doctor,
recover, evidence, export, import. `--version` prints the version."""

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import tyro

from pipelines import __version__
from pipelines.cli.parsing import name_first, parse_command
from pipelines.cli.shell import print_answer, run_command_safely, use_data_dir
from pipelines.recipes.catalog import Scale
from pipelines.runtime import places
from pipelines.runtime.progress import say_begin

PROG = places.NAME if Path(sys.argv[0]).name == places.NAME else "python -m pipelines"
app = tyro.extras.SubcommandApp()


@app.command
def run(name: tyro.conf.Positional[str]) -> None:  # `dispatch` reads its words: here for --help
    """Run a claim or a recipe by name: `run NAME --help` lists what can be overridden."""


@app.command
def sweep(name: tyro.conf.Positional[str]) -> None:  # as `run`
    """Measure a claim over a grid: `sweep CLAIM --grid d=8,64`; `sweep CLAIM --help` says more."""


@app.command
def tune(command: tyro.conf.Positional[str]) -> None:  # as `run`
    """Search learning-rate schedules, as `python -m tuning` does: `tune run STUDY --recipe R`;
    `tune --help` says more."""


@app.command
def pipeline(name: tyro.conf.Positional[str]) -> None:  # as `run`
    """Run steps in order: `pipeline verify`, `pipeline train-and-register RECIPE`; `--help`."""


@app.command
def schedule(command: tyro.conf.Positional[str]) -> None:  # as `run`
    """Run commands at their times: `schedule serve|list|add|...`; `schedule --help` says more."""


@app.command(name="list")
def list_command(
    what: tyro.conf.Positional[Literal["names", "claims", "recipes"]] = "names", json: bool = False
) -> None:
    """List the names of claims, by verdict, recipes, architectures, schedules and data sets, on one
    screen; `list claims` or `list recipes`: what each is about, its costs, whether its data are
    here."""
    from pipelines.cli import list_command as listing

    shows = {"names": listing.show, "claims": listing.show_claims, "recipes": listing.show_recipes}
    print_answer(listing.list_names(), json, shows[what])


@app.command
def show(name: tyro.conf.Positional[str], json: bool = False) -> None:
    """Show a claim or a recipe: its card, evidence, cost and settings, and what its source
    reports."""
    from pipelines.cli import show_command

    print_answer(show_command.describe(name), json, show_command.show)


@app.command
def quickstart(force: bool = False, data_dir: Path | None = None) -> None:
    """Measure three claims, run a learning-rate study and write a table of results, in one to two
    minutes."""
    from pipelines.cli.quickstart import quickstart as start

    use_data_dir(data_dir)
    start(force)


@app.command
def report(json: bool = False, out: Path | None = None, publish: bool = False) -> None:
    """Write RESULTS.md, results.json, figures/ and results.html, one page with all of it: the
    project's results beside yours (into --out; default: report/ beside the database). --publish,
    for maintainers, writes those that git keeps, of the project's evidence alone."""
    say_begin("Reading the recorded runs, then writing the report and its figures.", json)
    from pipelines.cli import tables
    from pipelines.results import scoreboard
    from pipelines.tracking import recovery

    recovery.recover()
    document = (scoreboard.publish if publish else scoreboard.write)(out)

    def show(document: Mapping[str, Any]) -> None:
        tables.show_scoreboard(document["claims"])
        files = (document[key] for key in ("results", "document", "page") if key in document)
        print("Written:", *files, sep="\n  ")

    print_answer(document, json, show)


@app.command(name="evidence")
def evidence_command(
    action: tyro.conf.Positional[
        Literal["list", "import", "add", "check", "plan", "work"]
    ] = "list",
    what: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    max_minutes: float | None = None,
    again: int | None = None,
    draw: int | None = None,
    json: bool = False,
) -> None:
    """List the bundles of runs behind RESULTS.md, in mlruns/evidence; import those that this home
    lacks; add FILE (of `export`) or CLAIM (run here), joined with what they hold; check: derive
    every verdict anew from its curves and compare it with results.json, and cells with their
    trainings, with exit code 1 where one differs; --again N: measure N cells anew, drawn by the
    seed --draw among those that take --max-minutes (1) for all N; plan: the verdicts that are
    lacking, the cheapest first, with the seeds and trainings that each lacks; work: measure and add
    them, all or those of CLAIMs, at the lowest priority, for --max-minutes or to the end: the same
    command goes on."""
    from pipelines.cli import results_command
    from pipelines.errors import UserError, check_minutes
    from pipelines.results.evidence import adding, bundles, queue

    if max_minutes is not None and action not in ("work", "check"):
        raise UserError(
            f"--max-minutes belongs to `evidence work`. Received: evidence {action} with "
            f"--max-minutes {max_minutes:g}. Leave it out."
        )
    if (again, draw) != (None, None) and action != "check":
        raise UserError(
            f"--again and --draw belong to `evidence check`. Received: evidence {action} with one "
            "of them. Leave it out."
        )
    if what and action not in ("add", "plan", "work"):
        raise UserError(
            f"`evidence {action}` takes no names. Received: {' '.join(what)}. Leave them out."
        )
    say_begin(f"Reading the evidence in {bundles.FOLDER}.", json)
    if action == "check":
        results_command.evidence_check_command(again, draw, max_minutes, json)
    elif action == "add":
        print_answer(adding.add(what), json, adding.print_added)
    elif action == "plan":
        bundles.import_if_own()
        lacking = [decision.document() for decision in queue.plan_decisions(what)]
        print_answer({"lacking": lacking}, json, queue.print_plan)
    elif action == "work":
        check_minutes(max_minutes)
        places.require_checkout("evidence work")
        bundles.import_if_own()
        print_answer(queue.work(what, max_minutes or math.inf), json, queue.print_work)
    else:
        if action == "import":
            bundles.import_missing(None)
        print_answer(bundles.list_bundles(), json, bundles.print_bundles)


@app.command
def reference(json: bool = False) -> None:
    """Write every number that the sources report as a finished run beside ours; none twice."""
    from pipelines.results import reference_runs

    say_begin("Looking for runs with the numbers that the sources report.", json)
    print_answer(reference_runs.write(), json, reference_runs.print_references)


@app.command
def compare(
    runs: tyro.conf.Positional[tuple[str, ...]], out: Path | None = None, json: bool = False
) -> None:
    """Compare runs: numbers, differences with their intervals, settings, and a link to the learning
    curves. A run is named by its id, the beginning of it, or its name, of which the newest is
    taken. --out FILE.png (or .svg, .pdf) draws the curves: means over seeds, in bands."""
    from pipelines.results import comparison

    document = comparison.compare(runs)
    if out:
        comparison.write_figure(comparison.find_runs(runs), out)
        document["figure"] = str(out)
    print_answer(document, json, comparison.print_comparison)


@app.command
def evaluate(run: tyro.conf.Positional[str], json: bool = False) -> None:
    """Measure the model that a training stored anew, beside what it recorded. Exit code 1 where
    they differ."""
    from pipelines.cli import results_command

    say_begin(f"Looking for run {run}, then loading its model.", json)
    results_command.evaluate_command(run, json)


@app.command
def watch(
    names: tyro.conf.Positional[tuple[str, ...]] = (), notify: str = "", json: bool = False
) -> None:
    """Compare the latest results of claims and recipes (default: all), or the runs with these ids,
    with those before: exit code 3 where a verdict or a number has changed; --notify tells a URL or
    a command."""
    from pipelines.cli import results_command

    say_begin("Comparing the recorded results with those before.", json)
    results_command.watch_command(names, json, notify)


@app.command
def register(
    recipe: tyro.conf.Positional[str],
    scale: Scale = "cpu",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Make the best run of a recipe, by validation, the champion of the model registry; --dry-run
    only says what would become of it."""
    from pipelines.results import model_registry

    say_begin(f"Looking for the best run of {recipe} at {scale} scale.", json)
    document = model_registry.register(recipe, scale, dry_run)
    print_answer(document, json, model_registry.print_champion)


@app.command
def ui(port: int = 5000, host: str = "127.0.0.1") -> None:
    """Serve the MLflow UI on the store's runs, or name the server that does."""
    from pipelines.results import reference_runs, standing
    from pipelines.results.evidence import bundles
    from pipelines.tracking import mlflow_ui, recovery, store, ui_server

    say_begin(f"Opening the runs in {store.display_uri()} for the MLflow UI.")
    if not store.is_server():
        ui_server.check_port(host, port)
    recovery.recover()
    bundles.import_if_own()
    if any(map(store.is_ours, store.client().search_experiments())):
        reference_runs.write()  # into a store of others they go by `reference` alone
        standing.mark()
    addresses = mlflow_ui.links(ui_server.address(host, port))
    width = max(map(len, addresses), default=0)
    for title, link in addresses.items():
        print(f"{title:<{width}}  {link}")
    best = mlflow_ui.best_link(addresses) or ui_server.address(host, port)
    if store.is_server():
        print(f"Open this: {best}")
    else:
        sys.stdout.flush()
        ui_server.serve(host, port, best)


@app.command
def data(
    action: tyro.conf.Positional[Literal["list", "prepare", "pack", "check"]] = "list",
    name: tyro.conf.Positional[str | None] = None,
    data_dir: Path | None = None,
    size: int | None = None,
    json: bool = False,
) -> None:
    """List data sets; prepare NAME (downloads); pack NAME (into one file that is read without
    TensorFlow); check NAME, or all that are there (never touches the network). NAME may be your
    own: a folder with a subfolder a class, FILE.npz or tfds:NAME; --size scales its pictures."""
    from pipelines.cli.data_command import data_command

    use_data_dir(data_dir)
    data_command(action, name, size, json)


@app.command
def doctor(json: bool = False, data_dir: Path | None = None) -> None:
    """Examine this machine: what works, what does not, what that costs and how to mend it. Exit
    code 1 where something must be mended."""
    from pipelines.cli.doctor import examine, show_counts, show_row

    use_data_dir(data_dir)
    document = examine(None if json else show_row)
    print_answer(document, json, show_counts)
    if not document["healthy"]:
        raise SystemExit(1)


@app.command
def recover(json: bool = False) -> None:
    """Deliver and close the runs of processes that have died; never those of a living one."""
    from pipelines.tracking import recovery

    def show(document: Mapping[str, Any]) -> None:
        for run_id, why in document["settled"].items():
            print(f"{run_id}  {why}")
        print(f"{len(document['settled'])} settled.")

    print_answer({"settled": recovery.recover()}, json, show)


@app.command
def export(
    file: tyro.conf.Positional[Path],
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    filter: str | None = None,
    without_artifacts: bool = False,
    without_models: bool = False,
    json: bool = False,
) -> None:
    """Write finished runs with all that belongs to them into one file: those of the claims, recipes
    and studies named, or with these ids (default: all), or those that an MLflow --filter finds.
    --without-artifacts writes their numbers alone, without files and models; --without-models all
    but the stored networks."""
    from pipelines.tracking.bundles import exporting

    def show(document: Mapping[str, Any]) -> None:
        print(f"{len(document['runs'])} runs, {document['bytes']:,} bytes: {file}")

    document = exporting.export_runs(file, names, filter, without_artifacts, without_models)
    print_answer(document, json, show)


@app.command(name="import")
def import_command(file: tyro.conf.Positional[Path], json: bool = False) -> None:
    """Import the runs of a file that `export` wrote; those that are here already are left out."""
    from pipelines.results.evidence import bundles

    def show(document: Mapping[str, Any]) -> None:
        new, old = len(document["imported"]), len(document["present"])
        print(f"{new} runs imported, {old} are here already.")

    print_answer(bundles.import_runs(file), json, show)


def dispatch(arguments: list[str]) -> None:
    """Run a command. Those named here read their options themselves; tyro knows the others."""
    command, *rest = arguments or [""]
    if command in ("run", "sweep") and rest and not rest[0].startswith("-"):
        from pipelines.cli.run_command import run_command, sweep_command

        (run_command if command == "run" else sweep_command)(rest[0], rest[1:])
    elif command == "tune":
        from tuning.__main__ import dispatch as dispatch_tuning

        dispatch_tuning(rest)
    elif command == "pipeline":
        from pipelines.cli.pipeline_command import pipeline_command

        pipeline_command(rest)
    elif command == "schedule":
        from pipelines.cli.schedule_command import schedule_command

        schedule_command(rest)
    elif command == "attempt":  # started by a schedule
        from pipelines.scheduling import attempt

        attempt.main(rest)
    elif command == "--version":
        print(places.NAME, __version__)
    else:
        if command in ("run", "sweep") and rest and not {"-h", "--help"} & set(rest):
            raise name_first(PROG, arguments)
        parse_command(app, arguments, PROG, __doc__)


def main() -> int:
    """Run the command that this process was started with; return its exit code."""
    # a server of the schedule holds no MLflow in memory; `recover` says itself what it closes
    recovers_runs = sys.argv[1:2] not in (["schedule"], ["attempt"], ["recover"])
    return run_command_safely(dispatch, sys.argv[1:], recovers_runs)


if __name__ == "__main__":
    sys.exit(main())
