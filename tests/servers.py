"""Real servers on free loopback ports, and one that answers whatever a test tells it to."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qs

import psycopg
import pytest
import uvicorn

START_TIMEOUT_S = 30.0
FOREVER = "100y"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Poll until the condition holds; fails the test after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_s:g} s: {what}")
        threading.Event().wait(0.02)


def answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def post(url: str, path: str, body: bytes, content_type: str = "text/plain") -> bytes:
    """Send a body to a server and return the answer; fails the test unless the status is 2xx."""
    connection = http.client.HTTPConnection(url.removeprefix("http://").partition("/")[0], timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": content_type})
        response = connection.getresponse()
        data = response.read()
        assert 200 <= response.status < 300, (response.status, data[:500])
        return data
    finally:
        connection.close()


@dataclass
class Server:
    """A running server."""

    url: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def running(
    binary: str,
    folder: Path,
    args: Callable[[int], Sequence[str]],
    ready_path: str,
    port: int | None = None,
) -> Iterator[Server]:
    """Start a server that Debian ships, wait until it answers, stop it at the end; None is a free port."""
    if shutil.which(binary) is None:
        pytest.skip(f"{binary} is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    log_path = folder / f"{binary}.log"
    for _ in range(3):
        chosen = port or free_port()
        with log_path.open("wb") as log:
            process = _spawn(binary, args(chosen), folder, log)
        try:
            if _is_up(process, chosen, ready_path):
                yield Server(f"http://127.0.0.1:{chosen}", chosen, folder, process)
                return
        finally:
            _stop(process)
    pytest.fail(f"{binary} did not start: {log_path.read_text(errors='replace')[-2000:]}")


def _spawn(binary: str, args: Sequence[str], folder: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([binary, *args], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _is_up(process: subprocess.Popen[bytes], port: int, ready_path: str) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if answers(port, ready_path):
            return True
        threading.Event().wait(0.02)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=15)


def victoria_metrics(
    folder: Path, *flags: str, port: int | None = None
) -> contextlib.AbstractContextManager[Server]:
    """An empty VictoriaMetrics that keeps samples of any age."""
    return running(
        "victoria-metrics",
        folder,
        lambda chosen: [
            f"-httpListenAddr=127.0.0.1:{chosen}",
            f"-storageDataPath={folder / 'data'}",
            f"-retentionPeriod={FOREVER}",
            *flags,
        ],
        "/health",
        port,
    )


def import_lines(server: Server, lines: bytes) -> None:
    """Put export lines into VictoriaMetrics and make them visible."""
    post(server.url, "/api/v1/import", lines)
    assert answers(server.port, "/internal/force_flush")


def vmauth(folder: Path, config: str, *flags: str) -> contextlib.AbstractContextManager[Server]:
    """A vmauth with the given users file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "auth.yml"
    file.write_text(config)
    return running(
        "vmauth",
        folder,
        lambda port: [f"-httpListenAddr=127.0.0.1:{port}", f"-auth.config={file}", *flags],
        "/health",
    )


def alertmanager(
    folder: Path, hook_url: str, port: int | None = None
) -> contextlib.AbstractContextManager[Server]:
    """An Alertmanager that tells a webhook at once of what fires and of what is resolved."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "alertmanager.yml"
    file.write_text(
        "route: {receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 1s}\n"
        f"receivers: [{{name: hook, webhook_configs: [{{url: '{hook_url}', send_resolved: true}}]}}]\n"
    )
    return running(
        "prometheus-alertmanager",
        folder,
        lambda chosen: [
            f"--config.file={file}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{chosen}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ],
        "/-/ready",
        port,
    )


def vmagent(
    folder: Path, scrape_config: str, remote_url: str, *flags: str
) -> contextlib.AbstractContextManager[Server]:
    """A vmagent that scrapes what the config says and writes to a VictoriaMetrics (base address)."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scrape.yml"
    file.write_text(scrape_config)
    return running(
        "vmagent",
        folder,
        lambda port: [
            f"-httpListenAddr=127.0.0.1:{port}",
            f"-promscrape.config={file}",
            f"-remoteWrite.url={remote_url}/api/v1/write",
            f"-remoteWrite.tmpDataPath={folder / 'queue'}",
            "-remoteWrite.flushInterval=200ms",
            *flags,
        ],
        "/health",
    )


def prometheus(
    folder: Path, config: str = "{}", *flags: str, remote_write: bool = False
) -> contextlib.AbstractContextManager[Server]:
    """A Prometheus on ``folder/data`` (blocks may have been put there before)."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "prometheus.yml"
    file.write_text(config)
    receiver = ["--web.enable-remote-write-receiver"] if remote_write else []
    return running(
        "prometheus",
        folder,
        lambda port: [
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--storage.tsdb.retention.time={FOREVER}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
            *receiver,
            *flags,
        ],
        "/-/ready",
    )


def blocks_from_openmetrics(folder: Path, text: str) -> None:
    """Write samples (OpenMetrics text with times) as blocks for `prometheus` on the same folder."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "samples.om"
    file.write_text(text)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(file), str(folder / "data")]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


@dataclass
class Postgres:
    """A PostgreSQL of our own on a unix socket; users ``postgres`` and, with password, ``oddnode``."""

    bin: Path
    folder: Path
    n_databases: int = 0

    PASSWORD = "hunter2-of-the-store"

    def init(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self._run("initdb", "-A", "trust", "-U", "postgres", "--no-sync", "-D", str(self.folder / "data"))
        hba = "local all oddnode scram-sha-256\nlocal all all trust\n"
        (self.folder / "data" / "pg_hba.conf").write_text(hba)

    def start(self) -> None:
        options = f"-c listen_addresses= -c fsync=off -c unix_socket_directories={self.folder}"
        log = str(self.folder / "log")
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-t", "120", "-w", "-o", options, "start"
        )

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-t", "60", "-m", mode, "-w", "stop")

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """Make an empty database; return its address."""
        self.n_databases += 1
        name = f"oddnode{self.n_databases}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, statement: str, url: str | None = None) -> list[tuple[object, ...]]:
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            user="postgres" if os.geteuid() == 0 else None,
            cwd=self.folder, capture_output=True, text=True, timeout=180, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0:
            pytest.fail(f"{command[0]}: {done.stdout[-1000:]} {done.stderr[-1000:]}")


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """A running PostgreSQL of the newest version that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[4]))
    if not found:
        pytest.skip("postgresql is not installed")
    # a path of a socket is short, and folders of pytest are closed to other users
    with tempfile.TemporaryDirectory(prefix="oddnode-pg") as folder:
        server = Postgres(found[-1].parent, Path(folder))
        server.init()
        server.start()
        try:
            server.sql(f"CREATE ROLE oddnode LOGIN PASSWORD '{Postgres.PASSWORD}'")
            yield server
        finally:
            with contextlib.suppress(pytest.fail.Exception):
                server.stop()


@dataclass
class Certificates:
    """PEM files: an authority, and a key pair that it signed for 127.0.0.1."""

    ca: Path
    cert: Path
    key: Path


def make_certificates(folder: Path, name: str = "localhost") -> Certificates:
    """Make an authority and a pair signed by it, with openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    extensions = folder / "ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for command in (
        f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca-{name} "
        f"-addext keyUsage=critical,keyCertSign -keyout {folder}/ca.key -out {made.ca}",
        f"req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} "
        f"-keyout {made.key} -out {folder}/csr.pem",
        f"x509 -req -in {folder}/csr.pem -CA {made.ca} -CAkey {folder}/ca.key -CAcreateserial -days 2 "
        f"-extfile {extensions} -out {made.cert}",
    ):
        done = subprocess.run(["openssl", *command.split()], capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr.decode()[-1000:]
    return made


@dataclass
class Request:
    """A request as received by a `ScriptedServer`."""

    method: str
    path: str
    headers: Mapping[str, str]
    form: Mapping[str, list[str]]


Reply = Callable[["Connection"], None]


class Connection:
    """What a reply writes to."""

    def __init__(self, handler: BaseHTTPRequestHandler, request: Request, stopped: threading.Event) -> None:
        self._handler = handler
        self.request = request
        self.stopped = stopped

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()

    def write(self, data: bytes) -> None:
        self._handler.wfile.write(data)
        self._handler.wfile.flush()

    def chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n%s\r\n" % (len(data), data))

    def reset(self) -> None:
        """End the connection hard, with RST."""
        sock = self._handler.connection
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self._handler.close_connection = True
        sock.close()

    def hang_up(self) -> None:
        """End the connection in good form, in the middle of the answer."""
        self._handler.close_connection = True


def reply(status: int, body: bytes, content_type: str = "application/stream+json", **headers: str) -> Reply:
    """A complete answer; underscores in header names become hyphens."""

    def send(connection: Connection) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.head(status, {"Content-Type": content_type, "Content-Length": str(len(body)), **named})
        connection.write(body)

    return send


@dataclass
class ScriptedServer:
    """Answers requests with the replies given, in turn; the last one is repeated.

    Parameters
    ----------
    replies
        What to answer.
    tls
        Makes it an https server.
    """

    replies: list[Reply]
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    tls: ssl.SSLContext | None = None

    def __enter__(self) -> ScriptedServer:
        script = self
        self.stopped = threading.Event()
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                form = self.rfile.read(length).decode()
                request = Request(self.command, self.path, dict(self.headers), parse_qs(form))
                with lock:
                    turn = len(script.requests)
                    script.requests.append(request)
                answer = script.replies[min(turn, len(script.replies) - 1)]
                with contextlib.suppress(OSError):
                    answer(Connection(self, request, script.stopped))

            do_GET = do_POST  # noqa: N815 - the name the base class looks for

            def log_message(self, *args: object) -> None:
                pass

        class QuietServer(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        self._server = QuietServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if self.tls is not None:
            scheme = "https"
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)


@contextlib.contextmanager
def listening(application: Callable[..., Any]) -> Iterator[str]:
    """Serve an application on a free port of its own; yield its address."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive()
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
