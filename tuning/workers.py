"""Workers: the loop that tries one trial after another, here or in processes of their own."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pipelines import alive, tracking
from pipelines.errors import Pruned, Unavailable, UserError
from pipelines.provenance import ROOT
from tuning import leader, outcomes, samplers, trial_queue
from tuning.plan import GOAL, REPORTS, Goal, Plan
from tuning.trial import attempt

REST_S = 0.5  # between two looks at a study whose last trials are at work
IN_A_ROW = 3  # failures of a worker, or deaths without a finished trial, that show what is wrong
CREW = "TUNING_CREW"  # environment of a worker: the process to end with


def work(study: Any, plan: Plan, parent: tracking.Parent, after: Callable[[], None]) -> None:
    """Try trials until the study's goal is reached, or none leads it; `after` is called between.

    Raise UserError at once, for it would come again, and what failed three trials in a row.
    """
    study.pruner = samplers.pruner(plan.pruner, steps=_steps(plan), reports=REPORTS)
    failures = 0
    while True:
        after()
        if reached(study) or not leader.living(study):
            return
        trial = trial_queue.take(study, plan)
        if trial is not None:
            failures = 0 if _train(study, trial, plan, parent, failures) else failures + 1
        elif goal(study).trials is None:
            study.enqueue_trial({})
        else:
            time.sleep(REST_S)  # the last trials are at work: one that is lost waits again


def _steps(plan: Plan) -> int:
    """Of a trial, where a pruner must know them."""
    return 1 if plan.pruner == "none" else plan.steps


def goal(study: Any) -> Goal:
    return Goal(**study.user_attrs[GOAL])


def reached(study: Any, aim: Goal | None = None) -> bool:
    """Whether no trial is to begin any more; `aim`: for another goal than the study's."""
    ended = outcomes.finished(study.get_trials(deepcopy=False))
    errors = [outcomes.error(trial) for trial in ended]
    return (aim or goal(study)).reached(errors, study.user_attrs.get("spent_s", 0.0))


def _train(study: Any, trial: Any, plan: Plan, parent: tracking.Parent, failures: int) -> bool:
    """Train a trial and tell the study what came of it; return False where it failed.

    The result of a trial whose worker was taken for dead is left out: it is tried again.
    """
    import optuna

    state = optuna.trial.TrialState
    try:
        with leader.beating(lambda: trial.set_user_attr(trial_queue.WORKER, alive.tags())):
            values = attempt(study, trial, plan, parent)
        _tell(study, trial, values, state.COMPLETE)
    except Pruned:
        _tell(study, trial, None, state.PRUNED)
    except optuna.exceptions.UpdateFinishedTrialError:
        print(f"Trial {trial.number} was taken for dead; its result is left out.", file=sys.stderr)
    except (KeyboardInterrupt, SystemExit):
        trial_queue.put_back(study, trial, "it was told to end", failed=False)
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:1000]
        hopeless = isinstance(error, UserError) or failures + 1 >= IN_A_ROW
        trial_queue.put_back(study, trial, reason, failed=not hopeless)
        if hopeless:
            raise
        print(f"Trial {trial.number} failed: {reason}", file=sys.stderr)
        return False
    return True


def _tell(study: Any, trial: Any, values: list[float] | None, state: Any) -> None:
    """Say how a trial ended, unless another worker has it now."""
    try:
        study.tell(trial, values, state=state)
    except ValueError:
        if study.get_trials(deepcopy=False)[trial.number].state.name == "RUNNING":
            raise
        print(f"Trial {trial.number} was taken for dead; its result is left out.", file=sys.stderr)


class Crew:
    """Worker processes of this one: a killed one is replaced, all end with the block."""

    def __init__(self, study: Any, where: str, size: int) -> None:
        self.study, self.where, self.size = study, where, size
        self.deaths = self.done = 0
        self.said: list[str] = []
        self.listeners: list[threading.Thread] = []
        self.members = {number: self._start(number) for number in range(size)}

    def _start(self, number: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tuning", "work", self.study.study_name],
            cwd=ROOT,
            env=os.environ | self._environment(number),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches us, and we tell them
        )
        listener = threading.Thread(target=self._listen, args=(number, process), daemon=True)
        listener.start()
        self.listeners.append(listener)
        return process

    def _environment(self, number: int) -> dict[str, str]:
        """The study's storage, and a share of the cores and of the GPUs that were named."""
        cores = str(max(1, len(os.sched_getaffinity(0)) // self.size))
        found = {"OMP_NUM_THREADS": cores, "TF_NUM_INTRAOP_THREADS": cores}
        found["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # workers may share a GPU
        found = {key: os.environ.get(key, value) for key, value in found.items()}
        gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        if gpus:
            share = gpus[number :: self.size] or [gpus[number % len(gpus)]]
            found["CUDA_VISIBLE_DEVICES"] = ",".join(share)
        return found | {"OPTUNA_STORAGE": self.where, CREW: str(os.getpid())}

    def _listen(self, number: int, process: subprocess.Popen[str]) -> None:
        with process.stderr or contextlib.nullcontext(()) as lines:
            for line in lines:
                self.said.append(line.rstrip())
                if not line.startswith("error: "):
                    print(f"worker {number}: {line.rstrip()}", file=sys.stderr)

    def watch(self) -> bool:
        """Replace workers that were killed; False once all have ended."""
        for number, process in list(self.members.items()):
            code = process.poll()
            if code is None:
                continue
            del self.members[number]
            if code in (1, 2):
                raise (Unavailable if code == 1 else UserError)(self._error())
            if code:
                self._replace(number, code)
        return bool(self.members)

    def _replace(self, number: int, code: int) -> None:
        done = trial_queue.finished(self.study)
        self.deaths = 1 if done > self.done else self.deaths + 1
        self.done = done
        if self.deaths > IN_A_ROW * self.size:
            raise Unavailable(
                "Workers must live to the end. Received: they were killed again and again, often "
                "for want of memory. Lower --workers; python -m tuning resume "
                f"{self.study.study_name} then goes on."
            )
        print(f"worker {number} was killed ({code}); another takes its place.", file=sys.stderr)
        self.members[number] = self._start(number)

    def _error(self) -> str:
        """What a worker that gave up has said last."""
        for listener in self.listeners:
            listener.join(REST_S)
        errors = [line for line in self.said if line.startswith("error: ")]
        return errors[-1].removeprefix("error: ") if errors else "\n".join(self.said[-20:])

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.members.values():
            process.terminate()
        for process in self.members.values():
            process.wait()
        for listener in self.listeners:
            listener.join()


def end_with_crew() -> None:
    """Of a worker process: end, in order, once the process that started it is gone."""
    leader = int(os.environ.get(CREW, "0"))
    if not leader:
        return

    def watch() -> None:
        while os.getppid() == leader:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
