"""Models of runs: whole or not seen, one a run, wherever their storing was killed."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from pipelines.tracking import history, outbox, recovery, store, stored_models, tracked_run
from tests.conftest import exit_code

DYING = ("create_logged_model", "log_model_artifacts", "finalize_logged_model", "log_outputs")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network in MLflow's form."""
    from pipelines.runtime import backend

    backend.keras()
    import mlflow.keras

    import keras_models

    folder = tmp_path_factory.mktemp("network") / "model"
    mlflow.keras.save_model(keras_models.build("mlp", (4,), 3), str(folder), pip_requirements=[])
    return folder


def write_run(network: Path, resume: str | None = None) -> str:
    """Store the network in a run, as `Run.model` does without Keras; the run's id."""
    how: dict[str, Any] = {"experiment": "test", "kind": "training", "resume": resume}
    with tracked_run.track("r", **how) as run:
        run.outbox.add_file(outbox.MODEL_FOLDER, lambda place: shutil.copytree(network, place))
    return run.id


def die_at(function: str, after: bool, network: Path) -> None:
    """Store the network in a process that is killed before or after a call."""
    place: Any = shutil if function == "rmtree" else type(store.client())
    work = getattr(place, function)

    def last(*arguments: Any, **options: Any) -> Any:
        if after:
            work(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place, function, last)
    write_run(network)


def models(run_id: str) -> list[Any]:
    experiment = store.client().get_run(run_id).info.experiment_id
    found: list[Any] = store.client().search_logged_models([experiment])
    return found


def assert_whole(run_id: str, network: Path) -> None:
    """The run has one model, linked once and READY, with the files of the network."""
    [model] = models(run_id)
    assert (str(model.status), model.source_run_id) == ("READY", run_id)
    outputs = store.client().get_run(run_id).outputs.model_outputs
    assert (
        [each.model_id for each in outputs] == [model.model_id] == [stored_models.find_id(run_id)]
    )
    place = Path(model.artifact_location.removeprefix("file://"))
    names = {path.relative_to(network) for path in network.rglob("*") if path.is_file()}
    assert {path.relative_to(place) for path in place.rglob("*") if path.is_file()} == names
    assert (place / "data/model.keras").read_bytes() == (network / "data/model.keras").read_bytes()
    assert f"model_id: {model.model_id}" in (place / "MLmodel").read_text()


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "function",
    [*(pytest.param(name, marks=pytest.mark.slow) for name in DYING[::3]), *DYING[1:3], "rmtree"],
)
def test_a_model_whose_storing_was_killed_is_whole_after_the_next_command(
    home: Path, network: Path, function: str, after: bool
) -> None:
    assert exit_code(die_at, function, after, network) == -signal.SIGKILL
    [row] = history.rows(None)
    for linked in store.client().get_run(row.id).outputs.model_outputs:
        assert str(store.client().get_logged_model(linked.model_id).status) == "READY"
    assert recovery.deliver_journals() == [row.id]
    assert_whole(row.id, network)
    assert recovery.recover() == {}


def test_a_run_that_stores_its_model_again_has_one(home: Path, network: Path) -> None:
    assert exit_code(die_at, "log_outputs", False, network) == -signal.SIGKILL
    [run_id] = recovery.deliver_journals()
    assert write_run(network, resume=run_id) == run_id
    assert_whole(run_id, network)
