"""The published results: results.json, read back."""

import json
import math
import sys
from pathlib import Path
from typing import Any

from pipelines.errors import DAMAGE_ERRORS, UserError, describe_damage
from pipelines.runtime import places

FILE, FIGURES = "results.json", "figures"
RESULTS = places.published_folder() / FILE


def read(file: Path | None = None) -> dict[str, Any]:
    """Return the document of a results.json, else of the project's; none without that file.

    Raise UserError for a file that `report` has not written so.
    """
    file = file or RESULTS
    if not file.is_file():
        return {"claims": [], "unfinished": []}
    try:
        document: dict[str, Any] = json.loads(file.read_bytes())
        for claim in [*document["claims"], *document["unfinished"]]:
            claim["claim"], claim["source"], claim["verdict"]
            for metric in claim["metrics"].values():
                if metric["mean"] is None:  # the networks diverged: JSON has no NaN
                    metric["mean"] = math.nan
    except DAMAGE_ERRORS as error:
        why = describe_damage(error).rstrip(".")
        raise UserError(
            "The project's results must be as `report` writes them. Received: "
            f"{file}: {why}. Bring it back: {places.restore_published()}"
        ) from error
    return document


def read_claims() -> dict[str, dict[str, Any]]:
    """Return the published documents of the claims by name; of a damaged file none, and say so."""
    try:
        return {each["claim"]: each for each in read()["claims"]}
    except UserError as error:
        print(f"The project's verdicts are left out. {error}", file=sys.stderr)
        return {}
