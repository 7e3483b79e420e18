"""Exact resume: a training interrupted at any step ends as if it had not been."""

import errno
import io
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.errors import Diverged, Paused, UserError
from pipelines.measurement import claim_catalog, sweep
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.running import code_digest, existing
from pipelines.running.run import run
from pipelines.running.run_options import RunOptions
from pipelines.running.seeds import repeat
from pipelines.runtime import signals
from pipelines.tracking import history, store, stored_models, tracked_run
from pipelines.training.checkpoints import Checkpoint, Saving
from tests.conftest import journals
from tests.training.trainings import Killed, Log, equal, trained, trained_in_parts, untimed

STEPS = 20  # epochs of 8


def small(**changes: Any) -> Recipe:
    return get_recipe("allconv-digits", "smoke").override(**{"steps": STEPS} | changes)


DENSE = {"depth": 10, "growth": 4, "dropout": 0.2}


@pytest.mark.parametrize(
    "changes",
    [{"model": "mlp"}, pytest.param({"accumulate": 2, "nesterov": True}, marks=pytest.mark.slow)],
)
def test_a_run_stopped_twice_ends_with_equal_weights_and_curves(
    changes: dict[str, Any], digits: Path, tmp_path: Path
) -> None:
    recipe, whole = small(augment=True, **changes), Log()
    expected = trained(recipe, whole)
    resumed, curves = trained_in_parts(recipe, Saving(tmp_path, every=3), (5, 17))
    assert equal(expected, resumed)
    assert untimed(curves) == untimed(whole.curves)
    assert curves.keys() == whole.curves.keys()


@pytest.mark.slow
def test_random_layers_and_normalization_are_resumed_too(digits: Path, tmp_path: Path) -> None:
    recipe = small(model="densenet", model_args=DENSE, weight_decay=1e-4)
    saving = Saving(tmp_path, every=6)
    expected = trained(recipe)
    with pytest.raises(Killed):
        trained(recipe, Log(15), saving)
    assert saving.latest().step == 12  # type: ignore[union-attr]
    resumed = trained(recipe, saving=saving)
    for one, two in zip(expected.model.variables, resumed.model.variables, strict=True):
        assert np.array_equal(one, two), one.path
    assert any("moving" in v.path for v in resumed.model.variables)
    assert any("seed" in v.path for v in resumed.model.variables)


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    for step in (10, 20, 30):
        arrays = {"network": [np.arange(step), np.float32(0.5) * np.ones((2, 3))]}
        saving.write(Checkpoint(step, {"step": step, "best_val": float("inf")}, arrays))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "step-000000020.npz",
        "step-000000030.npz",
    ]
    newest = tmp_path / "step-000000030.npz"
    content = newest.read_bytes()
    changed = content.replace(b"\x1d\0\0\0", b"\x1e\0\0\0")
    for damage in (content[:-200], content[:100], b"", changed):
        newest.write_bytes(damage)
        found = saving.latest()
        assert found is not None
        assert found.step == 20
        assert np.array_equal(found.arrays["network"][0], np.arange(20))
    newest.write_bytes(content)
    assert saving.latest().note["best_val"] == float("inf")  # type: ignore[union-attr]
    saving.discard()
    assert saving.latest() is None


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint has room."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pipelines.training.checkpoints.os.fsync", full)


def test_a_full_disk_costs_a_checkpoint_and_no_training(
    digits: Path, tmp_path: Path, full_disk: None, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log()
    trained(small(steps=3), log, Saving(tmp_path, 2))
    assert 3 in log.curves["test_loss"]
    assert "Received at step 2: [Errno 28]" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_held_signal_is_delivered_though_the_block_fails() -> None:
    with pytest.raises(KeyboardInterrupt), signals.defer():
        os.kill(os.getpid(), signal.SIGINT)
        raise Diverged("The training loss must stay finite.", step=1)


def test_a_checkpoint_of_another_network_is_one_sentence(digits: Path, tmp_path: Path) -> None:
    saving = Saving(tmp_path)
    saving.write(Checkpoint(4, {}, {"network": [np.zeros(3)]}))
    with pytest.raises(UserError, match=r"same network.*--new-run"):
        trained(small(), saving=saving)


def kill_at(home: Path, step: int, number: int, pid: int) -> threading.Thread:
    """Send a signal as soon as that step is in the journal of a run."""

    def watch() -> None:
        wanted = re.compile(rf'\["batch_loss", [^,]+, {step},')
        while not wanted.search(journals(home)):
            time.sleep(0.002)
        os.kill(pid, number)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def steps_of(run_id: str, metric: str = "batch_loss") -> list[int]:
    return [point.step for point in store.client().get_metric_history(run_id, metric)]


@pytest.mark.slow
def test_an_interrupted_run_goes_on_as_the_same_run(
    home: Path, digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tags, recipe = {store.RUN_AS: "here smoke"}, small(steps=240, seed=1)
    thread = kill_at(home, 30, signal.SIGINT, os.getpid())
    with pytest.raises(KeyboardInterrupt):
        run(recipe, tags=tags)
    thread.join(10)
    (stopped,) = history.rows(None)
    step = existing.last_checkpoint_step(stopped.id)
    assert stopped.status == "KILLED"
    assert 30 <= step < 240
    assert f"saved after step {step}" in capsys.readouterr().err
    for other in (recipe.override(learning_rate=0.01), recipe.override(steps=250)):
        with pytest.raises(UserError, match=rf"after step {step}, has (learn|steps).*there"):
            existing.refuse_changed(other, "here smoke")
    existing.refuse_changed(recipe, "here smoke")
    existing.refuse_changed(recipe.override(seed=2, learning_rate=0.01), "here smoke")
    assert run(recipe.override(seed=2, steps=8)).run_id != stopped.id
    done = run(recipe, tags=tags)
    assert done.run_id == stopped.id
    assert steps_of(done.run_id) == list(range(1, 241))
    assert steps_of(done.run_id, "val_loss") == list(range(8, 241, 8))
    assert not existing.checkpoint_folder(done.run_id).exists()
    assert history.row(done.run_id).status == "FINISHED"
    assert run(recipe).reused


def test_a_run_whose_messages_nobody_reads_any_more_is_killed_not_failed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with io.TextIOWrapper(os.fdopen(writer, "wb", buffering=0), write_through=True) as unread:
        monkeypatch.setattr(sys, "stderr", unread)
        with (
            pytest.raises(SystemExit, match="143"),
            tracked_run.track("r", experiment="training", kind="training") as run,
            existing.report_stop(run),
        ):
            raise SystemExit(143)
    assert history.row(run.id).status == "KILLED"


@pytest.mark.slow
def test_new_run_starts_another_and_leaves_the_first(home: Path, digits: Path) -> None:
    recipe = small(steps=240)
    thread = kill_at(home, 10, signal.SIGINT, os.getpid())
    with pytest.raises(KeyboardInterrupt):
        run(recipe)
    thread.join(10)
    (stopped,) = history.rows("KILLED")
    anew = run(recipe, RunOptions(new_run=True))
    assert anew.run_id != stopped.id
    assert steps_of(anew.run_id) == list(range(1, 241))
    assert history.row(stopped.id).status == "KILLED"


@pytest.mark.parametrize(
    "changes",
    [{"ema": 0.9}, pytest.param({"ema": 0.9, "accumulate": 2}, marks=pytest.mark.slow)],
)
def test_slices_of_a_run_end_as_one_does(
    home: Path, digits: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = small(steps=3, model="mlp", train_examples=64, **changes)  # epochs of 2
    paused = []
    while not history.rows("FINISHED", kind="training"):
        try:
            done = run(recipe, RunOptions(until=time.monotonic()))  # one step, or a validation
        except Paused as pause:
            paused.append(str(pause))
    rest = "of 3: the time of --max-minutes is over. The same command goes on."
    assert paused == [f"Paused after step {step} {rest}" for step in (1, 2, 3)]
    assert len(history.rows(None, kind="training")) == 1
    assert steps_of(done.run_id) == [1, 2, 3]
    assert steps_of(done.run_id, "val_loss") == [2, 3]
    whole = run(recipe, RunOptions(force=True))
    for one, two in zip(stored_weights(done.run_id), stored_weights(whole.run_id), strict=True):
        assert np.array_equal(one, two)
    assert done.metrics["test_loss"] == whole.metrics["test_loss"]


@pytest.mark.parametrize(
    "content",
    [
        lambda file: np.save(file, np.zeros(3)),
        lambda file: np.savez(file, note="[]", network=np.zeros(3)),
        lambda file: np.savez(file, note="[" * 100_000),
        lambda file: np.savez(file, note="x"),
        lambda file: np.savez(file, network=np.zeros(3)),
        lambda file: np.savez(file, note=np.array([{}], object)),  # a pickle, which is not read
        lambda file: file.write(b""),
        lambda file: file.write(b"PK\x03\x04" + 100 * b"x"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_leaves_the_one_before(
    content: Any, tmp_path: Path
) -> None:
    saving = Saving(tmp_path)
    saving.write(Checkpoint(1, {"step": 1}, {"network": [np.zeros(3)]}))
    with (tmp_path / "step-000000002.npz").open("wb") as file:
        content(file)
    found = saving.latest()
    assert found is not None
    assert found.step == 1


def test_what_a_kill_left_of_a_finished_training_is_deleted(home: Path, digits: Path) -> None:
    recipe = small(steps=2, model="mlp", train_examples=64)
    done = run(recipe)
    saving = Saving(existing.checkpoint_folder(done.run_id))  # a kill came before it was discarded
    saving.write(Checkpoint(2, {}, {"network": [np.zeros(3)]}))
    assert run(recipe).reused
    assert not saving.folder.exists()


def stored_weights(run_id: str) -> Any:
    return stored_models.load(stored_models.find_id(run_id)).get_weights()


@pytest.mark.slow
def test_between_trainings_a_pause_is_taken_too(
    home: Path, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(steps=2, model="mlp", train_examples=64)
    run(recipe.override(seed=0))
    monkeypatch.setattr(Saving, "over", False)  # the time is over after them
    with pytest.raises(Paused, match="after 2 of 3 seeds"):  # the first is found and costs none
        repeat(recipe, 3, RunOptions(until=time.monotonic()))
    with pytest.raises(Paused, match="after 3 of 6 settings"):
        sweep.check(
            "small-norm-factorization",
            "smoke",
            claim_catalog.get_settings("small-norm-factorization", "smoke"),
            3,
            run_options=RunOptions(until=time.monotonic()),
        )


def test_a_later_slice_does_not_repeat_what_diverged(home: Path, digits: Path) -> None:
    recipe = small(model="mlp", train_examples=64, learning_rate=1e9)
    slices = RunOptions(until=time.monotonic() + 600)
    said = []
    for _ in range(2):
        with pytest.raises(Diverged) as raised:
            run(recipe, slices)
        said.append((str(raised.value), raised.value.step))
    assert said[0] == said[1]
    assert len(history.rows("FAILED", kind="training")) == 1


def test_nothing_pauses_that_cannot_be_saved(digits: Path, tmp_path: Path, full_disk: None) -> None:
    with pytest.raises(OSError, match="No space left"):
        trained(small(steps=3, model="mlp"), saving=Saving(tmp_path, until=time.monotonic()))


@pytest.mark.slow
def test_a_blow_up_keeps_the_last_good_checkpoint(home: Path, digits: Path) -> None:
    recipe = small(learning_rate=0.05, momentum=0.0, schedule="exponential", warmup=0.0)
    recipe = recipe.override(learning_rate=400.0)
    with pytest.raises(Diverged) as raised:
        run(recipe, RunOptions(checkpoint_every=1))
    (row,) = history.rows("FAILED", kind="training")
    last = raised.value.step - 1
    assert row.tags["diverged"] == str(last + 1)
    kept = Saving(existing.checkpoint_folder(row.id)).latest()
    assert kept is not None
    assert kept.step == last
    assert all(np.all(np.isfinite(array)) for array in kept.arrays["network"])
    with pytest.raises(Diverged):  # it is not gone on with
        run(recipe, RunOptions(checkpoint_every=1))
    assert len(history.rows("FAILED", kind="training")) == 2


def test_what_other_code_began_stands_for_nothing_of_today(
    home: Path, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's training goes on and is repeated for others; one of a measurement begins anew."""
    recipe = small(steps=3, model="mlp", train_examples=64)
    with monkeypatch.context() as patch:
        patch.setattr(code_digest, "training", lambda: "old")
        for each in (recipe, recipe.override(seed=1)):
            with pytest.raises(Paused):
                run(each, RunOptions(until=time.monotonic()))
    begun, own = history.rows("KILLED")
    done = run(recipe)
    assert done.run_id == own.id
    again = run(recipe)
    assert (again.reused, again.run_id != own.id) == (False, True)
    assert run(recipe).run_id == again.run_id
    with tracked_run.track("claim", experiment="test", kind="claim") as parent:
        arm = run(recipe.override(seed=1), parent=parent)
    assert arm.run_id != begun.id
