"""The writer of result files, for the scripts here."""

from playhead.worker.bench.result import write_result

__all__ = ["write_result"]
