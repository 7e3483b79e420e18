"""The claims by name: the modules in the folders of pipelines/claims, and a person's own.

A module without a leading underscore holds one claim, `CLAIM`, named after the file; nothing else
has to be edited to add one. A module of a table holds several, `ALLCNN_CIFAR10` and so on.
"""

import functools
import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any

from pipelines.errors import LISTED_BY, unknown
from pipelines.measurement import own_claims
from pipelines.measurement.claim import Claim

PACKAGE = "pipelines.claims"  # imported by name: no measurement depends on which claims there are
TABLES = ("table2",)


def names() -> list[str]:
    """Return the names of all claims; of the modules, only those of tables are imported."""
    return sorted({**own_claims.find(), **_find_claims()})


def is_claim(name: str) -> bool:
    """Return whether a claim has that name; of the project's without looking for others."""
    return name in _find_claims() or name in own_claims.find()


def project_names() -> list[str]:
    """Return the names of the project's claims, without a person's own."""
    return sorted(_find_claims())


def add(file: str) -> str:
    """Return the name of the claim in a person's own file, by which it is known from now on."""
    name = own_claims.add(file, set(_find_claims()))
    print(f"The claim is your own code, and runs as it stands: {file}", file=sys.stderr)
    return name


def own_file(name: str) -> Path | None:
    """Return the file of a person's own claim; None for the project's."""
    return None if name in _find_claims() else own_claims.find().get(name, ("", None))[1]


def load(name: str) -> Claim:
    """Return the claim of that name. Raise UserError, which lists the choices."""
    if not is_claim(name):
        raise unknown("A claim", name, names(), LISTED_BY)
    module, attribute = locate(name)
    claim: Claim = getattr(importlib.import_module(module), attribute)
    return claim


def locate(name: str) -> tuple[str, str]:
    """Return the module of a claim and its name there."""
    project = _find_claims()
    return project[name] if name in project else (own_claims.find()[name][0], "CLAIM")


def card(name: str) -> str:
    """Return the claim in words: its own, else those at the beginning of its module."""
    return (load(name).card or importlib.import_module(locate(name)[0]).__doc__ or "").strip()


def get_settings(name: str, scale: str) -> Any:
    """Return the settings of a claim at that scale. Raise UserError, which lists its scales."""
    scales = load(name).scales
    if scale not in scales:
        raise unknown(f"The scale of {name}", scale, scales)
    return scales[scale]


def _find_claims() -> dict[str, tuple[str, str]]:
    """Return by name of a claim of the project its module and its name there."""
    return _search(tuple(importlib.import_module(PACKAGE).__path__))


@functools.cache
def _search(folders: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    modules = [m for m in pkgutil.walk_packages(folders, f"{PACKAGE}.") if not m.ispkg]
    places: dict[str, tuple[str, str]] = {}
    for module in (each.name for each in modules):
        last = module.rpartition(".")[2]
        if last in TABLES:
            table = vars(importlib.import_module(module))
            each = {key: value for key, value in table.items() if isinstance(value, Claim)}
            places |= {_claim_name(key.lower()): (module, key) for key in each}
        elif not last.startswith("_"):
            places[_claim_name(last)] = (module, "CLAIM")
    return places


def _claim_name(name: str) -> str:
    return name.replace("_", "-")
