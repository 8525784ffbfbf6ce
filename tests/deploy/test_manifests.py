"""Files an operator copies: linted, validated against bundled schemas, true to the commands."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from playhead.engine.metrics import EngineMetrics
from playhead.engine.profile import Profile
from playhead.worker.cli import build_parser
from playhead.worker.counters import RoomCounters
from playhead.worker.demo.parts import SERVER_MODULE
from playhead.worker.engine_process import STOP_S
from playhead.worker.http.prometheus import (
    config_exposition,
    engine_exposition,
    worker_exposition,
)
from playhead.worker.http.websocket import CLOSE_S
from playhead.worker.serve import SHUTDOWN_S
from tests.toxiproxy import MODULE as TOXIPROXY_MODULE

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted(
    path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml"
)
SECRET = "0123456789abcdef0123456789abcdef"
_CLOSE_S = re.search(r"^CLOSE_S = ([\d.]+)", (ROOT / "worker/app.py").read_text(), re.MULTILINE)
assert _CLOSE_S is not None
CLOSING_S = {"worker": float(_CLOSE_S[1]), "speech": SHUTDOWN_S + CLOSE_S + STOP_S}
"""What may pass between the end of a drain and that of the process."""


def tool(name: str) -> str:
    """Return a validator of the dev group, or skip."""
    here = str(Path(sys.executable).parent)
    found = shutil.which(name, path=f"{here}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=120
    )


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def containers() -> list[dict[str, Any]]:
    every = [each for path in KUBERNETES for each in documents(path)]
    deployments = [each for each in every if each["kind"] == "Deployment"]
    return [pod for each in deployments for pod in each["spec"]["template"]["spec"]["containers"]]


def test_dockerfile_passes_hadolint() -> None:
    done = run(tool("hadolint"), "--no-color", "Dockerfile")
    assert done.returncode == 0, done.stdout


def test_a_bad_dockerfile_does_not(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian\nRUN cd /tmp && sudo apt-get install gcc\n")
    assert run(tool("hadolint"), str(bad)).returncode != 0


def test_image_is_what_the_deployment_says() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert text.count("deploy/install.sh") == 2 and "USER 10001:10001" in text
    assert re.findall(r"^RUN .*", text, re.MULTILINE) == [
        "RUN --mount=type=cache,target=/root/.cache/uv UV_LINK_MODE=copy deploy/install.sh build",
        "RUN /tmp/install.sh runtime && rm /tmp/install.sh",
    ], "steps belong into install.sh, where a test runs them"
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "PLAYHEAD_PROFILE", "HEALTHCHECK", "VOLUME /cache"):
        assert name in text
    guide = (ROOT / "docs/deployment.md").read_text()
    page = text.split("HEALTH=")[1].split()[0]
    assert page in guide and "os.environ['HEALTH']" in text, "the guide says what to ask instead"


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]])
def test_compose_resolves(files: list[str]) -> None:
    flags = [flag for name in files for flag in ("-f", f"deploy/{name}")]
    command = [tool("docker-compose"), *flags, "config", "--format", "json"]
    done = run(*command, LIVEKIT_API_SECRET=SECRET)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    assert services.keys() == {"redis", "livekit", "worker", "watcher", "prometheus", "grafana"}
    assert services["worker"]["read_only"] and services["worker"]["cap_drop"] == ["ALL"]
    if len(files) > 1:
        (device,) = services["worker"]["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]
    without = run(*command, LIVEKIT_API_SECRET="")
    assert without.returncode != 0 and "32 or more characters" in without.stderr


def test_every_mounted_file_exists() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    mounted = [v for s in compose["services"].values() for v in s.get("volumes", ())]
    files = [volume.partition(":")[0] for volume in mounted if volume.startswith("./")]
    assert len(files) == 5 and all((DEPLOY / name).is_file() for name in files)


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.name)
def test_kubernetes_objects_fit_their_schemas(path: Path) -> None:
    done = run(tool("kubernetes-validate"), "--strict", "--quiet", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_kubernetes_object_does_not(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text((DEPLOY / "kubernetes/worker.yaml").read_text().replace("replicas", "replica"))
    assert run(tool("kubernetes-validate"), "--strict", "--quiet", str(bad)).returncode != 0


def test_kustomization_takes_every_file() -> None:
    (listed,) = documents(DEPLOY / "kubernetes/kustomization.yaml")
    assert sorted(listed["resources"]) == [path.name for path in KUBERNETES]


def test_pods_are_restricted_and_drain_before_they_are_killed() -> None:
    seen = {pod["name"]: pod for pod in containers()}
    assert seen.keys() == {"worker", "watcher", "speech"}
    for pod in seen.values():
        security = pod["securityContext"]
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
    for name in ("worker", "speech"):
        pod = seen[name]
        assert (
            pod["readinessProbe"]["httpGet"]["path"] == "/ready" and "preStop" in pod["lifecycle"]
        )
        assert pod["resources"]["limits"]["nvidia.com/gpu"] == 1
        (deployment,) = [
            each
            for each in documents(DEPLOY / f"kubernetes/{name}.yaml")
            if "replicas" in each["spec"]
        ]
        grace_s = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        drain_s = float(pod["args"][pod["args"].index("--drain-s") + 1])
        sleeping, pause_s = pod["lifecycle"]["preStop"]["exec"]["command"]
        assert sleeping == "sleep"
        assert grace_s > float(pause_s) + drain_s + CLOSING_S[name]


def test_compose_waits_for_the_drain_and_for_what_closes_after_it() -> None:
    worker = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["worker"]
    minutes = re.fullmatch(r"(\d+)m", worker["stop_grace_period"])
    assert minutes is not None
    drain_s = build_parser().parse_args(["worker"]).drain_s
    assert int(minutes[1]) * 60 > drain_s + CLOSING_S["worker"]


@pytest.mark.parametrize("pod", containers(), ids=lambda pod: pod["name"])
def test_commands_of_the_manifests_are_commands(pod: dict[str, Any]) -> None:
    args = build_parser().parse_args(pod["args"])
    assert callable(args.run)


def test_prometheus_configuration_is_right() -> None:
    done = run(tool("promtool"), "check", "config", "deploy/prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboard_asks_for_numbers_that_are_told() -> None:
    dashboard = json.loads((DEPLOY / "grafana/playhead.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for query in queries for name in re.findall(r"playhead_\w+", query)}
    page = engine_exposition(EngineMetrics().snapshot(), 0.0) + config_exposition(Profile())
    page += worker_exposition(RoomCounters().snapshot(), {"ready": 1, "load": 0, "rooms": 0})
    assert len(named) > 15
    assert not named - set(re.findall(r"^playhead_\w+", page, re.MULTILINE))


def test_scaling_follows_a_number_the_worker_tells() -> None:
    scaler = documents(DEPLOY / "kubernetes/scaling.yaml")[0]
    (metric,) = scaler["spec"]["metrics"]
    told = worker_exposition({}, {"load": 0.5})
    name = metric["pods"]["metric"]["name"]
    assert f"{name} 0.5\n" in told
    (rule,) = yaml.safe_load((DEPLOY / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    assert rule["name"]["as"] == name and rule["seriesQuery"].startswith(f"{name}{{")


def test_pods_are_scraped_under_the_names_that_the_scaler_asks_for() -> None:
    (rule,) = yaml.safe_load((DEPLOY / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    resources = {label: each["resource"] for label, each in rule["resources"]["overrides"].items()}
    assert resources == {"namespace": "namespace", "pod": "pod"}
    (job,) = yaml.safe_load((DEPLOY / "prometheus.kubernetes.yml").read_text())["scrape_configs"]
    made = {each["target_label"] for each in job["relabel_configs"] if "target_label" in each}
    assert {*resources, "__address__"} <= made
    for name in ("worker", "speech"):
        (deployment,) = [
            each
            for each in documents(DEPLOY / f"kubernetes/{name}.yaml")
            if each["kind"] == "Deployment"
        ]
        notes = deployment["spec"]["template"]["metadata"]["annotations"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert notes == {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(container["ports"][0]["containerPort"]),
        }
        assert (
            container["args"][container["args"].index("--port") + 1] == notes["prometheus.io/port"]
        )


def test_everything_that_is_fetched_is_pinned() -> None:
    """What an audit without a network can say: no fetched part can change unseen."""
    for module in (SERVER_MODULE, TOXIPROXY_MODULE):  # Go checks each against its checksum base
        assert re.fullmatch(r"[\w./-]+@v\d+\.\d+\.\d+", module), module
    packages = json.loads((ROOT / "worker/web/package-lock.json").read_text())["packages"]
    digests = [each["integrity"] for name, each in packages.items() if name]
    assert digests and all(each.startswith("sha512-") for each in digests)
    fetching = re.findall(r"uv pip install .*", (DEPLOY / "install.sh").read_text())
    (torch, locked, own) = fetching
    assert '"torch==$wanted"' in torch and "--require-hashes" in locked and own.endswith(" .")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    images = [each["image"] for each in compose.values()]
    images += re.findall(r"^FROM ([^$\s]\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    others = [each for each in images if not each.startswith("playhead:")]
    assert len(others) >= 5
    for image in others:
        assert re.search(r":v?\d+(\.\d+)+", image), f"{image} has no version"
