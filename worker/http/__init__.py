"""The HTTP and WebSocket face of an engine, shaped like OpenAI's speech endpoint."""
