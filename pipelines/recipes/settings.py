"""What settings of recipes, claims and studies say to the command line, which imports no more."""

from typing import Annotated, Literal, TypeVar, get_args

T = TypeVar("T")
HIDDEN = "no option of the command line"
Hidden = Annotated[T, HIDDEN]  # the type of a setting that the command line does not offer
Scale = Literal["smoke", "cpu", "hours", "paper"]
SCALES: tuple[str, ...] = get_args(Scale)
