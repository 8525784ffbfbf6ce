"""The interpreter of a process that speaks for many: thread switches, searches for garbage.

A search for garbage stops every thread while it walks over all objects: 60 ms were seen with 400
streams, more than some listeners hold. Requests leave nothing to be found (tests hold that), a
connection leaves seven small objects of the event loop's own. So what is loaded is left out, the
search is made while nobody is spoken to, and otherwise only when very much has piled up.
"""

import gc
import sys

SWITCH_S = 0.0001
"""How long one thread may keep the interpreter from another that waits for it. A first audio waits
five times between the socket and the engine's thread: Python's own 5 ms would be all of it."""
MOST_OBJECTS = 200_000
"""New objects, those of live streams included, after which a search is made in any case."""
WORTH_OBJECTS = 2_000


def settle() -> None:
    """Tune the interpreter once everything is loaded."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(MOST_OBJECTS)
    sys.setswitchinterval(SWITCH_S)


def search_garbage() -> None:
    """Look for garbage if that is worth it; call it while nobody is spoken to."""
    if gc.get_count()[0] > WORTH_OBJECTS:
        gc.collect()
