"""Small networks, inputs for them, and what is inside of one."""

import importlib
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_models

IMAGE = {"input_shape": (8, 8, 3), "classes": 4}


def tiny(name: str, **kw: Any) -> keras.Model:
    """The network `name` at its TINY arguments, from seed 0."""
    keras.utils.set_random_seed(0)
    arguments = IMAGE | importlib.import_module(f"keras_models.{name}").TINY | kw
    return keras_models.build(name, **arguments)


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def batch(model: keras.Model, n: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal inputs and labels 0, 1, 2, ... for a model."""
    return images(n, *model.input_shape[1:]), np.arange(n) % model.output_shape[-1]


def layers_of(model: keras.Model, *kinds: type) -> list[Any]:
    return [layer for layer in model.layers if isinstance(layer, kinds)]


def weight_layers(model: keras.Model) -> list[Any]:
    return layers_of(model, keras.layers.Conv2D, keras.layers.Dense)


def trainable_parameters(model: keras.Model) -> int:
    return sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)


def features(model: keras.Model, *names: str) -> list[np.ndarray]:
    """Outputs of the named layers on a batch."""
    outputs = [model.get_layer(name).output for name in names]
    return [np.asarray(y) for y in keras.Model(model.input, outputs)(batch(model)[0])]


def with_zero_blocks(model: keras.Model) -> keras.Model:
    """The same model with all weights and statistics inside the blocks set to 0."""
    for layer in model.layers:
        if "block" in layer.name:
            layer.set_weights([np.zeros_like(weight) for weight in layer.get_weights()])
    return model


def reloaded(model: keras.Model, folder: Path, n: int = 8) -> keras.Model:
    """The model, stored and loaded, which has the same outputs."""
    model.save(folder / "model.keras")
    loaded = keras.models.load_model(folder / "model.keras", safe_mode=True)
    x, _ = batch(model, n)
    assert np.array_equal(loaded(x), model(x))
    return loaded
