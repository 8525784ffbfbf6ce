"""What only a search for garbage would find."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def left_behind() -> Iterator[set[str]]:
    """Fill a set with the names of our types of which objects were left in cycles meanwhile."""
    found: set[str] = set()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        names = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
        found |= {name for name in names if name.startswith("playhead.")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
