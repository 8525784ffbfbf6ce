"""Two LiveKit nodes on one Redis: a drain under live calls, a killed worker, a lost node."""

import shutil

import pytest

from tests.bench.cluster import measure

pytestmark = [pytest.mark.slow, pytest.mark.livekit, pytest.mark.timeout(420)]


async def test_calls_outlive_a_rolling_drain_and_a_killed_worker_is_replaced() -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    found = await measure(nodes=2, workers=2, calls=4, turns=3)
    assert found["drain_lost_calls"] == 0
    assert found["spread_fewest_calls"] + found["spread_most_calls"] == 4
