"""A person's own architecture: a file, or a module of another package."""

import re
from pathlib import Path

import numpy as np
import pytest

import keras_models
from pipelines import api
from pipelines.cli.overrides import name_own
from pipelines.errors import UserError
from pipelines.recipes import checks
from pipelines.recipes.catalog import get_recipe
from pipelines.tracking import history
from tests.conftest import ROOT, command

NET = '''
import keras

BASE = 2

def build(input_shape, classes, width=4, *, depth: int = 1, act="relu", scale=BASE * 2, **more):
    """`width`: units of a layer.
    `depth`: how many
    layers.
    """
    x = inputs = keras.Input(input_shape)
    x = keras.layers.Flatten()(x)
    for _ in range(depth):
        x = keras.layers.Dense(width * scale, activation=act)(x)
    return keras.Model(inputs, keras.layers.Dense(classes)(x))
'''


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "my_net.py"
    path.write_text(NET)
    return path


def test_its_arguments_are_read_without_running_it(net: Path) -> None:
    net.write_text(f"raise SystemExit\n{NET}")
    name = keras_models.name_own(str(net))
    assert keras_models.defaults(name) == {"width": 4, "depth": 1, "act": "relu"}
    assert keras_models.describe(name) == {
        "width": "units of a layer.",
        "depth": "how many layers.",
    }
    keras_models.check(name, (8, 8, 1), 10, width="any", depth=-1, other=[1])
    with pytest.raises(ValueError, match="depth must be an integer"):
        keras_models.check(name, (8, 8, 1), 10, depth=1.5)


def test_it_is_built_as_it_stands(net: Path) -> None:
    model = keras_models.build(keras_models.name_own(str(net)), (8, 8, 1), 10, width=3, depth=2)
    assert [len(layer.get_weights()[0]) for layer in model.layers[2:]] == [64, 12, 12]


def test_another_source_is_another_network(net: Path, tmp_path: Path) -> None:
    recipe = get_recipe("mlp-digits")
    name = keras_models.name_own(str(net))
    elsewhere = tmp_path / "elsewhere" / "my_net.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(NET)
    first = recipe.override(model=name)
    moved = recipe.override(model=keras_models.name_own(str(elsewhere)))
    assert moved.fingerprint == first.fingerprint
    assert str(tmp_path) not in "".join(first.flat().values())
    net.write_text(NET.replace("relu", "tanh"))
    changed = recipe.override(model=keras_models.name_own(str(net)))
    assert changed.fingerprint != first.fingerprint
    with pytest.raises(ValueError, match="as it was"):
        keras_models.build(name, (8, 8, 1), 10)
    with pytest.raises(UserError, match="as it was"):
        checks.name_model(name)


def test_a_module_of_a_package_is_one(
    net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shapes_of_mine").mkdir()
    (tmp_path / "shapes_of_mine" / "__init__.py").write_text("")
    net.rename(tmp_path / "shapes_of_mine" / "net.py")
    monkeypatch.syspath_prepend(tmp_path)
    name = keras_models.name_own("shapes_of_mine.net")
    assert name.startswith("shapes_of_mine.net@")
    assert keras_models.build(name, (8, 8, 1), 10).output_shape == (None, 10)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1", "must have a function build"),
        ("def build(shape, classes): pass", "another build"),
        ("def build(input_shape, classes):\n    return 1 +", "must be Python"),
        ("import no_such_module\ndef build(input_shape, classes): pass", "line 1: ModuleNotFound"),
        ("def build(input_shape, classes):\n    return 1 / 0", "line 2: ZeroDivisionError"),
        ("def build(input_shape, classes):\n    return 1", "must return a keras.Model"),
        (NET.replace("Dense(classes)", "Dense(classes + 1)"), r"to \(None, 11\)"),
    ],
)
def test_a_broken_one_is_one_sentence(net: Path, source: str, said: str) -> None:
    net.write_text(source)
    with pytest.raises(ValueError, match=said):
        keras_models.build(keras_models.name_own(str(net)), (8, 8, 1), 10)


@pytest.mark.parametrize("given", ["no_such.py", "no.such.module", "./net.txt"])
def test_what_is_not_there_is_one_sentence(given: str) -> None:
    with pytest.raises(UserError, match=r"FILE.py, or a module PACKAGE.MODULE"):
        checks.name_model(given)


def test_own_data_and_network_are_trained_and_found_again(
    net: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = (80 * y[:, None, None] + rng.integers(0, 40, (300, 5, 5))).astype(np.uint8)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y)
    settings = {"data": str(tmp_path / "mine.npz"), "model": str(net), "width": 8, "steps": 60}
    result = api.run("mlp-digits", **settings, batch_size=32)
    row = history.row(result.run_id)
    assert row.params["model"].startswith("my_net.py@")
    assert row.params["model_args.width"] == "8"
    assert row.params["data"].startswith("mine-")
    assert row.metrics["test_error_pct"] < 10
    assert api.run("mlp-digits", **settings, batch_size=32).run_id == result.run_id


def test_the_command_line_offers_the_arguments_of_an_own_network(net: Path, home: Path) -> None:
    words = ["mlp-digits", f"--model={net}"]
    shown = command("pipelines", "run", *words, "--help").stdout
    assert "--depth INT" in shown
    assert "how many layers." in shown
    refused = command("pipelines", "run", *words, "--dept", "2")
    assert refused.returncode == 2
    assert "Did you mean --depth?" in refused.stderr
    said = [line for line in refused.stderr.splitlines() if "runs as it stands" in line]
    assert len(said) == 1


def test_a_size_without_own_data_is_refused() -> None:
    for words in (["--size", "32"], ["--size=32", "--data", "digits"]):
        with pytest.raises(UserError, match="--size belongs to pictures of your own"):
            name_own(words, "run")


def test_the_network_of_the_documentation_is_built(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "own.md").read_text()
    [code] = [c for c in re.findall(r"```python\n(.*?)```", page, re.S) if "def build" in c]
    (tmp_path / "my_net.py").write_text(code)
    name = keras_models.name_own(str(tmp_path / "my_net.py"))
    assert keras_models.defaults(name) == {"width": 16, "dropout": 0.0}
    assert keras_models.build(name, (32, 32, 3), 5, width=8).output_shape == (None, 5)
