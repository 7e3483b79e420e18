"""The schema of an export: names of members, and the shapes of the manifest and of a run."""

import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, FailFast, Field, Strict, ValidationError
from pydantic import model_validator as validator

from pipelines.errors import UserError
from pipelines.tracking.store import ORIGIN, PARENT

VERSION = 1
ENDED = ("FINISHED", "FAILED", "KILLED")
IMPORTING = "importing"  # tag of a run that is not yet all here
READY = "READY"  # a model that is stored whole
EXPORT_AGAIN = "Nothing was imported: export the runs again, and copy the file whole."
LEAVE_OUT = "Leave its run out, with names or --filter."

Value = TypeVar("Value")
Kind = TypeVar("Kind", bound="Shape")
Each = Annotated[list[Value], FailFast()]  # one of millions of wrong values is said
ByName = Annotated[dict["Name", Value], FailFast()]
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Name = Annotated[Text, Field(min_length=1, max_length=250)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Moment = Annotated[int, Field(gt=0, lt=2**63)]  # milliseconds since 1970; 0 is none to MLflow
Number = float | None  # finite; null is how NaN is kept
RunId = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Point = Annotated[tuple[Integer, Count, Number], Strict(False)]  # step, milliseconds, value
ModelPoint = Annotated[  # its metric, step, milliseconds, value, and a data set's name and digest
    tuple[Name, Integer, Count, Number, Name | None, Name | None], Strict(False)
]


class Shape(BaseModel):
    """Part of a document: it has the keys that are named here, and values of just these types."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    @validator(mode="before")
    @classmethod
    def _refuse_many_keys(cls, value: Any) -> Any:
        """Raise ValueError for more keys than there are, each of which would be an error."""
        if isinstance(value, dict) and len(value) > len(cls.model_fields):
            raise ValueError("too many keys")
        return value


class Member(Shape):
    """A file in the archive."""

    bytes: Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Dataset(Shape):
    """Data that a run has read; `schema` in the document."""

    name: Text
    digest: Text
    source_type: Name
    source: Text
    schema_: Text | None = Field(alias="schema")
    profile: Text | None
    tags: ByName[Text]


class Model(Shape):
    """A network that a run has stored."""

    model_id: Annotated[str, Field(pattern="^m-[0-9a-f]{32}$")]
    name: Name
    type: Name | None
    status: Literal["UNSPECIFIED", "PENDING", "READY", "FAILED"]
    step: Integer | None
    params: ByName[Text]
    tags: ByName[Text]
    metrics: Each[ModelPoint]


class Named(Shape):
    """Fields that a run and its line of the manifest share."""

    run_id: RunId
    name: Name
    experiment: Name
    status: Literal["FINISHED", "FAILED", "KILLED"]


class Document(Named):
    """A run: everything but its files."""

    start_ms: Moment
    end_ms: Moment | None
    params: ByName[Text]
    tags: ByName[Text]
    metrics: ByName[Each[Point]]
    datasets: Each[Dataset]
    models: Each[Model]


class Listed(Named):
    """The manifest's line about a run, with some of its tags."""

    origin: RunId
    parent: Text | None
    kind: Text | None
    claim: Text | None
    recipe: Text | None
    fingerprint: Text | None
    scale: Text | None

    @classmethod
    def of(cls, run: Document) -> Self:
        """Return what the manifest says of this run."""
        tags: dict[str, Any] = {key: run.tags.get(key) for key in cls.model_fields}
        tags |= {"parent": run.tags.get(PARENT), "origin": run.tags.get(ORIGIN, run.run_id)}
        return cls.model_construct(**tags | {key: getattr(run, key) for key in Named.model_fields})


class Manifest(Shape):
    """The list of an archive's contents."""

    version: Literal[1]
    commit: Text
    packages: Each[Text]
    experiments: ByName[Text]  # names, by the ids that links have
    runs: Each[Listed]
    members: Annotated[dict[Text, Member], FailFast()]


def validate(kind: type[Kind], value: object, place: str, fix: str = EXPORT_AGAIN) -> Kind:
    """Return a value as its kind of document. Raise UserError where it differs."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = " ".join([place, *map(str, first["loc"])])
        reasons = {"missing": f"{where} is missing", "extra_forbidden": f"{where} is not known"}
        reason = reasons.get(first["type"], f"{where} = {first['input']!r:.60}")
        rule = "A document must have the keys and types of its version."
        raise refusal(rule, reason, fix) from error


def refusal(rule: str, received: str, fix: str = EXPORT_AGAIN) -> UserError:
    """Return the sentence for a file that is not imported, or a run that is not written."""
    return UserError(f"{rule} Received: {received[:300]}. {fix}")


def manifest_of(document: dict[str, Any]) -> Manifest:
    """Return a manifest. Raise UserError for one of another version or shape."""
    if document.get("version") != VERSION:
        raise refusal(f"The manifest must be of version {VERSION}.", str(document.get("version")))
    manifest = validate(Manifest, document, "manifest.json")
    used = {run.experiment for run in manifest.runs}
    if used != set(manifest.experiments.values()):
        raise refusal("The manifest must name the experiments of its runs.", ", ".join(used))
    return manifest


def run_of(document: dict[str, Any], listed: Listed) -> Document:
    """Return a run. Raise UserError for one of another shape, or another than the manifest says."""
    run = validate(Document, document, f"runs/{listed.run_id}.json")
    if Listed.of(run) != listed:
        raise refusal("A run must be as the manifest says.", f"another {listed.run_id}")
    models = [model.model_id for model in run.models]
    if len(set(models)) != len(models):
        raise refusal("A run must name a model once.", ", ".join(models))
    return run


def wrong_name(name: str) -> str:
    """Return the rule that the name of a member breaks, however it is quoted; empty: none."""
    while (decoded := unquote(name)) != name:  # a server will do so
        name = decoded
    parts = name.split("/")
    rules = {
        "A name must be relative: no / before it, no drive letter.": name.startswith("/")
        or any(re.match("[A-Za-z]:", part) for part in parts),
        "A name must not have .., . or nothing between two /.": bool({"..", ".", ""} & {*parts}),
        "A name must have no backslash, # or control character.": any(
            c in "\\#" or not c.isprintable() for c in name
        ),
        "A name must be short: 255 bytes between two /, 1000 in all.": len(name) > 1000
        or any(len(part.encode(errors="replace")) > 255 for part in parts),
    }
    return next((rule for rule, broken in rules.items() if broken), "")


def check_tree(names: Collection[str]) -> None:
    """Raise UserError for a name that comes twice, or is a folder of another."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise refusal("No member may be there twice.", name)
        seen.add(name)
    for name in names:
        if not seen.isdisjoint(map(str, PurePosixPath(name).parents)):
            raise refusal("No member may be a folder too.", name)
