"""Searches for garbage, in an interpreter of its own: what is tuned stays tuned."""

import subprocess
import sys

CODE = """
import gc, sys, weakref
from playhead.worker import interpreter as here

class Ring:
    def __init__(self):
        self.me = self

def ring():
    return weakref.ref(Ring())

here.settle()
assert abs(sys.getswitchinterval() - here.SWITCH_S) < 1e-9
assert gc.get_freeze_count() > 1_000, "what is loaded is left out of every search"
lost = ring()
more = [[] for _ in range(20_000)]
assert lost() is not None, "20,000 new objects start no search"
here.search_garbage()
assert lost() is None, "an idle moment does"
lost = ring()
here.search_garbage()
assert lost() is not None, "unless there is too little to be found"
most = [[] for _ in range(here.MOST_OBJECTS + 1_000)]
assert lost() is None, "and so does very much of it"
"""


def test_garbage_is_searched_for_in_idle_moments_and_when_there_is_very_much() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
