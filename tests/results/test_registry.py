"""The registry: the best run by validation is the champion, and answers when it is served."""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pipelines.data import datasets
from pipelines.data.splits import Pictures
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.results import model_registry
from pipelines.running import training_page
from pipelines.running.run import EXPERIMENT
from pipelines.tracking import history, store, tracked_run
from tests.conftest import command, free_port
from tests.tracking.stored_models import network

NAME, SCALE = "mlp-digits", "smoke"
pytestmark = pytest.mark.usefixtures("digits")


def record_training(
    val: float | None,
    test: float = 50.0,
    *,
    best: float | None = None,
    loss: float | None = None,
    name: str = NAME,
    scale: str = SCALE,
    run_as: str | None = "",
    parent: tracked_run.Run | None = None,
    model: bool = True,
    **changes: Any,
) -> str:
    """The id of a finished training with these errors, as `run` records it.

    `val` is of its last epoch, `best` the least of all.
    """
    recipe = get_recipe(name, scale).override(**changes)
    run_as = f"{name} {scale}" if run_as == "" else run_as
    tags = {"recipe": name, "source": recipe.source, **({"run_as": run_as} if run_as else {})}
    with tracked_run.track(
        f"{name} seed {recipe.seed}",
        experiment=EXPERIMENT,
        kind="training",
        params=recipe.flat(),
        tags=tags,
        parent=parent,
    ) as run:
        run.log({"test_error_pct": test, "wall_s": 1.0})
        if loss is not None:  # as in a training, it comes before the error
            run.log({"val_loss": loss, "best_val_loss": loss})
        if val is not None:
            least = val if best is None else best
            run.log({"val_error_pct": val, "best_val_error_pct": least})
        if model:
            run.model(network(*datasets.get(recipe.data).sizes(recipe.data_args)[0]))
    return run.id


def get_champion() -> Any:
    return store.client().get_model_version_by_alias(NAME, "champion")


def count_versions() -> int:
    return len(store.client().search_model_versions(f"name = '{NAME}'"))


def test_the_best_is_chosen_by_validation_and_not_by_test(home: Path) -> None:
    record_training(12.0, test=1.0)
    best = record_training(8.0, test=9.0, seed=1)
    record_training(10.0, test=2.0, seed=2)
    document = model_registry.register(NAME, SCALE)
    assert (document["run_id"], document["version"], document["new"]) == (best, "1", True)
    assert document["metrics"] == {"val_error_pct": 8.0, "test_error_pct": 9.0}
    found = get_champion()
    assert (found.run_id, found.source[:10]) == (best, "models:/m-")
    tags = {"run_id": best, "scale": SCALE, "val_error_pct": "8", "test_error_pct": "9"}
    assert found.tags.items() >= tags.items()
    assert found.tags["commit"] == history.row(best).tags["commit"]
    assert not {"claim", "verdict"} & found.tags.keys()
    assert "| `test_error_pct` | 9 |" in found.description


def test_the_error_of_the_stored_weights_chooses_and_not_the_loss(home: Path) -> None:
    record_training(20.0, best=1.0, loss=0.2)  # once good; what it stored is not
    record_training(9.0, seed=2, loss=0.1)
    steady = record_training(8.0, best=7.0, seed=1, loss=0.3)
    document = model_registry.register(NAME, SCALE)
    assert (document["run_id"], document["metrics"]["val_error_pct"]) == (steady, 8.0)
    found = get_champion()
    assert found.tags["val_error_pct"] == "8"
    assert "best" not in str(found.tags) + found.description
    assert "| `val_error_pct` | 8 |" in found.description
    assert "by `val_error_pct` of these weights" in found.description


def test_a_smaller_scale_never_takes_the_alias_and_a_larger_one_does(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_training(80.0)
    large = record_training(90.0, scale="cpu")
    assert model_registry.register(NAME, "smoke")["scale"] == "smoke"
    taken = model_registry.register(NAME, "cpu")
    assert (taken["run_id"], taken["version"], taken["new"]) == (large, "2", True)
    record_training(1.0, seed=1)
    kept = model_registry.register(NAME, "smoke")
    assert kept == taken | {"new": False, "asked_scale": "smoke"}
    assert (get_champion().run_id, count_versions()) == (large, 2)
    model_registry.print_champion(kept)
    shown = capsys.readouterr().out
    assert f"version 2 is already the champion: run {large}, cpu scale\n" in shown
    assert "no run of smoke scale replaces it" in shown
    assert model_registry.RULE in shown
    better = record_training(2.0, scale="cpu", seed=1)
    assert model_registry.register(NAME, "cpu")["run_id"] == better


def test_a_champion_whose_run_is_deleted_is_replaced_by_its_scale_alone(home: Path) -> None:
    small, large = record_training(8.0), record_training(9.0, scale="cpu")
    model_registry.register(NAME, "cpu")
    store.client().delete_run(large)
    assert model_registry.register(NAME, "smoke")["run_id"] == large  # until its version is deleted
    store.client().delete_model_version(NAME, "1")
    assert model_registry.register(NAME, "smoke")["run_id"] == small
    left = record_training(9.0, seed=1)
    store.client().delete_run(small)
    document = model_registry.register(NAME, "smoke")
    assert (document["run_id"], document["new"], count_versions()) == (left, True, 2)


def test_one_run_of_two_scales_is_champion_at_the_larger(home: Path) -> None:
    cpu = get_recipe(NAME, "cpu")
    both = record_training(
        8.0, scale="cpu", run_as=f"{NAME} smoke"
    )  # by overrides, of cpu's settings
    assert cpu.data == get_recipe(NAME, "smoke").data
    assert model_registry.register(NAME, "smoke")["run_id"] == both
    document = model_registry.register(NAME, "cpu")
    assert (document["run_id"], document["scale"], document["version"]) == (both, "cpu", "2")


def test_twice_is_once_and_a_tie_keeps_the_champion(home: Path) -> None:
    best = record_training(8.0)
    first = model_registry.register(NAME, SCALE)
    record_training(8.0, seed=1)
    again = model_registry.register(NAME, SCALE)
    assert (first["new"], again["new"], count_versions()) == (True, False, 1)
    assert first | {"new": False} == again
    assert again["run_id"] == best


def test_a_dry_run_says_what_would_be_and_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record_training(8.0)
    none = model_registry.register(NAME, SCALE, dry_run=True)
    assert (none["new"], none["version"], none["champion_now"]) == (True, None, None)
    assert none["run_id"] == first
    assert store.client().search_registered_models() == []
    model_registry.register(NAME, SCALE)
    record_training(9.0, seed=1)
    worse = model_registry.register(NAME, SCALE, dry_run=True)
    now = {"version": "1", "run_id": first}
    assert (worse["new"], worse["version"], worse["champion_now"]) == (False, "1", now)
    better = record_training(7.0, seed=2)
    found = model_registry.register(NAME, SCALE, dry_run=True)
    assert (found["new"], found["run_id"], found["champion_now"]) == (True, better, now)
    assert (get_champion().run_id, count_versions()) == (first, 1)
    done = model_registry.register(NAME, SCALE)
    assert (get_champion().run_id, count_versions()) == (better, 2)
    nothing = dict.fromkeys(("version", "ask", "asked_about"))  # no request is written
    assert found | {"network": done["network"]} == done | nothing | {"champion_now": now}
    model_registry.print_champion(found)
    shown = capsys.readouterr().out
    assert f"would become the champion: run {better}, smoke scale\n" in shown


def test_which_runs_are_a_recipe_at_a_scale(home: Path) -> None:
    overridden = record_training(7.0, learning_rate=0.3)
    same_settings = record_training(8.0, run_as=None, seed=3)
    record_training(1.0, run_as=f"{NAME} cpu", learning_rate=0.2)  # another scale
    record_training(1.0, run_as=None, learning_rate=0.1)  # of some claim, with settings of its own
    record_training(1.0, data="mnist")  # errors on other data do not compare
    record_training(None)  # broken off before its first validation
    record_training(math.nan)
    with tracked_run.track("failed", experiment=EXPERIMENT, kind="trial", tags={"recipe": NAME}):
        pass
    found = model_registry.candidates(get_recipe(NAME, SCALE), SCALE)
    assert {row.id for row in found} == {overridden, same_settings}
    assert model_registry.register(NAME, SCALE)["run_id"] == overridden


def test_a_version_names_the_claim_of_its_recipe_or_of_its_parents(home: Path) -> None:
    tags = {"claim": "identity-beats-plain", "scale": "cpu", "seeds": "1", "fingerprint": "other"}
    with tracked_run.track("claim", experiment=EXPERIMENT, kind="claim", tags=tags) as above:
        record_training(8.0, parent=above)
    document = model_registry.register(NAME, SCALE)
    assert (document["claim"], document["verdict"]) == ("identity-beats-plain", "not run")
    assert get_champion().tags["claim"] == "identity-beats-plain"
    assert "Claim `identity-beats-plain`: not run." in get_champion().description

    cell = "allconv-cifar10"
    record_training(8.0, name=cell)
    assert model_registry.register(cell, SCALE)["claim"] == cell
    version = store.client().get_model_version_by_alias(cell, "champion")
    assert (version.tags["reported_test_error_pct"], version.tags["verdict"]) == (
        "6.38",
        "not decidable here",
    )


@pytest.mark.parametrize(
    ("name", "scale", "said"),
    [
        (NAME, "smoke", "Run python -m pipelines run mlp-digits --scale smoke first"),
        (NAME, "paper", "Choices: cpu, smoke"),
        ("mlp-digit", "smoke", "Did you mean mlp-digits"),
        (NAME, "cpu", "{bare}.*--force"),
    ],
)
def test_what_cannot_be_registered_is_said_in_a_sentence(
    home: Path, name: str, scale: str, said: str
) -> None:
    record_training(9.0, scale="cpu")
    bare = record_training(8.0, scale="cpu", seed=1, model=False)
    with pytest.raises(UserError, match=said.format(bare=bare)):
        model_registry.register(name, scale)
    assert count_versions() == 0


def test_the_command_names_the_store_by_its_place_and_finds_mlflow(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlruns/mlflow.db")
    monkeypatch.setenv("PATH", "/bin")  # the environment is not active
    line = training_page.serve_line("models:/mlp-digits@champion")
    assert f"MLFLOW_TRACKING_URI=sqlite:///{home}/mlflow.db mlflow" in line
    assert line.startswith(f"PATH={Path(sys.executable).parent}:$PATH ")
    assert "models:/mlp-digits@champion --env-manager local" in line
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/bin")
    assert not training_page.serve_line("m").startswith("PATH")


@pytest.mark.parametrize(
    ("name", "read", "given"),
    [
        ("mlp-digits", "8 x 8 pixels, grey. Pixels are from 0 to 255. Those of scikit-l", "0 to 9"),
        (
            "allconv-cifar10",
            "32 x 32 pixels, red, green and blue. Pixels are from 0 to 25",
            "0 to 9",
        ),
        ("linear-teacher", "float32 [n, 8]: inputs as linear-teacher draws them", "[n, 8]"),
    ],
)
def test_a_network_says_in_words_what_it_reads_and_gives(name: str, read: str, given: str) -> None:
    said = training_page.describe_network(get_recipe(name, SCALE))
    assert read in said["It reads"]
    assert ("scikit-learn" in said["It reads"]) == ("digits" in name)
    assert given in said["It gives"]


def test_without_its_data_set_the_stored_example_is_sent(home: Path) -> None:
    name = "allconv-cifar10"
    record_training(8.0, name=name, scale="cpu")
    document = model_registry.register(name, "cpu")
    assert "the example stored with it, for cifar10 is not prepared here" in document["asked_about"]
    assert "logits" in document["network"]["It gives"]  # `network()` has no probabilities


def wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    """Wait for the server to listen."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return
        time.sleep(0.5)
    pytest.fail("the server does not answer")


@pytest.mark.slow
def test_the_champion_answers_by_the_printed_commands(
    home: Path, digits: Path, tmp_path: Path
) -> None:
    assert command("pipelines", "run", NAME, "--scale", SCALE).returncode == 0
    done = command("pipelines", "register", NAME, "--scale", SCALE, "--json")
    document = json.loads(done.stdout)
    free = free_port()
    port = f"{training_page.PORT}", f"{free}"
    env = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")}
    with (
        (tmp_path / "server.log").open("w") as log,
        subprocess.Popen(
            ["bash", "-c", document["serve"].replace(*port)],
            cwd=tmp_path,
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as server,
    ):
        try:
            wait_for(server, free)
            ask = document["ask"].replace(*port)
            [answer] = ask_server(ask, env)
            request = Path(ask.partition("@")[2].split()[0])
            pixels = np.array(json.loads(request.read_text())["inputs"])
            request.write_text(json.dumps({"inputs": (pixels / 255).tolist()}))
            [scaled] = ask_server(ask, env)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
    test = cast("Pictures", datasets.load("digits").test)
    [row] = np.flatnonzero((test.images == pixels).all(axis=(1, 2, 3)))
    label = test.labels[row]
    assert f"picture {row + 1} of the test set, of class {label} (" in document["asked_about"]
    assert (answer.argmax(), answer.sum()) == (label, pytest.approx(1, abs=1e-5))
    assert np.isnan(scaled).all()
    again = command("pipelines", "register", NAME, "--scale", SCALE, "--json")  # once served, too
    assert json.loads(again.stdout) == document | {"new": False}


def ask_server(line: str, env: dict[str, str]) -> Any:
    """The predictions that a command prints; [n, classes]."""
    done = subprocess.run(
        ["bash", "-c", line], env=env, capture_output=True, check=True, timeout=60
    )
    return np.array(json.loads(done.stdout)["predictions"])
