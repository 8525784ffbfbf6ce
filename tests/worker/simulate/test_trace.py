"""A recorded engine is replayed to the same plans and results; another policy diverges."""

import threading
import time
from pathlib import Path

import pytest

from playhead.engine.eager_runner import eager_runner
from playhead.engine.engine import Engine
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Append, Cancel, Close, Done, Pcm, Result, Submit
from playhead.engine.profile import Profile, load_profile
from playhead.engine.replay_times import load_times
from playhead.engine.scheduler import schedule
from playhead.worker.simulate.load import Load, calls
from playhead.worker.simulate.policies import greedy
from playhead.worker.simulate.trace import Diverged, Recorder, Trace, replay
from playhead.worker.simulate.world import Setup, World, small_model


def recorded(setup: Setup) -> Trace:
    trace = Trace()
    world = World(setup, recorder=Recorder(trace))
    load = Load(12.0, 3.0, 0.0, lengths="heavy", paced=0.5, interrupted=0.4, remote=0.5)
    for each in calls(load):
        world.offer(each)
    world.run(5.0)
    return trace


def test_a_trace_in_virtual_time_replays_to_identical_decisions() -> None:
    setup = Setup(load_times("h200"), load_profile("balanced"))
    trace = recorded(setup)
    assert sum(not plan.idle for plan in trace.plans) > 300
    made = replay(trace, small_model(), setup.profile)
    assert made.plans == trace.plans
    assert made.results == trace.results


def test_another_policy_diverges_from_the_trace() -> None:
    setup = Setup(load_times("h200"), load_profile("balanced"))
    with pytest.raises(Diverged):
        replay(recorded(setup), small_model(), setup.profile, policy=greedy)


@pytest.mark.slow
def test_a_real_engine_on_its_thread_replays_to_identical_decisions() -> None:
    trace, profile = Trace(), Profile()
    recorder = Recorder(trace)
    ended = threading.Event()

    def take(results: list[Result]) -> None:
        if any(isinstance(r, Done) and r.request_id == "b" for r in results):
            ended.set()

    engine = Engine(
        Path(EMBEDDED_VOICE),
        profile,
        recorder.results(take),
        make_runner=recorder.runner(eager_runner),
        clock=recorder.clock(time.monotonic),
        policy=recorder.policy(schedule),
        commands=recorder.commands,
    )
    thread = threading.Thread(target=engine.run)
    thread.start()
    engine.post(Submit("a", text="One of these is cut while it speaks, ", closed=False))
    engine.post(Submit("b", text="and the other one ", seed=1))
    engine.post(Append("b", "goes on to its end."))
    engine.post(Close("b"))
    engine.post(Cancel("a"))
    assert ended.wait(100)
    engine.stop()
    thread.join()
    made = replay(trace, EMBEDDED_VOICE, profile, drive=Engine.run)
    assert made.plans == trace.plans
    num_same = len(made.results)
    assert made.results == trace.results[:num_same]
    assert sum(len(r.pcm) for r in made.results if isinstance(r, Pcm)) > 24_000
