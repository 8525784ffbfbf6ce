"""Guides for operators: their commands exist, their numbers and keys are those of the code."""

import dataclasses
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from playhead.engine.metrics import EngineMetrics
from playhead.engine.profile import EXTENDS, Profile, load_profile
from playhead.worker.cli import build_parser
from playhead.worker.counters import RoomCounters
from playhead.worker.http.prometheus import HttpCounters

ROOT = Path(__file__).resolve().parent.parent
GUIDES = {name: (ROOT / f"docs/{name}.md").read_text() for name in ("profiles", "deployment")}
GUIDES |= {name: (ROOT / f"docs/{name}.md").read_text() for name in ("tuning", "cost")}
MANIFESTS = "tests/deploy/test_manifests.py"
RUN_BY = {
    "playhead config show": "tests/engine/test_profile.py",
    "playhead config show ttfa throughput": "tests/engine/test_profile.py",
    "playhead config check my.yaml": "tests/engine/test_profile.py",
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
    "make audit": "tests/test_guides.py",
    "make fuzz": "tests/worker/http/test_fuzz.py",
    "make soak": "tests/test_guides.py",
    "make cluster": "tests/test_guides.py",
}
TARGETS = {"fuzz": "tests.bench.fuzz", "soak": "tests.bench.soak", "cluster": "tests.bench.cluster"}


def commands() -> set[str]:
    lines = [line for text in GUIDES.values() for line in text.splitlines()]
    told = [
        line.strip()
        for line in lines
        if re.match(r"    (playhead |make|docker|kubectl|[A-Z_]+=)", line)
    ]
    return {re.split(r"\s{2,}#", line)[0].strip() for line in told}


def test_every_command_is_run_or_validated_by_a_test() -> None:
    assert commands() == set(RUN_BY)
    assert all((ROOT / path).is_file() for path in RUN_BY.values())


@pytest.mark.parametrize("line", [each for each in RUN_BY if each.startswith("playhead ")])
def test_commands_parse(line: str) -> None:
    assert callable(build_parser().parse_args(shlex.split(line)[1:]).run)


@pytest.mark.parametrize(("target", "module"), [*TARGETS.items(), ("audit", "pip-audit")])
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
