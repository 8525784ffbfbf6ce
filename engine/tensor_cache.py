"""TensorCache: tensors that are slow to compute again, by what they were made of."""

from collections import OrderedDict
from collections.abc import Hashable

from torch import Tensor


class TensorCache:
    """Bounded by bytes; the least recently used goes first."""

    def __init__(self, limit_bytes: int) -> None:
        """Hold nothing yet."""
        self._held: OrderedDict[Hashable, Tensor] = OrderedDict()
        self._limit_bytes = limit_bytes
        self._num_bytes = 0

    def get(self, key: Hashable) -> Tensor | None:
        """Return what is held under `key`."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: Hashable, value: Tensor) -> None:
        """Hold `value` under a key that holds nothing; one above the limit is not kept."""
        if value.nbytes > self._limit_bytes:
            return
        self._held[key] = value
        self._num_bytes += value.nbytes
        while self._num_bytes > self._limit_bytes:
            self._num_bytes -= self._held.popitem(last=False)[1].nbytes
