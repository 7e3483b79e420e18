"""The recipes that have a name, each at its scales.

Those of HM Table 2 and LY Table 1 are in cifar.py and imagenet.py, as published; digits.py has our
own. Costs are about: GPU hours at 15 TFLOP/s, CPU minutes from the measured time of a step.
"""

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pipelines.errors import LISTED_BY, unknown
from pipelines.recipes import cifar, digits, imagenet
from pipelines.recipes.recipe import LENGTHS, Recipe
from pipelines.runtime.provenance import digest

Args = Mapping[str, Any]
Scales = dict[str, Recipe]
NOTHING: Args = MappingProxyType({})
MAX_TITLE = 200  # letters: a name, of which it is a part, has at most 250 in some databases


def get_recipe(name: str, scale: str = "cpu") -> Recipe:
    """Return the recipe of that name at that scale; UserError lists the choices."""
    if name not in RECIPES:
        raise unknown("A recipe", name, RECIPES, LISTED_BY)
    if scale not in RECIPES[name]:
        raise unknown(f"The scale of {name}", scale, RECIPES[name])
    return RECIPES[name][scale]


def title(recipe: Recipe) -> str:
    """Return `allconv-digits cosine 0.1, steps 100`: its name, and what it changes of that recipe.

    The scale from which it differs least is named where it is not cpu; seeds do not count.
    """
    described = {
        scale: _changes(recipe, base) for scale, base in RECIPES.get(recipe.name, {}).items()
    }
    scale = min(described, key=lambda each: (len(described[each]), each != "cpu"), default="cpu")
    words = [scale] * (scale != "cpu") + described.get(scale, [])
    said = f"{recipe.name} {', '.join(words)}".strip()
    if len(said) <= MAX_TITLE:
        return said
    return f"{said[: MAX_TITLE - 12]}... {digest(said)[:8]}"


def _changes(recipe: Recipe, base: Recipe) -> list[str]:
    """Return in words what a recipe changes of another, the schedule and its rate first."""
    named = {key: getattr(recipe, key) for key in ("schedule", "model", "data")}
    settings, before = recipe.flat(), base.flat()
    start = base.override(**named).flat()  # arguments are compared with the defaults of these
    changed = [key for key, value in settings.items() if value != start.get(key)]
    changed += [key for key in named if settings[key] != before[key]]
    words = []
    if (is_other := "schedule" in changed) or "learning_rate" in changed:
        words.append(f"{recipe.schedule if is_other else 'rate'} {recipe.learning_rate!r}")
    said = {"seed", "schedule", "learning_rate"}
    said |= {key for key in LENGTHS if settings[key] == "null"}  # the other one is set
    for key in (key for key in changed if key not in said):
        option, value = key.rpartition(".")[2].replace("_", " "), settings[key]
        plain = re.sub(r'[][",]', "", value).replace("null", "") or "none"
        words.append({"true": option, "false": f"no {option}"}.get(value, f"{option} {plain}"))
    return words


def _with_smoke(cpu: Recipe, tiny: Args) -> Scales:
    """Return a recipe, and a few steps of it on few examples, which show that the path works."""
    smoke = cpu.override(model_args=tiny, steps=8, train_examples=256, batch_size=32)
    return {"smoke": smoke, "cpu": cpu}


def _on_cifar10(largest: Recipe, narrow: Args, tiny: Args, scale: str = "paper") -> Scales:
    """Return it as published; at cpu scale a smaller network, 400 steps, schedule in proportion.

    At smoke scale on images of the same shape that need no download. `scale` is that of `largest`.
    """
    scales = _with_smoke(largest.override(model_args=narrow, steps=400), tiny)
    return {**scales, "smoke": scales["smoke"].override(data="synthetic"), scale: largest}


def _on_imagenet(paper: Recipe, tiny: Args, data_args: Args = NOTHING) -> Scales:
    """Return it as published; at cpu scale a tiny network for 20 steps, so a sample is enough."""
    cpu = paper.override(model_args=tiny, data_args=data_args, steps=20, batch_size=32)
    return {**_with_smoke(cpu, {}), "paper": paper}


def _on_imagenet32(paper: Recipe) -> Scales:
    """Return it as for CIFAR-10, at cpu scale on the first 50,000 images."""
    scales = _on_cifar10(paper, _SMALL, tiny=_FEW)
    return {**scales, "cpu": scales["cpu"].override(train_examples=50_000, batch_size=128)}


def _on_cifar100(scales: Scales, error_pct: float, table: str = "HM Table 2") -> Scales:
    """Return the same recipe with 100 classes, and the error that its source reports in a table."""
    data = {"cifar10": "cifar100"}
    return {
        scale: dataclasses.replace(
            recipe,
            name=recipe.name.replace("cifar10", "cifar100"),
            source=recipe.source.replace("HM Table 2", table),
            data=data.get(recipe.data, recipe.data),
            reported=dict.fromkeys(recipe.reported, error_pct),
        )
        for scale, recipe in scales.items()
    }


_SLIP = "HM Table 2 (32.39, likely a slip of the row)"
_FEW: Args = {"blocks_per_stage": 1}
_SMALL: Args = {"blocks_per_stage": 2, "widths": (16, 32, 64)}
_ALLCONV = _on_cifar10(cifar.ALLCONV, _SMALL, tiny=_FEW)
_FOOTNOTE5 = _on_cifar10(cifar.ALLCONV_FOOTNOTE5, _SMALL, tiny=_FEW)
_LEAKY = _on_cifar10(cifar.ALLCONV_LEAKY, _SMALL, tiny=_FEW)
_ALLCNN = _on_cifar10(cifar.ALLCNN, {"width": 0.25}, tiny={"width": 0.1})
_WHITENED = _on_cifar10(cifar.ALLCNN_WHITENED, {"width": 0.25}, tiny={"width": 0.1})
_DENSENET = _on_cifar10(cifar.DENSENET, {"depth": 22, "growth": 8}, tiny={"depth": 10, "growth": 4})
_TINY_IMAGENET = {"widths": (8, 16, 32, 64), "stem_width": 8, "blocks_per_stage": (1, 1, 1, 1)}
_NARROW = {"widths": (4, 8, 16, 32), "blocks_per_stage": (1, 1, 1, 1)}

RECIPES: dict[str, Scales] = {
    scales["cpu"].name: scales
    for scales in (
        _with_smoke(digits.ALLCONV, _FEW),
        _with_smoke(digits.PLAIN, _FEW),
        _with_smoke(digits.MLP, {}),
        _with_smoke(digits.TEACHER, {}),
        _with_smoke(digits.STUDENT, {}),
        _with_smoke(digits.RELU_BLOCKS, {}),
        _ALLCONV,
        _FOOTNOTE5,
        _on_cifar10(cifar.ALLCONV_SHIFT4, _SMALL, tiny=_FEW),
        _on_cifar10(cifar.ALLCONV_TENSORFLOAT32, _SMALL, tiny=_FEW),
        _LEAKY,
        _on_cifar10(cifar.RESNET, _FEW, tiny={"widths": (4, 8, 16)}),
        _ALLCNN,
        _WHITENED,
        _DENSENET,
        *(_on_cifar10(recipe, {"blocks_per_stage": 2}, _FEW) for recipe in cifar.SKIP56),
        _on_cifar100(_ALLCONV, 24.64),
        _on_cifar100(_FOOTNOTE5, 24.64),
        _on_cifar100(_LEAKY, 24.64),
        _on_cifar10(cifar.RESNET164, _FEW, tiny={"widths": (4, 8, 16)}),
        _on_cifar100(_ALLCNN, 33.71, _SLIP),
        _on_cifar100(_WHITENED, 33.71, _SLIP),
        _on_cifar100(_DENSENET, 19.25),
        _on_imagenet(imagenet.ALLCONV, {**_NARROW, "stem_width": 4}),
        _on_imagenet32(imagenet.ALLCONV32),
        _on_cifar10(imagenet.ALLCONV_TINY, _TINY_IMAGENET, {**_NARROW, "stem_width": 4}, "hours"),
        _on_imagenet(imagenet.RESNET152, _NARROW),
        _on_imagenet(imagenet.RESNET34, _NARROW),
        _on_imagenet(imagenet.ALLCNN, {"width": 0.1}),
        _on_imagenet(imagenet.ALEXNET, {"width": 0.1, "init": "he"}, {"byte_scale": False}),
    )
}
