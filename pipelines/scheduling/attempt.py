"""An attempt at a scheduled job: its command, its run in MLflow, and the notification of its end.

`run_in_process` is called by the process that runs the job, which needs neither MLflow nor
TensorFlow. It starts `python -m pipelines attempt run FOLDER`, which opens the run that the
command's runs are children of, runs the command, compares its results with earlier ones, and
writes `outcome.json` into the folder. Where it is killed, `attempt close FOLDER` closes its runs.
"""

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from pipelines.runtime import subcommands
from pipelines.runtime.files import replace_whole
from pipelines.scheduling import jobs

if TYPE_CHECKING:
    from pipelines.tracking.tracked_run import Run

EXPERIMENT, KIND = "scheduled runs", "scheduled"  # where its run is found
SPEC, LOG, OUTCOME = "attempt.json", "log.txt", "outcome.json"  # files of an attempt's folder
RAN, FAILED, KILLED = "ran", "failed", "killed"
FAILURE, STATE = "failure", "state"  # tags of its run
NOT_NOTIFIED = "not_notified"  # tag of its run: why the notification failed
MAX_LISTED_RUNS = 40  # on the page of its run
POLL_S = 0.2

ATTEMPT = "SCHEDULED_ATTEMPT"  # environment variable: the folder of the attempt
WORKFLOW = "SCHEDULED_WORKFLOW"  # environment variable: what a job's command runs for

_processes: set[Any] = set()  # that carry out attempts for this process


@dataclass(frozen=True)
class AttemptSpec:
    """One attempt to run the command of a job, at a due time."""

    job: str
    words: tuple[str, ...]
    """After `python -m`."""
    due: str
    """Date and time, with its zone, as ISO 8601 has it."""
    attempt: int
    workflow: str
    """The id under which the database of the schedule has it."""
    timeout_s: float | None = None
    notify: str = ""

    @property
    def command(self) -> str:
        """Return `pipelines run gradient-formula`: what a person may read after `python -m`."""
        return shlex.join(jobs.hide_secrets(self.words))

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags by which its run is found."""
        return {key: str(getattr(self, key)) for key in ("job", "due", "attempt", "workflow")}


@dataclass(frozen=True)
class Outcome:
    """The end of an attempt: ran, failed or killed, and why; its exit code and its run."""

    state: str
    why: str = ""
    code: int | None = None
    run_id: str | None = None


def run_in_process(spec: AttemptSpec, folder: Path, echo: bool = False) -> Outcome:
    """Run an attempt to its end and return how it ended; `echo` prints its log meanwhile.

    An attempt that a killed process had begun is repeated unless it has ended by itself.
    """
    if (folder / SPEC).exists() and (outcome := _read_outcome(folder)).state != KILLED:
        return outcome
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(0o700, parents=True)  # the address of a notification may be secret
    (folder / SPEC).write_text(json.dumps(dataclasses.asdict(spec)))
    words = ("pipelines", "attempt", "run", str(folder))
    process = _start(words, {ATTEMPT: str(folder)}, folder / LOG)
    _processes.add(process)
    try:
        with (folder / LOG).open("rb") as log:
            running = True
            while running:
                time.sleep(POLL_S)
                running = process.poll() is None
                if echo:
                    print(log.read().decode(errors="replace"), end="", flush=True)
    finally:
        subcommands.end(process)
        _processes.discard(process)
    return _read_outcome(folder)


def _start(words: Sequence[str], environment: Mapping[str, str], log: Path) -> Any:
    """Start a command in a process group of its own whose output goes into the log."""
    with log.open("ab") as file:
        return subcommands.start(
            words,
            {"PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            process_group=0,
        )


def end_all() -> int:
    """End the attempts that this process carries out and return how many there were."""
    processes = list(_processes)
    subcommands.end(*processes)
    return len(processes)


def _read_outcome(folder: Path) -> Outcome:
    """Return how an attempt ended; the runs of a killed one are closed first."""
    if not (folder / OUTCOME).exists():
        words = ("pipelines", "attempt", "close", str(folder))
        subcommands.start(words, {}, stdout=subprocess.DEVNULL).wait()
    if not (folder / OUTCOME).exists():
        return Outcome(KILLED, "it was killed, and its runs could not be closed")
    return Outcome(**json.loads((folder / OUTCOME).read_text()))


def run_tracked(spec: AttemptSpec, folder: Path) -> Outcome:
    """Run the command within a tracked run, in the process of this attempt."""
    from pipelines.errors import Ended, Unavailable, UserError
    from pipelines.tracking import tracked_run

    outcome = Outcome(KILLED, "it was told to end")
    try:
        with (
            tracked_run.track(
                f"{spec.job} {datetime.fromisoformat(spec.due):%Y-%m-%d %H:%M:%S}",
                experiment=EXPERIMENT,
                kind=KIND,
                params={"command": spec.command},
                tags=spec.tags | {"command": spec.command, "mlflow.source.name": spec.command},
            ) as attempt_run,
            tracked_run.parent_of_commands(attempt_run),
        ):
            outcome = _record_outcome(attempt_run, spec, folder, _run_command(spec, folder))
            if outcome.state == FAILED:
                raise Ended(outcome.why, outcome.code or 1)
            if outcome.state == KILLED:
                raise SystemExit(outcome.why)
    except (Ended, SystemExit):  # they have set the run's status
        pass
    except (UserError, Unavailable) as error:
        print(f"error: {error}", file=sys.stderr)
        if outcome.run_id is None:  # else a journal keeps what the store did not take
            outcome = Outcome(FAILED, str(error), error.code)
    return outcome


def _run_command(spec: AttemptSpec, folder: Path) -> Outcome:
    """Run the command to its end, its timeout, or the signal that ends this process."""
    process = _start(spec.words, {WORKFLOW: spec.workflow}, folder / LOG)
    deadline = time.monotonic() + (spec.timeout_s or float("inf"))
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                subcommands.end(process)
                why = f"it took longer than its timeout of {spec.timeout_s:g} s"
                return Outcome(FAILED, why, process.returncode or 1)
            time.sleep(POLL_S)
    except (SystemExit, KeyboardInterrupt):  # as shell.py answers signals
        subcommands.end(process)
        return Outcome(KILLED, "it was told to end", process.returncode)
    return read_exit_code(process.returncode, folder / LOG)


def read_exit_code(code: int, log: Path) -> Outcome:
    """Return the outcome that an exit code means; 128 + n is signal n, as in a shell."""
    if code == 0:
        return Outcome(RAN, code=0)
    number = -code if code < 0 else code - 128
    if number > 0:
        names = {each.value: each.name for each in signal.Signals}
        why = f"its command was ended by {names.get(number, f'signal {number}')}"
        return Outcome(KILLED, why, code)
    text = log.read_text(errors="replace")[-subcommands.KEPT_BYTES :] if log.exists() else ""
    return Outcome(FAILED, subcommands.find_error(text) or f"exit code {code}", code)


def _record_outcome(
    attempt_run: "Run", spec: AttemptSpec, folder: Path, outcome: Outcome
) -> Outcome:
    """Record in the run how its command ended and return it; a regression is a failure."""
    from pipelines.results import regressions
    from pipelines.tracking import recovery, store

    comparison = None
    if outcome.state == RAN:
        with _print_failure("The results were not compared with earlier ones"):
            comparison = regressions.compare_newest(below=attempt_run.id)
            if comparison["changes"]:
                why = f"A result has changed: {regressions.change_summary(comparison)}"
                outcome = Outcome(FAILED, why, regressions.REGRESSION)
    else:
        with _print_failure("The runs of the command were not closed"):
            end_processes(str(folder))
            recovery.recover()
    outcome = dataclasses.replace(outcome, run_id=attempt_run.id)
    tags = {STATE: outcome.state, "exit_code": str(outcome.code), FAILURE: outcome.why[:1000]}
    for key, value in tags.items():
        if value:
            attempt_run.tag(key, value)
    with _print_failure("The page of this attempt was not written"):
        attempt_run.tag(store.NOTE, _run_note(spec, outcome, comparison))
    attempt_run.outbox.add_file(LOG, lambda place: shutil.copyfile(folder / LOG, place))
    with _print_failure("The notification was not sent"):
        _notify(spec, outcome, comparison)
    return outcome


def close_killed(spec: AttemptSpec, folder: Path) -> Outcome:
    """Close the runs of an attempt whose process was killed, store its log, and notify.

    Return how the command ended where the attempt's run has recorded that.
    """
    from pipelines.tracking import history, outbox, recovery, store

    end_processes(str(folder))
    recovery.recover()
    rows = history.rows(None, kind=KIND, **spec.tags)
    run_id = rows[0].id if rows else None
    if rows and rows[0].status in ("FINISHED", "FAILED") and STATE in rows[0].tags:
        tags = rows[0].tags
        return Outcome(tags[STATE], tags.get(FAILURE, ""), int(tags["exit_code"]), run_id)
    outcome = Outcome(KILLED, "its process was killed", run_id=run_id)
    if run_id:
        note = _run_note(spec, outcome, None)
        outbox.send_batch(run_id, tags={FAILURE: outcome.why, STATE: KILLED, store.NOTE: note})
        with tempfile.TemporaryDirectory() as spool:
            shutil.copy(folder / LOG, spool)
            outbox.send_files(run_id, Path(spool))
    _notify(spec, outcome, None)
    return outcome


def end_processes(attempt: str) -> None:
    """End the processes of an attempt, and kill those that do not end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        processes = find_processes(attempt)
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        deadline = time.monotonic() + subcommands.GRACE_S
        # one that ends loses its environment first, and its locks on journals last
        while time.monotonic() < deadline:
            alive = find_processes(attempt)
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1:
                        alive.append(process)
            if not alive:
                break
            time.sleep(0.1)


def find_processes(attempt: str) -> list[psutil.Process]:
    """Return the processes of an attempt other than this one."""
    return [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(ATTEMPT) == attempt and process.pid != os.getpid()
    ]


@contextlib.contextmanager
def _print_failure(what: str) -> Iterator[None]:
    """Print what fails beside the command itself, whose end is recorded all the same."""
    try:
        yield
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr)


def _run_note(spec: AttemptSpec, outcome: Outcome, comparison: Mapping[str, Any] | None) -> str:
    """Return Markdown for the page of its run: how it ended, and the runs of its command."""
    from pipelines.results import regressions
    from pipelines.tracking import history, mlflow_ui, store

    runs = history.rows(None, **{store.PARENT: str(outcome.run_id)})
    why = f": {outcome.why}" if outcome.why else ""
    state = f"**{spec.job}** of {spec.due}, attempt {spec.attempt}: **{outcome.state}**{why}"
    lines = [state, "", f"`python -m {spec.command}`", ""]
    if runs:
        lines += ["| run | kind | status | verdict |", "|---|---|---|---|"]
    for row in reversed(runs[:MAX_LISTED_RUNS]):  # links within the UI, which an import readdresses
        name = row.name.replace("|", "\\|")
        cells = [f"[{name}]({mlflow_ui.run_link(row.id)})", row.tags.get("kind", "")]
        lines += [f"| {' | '.join([*cells, row.status, row.tags.get('verdict', '')])} |"]
    if len(runs) > MAX_LISTED_RUNS:
        lines += ["", f"and {len(runs) - MAX_LISTED_RUNS} earlier runs"]
    if comparison and comparison["compared"]:
        lines += ["", f"Beside earlier results: {regressions.change_summary(comparison)}."]
    return "\n".join(lines)


def _notify(spec: AttemptSpec, outcome: Outcome, comparison: Mapping[str, Any] | None) -> None:
    """Notify of an attempt that failed or was killed; a tag of its run says why that failed."""
    if not spec.notify or outcome.state == RAN:
        return
    from pipelines.runtime import notify
    from pipelines.tracking import mlflow_ui, outbox

    document = {
        **spec.tags,
        "attempt": spec.attempt,
        "state": outcome.state,
        "why": outcome.why,
        "exit_code": outcome.code,
        "command": f"python -m {spec.command}",
        "run_id": outcome.run_id,
        "page": mlflow_ui.run_page(outcome.run_id) if outcome.run_id else None,
        "watch": comparison,
    }
    failure = notify.send(spec.notify, document)
    if failure and outcome.run_id:
        outbox.send_batch(outcome.run_id, tags={NOT_NOTIFIED: failure})


def main(arguments: list[str]) -> None:
    """Run the attempt specified in a folder (`run FOLDER`), or close one that was killed."""
    folder = Path(arguments[-1])
    fields = json.loads((folder / SPEC).read_text())
    if "tick" in fields:  # of 0.2
        fields["due"] = fields.pop("tick")
    spec = AttemptSpec(**fields | {"words": tuple(fields["words"])})
    outcome = (close_killed if arguments[0] == "close" else run_tracked)(spec, folder)
    with replace_whole(folder / OUTCOME) as half:
        half.write_text(json.dumps(dataclasses.asdict(outcome)))
