"""Guides for operators: their commands exist, their numbers and keys are those of the code."""

import dataclasses
import re
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from playhead.engine.metrics import EngineMetrics
from playhead.engine.profile import EXTENDS, Profile, load_profile
from playhead.worker.cli import build_parser
from playhead.worker.counters import RoomCounters
from playhead.worker.http.prometheus import HttpCounters

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("api", "websocket", "voices", "profiles", "deployment", "tuning", "cost", "simulator")
GUIDES = {name: (ROOT / f"docs/{name}.md").read_text() for name in NAMES}
MANIFESTS = "tests/deploy/test_manifests.py"
GUIDE_TEST = "tests/worker/http/test_guide.py"
VOICES_TEST = "tests/worker/http/test_voices.py"
VOICE_COMMANDS = "tests/worker/test_voice_command.py"
BASE, NAMED = (f"Qwen/Qwen3-TTS-12Hz-1.7B-{kind}" for kind in ("Base", "CustomVoice"))
SIMULATED = "tests/worker/simulate/test_simulate_command.py"
RUN_BY = {
    "playhead config show": "tests/engine/test_profile.py",
    "playhead config show ttfa throughput": "tests/engine/test_profile.py",
    "playhead config check my.yaml": "tests/engine/test_profile.py",
    "playhead download 1.7b-base": "tests/worker/test_download.py",
    "playhead download 1.7b-customvoice --revision COMMIT": "tests/worker/test_download.py",
    f"playhead voice add anna anna.wav --model {BASE}": VOICE_COMMANDS,
    f'playhead say "Hello." -o hello.wav --voice anna --model {BASE}': VOICE_COMMANDS,
    "playhead voice list": VOICE_COMMANDS,
    "playhead voice delete anna": VOICE_COMMANDS,
    f"playhead verify {NAMED} --profile balanced": "tests/worker/test_verify.py",
    "playhead watch": "tests/worker/test_watcher.py",
    "playhead serve --gpus all": "tests/worker/test_fleet.py",
    "playhead serve --engines 2": "tests/worker/test_fleet.py",
    "docker build -t playhead .": MANIFESTS,
    "docker build -t playhead:cpu --build-arg BASE=debian:bookworm-slim --build-arg "
    "TORCH_INDEX=URL .": MANIFESTS,
    "LIVEKIT_API_SECRET=$(openssl rand -hex 24) docker compose "
    "-f deploy/compose.yaml up": MANIFESTS,
    "kubectl create namespace playhead": MANIFESTS,
    "kubectl -n playhead create secret generic playhead --from-env-file=secret.env": MANIFESTS,
    "kubectl apply -k deploy/kubernetes": MANIFESTS,
    "make audit": "tests/tools/test_audit.py",
    "make fuzz": "tests/worker/http/test_fuzz.py",
    "make soak": "tests/test_guides.py",
    "make cluster": "tests/test_guides.py",
    "docker run --read-only -v cache:/cache -p 8880:8880 --env-file keys.env -e "
    "HEALTH=http://127.0.0.1:8880/health playhead:cpu serve --host 0.0.0.0": MANIFESTS,
    "playhead serve": "tests/worker/http/test_serve.py",
    "curl localhost:8880/v1/audio/speech -H 'Content-Type: application/json' -d "
    """'{"input": "Hello there.", "voice": "nova"}' -o hello.mp3""": GUIDE_TEST,
    "curl localhost:8880/v1/voices -F name=anna -F audio=@anna.wav -F consent='Anna Example agreed "
    "on 2026-11-30 to be our narrator' -F transcript='What the recording says.'": VOICES_TEST,
    "playhead serve --record traces/": SIMULATED,
    "playhead simulate": SIMULATED,
    "playhead simulate --parts fleet --gpus 1000": SIMULATED,
    "playhead simulate --times h100_scaled": SIMULATED,
    "playhead simulate --parts trace --trace traces/engine-4711.jsonl": SIMULATED,
    "playhead simulate --parts policies,interruptions,mixed,overload,fleet,trace,measured "
    "--gpus 1000 --measured tests/bench/results/serve-h200.json": SIMULATED,
}
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()
"""Its commands are run small by tests/worker/bench; here their flags are parsed."""
TARGETS = {"fuzz": "tests.bench.fuzz", "soak": "tests.bench.soak", "cluster": "tests.bench.cluster"}


def commands(texts: Iterable[str]) -> set[str]:
    """Return the commands of indented blocks, without comments, continued lines joined."""
    joined = [re.sub(r" \\\n +", " ", text) for text in texts]
    told = re.findall(
        r"^    ((?:playhead |make|docker|kubectl|curl|python|[A-Z_]+=).*)", "\n".join(joined), re.M
    )
    return {re.split(r"\s{2,}#", line)[0].strip() for line in told}


GUIDED, MEASURED = commands(GUIDES.values()), commands([BENCHMARKS])


def test_every_command_is_run_or_validated_by_a_test() -> None:
    assert set(RUN_BY) == GUIDED
    assert all((ROOT / path).is_file() for path in RUN_BY.values())


@pytest.mark.parametrize(
    "line",
    sorted(line for line in GUIDED | MEASURED if re.search(r"(^|\d |health )playhead[ :]", line)),
)
def test_commands_parse(line: str) -> None:
    words = shlex.split(line.removesuffix("&").replace("playhead:cpu", "playhead"))
    assert callable(build_parser().parse_args(words[words.index("playhead") + 1 :]).run)


def test_every_program_of_the_benchmarks_is_there() -> None:
    programs = [name for line in MEASURED for name in re.findall(r"-m tests\.bench\.(\w+)", line)]
    assert {"numerics", "pumps", "room_truth"} <= set(programs)
    assert all((ROOT / f"tests/bench/{name}.py").is_file() for name in programs)


@pytest.mark.parametrize(("target", "module"), [*TARGETS.items(), ("audit", "tools/audit.py")])
def test_make_has_what_the_guides_name(target: str, module: str) -> None:
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and module in done.stdout


def test_every_number_the_guides_name_is_told() -> None:
    engine = {f"playhead_engine_{name}" for name in [*EngineMetrics().snapshot(), "load"]}
    rooms = {f"playhead_room_{name}" for name in RoomCounters().snapshot()}
    worker = {f"playhead_worker_{name}" for name in ("load", "ready", "rooms")}
    http = set(re.findall(r"^(playhead_\w+)", HttpCounters().exposition(ready=True), re.MULTILINE))
    told = {*engine, *rooms, *worker, *http, "playhead_config_info"}
    for name, text in GUIDES.items():
        named = set(re.findall(r"playhead_(?:engine|room|worker|http|config)_\w+", text))
        assert named <= told, f"{name}: {sorted(named - told)}"
    assert len(re.findall(r"playhead_engine_\w+", GUIDES["tuning"])) > 8


def test_every_key_the_tuning_page_turns_is_a_key() -> None:
    keys = {field.name for field in dataclasses.fields(Profile)}
    rows = [line.split("|") for line in GUIDES["tuning"].splitlines() if line.startswith("| ")][1:]
    turned = {key for row in rows for key in re.findall(r"`([a-z][a-z_]+)`", row[3])}
    assert turned - {"ttfa", "throughput"} <= keys
    assert len(turned & keys) >= 8


def test_the_profile_of_the_guide_loads(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDES["profiles"], re.DOTALL)
    assert block.startswith(f"{EXTENDS}: balanced")
    (tmp_path / "my.yaml").write_text(block)
    profile = load_profile(str(tmp_path / "my.yaml"))
    assert (profile.max_streams, profile.target_s) == (400, 0.6)


def test_the_cost_formula_is_money_for_speech() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDES["cost"], re.DOTALL)
    scope: dict[str, object] = {}
    exec(block, scope)
    cost = scope["cost_per_million_chars"]
    assert callable(cost)
    # one stream, always busy, for 3.60 an hour: 0.001 a second, 0.065 s a character
    assert cost(3.60, 1, 1.0) == pytest.approx(65.0)
    assert cost(3.60, 100, 0.5) == pytest.approx(65.0 / 50)


def test_links_lead_somewhere() -> None:
    for name, text in GUIDES.items():
        for target in re.findall(r"\]\(([\w./]+\.md)\)", text):
            assert (ROOT / "docs" / target).is_file(), (name, target)
        for path in re.findall(r"`((?:docs|deploy|tests|engine)/[\w./]+)`", text):
            assert (ROOT / path).exists(), (name, path)
