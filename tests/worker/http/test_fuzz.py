"""Random input to every surface for 15 s each; `make fuzz` goes on for ten minutes each."""

import pytest
from hypothesis import strategies as st

from tests.bench.fuzz import SURFACES, fuzz, fuzz_surface

pytestmark = pytest.mark.slow

LIMIT_S = 15.0


@pytest.mark.parametrize("surface", SURFACES)
def test_nothing_breaks(surface: str) -> None:
    tried, broken = fuzz_surface(surface, LIMIT_S)
    assert broken == []
    assert tried > 40


def test_what_breaks_is_found_and_made_small() -> None:
    def check(number: int) -> None:
        assert number < 1000

    _, broken = fuzz(st.integers(0, 100_000), check, 10.0)
    assert broken and "1000" in broken[0]
