import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.engine.errors import TransportError
from playhead.engine.messages import (
    Accepted,
    Append,
    Cancel,
    Close,
    Done,
    Failed,
    Pcm,
    Playback,
    PlaybackSnapshot,
    Recording,
    Refused,
    Sampling,
    Starved,
    Submit,
    Word,
    Words,
)
from playhead.worker.carrier import EngineStatus
from playhead.worker.wire import MAX_PAYLOAD_BYTES, FrameBuffer, decode, encode

KINDS = (
    *(Submit, Append, Close, Cancel, Playback),
    *(Accepted, Refused, Pcm, Words, Starved, Done, Failed, EngineStatus),
)
PCM_HEADER = struct.pack(">BQI", 1, 1920, 2) + b"a"
finite = st.floats(allow_nan=False, allow_infinity=False)
st.register_type_strategy(float, finite)
text = st.text(max_size=40)
st.register_type_strategy(str, text)
st.register_type_strategy(int, st.integers(0, 2**31))  # counts and lengths: none is negative
messages: st.SearchStrategy[Any] = st.one_of(*(st.from_type(kind) for kind in KINDS))


@given(st.lists(messages, max_size=6), st.integers(1, 50))
def test_every_message_survives_when_cut_anywhere(sent: list[Any], cut: int) -> None:
    data = b"".join(encode(message) for message in sent)
    buffer = FrameBuffer()
    got: list[Any] = []
    for start in range(0, len(data), cut):
        got.extend(buffer.feed(data[start : start + cut]))
    assert got == sent


def test_payloads_keep_their_fields_when_a_message_has_bytes() -> None:
    submit = Submit("r", recording=Recording(b"\x01\x02", (Word("a ", 0.0, 0.5),)))
    snapshot = PlaybackSnapshot("r", 1.0, 2, 1, 1.5, 0.0, 0, "playing", "exact")
    said = Submit("r", normalize=False, pronunciations=(("SQL", "sequel"), ("Ng", "/ɪŋ/")))
    for message in (submit, said, Pcm("r", 0, b"\x00\xff" * 960, 1), Playback(snapshot)):
        assert list(FrameBuffer().feed(encode(message))) == [message]


def test_a_pcm_is_samples_behind_a_few_numbers() -> None:
    assert decode(PCM_HEADER, b"ab") == Pcm("a", 1920, b"ab", 2)
    assert encode(Pcm("a", 1920, b"ab", 2)) == struct.pack(">II", 14, 2) + PCM_HEADER + b"ab"


def test_a_message_can_go_out_under_another_id() -> None:
    for message in (Pcm("1:a", 0, b"ab", 1), Done("1:a", "stop", 1, 1), Accepted("1:a")):
        assert list(FrameBuffer().feed(encode(message, "a"))) == [replace(message, request_id="a")]


@pytest.mark.parametrize(
    ("header", "payload", "says"),
    [
        (b"{", b"", "not JSON"),
        (b"\xff\xfe", b"", "not JSON"),
        (b"[]", b"", "allowed is an object"),
        (b"{}", b"", "unknown message type None"),
        (b'{"type":"Shout"}', b"", "unknown message type 'Shout'"),
        (b'{"type":["Close"]}', b"", "unknown message type"),
        (b'{"type":"Close"}', b"", "lacks 'request_id'"),
        (b'{"type":"Close","request_id":7}', b"", "Close.request_id: got int"),
        (b'{"type":"Close","request_id":"a","x":1}', b"", "no field 'x'"),
        (b'{"type":"Close","request_id":"a"}', b"z", "belong to no field"),
        (b'{"type":"Submit","request_id":"a","seed":true}', b"", "Submit.seed: got bool"),
        (b'{"type":"Submit","request_id":"a","seed":NaN}', b"", "NaN"),
        (b'{"type":"Submit","request_id":"a","text_mode":"loud"}', b"", "'loud'"),
        (b'{"type":"Submit","request_id":"a","pronunciations":[["a"]]}', b"", "a list of 2"),
        (b'{"type":"Submit","request_id":"a","pronunciations":[["a",1]]}', b"", "got int"),
        (b'{"type":"Submit","request_id":"a","sampling":3}', b"", "not an object"),
        (
            b'{"type":"Submit","request_id":"a","recording":{"codes":4}}',
            b"ab",
            "ends 2 bytes early",
        ),
        (
            b'{"type":"Submit","request_id":"a","recording":{"codes":-1}}',
            b"",
            "holds its length",
        ),
        (b"[" * 100_000, b"", "not JSON"),
        (b'{"type":"Pcm","request_id":"a"}', b"", "unknown message type 'Pcm'"),
        (b"\x01\x00\x00", b"ab", "header of a Pcm"),
        (PCM_HEADER + b"\xff", b"ab", "header of a Pcm"),
        (b"\x02" + PCM_HEADER[1:], b"ab", "not JSON"),
    ],
)
def test_decode_says_what_is_wrong_when_a_frame_is_bad(
    header: bytes, payload: bytes, says: str
) -> None:
    with pytest.raises(TransportError, match=says.replace("(", r"\(")):
        decode(header, payload)


def test_feed_refuses_when_a_frame_is_over_the_limit() -> None:
    with pytest.raises(TransportError, match="allowed is"):
        list(FrameBuffer().feed(struct.pack(">II", 10, MAX_PAYLOAD_BYTES + 1)))


def test_encode_refuses_when_a_message_is_over_the_limit_or_no_number() -> None:
    with pytest.raises(TransportError, match="allowed is"):
        encode(Pcm("r", 0, bytes(MAX_PAYLOAD_BYTES + 2), 1))
    with pytest.raises(TransportError, match="can't be sent"):
        encode(Pcm("r", -1, b"", 1))
    with pytest.raises(TransportError, match="can't be sent"):
        encode(Submit("r", sampling=Sampling(temperature=float("nan"))))
