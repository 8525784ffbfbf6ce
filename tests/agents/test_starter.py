"""The folder to copy: its agent greets, its settings are those it reads; examples are short."""

import re
from pathlib import Path

import pytest
from livekit.plugins import playhead

from playhead.engine.messages import Close
from playhead.worker.client import EngineClient
from tests.agents.fakes import ScriptedCarrier, ScriptedLLM, WordSpeaker, until
from tests.agents.test_examples import AGENTS, job_of, load_example

STARTER = AGENTS / "starter"
EXAMPLES = [*AGENTS.glob("*.py"), STARTER / "agent.py"]
_READ = re.compile(r"(?:getenv|environ\.get)\(\s*\"(\w+)\"")
_NAMED = re.compile(r"^(?:# )?(\w+)=", re.M)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_read_in_a_minute(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 100


@pytest.mark.slow
async def test_the_starter_greets_in_a_job_without_a_server() -> None:
    carrier = ScriptedCarrier(WordSpeaker())
    client = EngineClient(carrier)
    client.start()
    playhead.use_engine(client)
    try:
        starter = load_example("starter/agent")
        job = {"room": "console", "fake_job": True, "entry": "answer"}
        async with job_of(starter, ScriptedLLM(), None, **job):
            await until(lambda: bool(carrier.of(Close)))
    finally:
        playhead.use_engine(None)
    text = "".join(getattr(command, "text", "") for command in carrier.sent)
    assert text == "Hello, how can I help you?"


def test_settings_of_the_starter_are_those_that_are_read() -> None:
    """One that is set to nothing would take away what an image was built with."""
    settings = (STARTER / ".env.example").read_text(encoding="utf-8")
    sources = [STARTER / "agent.py", *(AGENTS / "plugin").glob("*.py")]
    read = {name for path in sources for name in _READ.findall(path.read_text(encoding="utf-8"))}
    sdk = {"LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"}
    assert set(_NAMED.findall(settings)) == read | sdk
    assert not re.findall(r"^PLAYHEAD_\w+=$", settings, re.M)


def test_the_image_is_built_with_its_checkpoint_and_runs_without_rights() -> None:
    lines = (STARTER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    user, fetch = lines.index("USER appuser"), lines.index("RUN python agent.py download-files")
    assert user < fetch, "whoever runs it must find the files in its own cache"
    assert lines[-1] == 'CMD ["python", "agent.py", "start"]'
