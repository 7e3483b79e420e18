"""Recipes: everything that determines a training run, as one frozen dataclass each.

A recipe is data. It is compared, printed, logged as flat parameters and searched by tuning; the
fingerprint of its fields tells whether a run with exactly these settings has been made before.
Those that have a name are in recipes/catalog.py.
"""

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

import keras_models
from pipelines.data import datasets, integrity
from pipelines.data.splits import PAD
from pipelines.errors import UserError, check_names
from pipelines.recipes import lr
from pipelines.recipes.cost import Cost
from pipelines.recipes.settings import Hidden
from pipelines.runtime.provenance import digest

# Fields that describe a recipe and do not change the training.
LABELS = ("name", "source", "reported", "costs", "steps_per_execution", "pictures")
# Fields that are younger than recorded runs: at their defaults they are no part of a fingerprint.
LATER = ("validation", "test_every", "warmup_level", "rate_in_velocity", "decay_all")
# Settings that every recorded run has and no recipe any more: fingerprints stay as they were.
FORMER = {"asynchronous": "false"}
LENGTHS = ("epochs", "steps")  # one of them is set, which replaces the other
LONGEST = 10**9  # steps, or epochs
LARGEST = 3e38  # numbers that are computed with are in float32, which has none beyond
SMALLEST = 1e-38
FLOATS = [
    *("epochs", "learning_rate", "warmup", "warmup_level"),
    *("momentum", "weight_decay", "label_smoothing", "ema"),
]

Args = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines a training run."""

    name: Hidden[str]
    source: Hidden[str]
    reported: Hidden[Mapping[str, float]] = field(default_factory=dict)
    """Numbers that the source reports of it, by our names."""
    costs: Hidden[Mapping[str, Cost]] = field(default_factory=dict)
    """The time of a run at each scale, on 2 cores or a GPU."""
    steps_per_execution: Hidden[int | None] = None
    """Steps in one call of Keras, for networks that calls cost more than steps: logs and
    checkpoints come between calls (None: up to 50 where a GPU holds the pictures, else 1)."""
    model: str
    """Architecture: a module of keras_models, or your own: FILE.py or PACKAGE.MODULE."""
    model_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the architecture."""
    data: str
    """Data set, by its name in `python -m pipelines data`, or your own: FOLDER, FILE.npz or
    tfds:NAME."""
    data_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of a data set that is drawn in memory, or of how stored pictures are read."""
    train_examples: int | None = None
    """Use only the first so many training examples (None: all)."""
    validation: bool = True
    """Keep part of the training examples for validation (no: train on all of them; nothing can then
    be chosen or searched by validation)."""
    test_every: int | None = None
    """Steps between two looks at the test set, as the code of HM's footnote 5 takes them (None:
    none); validation then comes with them."""
    augment: bool = False
    """Random crop and horizontal flip: CIFAR moved by up to `shift`, ImageNet resized at random."""
    shift: int = 4
    """Most pixels by which augmentation moves a picture of one size, up, down and sideways."""
    batch_size: int = 128
    """Examples a step, over all devices."""
    accumulate: int = 1
    """Parts in which a batch goes through the devices, one after another; gradients are averaged
    before the step."""
    epochs: float | None = None
    """Passes over the training examples; `steps` is counted from it."""
    steps: int | None = None
    """Optimizer steps, instead of `epochs`."""
    learning_rate: float = 0.1
    """Peak learning rate."""
    schedule: str = "constant"
    """Learning-rate schedule: a function of pipelines/recipes/lr.py."""
    schedule_args: Mapping[str, Any] = field(default_factory=dict)
    """Shape of the schedule."""
    warmup: float = 0.0
    """Share of the steps during which the rate rises linearly to its peak."""
    warmup_level: float = 0.0
    """Share of the peak rate that is held during warm-up (0: the rate rises linearly)."""
    momentum: float = 0.9
    """Momentum of stochastic gradient descent."""
    rate_in_velocity: bool = False
    """Velocities hold the rate, v = momentum v + rate g, as of He et al. (no: v = momentum v + g,
    and a step is rate v, as of HM)."""
    nesterov: bool = False
    """Momentum in Nesterov's form, which looks one step ahead."""
    weight_decay: float = 0.0
    """Decay w: adds w/2 |kernel|^2 of every trained convolution and dense layer to the loss."""
    decay_all: bool = False
    """Weight decay acts on biases and on the scales and shifts of normalization, too."""
    seed: int = 0
    """Seed of the weights, the batch order and the augmentation."""
    label_smoothing: float = 0.0
    """Share of a label's weight that all classes get alike, in training."""
    ema: float = 0.0
    """Decay a step of averages of the weights, which are then validated, tested and stored, beside
    the last moments of normalization (0: the weights as they are)."""
    precision: Literal["float32", "tensorfloat32", "mixed_bfloat16"] = "float32"
    """Precision of the computation; weights stay float32. tensorfloat32: float32 but in the
    products of a GPU, which keep 10 bits of each factor."""
    pictures: Literal["auto", "host", "device"] = "auto"
    """Where pictures are kept, cut and flipped (auto: on a GPU, where they fit on one)."""
    devices: int | None = None
    """Devices that share a batch (None: every GPU, else one CPU device)."""

    def __post_init__(self) -> None:
        for name in FLOATS:
            value = getattr(self, name)  # 0 is the setting 0.0
            object.__setattr__(self, name, None if value is None else float(value))
        for name, rule, holds in self._rules():
            if not holds:
                raise UserError(
                    f"{name} must be {rule}. Received: {name}={getattr(self, name)!r}. "
                    f"Set --{name.replace('_', '-')} accordingly."
                )

    def _rules(self) -> list[tuple[str, str, bool]]:
        rate, decay = self.learning_rate, self.weight_decay
        length = (self.epochs if self.steps is None else self.steps) or 0
        return [
            ("shift", f"in [0, {PAD}]", 0 <= self.shift <= PAD),
            ("batch_size", "> 0", self.batch_size > 0),
            (
                "accumulate",
                f"> 0 and divide batch_size={self.batch_size}",
                self.accumulate > 0 and self.batch_size % self.accumulate == 0,
            ),
            ("steps_per_execution", "> 0, or None", _is_count(self.steps_per_execution)),
            (
                "steps",
                f"> 0 and at most {LONGEST:,}, or None",
                _is_count(self.steps) and (self.steps or 0) <= LONGEST,
            ),
            ("epochs", f"> 0 and at most {LONGEST:,}, or steps given", 0 < length <= LONGEST),
            ("train_examples", "> 0, or None", _is_count(self.train_examples)),
            ("test_every", "> 0, or None", _is_count(self.test_every)),
            ("learning_rate", "finite and > 0 in float32", SMALLEST < rate < LARGEST),
            ("warmup", "in [0, 1)", 0 <= self.warmup < 1),
            ("warmup_level", "in [0, 1]", 0 <= self.warmup_level <= 1),
            ("momentum", "in [0, 1)", 0 <= self.momentum < 1),
            ("weight_decay", "finite and >= 0 in float32", 0 <= decay < LARGEST),
            ("label_smoothing", "in [0, 1)", 0 <= self.label_smoothing < 1),
            ("ema", "in [0, 1)", 0 <= self.ema < 1),
            ("seed", "in [0, 2**32)", 0 <= self.seed < 2**32),
            ("devices", ">= 1, or None", _is_count(self.devices)),
        ]

    def override(self, **changes: Any) -> "Recipe":
        """Return a recipe with some fields changed; mappings are merged, key by key.

        Another `model`, `data` or `schedule` starts from its own defaults: it could not read the
        old one's arguments. `epochs` replaces `steps` and the other way round.
        """
        check_names("A recipe field", changes, [f.name for f in dataclasses.fields(self)])
        if changes.get("epochs") is not None and changes.get("steps") is not None:
            raise UserError(
                f"A run has one length. Received: epochs={changes['epochs']} and "
                f"steps={changes['steps']}. Give --epochs or --steps."
            )
        base = dataclasses.replace(self, **self._reset_fields(changes))
        merged: dict[str, Any] = {
            key: {**getattr(base, key), **value} if isinstance(value, Mapping) else value
            for key, value in changes.items()
        }
        return dataclasses.replace(base, **merged)

    def _reset_fields(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that a change of another field makes void, with their new start."""
        dropped: dict[str, Any] = {}
        if changes.get("epochs") is not None:
            dropped |= {"steps": None, "epochs": changes["epochs"]}
        if changes.get("steps") is not None:
            dropped |= {"epochs": None, "steps": changes["steps"]}
        if changes.get("model", self.model) != self.model:
            with contextlib.suppress(ValueError, OSError):  # recipes.checks refuses such a model
                dropped["model_args"] = {}
                dropped["model_args"] = keras_models.defaults(changes["model"])
        if changes.get("data", self.data) != self.data:
            with integrity.explain_damage(changes["data"]):
                dropped["data_args"] = datasets.get(changes["data"]).start(self.data_args)
        if changes.get("schedule", self.schedule) != self.schedule:
            dropped["schedule_args"] = lr.defaults(changes["schedule"])
        return dropped

    def flat(self) -> dict[str, str]:
        """Return the fields as `model_args.depth`-like names with JSON values, for tracking."""
        rows = dict(FORMER)
        later = {each.name: each.default for each in dataclasses.fields(self) if each.name in LATER}
        for key, value in _settings(self):
            if key in later and value == later[key]:
                continue
            if isinstance(value, Mapping):
                rows |= {f"{key}.{k}": _plain(v) for k, v in sorted(value.items())}
            else:
                rows[key] = _plain(value)
        rows["model"] = PurePath(self.model).name  # of a file of one's own without its folder
        return rows

    def flags(self, base: "Recipe") -> str:
        """Return the flags with which `python -m pipelines run NAME` trains this; NAME is `base`.

        UserError where the command line cannot say it: an argument that the base does not have.
        """
        # what the command line offers
        options = base.override(schedule=self.schedule, model=self.model)
        start = options.override(data=self.data)
        words: list[str] = []
        for key, value in _settings(self):
            if isinstance(value, Mapping):
                words += self._argument_flags(key, getattr(start, key), getattr(options, key))
            elif value != getattr(base, key) and not (value is None and key in LENGTHS):
                words += _flag(key, value)
        return shlex.join(words)

    def _argument_flags(self, key: str, old: Args, options: Args) -> list[str]:
        """Return the flags of one mapping of arguments; the command line offers `options`."""
        new: Args = getattr(self, key)
        settable = [name for name in options if name in old and name in new]
        changed = [k for k in {**old, **new} if _plain(old.get(k)) != _plain(new.get(k))]
        for name in changed:
            if name not in settable:
                raise UserError(
                    "An override must be an argument that the recipe has. Received: "
                    f"{key}.{name}={new.get(name)!r}, where {', '.join(settable) or 'none'} can be "
                    "set. Give the recipe a name in recipes/catalog.py."
                )
        return [word for name in changed for word in _flag(name, new[name])]

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when, and only when, a setting does."""
        return digest(self.flat())


def _is_count(number: int | None) -> bool:
    return number is None or number > 0


def _settings(recipe: Recipe) -> list[tuple[str, Any]]:
    names = [field.name for field in dataclasses.fields(recipe) if field.name not in LABELS]
    return [(name, getattr(recipe, name)) for name in names]


def _flag(name: str, value: Any) -> list[str]:
    """Return the words of one option."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    values = value if isinstance(value, list | tuple) else [value]
    return [f"--{option}", *("None" if v is None else _plain(v) for v in values)]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
