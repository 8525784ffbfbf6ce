"""The engine: text in, PCM out, one thread, no transport. Names here import no torch."""
