"""RemoteEngine: an engine of elsewhere, spoken to over `playhead.speech.v1`.

Lives on the loop of its TTS. A connection carries as many utterances as the server allows; it is
opened when a stream opens, kept alive by pings, and replaced when it is found dead.
"""

import asyncio
from urllib.parse import urlsplit

import aiohttp
from livekit.agents import APIStatusError, APITimeoutError
from livekit.agents.utils import http_context
from livekit.plugins.playhead.log import logger
from livekit.plugins.playhead.speech_socket import SpeechSocket

from playhead.engine.errors import TransportError
from playhead.engine.messages import Submit
from playhead.worker.carrier import EngineStatus
from playhead.worker.client import Utterance
from playhead.worker.http.messages import PROTOCOL

PATH = "/v1/audio/speech/ws"
HEARTBEAT_S = 10.0
"""A third of the least time the server waits by default before it drops an idle connection."""
CLOSE_S = 1.0
"""How long a server may take to agree that a connection ends."""
DIAL_S = 10.0
"""For a connection that nobody waits for."""
_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


def socket_url(base_url: str) -> str:
    """Return the WebSocket's address under a base URL; raises ValueError.

    `http://host:8880`, with or without `/v1`, and `ws://...` name the same server.
    """
    wrong = f"base_url is {base_url!r}; give one such as http://127.0.0.1:8880"
    try:
        parts = urlsplit(base_url)
        named = parts.scheme in _SCHEMES and parts.hostname and parts.port != 0
    except (AttributeError, ValueError):  # no text, or no port
        raise ValueError(wrong) from None
    if not named:
        raise ValueError(wrong)
    path = parts.path.rstrip("/").removesuffix(PATH).removesuffix("/v1")
    return f"{_SCHEMES[parts.scheme]}://{parts.netloc}{path}{PATH}"


class RemoteEngine:
    """Connections to one server, and the way to ask it for an utterance."""

    def __init__(
        self, base_url: str, api_key: str | None, session: aiohttp.ClientSession | None
    ) -> None:
        """Dial nothing yet; a `session` that is given stays its owner's. Raises ValueError."""
        self.url = socket_url(base_url)
        self.model = ""
        """As the server names it; empty before the first connection."""
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._session = session
        self._own_session: aiohttp.ClientSession | None = None
        self._sockets: list[SpeechSocket] = []
        self._dialling = asyncio.Lock()
        self._early: asyncio.Task[None] | None = None
        self._status = EngineStatus()
        self._num_submitted = 0

    @property
    def ready(self) -> bool:
        """A connection is open."""
        return any(socket.open for socket in self._sockets)

    @property
    def exact_times(self) -> bool:
        """The server said that its word times have a verified error bound."""
        return self._status.exact_times

    def status(self) -> EngineStatus:
        """Return what the server said of itself when it was last dialled."""
        return self._status

    def begin(self) -> None:
        """Dial in the background, if a loop runs here; the first stream dials otherwise."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._early is None or self._early.done():
            self._early = loop.create_task(self._dial_early())

    async def client(self, limit_s: float) -> "RemoteEngine":
        """Return self, connected. Raises TransportError, or an APIError the server caused."""
        await self._free_socket(limit_s)
        return self

    async def submit(self, submit: Submit) -> Utterance:
        """Ask for an utterance and wait for admission, on a fresh connection if need be.

        A connection that broke since it was last used is found out here, before any audio, so
        the request is made again at once. Raises what EngineClient.submit raises.
        """
        self._num_submitted += 1
        name = f"{self._num_submitted}-{submit.request_id}"
        socket = await self._free_socket(DIAL_S)
        if socket.fresh:
            return await socket.submit(name, submit)
        try:
            return await socket.submit(name, submit)
        except TransportError as error:
            if socket.open:
                raise  # the server's own word: its engine is away
            logger.debug("connection was dead, dialling again: %s", error)
        socket = await self._free_socket(DIAL_S, fresh=True)
        return await socket.submit(name, submit)

    async def aclose(self) -> None:
        """Close every connection, and the session if it is our own."""
        if self._early is not None:
            self._early.cancel()
            await asyncio.wait([self._early])
        sockets, self._sockets = self._sockets, []
        for socket in sockets:
            await socket.aclose()
        if self._own_session is not None:
            await self._own_session.close()
            self._session = self._own_session = None

    async def _free_socket(self, limit_s: float, fresh: bool = False) -> SpeechSocket:
        """Return a connection with room for an utterance, dialling if there is none."""
        async with self._dialling:
            for socket in list(self._sockets):
                if not socket.open:
                    self._sockets.remove(socket)
                    await socket.aclose()
                elif socket.has_room and (socket.fresh or not fresh):
                    return socket
            socket = await self._dial(limit_s)
            self._sockets.append(socket)
            return socket

    async def _dial(self, limit_s: float) -> SpeechSocket:
        connection: aiohttp.ClientWebSocketResponse | None = None
        try:
            async with asyncio.timeout(limit_s):
                connection = await self._http().ws_connect(
                    self.url,
                    protocols=(PROTOCOL,),
                    headers=self._headers,
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                )
                socket = SpeechSocket(connection)
                self._status = await socket.greeting()
                self.model, connection = socket.model, None
        except TimeoutError:
            raise APITimeoutError(f"{self.url} did not answer in {limit_s:g} s") from None
        except aiohttp.WSServerHandshakeError as error:
            raise _refused(self.url, error.status) from None
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"{self.url}: {error or type(error).__name__}") from error
        finally:
            if connection is not None:  # it greeted wrongly or not at all
                await connection.close()
        socket.start()
        return socket

    async def _dial_early(self) -> None:
        try:
            await self.client(DIAL_S)
        except Exception as error:  # the first stream meets it again, and says so
            logger.warning("server can't be reached yet: %s", error)

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            try:
                self._session = http_context.http_session()
            except RuntimeError:  # no job runs here
                self._session = self._own_session = aiohttp.ClientSession()
        return self._session


def _refused(url: str, status: int) -> APIStatusError:
    hints = {
        400: "no such protocol there; is it a playhead server?",
        401: "give a key it knows as api_key= or PLAYHEAD_API_KEY",
        404: "no such path there; is it a playhead server?",
        503: "not ready yet",
    }
    message = f"{url} answered {status}: {hints.get(status, 'refused')}"
    return APIStatusError(message, status_code=status, retryable=status in (429, 503))
