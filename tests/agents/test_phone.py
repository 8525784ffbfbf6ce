"""Telephone: deploy/sip as the server reads it, and a call that is picked up late."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf.json_format import Parse
from livekit import api, rtc
from livekit.plugins import playhead

from playhead.engine.messages import Playback, Submit
from playhead.worker.demo.server import Access
from playhead.worker.listener import Listener
from tests.agents.conftest import RealEngine
from tests.agents.fakes import ScriptedLLM, until
from tests.agents.test_examples import job_of, load_example

AUDIBLE = 600
"""Sample value that counts as sound."""
SIP = Path(__file__).parents[2] / "deploy" / "sip"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("inbound-trunk", api.CreateSIPInboundTrunkRequest),
        ("outbound-trunk", api.CreateSIPOutboundTrunkRequest),
        ("dispatch-rule", api.CreateSIPDispatchRuleRequest),
    ],
)
def test_sip_files_are_what_the_server_takes(name: str, kind: type) -> None:
    request = Parse((SIP / f"{name}.json").read_text(), kind())
    if name == "dispatch-rule":
        (agent,) = request.dispatch_rule.room_config.agents
        assert agent.agent_name == load_example("phone_bot").AGENT_NAME


async def test_a_callee_who_is_gone_before_it_answers_is_not_waited_for() -> None:
    phone_bot = load_example("phone_bot")
    callee = SimpleNamespace(identity="callee", attributes={phone_bot.CALL_STATUS: "ringing"})
    room = rtc.EventEmitter()  # type: ignore[var-annotated]
    room.remote_participants = {"callee": callee}  # type: ignore[attr-defined]
    waiting = asyncio.create_task(phone_bot.answered(room, callee))
    await asyncio.sleep(0)
    room.emit("participant_attributes_changed", {}, callee)
    await asyncio.sleep(0)
    assert not waiting.done()
    room.remote_participants.clear()  # type: ignore[attr-defined]
    room.emit("participant_disconnected", callee)
    assert await waiting is False


@pytest.mark.livekit
@pytest.mark.slow
async def test_greeting_waits_until_the_callee_answers(
    real_engine: RealEngine, livekit_server: Access, room_name: str
) -> None:
    phone_bot = load_example("phone_bot")
    playhead.use_engine(real_engine.client)
    callee = Listener()
    room_info = api.Room(sid="RM_test", name=room_name)
    token = livekit_server.token("phone-bot", room_name, kind="agent")
    job = {"room": room_name, "room_info": room_info, "token": token}
    grants = api.VideoGrants(room_join=True, room=room_name, can_update_own_metadata=True)
    ringing = api.AccessToken(livekit_server.key, livekit_server.secret).with_kind("sip")
    ringing = ringing.with_identity("callee").with_grants(grants)
    ringing = ringing.with_attributes({phone_bot.CALL_STATUS: "ringing"})
    try:
        async with job_of(phone_bot, ScriptedLLM(), livekit_server, entry="talk", **job):
            await callee.join(livekit_server.url, ringing.to_jwt())
            await until(lambda: len(callee.recording.pcm()) > 24_000)
            assert not real_engine.carrier.of(Submit)
            assert np.abs(callee.recording.pcm()).max() < AUDIBLE
            await callee.room.local_participant.set_attributes({phone_bot.CALL_STATUS: "active"})
            await until(lambda: phone_bot.GREETING in "".join(callee.captions))
            assert np.abs(callee.recording.pcm()).max() > AUDIBLE
            assert real_engine.carrier.of(Playback)
    finally:
        await callee.leave()
        playhead.use_engine(None)
