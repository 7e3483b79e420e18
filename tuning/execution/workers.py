"""Workers: the loop that tries one trial after another, here or in processes of their own."""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from pipelines.errors import Pruned, Unavailable, UserError
from pipelines.runtime import heartbeat, provenance, subcommands
from pipelines.tracking import tracked_run
from tuning.analysis import goals, trial_results
from tuning.execution import trial_queue
from tuning.execution.trial import train_trial
from tuning.plan import REPORTS, StudyPlan, count_steps
from tuning.search import samplers
from tuning.storage import leader

POLL_S = 0.5  # between two looks at a study whose last trials are at work
MAX_IN_A_ROW = 3  # failures of a worker, or deaths without a trial, that show what is wrong


def work(
    study: Any, plan: StudyPlan, parent: tracked_run.Parent, after: Callable[[], None]
) -> None:
    """Try trials until the study's goal is reached, or none leads it; `after` is called between.

    Raise UserError at once, for it would come again, and what failed three trials in a row.
    """
    study.pruner = samplers.make_pruner(plan.pruner, steps=count_steps(plan.base), reports=REPORTS)
    failures = 0
    while True:
        after()
        if goals.is_reached(study) or not leader.living_leader(study):
            return
        trial = trial_queue.start_next(study, plan)
        if trial is not None:
            failures = 0 if _train(study, trial, plan, parent, failures) else failures + 1
        elif goals.load(study).trials is None:
            study.enqueue_trial({})
        else:
            time.sleep(POLL_S)  # the last trials are at work: one that is lost waits again


def _train(
    study: Any, trial: Any, plan: StudyPlan, parent: tracked_run.Parent, failures: int
) -> bool:
    """Train a trial and tell the study what came of it; return False where it failed.

    The result of a trial whose worker was taken for dead is left out: it is tried again.
    """
    import optuna

    state = optuna.trial.TrialState
    try:
        with leader.beat_regularly(
            lambda: trial.set_user_attr(trial_queue.WORKER, heartbeat.tags()), heartbeat.BEAT_S
        ):
            values = train_trial(study, trial, plan, parent)
        _tell(study, trial, values, state.COMPLETE)
    except Pruned:
        _tell(study, trial, None, state.PRUNED)
    except optuna.exceptions.UpdateFinishedTrialError:
        print(f"Trial {trial.number} was taken for dead; its result is left out.", file=sys.stderr)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if ended := _find_interrupt(error):
            trial_queue.requeue(study, trial, "it was told to end", failed=False)
            raise ended from None
        reason = f"{type(error).__name__}: {error}"[:1000]
        hopeless = isinstance(error, UserError) or failures + 1 >= MAX_IN_A_ROW
        trial_queue.requeue(study, trial, reason, failed=not hopeless)
        if hopeless:
            raise
        print(f"Trial {trial.number} failed: {reason}", file=sys.stderr)
        return False
    return True


def _find_interrupt(error: BaseException | None) -> BaseException | None:
    """Return Ctrl-C or the order to end, also where a failure to close the trial replaced it."""
    while error and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__context__
    return error


def _tell(study: Any, trial: Any, values: list[float] | None, state: Any) -> None:
    """Tell Optuna how a trial ended, unless another worker has it now."""
    try:
        study.tell(trial, values, state=state)
    except ValueError:
        if study.get_trials(deepcopy=False)[trial.number].state.name == "RUNNING":
            raise
        print(f"Trial {trial.number} was taken for dead; its result is left out.", file=sys.stderr)


def run_workers(study: Any, where: str, size: int, after: Callable[[], None]) -> None:
    """Have worker processes bring the study to its goal; one that is killed is replaced.

    Raise UserError or Unavailable with the words of one that gives up, and Unavailable where they
    are killed again and again. All have ended when it returns.
    """
    lines, pipe = os.pipe()
    latest = deque[str](maxlen=20)
    listener = threading.Thread(target=_relay_output, args=(lines, latest), daemon=True)
    listener.start()
    members = {number: _start(study, where, number, size, pipe) for number in range(size)}
    deaths = finished = gave_up = 0
    try:
        while members and not gave_up:
            after()
            time.sleep(POLL_S)
            for number, process in list(members.items()):
                code = process.poll()
                if code in (1, 2):
                    gave_up = code
                elif code:
                    now = len(trial_results.finished_trials(study.get_trials(deepcopy=False)))
                    deaths, finished = 1 if now > finished else deaths + 1, now
                    if deaths > MAX_IN_A_ROW * size:
                        raise Unavailable(
                            "Workers must live to the end. Received: they were killed again and "
                            "again, often for want of memory. Lower --workers; python -m tuning "
                            f"resume {study.study_name} then goes on."
                        )
                    print(
                        f"A worker was killed ({code}); another takes its place.", file=sys.stderr
                    )
                    members[number] = _start(study, where, number, size, pipe)
                elif code == 0:
                    del members[number]
    finally:
        subcommands.end(*members.values(), grace_s=None)
        os.close(pipe)
        listener.join()
    if gave_up:
        errors = [line for line in latest if line.startswith("error: ")] or ["\n".join(latest)]
        raise (Unavailable if gave_up == 1 else UserError)(errors[0].removeprefix("error: "))
    after()


def _start(study: Any, where: str, number: int, size: int, pipe: int) -> subprocess.Popen[bytes]:
    return subcommands.start(
        ("tuning", "work", study.study_name),
        _environment(where, number, size),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=pipe,
        start_new_session=True,  # Ctrl-C reaches us, and we tell them
    )


def _environment(where: str, number: int, size: int) -> dict[str, str]:
    """Return a worker's storage, and its share of the cores and of the GPUs that were named."""
    cores = str(max(1, provenance.count_cores() // size))
    variables = {"OMP_NUM_THREADS": cores, "TF_NUM_INTRAOP_THREADS": cores}
    variables["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # workers may share a GPU
    variables = {key: os.environ.get(key, value) for key, value in variables.items()}
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if gpus:
        share = gpus[number::size] or [gpus[number % len(gpus)]]
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(share)
    return variables | {"OPTUNA_STORAGE": where}


def _relay_output(lines: int, latest: deque[str]) -> None:
    """Print what workers say, but for their errors, and keep the latest of it."""
    with open(lines, errors="replace") as file:  # a pipe has no path
        for line in file:
            latest.append(line.rstrip())
            if not line.startswith("error: "):
                print(line.rstrip(), file=sys.stderr)
