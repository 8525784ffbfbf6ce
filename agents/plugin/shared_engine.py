"""SharedEngine: one engine for all sessions of a process, loaded or connected at first need.

Jobs that are threads of one process share it; a job that is a process of its own should name the
socket of an engine beside it, or it loads the weights once per call. Any thread.
"""

import asyncio
import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from livekit.plugins.playhead.log import logger

from playhead.engine.errors import ConfigError, PlayheadError
from playhead.worker.client import EngineClient
from playhead.worker.socket_carrier import SocketCarrier
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker

EMBEDDED_MODEL = "embedded"
DEFAULT_PROFILE = "cpu"

_lock = threading.Lock()
_shared: dict[tuple[str, str], "SharedEngine"] = {}
_default: "SharedEngine | None" = None


class SharedEngine:
    """An engine client that is made once, off the event loop, for whoever asks."""

    def __init__(self, connect: Callable[[], EngineClient], *, renew: bool = False) -> None:
        """Take how to make a started client; `renew`: make another one if its engine ended."""
        self._connect = connect
        self._renew = renew
        self._lock = threading.Lock()
        self._client: Future[EngineClient] | None = None

    @property
    def ready(self) -> bool:
        """The client is there and its engine answers."""
        client = self._made()
        return client is not None and client.status().ready

    @property
    def exact_times(self) -> bool:
        """The engine is ready and its word times have a verified error bound."""
        client = self._made()
        return client is not None and client.status().exact_times

    def begin(self) -> "Future[EngineClient]":
        """Start making the client if nobody has; returns at once."""
        with self._lock:
            if self._client is None or self._useless(self._client):
                self._client = Future()
                self._client.set_running_or_notify_cancel()  # no waiter can cancel it for others
                threading.Thread(
                    target=self._make, args=(self._client,), name="playhead-load", daemon=True
                ).start()
            return self._client

    async def client(self, limit_s: float | None = None) -> EngineClient:
        """Return the client; raises what making it raised.

        `limit_s` is for connections to elsewhere: a model may take minutes to load.
        """
        return await asyncio.wrap_future(self.begin())

    async def aclose(self) -> None:
        """Leave the engine to the other sessions that speak through it."""

    def close(self) -> None:
        """Close the client if one was made."""
        client = self._made()
        if client is not None:
            client.close()

    def _made(self) -> EngineClient | None:
        future = self._client
        if future is None or not future.done() or future.exception() is not None:
            return None
        return future.result()

    def _useless(self, future: "Future[EngineClient]") -> bool:
        if not future.done():
            return False
        if future.exception() is not None:
            return True
        return self._renew and not future.result().status().ready

    def _make(self, future: "Future[EngineClient]") -> None:
        try:
            client = self._connect()
        except BaseException as error:
            logger.warning("engine did not start: %s", error)
            future.set_exception(error)
        else:
            future.set_result(client)


def use_engine(client: EngineClient | None) -> None:
    """Have each `TTS()` made from now on speak through a started client; None: as before.

    For a program that runs an engine anyway, or whose jobs are threads beside one.
    """
    global _default
    _default = None if client is None else given_engine(client)


def lent_engine() -> SharedEngine | None:
    """Return the engine that `use_engine` lent."""
    return _default


def own_engine(model: str, profile: str) -> SharedEngine:
    """Return the engine this process loads; equal settings give the same one, whoever asks."""
    return _share((model, profile), lambda: load_engine(model, profile), renew=True)


def given_engine(engine: EngineClient | str | Path) -> SharedEngine:
    """Return a started client, which stays its owner's to close, or the engine behind a socket."""
    if isinstance(engine, EngineClient):
        client = engine
        return SharedEngine(lambda: client)
    path = Path(engine)
    return _share(("socket", str(path)), lambda: connect_socket(path), renew=False)


def connect_socket(path: Path) -> EngineClient:
    """Connect to an engine process of this machine; raises TransportError if none answers."""
    client = EngineClient(SocketCarrier(path))
    client.start()
    return client


def load_engine(model: str, profile: str) -> EngineClient:
    """Load a model into this process and start it; raises ConfigError or CheckpointError."""
    maker = engine_maker(None if model == EMBEDDED_MODEL else model, profile)
    client = EngineClient(ThreadCarrier(maker))
    try:
        client.start()
    except ImportError as error:
        raise ConfigError(
            f"this process can't run an engine ({error}); install 'playhead[engine]', "
            "or give engine= the socket of a running one"
        ) from error
    return client


def fetch_model(model: str) -> None:
    """Download a checkpoint unless it is here; raises CheckpointError or ConfigError."""
    if model == EMBEDDED_MODEL:
        logger.info("nothing to download: the voice is part of the package")
        return
    try:
        from playhead.engine.models.loader import load_model
    except ImportError as error:
        raise ConfigError(f"install 'playhead[engine]' to fetch models ({error})") from error
    logger.info("model is in %s", load_model(model).folder)


def _share(key: tuple[str, str], connect: Callable[[], EngineClient], renew: bool) -> SharedEngine:
    with _lock:
        if key not in _shared:
            _shared[key] = SharedEngine(connect, renew=renew)
        return _shared[key]


@atexit.register
def _close_shared() -> None:
    for engine in _shared.values():
        try:
            engine.close()
        except PlayheadError as error:
            logger.warning("engine did not close: %s", error)
