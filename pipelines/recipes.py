"""Recipes: everything that determines a training run, as one frozen dataclass each.

A recipe is data. It is compared, printed, logged as flat parameters and searched by tuning; the
fingerprint of its fields tells whether a run with exactly these settings has been made before.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import tyro

from pipelines import data, lr
from pipelines.errors import UserError, unknown

SCALES = ("smoke", "cpu", "paper")
LABELS = ("name", "source")  # fields that describe a recipe and do not change the training


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that determines a training run."""

    name: tyro.conf.Suppress[str]
    source: tyro.conf.Suppress[str]
    model: str
    """Architecture: a module of keras_models."""
    model_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the architecture."""
    data: str
    """Data set, by its name in `python -m pipelines data`."""
    data_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of a data set that is drawn in memory."""
    train_examples: int | None = None
    """Use only the first so many training examples (None: all)."""
    augment: bool = False
    """Pad 4, random crop, random horizontal flip."""
    batch_size: int = 128
    """Examples a step, over all devices."""
    epochs: float | None = None
    """Passes over the training examples; `steps` is counted from it."""
    steps: int | None = None
    """Optimizer steps, instead of `epochs`."""
    learning_rate: float = 0.1
    """Peak learning rate."""
    schedule: str = "constant"
    """Learning-rate schedule: a function of pipelines/lr.py."""
    schedule_args: Mapping[str, Any] = field(default_factory=dict)
    """Shape of the schedule."""
    warmup: float = 0.0
    """Share of the steps during which the rate rises linearly to its peak."""
    momentum: float = 0.9
    """Momentum of stochastic gradient descent."""
    weight_decay: float = 0.0
    """Decay w: adds w/2 |kernel|^2 of every convolution to the loss."""
    seed: int = 0
    """Seed of the weights, the batch order and the augmentation."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Precision of the computation; weights stay float32."""
    devices: int | None = None
    """Devices that share a batch (None: every GPU, else one CPU device)."""

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "warmup", "momentum", "weight_decay"):
            value = getattr(self, name)  # 0 is the setting 0.0
            object.__setattr__(self, name, None if value is None else float(value))
        for name, rule, holds in self._rules():
            if not holds:
                raise UserError(
                    f"{name} must be {rule}. Received: {name}={getattr(self, name)!r}. "
                    f"Set --{name.replace('_', '-')} accordingly."
                )

    def _rules(self) -> list[tuple[str, str, bool]]:
        rate, decay, limit = self.learning_rate, self.weight_decay, self.train_examples
        length = self.epochs if self.steps is None else self.steps
        return [
            ("batch_size", "> 0", self.batch_size > 0),
            ("steps", "> 0, or None", self.steps is None or self.steps > 0),
            ("epochs", "finite and > 0, or steps given", 0 < (length or 0) < math.inf),
            ("train_examples", "> 0, or None", limit is None or limit > 0),
            ("learning_rate", "finite and > 0", math.isfinite(rate) and rate > 0),
            ("warmup", "in [0, 1)", 0 <= self.warmup < 1),
            ("momentum", "in [0, 1)", 0 <= self.momentum < 1),
            ("weight_decay", "finite and >= 0", math.isfinite(decay) and decay >= 0),
            ("seed", "in [0, 2**32)", 0 <= self.seed < 2**32),
            ("devices", ">= 1, or None", self.devices is None or self.devices >= 1),
        ]

    def override(self, **changes: Any) -> "Recipe":
        """A recipe with some fields changed; mappings are merged, key by key.

        Another `model`, `data` or `schedule` starts from its own defaults: it could not read the
        old one's arguments. `epochs` replaces `steps` and the other way round.
        """
        names = [f.name for f in dataclasses.fields(self)]
        for key in changes:
            if key not in names:
                raise unknown("A recipe field", key, names)
        if changes.get("epochs") is not None and changes.get("steps") is not None:
            raise UserError(
                f"A run has one length. Received: epochs={changes['epochs']} and "
                f"steps={changes['steps']}. Give --epochs or --steps."
            )
        base = dataclasses.replace(self, **self._dropped(changes))
        merged: dict[str, Any] = {
            key: {**getattr(base, key), **value} if isinstance(value, Mapping) else value
            for key, value in changes.items()
        }
        return dataclasses.replace(base, **merged)

    def _dropped(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that a change of another field makes void, with their new start."""
        dropped: dict[str, Any] = {}
        if changes.get("epochs") is not None:
            dropped |= {"steps": None, "epochs": changes["epochs"]}
        if changes.get("steps") is not None:
            dropped |= {"epochs": None, "steps": changes["steps"]}
        if changes.get("model", self.model) != self.model:
            dropped["model_args"] = {}
        if changes.get("data", self.data) != self.data:
            dropped["data_args"] = data.defaults(changes["data"])
        if changes.get("schedule", self.schedule) != self.schedule:
            dropped["schedule_args"] = lr.defaults(changes["schedule"])
        return dropped

    def flat(self) -> dict[str, str]:
        """The fields as `model_args.depth`-like names with JSON values, for tracking."""
        rows: dict[str, str] = {}
        for key, value in dataclasses.asdict(self).items():
            if isinstance(value, Mapping):
                rows |= {f"{key}.{k}": _plain(v) for k, v in sorted(value.items())}
            elif key not in LABELS:
                rows[key] = _plain(value)
        return rows

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when, and only when, a setting does."""
        return digest(self.flat())


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def digest(settings: Any) -> str:
    """Twelve hexadecimal digits of the SHA-256 of `settings` as sorted JSON."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def named(name: str, scale: str = "cpu") -> Recipe:
    """The recipe of that name at that scale; UserError lists the choices."""
    if name not in RECIPES:
        raise unknown("A recipe", name, RECIPES)
    if scale not in RECIPES[name]:
        raise unknown(f"The scale of {name}", scale, RECIPES[name])
    return RECIPES[name][scale]


_ALLCONV = Recipe(
    name="allconv-cifar10",
    source="HM Table 1, section 4.1",
    model="allconv_resnet",
    model_args={
        "blocks_per_stage": 9,
        "widths": (64, 128, 256),
        "stem_width": 16,
        "shortcut": "identity",
        "use_bias": False,
        "fixed_projection": True,
        "init": "small",
    },
    data="cifar10",
    augment=True,
    batch_size=128,
    steps=64_000,
    learning_rate=0.05,
    schedule="steps",
    schedule_args={"boundaries": (30_000 / 64_000, 50_000 / 64_000), "factor": 0.1},
    weight_decay=1e-4,
)
_ALLCONV_CPU = _ALLCONV.override(
    model_args={"blocks_per_stage": 2, "widths": (16, 32, 64)}, steps=2_000
)
_DIGITS = _ALLCONV.override(
    name="allconv-digits",
    source="the network of HM Table 1, narrower, on 8x8 digits",
    model_args={"blocks_per_stage": 5, "widths": (8, 16, 32), "stem_width": 8},
    data="digits",
    augment=False,
    batch_size=32,
    steps=400,
    warmup=0.1,
)
_PLAIN = _DIGITS.override(
    name="plain-digits",
    source="allconv-digits without its identity shortcuts",
    model_args={"shortcut": "none", "init": "he"},
)
_MLP = _DIGITS.override(
    name="mlp-digits",
    source="HM section 3: blocks x + V relu(U x), on 8x8 digits",
    model="mlp",
    model_args={"depth": 4, "width": 64, "identity": True, "init": "small"},
    weight_decay=0.0,
)
_TEACHER = Recipe(
    name="linear-teacher",
    source="HM section 2: (I+A_l)...(I+A_1) on samples y = Rx + noise",
    model="linear_resnet",
    model_args={"depth": 8, "init": "zeros"},
    data="linear-teacher",
    data_args=data.defaults("linear-teacher"),
    batch_size=256,
    steps=400,
    learning_rate=0.01,
    momentum=0.0,
)


def _smoke(recipe: Recipe) -> Recipe:
    """The same recipe for a few steps on few examples: it shows that the path works."""
    small = {"blocks_per_stage": 1} if recipe.model == "allconv_resnet" else {}
    return recipe.override(model_args=small, steps=8, train_examples=256, batch_size=32)


RECIPES: dict[str, dict[str, Recipe]] = {
    recipes["cpu"].name: {"smoke": _smoke(recipes["cpu"]), **recipes}
    for recipes in (
        {"cpu": _DIGITS},
        {"cpu": _PLAIN},
        {"cpu": _MLP},
        {"cpu": _TEACHER},
        {"cpu": _ALLCONV_CPU, "paper": _ALLCONV},
        {
            "cpu": _ALLCONV_CPU.override(name="allconv-cifar100", data="cifar100"),
            "paper": _ALLCONV.override(name="allconv-cifar100", data="cifar100"),
        },
    )
}
