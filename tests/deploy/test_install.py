"""install.sh in a clean Debian root, then the worker in it as a container would run it."""

import json
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from playhead.worker.demo.server import Access, free_port
from tests.deploy.clean_root import ROOT, CleanRoot, missing
from tests.worker.people import Person

pytestmark = [pytest.mark.slow, pytest.mark.livekit, pytest.mark.timeout(540)]

DASHBOARD = json.loads((ROOT / "deploy/grafana/playhead.json").read_text())
SAID = "A clean machine speaks."


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanRoot]:
    if reason := missing():
        pytest.skip(f"no clean Debian root: {reason}")
    folder = tmp_path_factory.mktemp("debian")
    made = CleanRoot(folder / "root")
    made.bootstrap()
    made.copy_sources()
    made.install("build")
    made.install("runtime")
    shutil.rmtree(made.folder / "src")
    yield made
    shutil.rmtree(folder, ignore_errors=True)


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def until(condition: Callable[[], Any], what: str, limit_s: float = 120) -> Any:
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            if found := condition():
                return found
        except (OSError, ValueError):
            pass
        assert time.monotonic() < deadline_s, what
        time.sleep(0.2)


@pytest.fixture(scope="module")
def worker(root: CleanRoot, livekit_server: Access) -> Iterator[str]:
    """Start the image's default command; return where its pages are."""
    port = free_port()
    image = (ROOT / "Dockerfile").read_text()
    env = {"PATH": "/opt/playhead/bin:/usr/bin:/bin", "PYTHONSAFEPATH": "1"}
    for name in ("HOME", "TMPDIR", "HF_HOME", "TRITON_CACHE_DIR", "PLAYHEAD_LOG_FORMAT"):
        env[name] = image.split(f"{name}=")[1].split()[0]
    assert env["TMPDIR"] == "/cache" and env["PLAYHEAD_LOG_FORMAT"] == "json"
    env |= livekit_server.environment()
    log = root.cache.with_name("worker.log")
    command = root.command(["playhead", "worker", "--host", "127.0.0.1", "--port", str(port)])
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: json.loads(fetch(f"{url}/ready"))["status"] == "ready", log.read_text())
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
        for line in log.read_text().splitlines():
            assert {"time", "level", "logger", "message"} <= json.loads(line).keys(), line
        assert SAID not in log.read_text() and livekit_server.secret not in log.read_text()


def test_the_user_may_write_to_the_cache_and_nowhere_else(root: CleanRoot) -> None:
    script = "id -u; for d in / /opt /opt/playhead /tmp /var/tmp /usr /etc /home /cache; do "
    script += 'touch "$d/x" 2>/dev/null && echo "$d"; done; true'
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(root.command(["sh", "-c", script]), env=env, capture_output=True)
    assert done.stdout.decode().split() == ["10001", "/cache"], done.stderr


def test_a_wrong_step_is_refused() -> None:
    done = subprocess.run(["sh", str(ROOT / "deploy/install.sh"), "all"], capture_output=True)
    assert done.returncode == 2 and b"build or runtime" in done.stderr


def as_a_pod(worker: str) -> dict[str, Any]:
    """Return the cluster's scrape job with what its discovery would say of the worker."""
    config = yaml.safe_load((ROOT / "deploy/prometheus.kubernetes.yml").read_text())
    (job,) = config["scrape_configs"]
    (sought,) = job.pop("kubernetes_sd_configs")
    assert sought == {"role": "pod", "namespaces": {"names": ["playhead"]}}
    host, _, port = worker.removeprefix("http://").partition(":")
    found = {"namespace": "playhead", "pod_name": "worker-1"}
    found |= {
        f"pod_annotation_prometheus_io_{k}": v for k, v in (("scrape", "true"), ("port", port))
    }
    labels = {f"__meta_kubernetes_{name}": value for name, value in found.items()}
    return {
        **job,
        "job_name": "pods",
        "static_configs": [{"targets": [f"{host}:1"], "labels": labels}],
    }


def scaler_query(space_label: str, space: str, pod_label: str, pod: str) -> str:
    """Return what the metrics adapter asks Prometheus for when the scaler asks it."""
    (rule,) = yaml.safe_load((ROOT / "deploy/prometheus-adapter.yaml").read_text())["rules"][
        "custom"
    ]
    query = str(rule["metricsQuery"]).replace("<<.Series>>", rule["name"]["as"])
    matchers = f'{space_label}="{space}",{pod_label}=~"{pod}"'
    query = query.replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", pod_label)
    assert "<<" not in query
    return query


async def test_the_worker_speaks_from_a_read_only_root(
    worker: str, livekit_server: Access, room_name: str
) -> None:
    async with Person(livekit_server, room_name, "ann") as ann:
        await ann.until(lambda: ann.worker, 30)
        await ann.say(SAID, "r1")
        assert (await ann.end_of("r1", limit_s=40))["heard_text"] == SAID


def test_every_dashboard_query_finds_the_workers_numbers(worker: str, tmp_path: Path) -> None:
    """Scrape the worker with a real Prometheus and ask it what the dashboard asks."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    port = free_port()
    config = (ROOT / "deploy/prometheus.yml").read_text()
    config = config.replace("worker:8081", worker.removeprefix("http://")).replace("5s", "1s")
    jobs = yaml.safe_load(config)
    jobs["scrape_configs"].append(as_a_pod(worker))
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(jobs))
    command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml"]
    command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=tmp_path)
    try:
        queries = [t["expr"] for panel in DASHBOARD["panels"] for t in panel["targets"]]
        assert len(queries) > 15
        queries += ["count by (namespace, pod) (playhead_worker_load{pod='worker-1'}) == 1"]
        queries.append(scaler_query("namespace", "playhead", "pod", "worker-1"))
        for query in queries:
            asked = urllib.parse.urlencode({"query": query})
            url = f"http://127.0.0.1:{port}/api/v1/query?{asked}"
            until(lambda url=url: json.loads(fetch(url))["data"]["result"], query, 40)
    finally:
        process.terminate()
        process.wait(20)


def test_pages_of_the_worker_name_its_profile(worker: str) -> None:
    page = fetch(f"{worker}/metrics")
    assert 'playhead_config_info{profile="cpu",sha256="' in page
    assert "playhead_worker_ready 1\n" in page
