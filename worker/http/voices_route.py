"""/v1/voices: the checkpoint's speakers and the stored voices of a key; these come and go."""

import asyncio
from typing import Any

from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from playhead.engine.reference_audio import MAX_BYTES
from playhead.engine.voice_store import StoredVoice
from playhead.worker.http.edge import ACCOUNT
from playhead.worker.http.fields import MAX_NAME_CHARS
from playhead.worker.http.options import LOOPBACK
from playhead.worker.http.problem import Problem
from playhead.worker.http.schema import Schema, check_object
from playhead.worker.http.service import Service
from playhead.worker.http.stored_voices import Upload
from playhead.worker.http.voices import OPENAI_VOICES

Json = dict[str, Any]
MULTIPART = "multipart/form-data"
AUDIO = "audio"
MAX_TEXT_CHARS = 2_000
_OVERHEAD_BYTES = 65_536
"""Of a body: text fields, their headers and borders."""
MAX_BODY_BYTES = MAX_BYTES + _OVERHEAD_BYTES
_TEXT = {"type": "string", "maxLength": MAX_TEXT_CHARS}
_FIELDS: dict[str, Schema] = {
    "name": {
        "type": "string",
        "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        "maxLength": MAX_NAME_CHARS,
    },
    "consent": {**_TEXT, "minLength": 8, "pattern": r"\S"},
    "transcript": _TEXT,
    "ref_text": _TEXT,
}
_AUDIO = {"type": "string", "contentMediaType": "application/octet-stream"}
_REQUIRED = ["name", AUDIO, "consent"]


def upload_schema() -> Schema:
    """Return the JSON Schema of the form of POST /v1/voices."""
    return {
        "type": "object",
        "properties": {AUDIO: _AUDIO, **_FIELDS},
        "required": _REQUIRED,
        "additionalProperties": False,
        "not": {"required": ["transcript", "ref_text"]},
    }


class VoicesRoute:
    """Lists, adds and deletes voices for one service."""

    def __init__(self, service: Service) -> None:
        """Share the service."""
        self._service = service

    async def shut(self, _: web.Application) -> None:
        """End the process that makes voices: the server goes away."""
        await self._service.voice_maker.close()

    async def list(self, request: web.Request) -> web.Response:
        """List speakers, the other names they answer to, and the stored voices of the key."""
        known = self._service.known(request[ACCOUNT])
        aliases = known.aliases.aliases(known.voices)
        listed = [_preset(voice, None) for voice in known.voices]
        listed += [_preset(name, voice) for name, voice in aliases.items()]
        if known.stored is not None:
            listed += [_stored(voice, own) for voice, own in known.stored.listed()]
        elif not known.voices:
            listed = [_preset(name, None) for name in OPENAI_VOICES]
        languages = ["auto", *known.languages]
        return web.json_response({"object": "list", "data": listed, "languages": languages})

    async def add(self, request: web.Request) -> web.Response:
        """Make a voice of an uploaded recording. Raises Problem."""
        if request.content_type != MULTIPART or "Content-Encoding" in request.headers:
            message = f"allowed is {MULTIPART}, not compressed"  # a short body could be endless
            raise Problem(415, "unsupported_media_type", message)
        account = request[ACCOUNT]
        self._check_owned()
        self._service.check_ready()
        with account.stream(), self._service.voice_maker.room():
            upload = _checked(await self._form(request))
            known = self._service.known(account)
            if known.stored is None:
                message = "the checkpoint that is loaded clones no voice; serve a base one"
                raise Problem(409, "cloning_not_supported", message)
            made = await self._service.voice_maker.make(known.stored, upload)
        return web.json_response(_stored(made, True), status=201)

    async def delete(self, request: web.Request) -> web.Response:
        """Forget one of the key's own voices; speech in it goes on. Raises Problem."""
        self._check_owned()
        name = request.match_info["voice"]
        self._service.own_voices(request[ACCOUNT]).delete(name)
        return web.json_response({"id": name.lower(), "object": "voice", "deleted": True})

    def _check_owned(self) -> None:
        """Refuse strangers: without keys, voices belong to whoever uses this machine."""
        if not self._service.keys.required and self._service.options.host not in LOOPBACK:
            message = "voices belong to keys, and this server has none; start it with --keys"
            raise Problem(403, "key_required", message)

    async def _form(self, request: web.Request) -> dict[str, bytes]:
        """Read a form of fields by name, within the server's limits. Raises Problem."""
        limit_s = self._service.options.idle_s
        if request.content_length is None:
            raise Problem(411, "length_required", "send the body with its Content-Length")
        if request.content_length > MAX_BODY_BYTES:
            raise Problem(
                413, "body_too_large", f"the form is too large; most are {MAX_BODY_BYTES} bytes"
            )
        try:
            async with asyncio.timeout(limit_s):
                return await _read(await request.multipart())
        except TimeoutError:
            message = f"the body did not come within {limit_s:g} s; send it again"
            raise Problem(408, "body_timeout", message) from None
        except (ValueError, AssertionError, RuntimeError, LookupError, HttpProcessingError):
            message = "the body is no form that can be read"
            raise Problem(400, "invalid_multipart", message) from None


async def _read(reader: MultipartReader) -> dict[str, bytes]:
    fields: dict[str, bytes] = {}
    async for part in reader:
        if not isinstance(part, BodyPartReader) or part.name is None:
            raise ValueError("a part without a name, or parts within a part")
        if part.name in fields:
            raise Problem(400, "invalid_request", "a field is given twice")
        if part.name != AUDIO and part.name not in _FIELDS:
            allowed = ", ".join((AUDIO, *_FIELDS))
            raise Problem(400, "unknown_field", f"there is an unknown field; allowed: {allowed}")
        fields[part.name] = await _value(part)
    return fields


async def _value(part: BodyPartReader) -> bytes:
    """Return a part's bytes as they came; raises Problem 413."""
    most = MAX_BYTES if part.name == AUDIO else 4 * MAX_TEXT_CHARS
    value = bytearray()
    while not part.at_eof():
        value += await part.read_chunk()
        if len(value) > most:
            message = f"{part.name} is too large; most are {most} bytes"
            raise Problem(413, "body_too_large", message, param=part.name)
    return bytes(value)


def _checked(fields: dict[str, bytes]) -> Upload:
    """Return what a form asks for; raises Problem that names the field."""
    recording = fields.pop(AUDIO, None)
    texts: Json = {}
    for name, value in fields.items():
        try:
            texts[name] = value.decode()
        except UnicodeDecodeError:
            raise Problem(400, "invalid_request", f"{name} is not UTF-8", param=name) from None
    given = check_object(texts, {"properties": _FIELDS, "required": ["name", "consent"]})
    if recording is None:
        raise Problem(400, "missing_field", f"{AUDIO} is missing", param=AUDIO)
    if "transcript" in given and "ref_text" in given:
        message = "transcript and ref_text mean the same; send one"
        raise Problem(400, "contradiction", message, param="ref_text")
    said = given.get("transcript", given.get("ref_text", ""))
    return Upload(given["name"], recording, given["consent"], said)


def _preset(name: str, alias_of: str | None) -> Json:
    return {"id": name, "object": "voice", "alias_of": alias_of, "kind": "preset"}


def _stored(voice: StoredVoice, own: bool) -> Json:
    """Return a stored voice as its owner sees it; of others' there is only how to use it."""
    listed: Json = {"id": voice.name, "object": "voice", "alias_of": None}
    listed |= {"kind": "clone" if own else "shared", "in_context": voice.in_context}
    if own:
        listed |= {
            "created_at": voice.created_s,
            "reference_s": voice.reference_s,
            "warnings": list(voice.warnings),
            "consent": voice.consent,
        }
    return listed
