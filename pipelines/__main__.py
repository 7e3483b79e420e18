"""Command line: `near-identity COMMAND`, or `python -m pipelines COMMAND`."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import App, Group, Parameter

from pipelines import __version__
from pipelines.cli.parsing import DataDir, Json, call, command, new_app
from pipelines.cli.shell import print_answer, run_process, use_data_dir
from pipelines.recipes.settings import Scale
from pipelines.runtime import places
from pipelines.runtime.progress import say_begin

PROG = places.NAME if Path(sys.argv[0]).name == places.NAME else "python -m pipelines"
MEASURE = Group.create_ordered("Measure")
SEARCH = Group.create_ordered("Search and compare")
TIMES = Group.create_ordered("Run in order, or at set times")
KEEP = Group.create_ordered("Look after")
app = new_app(
    PROG,
    """Measure what papers claim about near-identity networks, train recipes, and compare the runs.

    COMMAND --help says more about a command.""",
    version=f"{places.NAME} {__version__}",
    version_flags=["--version"],
)
app["--version"].help = "Print the version."


class Deeper(NamedTuple):
    """A command whose words another module reads, which is imported when it is called."""

    group: Group
    module: str
    function: str
    """Its function that takes the words."""
    app: str
    """Its App, for the list of all commands."""
    text: str


DEEPER = {
    "run": Deeper(
        *(MEASURE, "pipelines.cli.run_command", "run", "run_app"),
        "Run a claim or a recipe by name.",
    ),
    "sweep": Deeper(
        *(MEASURE, "pipelines.cli.run_command", "run_sweep", "sweep_app"),
        "Measure a claim over a grid of its settings.",
    ),
    "tune": Deeper(
        *(SEARCH, "tuning.__main__", "dispatch", "app"),
        "Search learning-rate schedules, in studies.",
    ),
    "pipeline": Deeper(
        *(TIMES, "pipelines.cli.pipeline_command", "pipeline_command", "app"),
        "Run several commands in order: verify, or train-and-register.",
    ),
    "schedule": Deeper(
        *(TIMES, "pipelines.cli.schedule_command", "schedule_command", "app"),
        "Run commands at set times: serve, list, add, and others.",
    ),
    "data": Deeper(
        *(KEEP, "pipelines.cli.data_command", "data_command", "app"),
        "List, prepare, pack or check data sets.",
    ),
    "evidence": Deeper(
        *(KEEP, "pipelines.cli.results_command", "evidence_command", "evidence_app"),
        "List, import, check or add to the recorded runs behind RESULTS.md.",
    ),
}
for _name, _each in DEEPER.items():
    app.command(App(name=_name, help=_each.text, group=_each.group))


@command(app, "list", group=MEASURE)
def list_command(
    what: Annotated[
        Literal["names", "claims", "recipes"],
        Parameter(help="All names; or what claims, or recipes, are about and cost."),
    ] = "names",
    /,
    *,
    json: Json = False,
) -> None:
    """List claims by verdict, recipes, architectures, schedules and data sets."""
    from pipelines.cli import list_command as listing

    shows = {"names": listing.show, "claims": listing.show_claims, "recipes": listing.show_recipes}
    print_answer(listing.list_names(), json, shows[what])


@command(app, group=MEASURE)
def show(
    name: Annotated[str, Parameter(help="Claim or recipe; `list` names them.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Show a claim or a recipe: card, evidence, cost, settings, and what its source reports."""
    from pipelines.cli import show_command

    print_answer(show_command.describe(name), json, show_command.show)


@command(app, group=MEASURE)
def quickstart(
    *,
    force: Annotated[bool, Parameter(help="Repeat what has finished before.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Measure three claims, run a study and write a table of results, in one to two minutes."""
    from pipelines.cli.quickstart import quickstart as start

    use_data_dir(data_dir)
    start(force)


@command(app, group=SEARCH)
def report(
    *,
    json: Json = False,
    out: Annotated[
        Path | None, Parameter(help="Folder (default: report/ beside the database).")
    ] = None,
    publish: Annotated[
        bool,
        Parameter(help="For maintainers: write those that Git keeps, of the evidence alone."),
    ] = False,
) -> None:
    """Write a table and a page of the project's results beside yours.

    The files are RESULTS.md, results.json, figures/ and results.html, one page with all of it.
    """
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


@command(app, group=KEEP)
def reference(*, json: Json = False) -> None:
    """Write every number that the sources report as a run beside ours, without duplicates."""
    from pipelines.results import reference_runs

    say_begin("Looking for runs with the numbers that the sources report.", json)
    print_answer(reference_runs.write(), json, reference_runs.print_references)


@command(app, group=SEARCH)
def compare(
    *runs: Annotated[
        str,
        Parameter(help="Ids of runs, beginnings of them, or names, of which the newest is taken."),
    ],
    out: Annotated[
        Path | None, Parameter(help="Draw the curves into this FILE.png, .svg or .pdf.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare runs: numbers, differences with their intervals, settings, learning curves.

    The curves are a link; those of runs over seeds are means, in bands.
    """
    from pipelines.results import comparison

    print_answer(comparison.compare(runs, out), json, comparison.print_comparison)


@command(app, group=SEARCH)
def evaluate(
    run: Annotated[str, Parameter(help="Training: an id, the beginning of it, or a name.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Measure a stored model anew, beside what its training recorded.

    Exit code 1 where they differ.
    """
    from pipelines.cli import results_command

    say_begin(f"Looking for run {run}, then loading its model.", json)
    results_command.evaluate_command(run, json)


@command(app, group=SEARCH)
def watch(
    *names: Annotated[
        str, Parameter(help="Claims, recipes or ids of runs (default: all results).")
    ],
    notify: Annotated[
        str, Parameter(help="URL or command that is told of a change.", show_default=False)
    ] = "",
    json: Json = False,
) -> None:
    """Compare the latest results of claims and recipes with those before.

    Exit code 3 where a verdict or a number has changed.
    """
    from pipelines.cli import results_command

    say_begin("Comparing the recorded results with those before.", json)
    results_command.watch_command(names, json, notify)


@command(app, group=SEARCH)
def register(
    recipe: Annotated[str, Parameter(help="Recipe; `list` names them.")],
    /,
    *,
    scale: Annotated[Scale, Parameter(help="Scale of the runs that are compared.")] = "cpu",
    dry_run: Annotated[bool, Parameter(help="Only say what would become of it.")] = False,
    json: Json = False,
) -> None:
    """Make the best run of a recipe, by validation, the champion of the model registry."""
    from pipelines.results import model_registry

    say_begin(f"Looking for the best run of {recipe} at {scale} scale.", json)
    document = model_registry.register(recipe, scale, dry_run)
    print_answer(document, json, model_registry.print_champion)


@command(app, group=SEARCH)
def ui(
    *,
    port: Annotated[
        int | None, Parameter(help="Port at which it is served (None: 5000, or where it runs).")
    ] = None,
    host: Annotated[str, Parameter(help="Address at which it is served.")] = "127.0.0.1",
) -> None:
    """Serve the MLflow UI on the store's runs, or name the server that does."""
    from pipelines.results import reference_runs, scoreboard
    from pipelines.results.evidence import bundles
    from pipelines.tracking import mlflow_ui, recovery, store, ui_server

    say_begin(f"Opening the runs in {store.display_uri()} for the MLflow UI.")
    is_served = store.is_server() or (port is None and bool(ui_server.running()))
    port = ui_server.PORT if port is None else port
    address = ui_server.address() if is_served else ui_server.address(host, port)
    if not is_served:
        ui_server.check_port(host, port)
    recovery.recover()
    bundles.import_if_own()
    if any(map(store.is_ours, store.client().search_experiments())):
        reference_runs.write()  # into a store of others they go by `reference` alone
        scoreboard.mark_standings()
    addresses = mlflow_ui.links(address)
    width = max(map(len, addresses), default=0)
    for title, link in addresses.items():
        print(f"{title:<{width}}  {link}")
    best = mlflow_ui.best_link(addresses) or address
    if is_served:
        print(f"It is served already. Open this: {best}")
    else:
        sys.stdout.flush()
        ui_server.serve(host, port, best)


@command(app, group=KEEP)
def doctor(
    *,
    thorough: Annotated[
        bool,
        Parameter(help="Load the backend of Keras too, and read one example of every data set."),
    ] = False,
    json: Json = False,
    data_dir: DataDir = None,
) -> None:
    """Examine this machine: what works, what does not, what that costs and how to fix it.

    Exit code 1 where something must be fixed.
    """
    from pipelines.cli.doctor import examine, show_counts, show_row

    use_data_dir(data_dir)
    document = examine(None if json else show_row, thorough)
    print_answer(document, json, show_counts)
    if not document["healthy"]:
        raise SystemExit(1)


@command(app, group=KEEP)
def recover(*, json: Json = False) -> None:
    """Deliver and close the runs of processes that have died; never those of a living one."""
    from pipelines.tracking import recovery

    def show(document: Mapping[str, Any]) -> None:
        for run_id, why in document["settled"].items():
            print(f"{run_id}  {why}")
        print(f"{len(document['settled'])} settled.")

    print_answer({"settled": recovery.recover()}, json, show)


@command(app, group=KEEP)
def export(
    file: Annotated[Path, Parameter(help="File to write.")],
    /,
    *names: Annotated[
        str, Parameter(help="Claims, recipes, studies or ids of runs (default: all runs).")
    ],
    filter: Annotated[
        str | None, Parameter(help="Runs that this filter of MLflow finds, instead of names.")
    ] = None,
    without_artifacts: Annotated[
        bool, Parameter(help="Write numbers alone, without files and models.")
    ] = False,
    without_models: Annotated[bool, Parameter(help="Write all but the stored networks.")] = False,
    json: Json = False,
) -> None:
    """Write finished runs, with all that belongs to them, into one file."""
    from pipelines.tracking.bundles import exporting

    def show(document: Mapping[str, Any]) -> None:
        print(f"{len(document['runs'])} runs, {document['bytes']:,} bytes: {file}")

    document = exporting.export_runs(file, names, filter, without_artifacts, without_models)
    print_answer(document, json, show)


@command(app, "import", group=KEEP)
def import_command(
    file: Annotated[Path, Parameter(help="File that `export` wrote.")], /, *, json: Json = False
) -> None:
    """Import the runs of a file that `export` wrote; those that are here already are left out."""
    from pipelines.results.evidence import bundles

    def show(document: Mapping[str, Any]) -> None:
        new, old = len(document["imported"]), len(document["present"])
        print(f"{new} runs imported, {old} are here already.")

    print_answer(bundles.import_runs(file), json, show)


@command(app, group=KEEP)
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Your shell.")], /
) -> None:
    """Print the script by which Tab completes near-identity's commands and options."""
    print(whole_program().generate_completion(prog_name=places.NAME, shell=shell))


def whole_program() -> App:
    """Return the App with all commands, those of DEEPER too."""
    program = new_app(PROG, app.help)
    for name in app:
        if name in DEEPER:
            module = importlib.import_module(DEEPER[name].module)
            program.command(getattr(module, DEEPER[name].app), name=name)
        elif not name.startswith("-"):
            program.command(app[name], name=name)
    return program


def dispatch(words: list[str]) -> None:
    """Run a command; those of DEEPER read their words themselves."""
    name, *rest = words or [""]
    if name in DEEPER:
        module = importlib.import_module(DEEPER[name].module)
        getattr(module, DEEPER[name].function)(rest)
    elif name == "attempt":  # started by a schedule
        from pipelines.scheduling import attempt

        attempt.main(rest)
    else:
        call(app, words)


def main() -> int:
    """Run the command that this process was started with; return its exit code."""
    # a server of the schedule holds no MLflow in memory; `recover` says itself what it closes
    recovers_runs = sys.argv[1:2] not in (["schedule"], ["attempt"], ["recover"])
    return run_process(dispatch, recovers_runs)


if __name__ == "__main__":
    sys.exit(main())
