"""What becomes of a claim's quoted sentences."""

from collections.abc import Mapping, Sequence

from pipelines.measurement.claim import Claim


def grades(claim: Claim, values: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Return the grade of every quotation by its place, of numbers of the published setting."""
    return {each.place: each.judge(values).grade for each in claim.printed}
