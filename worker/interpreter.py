"""What a process that speaks for many asks of its interpreter and of the system: thread switches,
searches for garbage, the engine's priority.

A search for garbage stops every thread while it walks over all objects: 60 ms were seen with 400
streams, more than some listeners hold. Requests leave nothing to be found (tests hold that), a
connection leaves seven small objects of the event loop's own. So what is loaded is left out, the
search is made while nobody is spoken to, and otherwise only when very much has piled up.
"""

import contextlib
import gc
import os
import sys
import threading

HANDOVER_S = 0.0001
"""How long one thread may keep the interpreter from another that waits for it, where few threads
share it: a first audio waits five times between the socket and the engine's thread, Python's own
5 ms would be all of it. Where every room has threads of its own, nobody would get his step done:
ten rooms were heard 441 ms after the first token (p95) with 7 gaps; with 5 ms, in the three runs
beside it, 252 to 270 ms with none.
"""
MOST_OBJECTS = 200_000
"""New objects, those of live streams included, after which a search is made in any case."""
WORTH_OBJECTS = 2_000
ENGINE_NICE = -10
"""The engine makes the sound that everybody else only moves. Of ten rooms, two speaking with the
embedded voice, on two cores that this more than filled, most replies were refused where all threads
were alike: a frame took 47 to 59 ms, and 36 to 40 with this (25 without rooms).
"""


def go_first() -> None:
    """Let this thread have a core before threads of ordinary priority, where the system allows it
    (root, CAP_SYS_NICE or a nice limit of -10; Linux)."""
    if sys.platform == "linux":  # elsewhere a thread has no niceness of its own
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), ENGINE_NICE)


def settle() -> None:
    """Keep searches for garbage away from what is loaded; call it once everything is."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MOST_OBJECTS)


def hand_over_at_once() -> None:
    """Let threads that wait have the interpreter soon: for a process of few threads."""
    sys.setswitchinterval(HANDOVER_S)


def search_garbage() -> None:
    """Look for garbage if that is worth it; call it while nobody is spoken to."""
    if gc.get_count()[0] > WORTH_OBJECTS:
        gc.collect()
