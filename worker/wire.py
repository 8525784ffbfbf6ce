"""Messages as bytes: length-prefixed frames of a header and a raw binary payload; pure.

    frame   = header length (u32 BE), payload length (u32 BE), header, payload
    header  = {"type": "Submit", ...fields in order...}; a bytes field holds its length, its bytes
              stand in the payload in the order of the fields
    header of Pcm, of which there are thousands a second
            = 0x01, start_sample (u64 BE), num_frames (u32 BE), request_id; its payload is the PCM
Decoding is strict: unknown types and keys, missing keys, wrong types, leftover payload and frames
over the limits raise TransportError; nothing is repaired.
"""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from playhead.engine.errors import TransportError
from playhead.engine.messages import (
    Accepted,
    Append,
    Cancel,
    Close,
    Command,
    Done,
    Failed,
    Pcm,
    Playback,
    Refused,
    Result,
    Starved,
    Submit,
    Words,
)
from playhead.worker.carrier import EngineStatus

MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 8 << 20
_PREFIX = struct.Struct(">II")
_PCM = struct.Struct(">BQI")
_PCM_TAG = b"\x01"
"""First byte of a Pcm's header: no JSON begins with it."""

Message = Command | Result | EngineStatus
_Encode = Callable[[Any, list[bytes]], Any]
_Decode = Callable[[Any, "_Payload"], Any]
_T = TypeVar("_T")


class _Payload:
    """Cuts a frame's payload into the bytes fields that share it."""

    def __init__(self, payload: bytes) -> None:
        self._rest = memoryview(payload)

    def take(self, num_bytes: int) -> bytes:
        if num_bytes > len(self._rest):
            raise TransportError(f"payload ends {num_bytes - len(self._rest)} bytes early")
        head, self._rest = self._rest[:num_bytes], self._rest[num_bytes:]
        return bytes(head)

    def end(self) -> None:
        if self._rest:
            raise TransportError(f"{len(self._rest)} payload bytes belong to no field")


def encode(message: Message, request_id: str | None = None) -> bytes:
    """Return the frame of a message; raises TransportError if it is over the limits.

    `request_id`: what stands there instead of the message's own.
    """
    name = type(message).__name__
    try:
        if isinstance(message, Pcm):
            header, payload = _pcm_header(message, request_id), message.pcm
        else:
            blobs: list[bytes] = []
            body = _ENCODERS[name](message, blobs)
            if request_id is not None:
                body["request_id"] = request_id
            header, payload = _to_json({"type": name, **body}).encode(), b"".join(blobs)
    except (ValueError, struct.error) as error:
        raise TransportError(f"{name} can't be sent: {error}") from None
    _check_lengths(len(header), len(payload))
    return _PREFIX.pack(len(header), len(payload)) + header + payload


def decode(header: bytes, payload: bytes) -> Message:
    """Return the message of one frame's parts; raises TransportError if anything is off."""
    if header[:1] == _PCM_TAG:
        return _pcm(header, payload)
    try:
        body = _from_json(header.decode())
    except (ValueError, RecursionError) as error:
        raise TransportError(f"header is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise TransportError(f"header is a JSON {type(body).__name__}, allowed is an object")
    name = body.pop("type", None)
    decoder = _DECODERS.get(name) if isinstance(name, str) else None
    if decoder is None:
        raise TransportError(f"unknown message type {name!r}, known: {', '.join(_DECODERS)}")
    rest = _Payload(payload)
    message = cast(Message, decoder(body, rest))
    rest.end()
    return message


class FrameBuffer:
    """Collects a byte stream and gives back whole messages."""

    def __init__(self) -> None:
        """Start empty."""
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add received bytes and yield each message they complete."""
        self._data += data
        view, start = memoryview(self._data), 0
        try:
            while len(view) - start >= _PREFIX.size:
                num_header, num_payload = _PREFIX.unpack_from(view, start)
                _check_lengths(num_header, num_payload)
                body = start + _PREFIX.size
                middle = body + num_header
                end = middle + num_payload
                if len(view) < end:
                    break
                start = end
                yield decode(bytes(view[body:middle]), bytes(view[middle:end]))
        finally:
            view.release()
            del self._data[:start]


def _pcm_header(pcm: Pcm, request_id: str | None) -> bytes:
    name = pcm.request_id if request_id is None else request_id
    return _PCM.pack(_PCM_TAG[0], pcm.start_sample, pcm.num_frames) + name.encode()


def _pcm(header: bytes, payload: bytes) -> Pcm:
    try:
        _, start_sample, num_frames = _PCM.unpack_from(header)
        return Pcm(header[_PCM.size :].decode(), start_sample, payload, num_frames)
    except (struct.error, UnicodeDecodeError) as error:
        raise TransportError(f"header of a Pcm: {error}") from None


def _check_lengths(num_header_bytes: int, num_payload_bytes: int) -> None:
    if num_header_bytes > MAX_HEADER_BYTES or num_payload_bytes > MAX_PAYLOAD_BYTES:
        raise TransportError(
            f"frame of {num_header_bytes} + {num_payload_bytes} bytes, "
            f"allowed is {MAX_HEADER_BYTES} + {MAX_PAYLOAD_BYTES}"
        )


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


# Made once: json.dumps and json.loads make new ones for each call that has options.
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_from_json = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _encoder(hint: Any) -> _Encode | None:
    """Return what turns a value of a type into JSON values; None where it is one as it stands."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _object_encoder(cast(type[Any], hint))
    if hint is bytes:
        return _encode_bytes
    if origin is tuple:
        return _tuple_encoder(_encoder(args[0])) if args[-1] is Ellipsis else None
    if origin is UnionType and (inner := _encoder(args[0])) is not None:
        return lambda value, blobs: None if value is None else inner(value, blobs)
    return None


def _encode_bytes(value: bytes, blobs: list[bytes]) -> int:
    blobs.append(value)
    return len(value)


def _tuple_encoder(item: _Encode | None) -> _Encode | None:
    if item is None:
        return None
    return lambda value, blobs: [item(entry, blobs) for entry in value]


def _object_encoder(kind: type[Any]) -> _Encode:
    hints = get_type_hints(kind)
    names = tuple(f.name for f in fields(kind))
    read = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    special = [(name, made) for name in names if (made := _encoder(hints[name])) is not None]

    def encode_object(value: Any, blobs: list[bytes]) -> dict[str, Any]:
        body = dict(zip(names, read(value), strict=True))
        for name, made in special:
            body[name] = made(body[name], blobs)
        return body

    return encode_object


def _decoder(hint: Any) -> _Decode:
    """Return the strict decoder of a type used in messages."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _object_decoder(cast(type[Any], hint))
    if hint is bytes:
        return _decode_bytes
    if hint in (str, int, float, bool):
        return _scalar_decoder(hint)
    if origin is Literal:
        return _literal_decoder(args)
    if origin is tuple and args[-1] is not Ellipsis:
        return _row_decoder([_decoder(arg) for arg in args])
    if origin is tuple:
        return _tuple_decoder(_decoder(args[0]))
    if origin is dict:
        return _dict_decoder(_decoder(args[1]))
    assert origin is UnionType and args[1] is NoneType, hint
    inner = _decoder(args[0])
    return lambda value, payload: None if value is None else inner(value, payload)


def _scalar_decoder(kind: type[Any]) -> _Decode:
    def decode_scalar(value: Any, _: _Payload) -> Any:
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            raise TransportError(f"got {type(value).__name__}, allowed is {kind.__name__}")
        return value

    return decode_scalar


def _decode_bytes(value: Any, payload: _Payload) -> bytes:
    if type(value) is not int or value < 0:
        raise TransportError("a bytes field holds its length")
    return payload.take(value)


def _literal_decoder(allowed: tuple[Any, ...]) -> _Decode:
    def decode_literal(value: Any, _: _Payload) -> Any:
        if value not in allowed:
            raise TransportError(f"got {value!r}, allowed is one of {allowed}")
        return value

    return decode_literal


def _tuple_decoder(item: _Decode) -> _Decode:
    def decode_tuple(value: Any, payload: _Payload) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TransportError(f"got {type(value).__name__}, allowed is a list")
        return tuple(item(entry, payload) for entry in value)

    return decode_tuple


def _row_decoder(items: list[_Decode]) -> _Decode:
    """Return the decoder of a tuple of a fixed length."""

    def decode_row(value: Any, payload: _Payload) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(items):
            raise TransportError(f"allowed is a list of {len(items)}")
        return tuple(item(entry, payload) for item, entry in zip(items, value, strict=True))

    return decode_row


def _dict_decoder(item: _Decode) -> _Decode:
    def decode_dict(value: Any, payload: _Payload) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TransportError(f"got {type(value).__name__}, allowed is an object")
        return {key: item(entry, payload) for key, entry in value.items()}

    return decode_dict


def _object_decoder(kind: type[_T]) -> _Decode:
    hints = get_type_hints(kind)
    decoders = {f.name: _decoder(hints[f.name]) for f in fields(cast(Any, kind))}
    required = {f.name for f in fields(cast(Any, kind)) if not _has_default(f)}

    def decode_object(value: Any, payload: _Payload) -> _T:
        if not isinstance(value, dict):
            raise TransportError(f"{kind.__name__} is a {type(value).__name__}, not an object")
        if unknown := value.keys() - decoders.keys():
            raise TransportError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
        if missing := required - value.keys():
            raise TransportError(f"{kind.__name__} lacks {sorted(missing)[0]!r}")
        given: dict[str, Any] = {}
        name = ""
        try:
            for name, field_decoder in decoders.items():
                if name in value:
                    given[name] = field_decoder(value[name], payload)
        except TransportError as error:
            raise TransportError(f"{kind.__name__}.{name}: {error}") from None
        return kind(**given)

    return decode_object


def _has_default(field: "Field[Any]") -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


_KINDS = (
    *(Submit, Append, Close, Cancel, Playback),
    *(Accepted, Refused, Words, Starved, Done, Failed),
    EngineStatus,
)
_ENCODERS = {kind.__name__: _object_encoder(kind) for kind in _KINDS}
_DECODERS: dict[str, _Decode] = {kind.__name__: _object_decoder(kind) for kind in _KINDS}
