"""Supervisor with real children; its pauses are policy, tested apart."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from playhead.worker.supervisor import FAULT_WINDOW_S, RestartPolicy, Supervisor


class NoPause(RestartPolicy):
    def fault(self, now_s: float) -> float | None:
        return None if super().fault(now_s) is None else 0.01


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def counting(path: Path, rest: str) -> list[str]:
    return child(f"open({str(path)!r}, 'a').write('x')\n{rest}")


def test_policy_gives_up_when_three_faults_come_in_the_window() -> None:
    policy = RestartPolicy()
    pauses = [policy.fault(0.0), policy.fault(1.0), policy.fault(2.0)]
    assert pauses == [0.5, 1.0, None]


def test_policy_forgets_faults_when_they_are_old() -> None:
    policy = RestartPolicy()
    times = [number * FAULT_WINDOW_S * 0.6 for number in range(10)]
    assert all(policy.fault(now_s) is not None for now_s in times)


@pytest.mark.parametrize(("code", "starts", "exit_code"), [(0, 1, 0), (2, 1, 2), (1, 3, 1)])
def test_child_is_restarted_only_when_it_faulted(
    tmp_path: Path, code: int, starts: int, exit_code: int
) -> None:
    marks = tmp_path / "starts"
    supervisor = Supervisor(counting(marks, f"raise SystemExit({code})"), NoPause())
    assert supervisor.run(forward_signals=False) == exit_code
    assert len(marks.read_text()) == starts


def test_child_is_restarted_when_a_signal_kills_it(tmp_path: Path) -> None:
    marks = tmp_path / "starts"
    die = "import os; os.kill(os.getpid(), 9)"
    assert Supervisor(counting(marks, die), NoPause()).run(forward_signals=False) == 1
    assert len(marks.read_text()) == 3


def test_child_is_not_restarted_when_stopped(tmp_path: Path) -> None:
    marks = tmp_path / "starts"
    supervisor = Supervisor(counting(marks, "import time; time.sleep(60)"), NoPause())
    thread = threading.Thread(target=supervisor.run, kwargs={"forward_signals": False})
    thread.start()
    while not marks.exists():
        time.sleep(0.02)
    supervisor.stop(signal.SIGTERM)
    thread.join(10)
    assert not thread.is_alive() and len(marks.read_text()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_child_ends_well_when_the_supervisor_gets_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    said = tmp_path / "said"
    inner = (
        "import signal, sys, time\n"
        f"end = lambda *_: (open({str(said)!r}, 'w').write('drained'), sys.exit(0))\n"
        "signal.signal(15, end); signal.signal(2, end)\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    outer = (
        "import signal, sys; from playhead.worker.supervisor import Supervisor\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup\n"
        f"sys.exit(Supervisor([sys.executable, '-c', {inner!r}]).run())"
    )
    process = subprocess.Popen(child(outer), stdout=subprocess.PIPE, env=os.environ.copy())
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert process.wait(30) == 0
    assert said.read_text() == "drained"
    process.stdout.close()
