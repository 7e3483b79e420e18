"""The page of what was found shows its counterexamples by Python that anyone can run."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "found.md"


def test_what_the_page_shows_in_python_is_what_python_answers() -> None:
    failed, attempted = doctest.testfile(str(PAGE), module_relative=False)
    assert attempted
    assert not failed
