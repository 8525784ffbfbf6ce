"""The interpreter of a process that speaks for many: thread switches, searches for garbage.

A search for garbage stops every thread while it walks over all objects: 60 ms were seen with 400
streams, more than some listeners hold. Requests leave nothing to be found (tests hold that), a
connection leaves seven small objects of the event loop's own. So what is loaded is left out, the
search is made while nobody is spoken to, and otherwise only when very much has piled up.
"""

import gc
import sys

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
