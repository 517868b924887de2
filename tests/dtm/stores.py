"""Servers that a run starts: the store under test, MariaDB, dtm itself. Each ends with its `with` block, by its process."""
import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from machine import find, run

KINDS = ("redis", "redis-always", "memory", "durable")
# A debug build on a busy machine takes a while.
START_SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A process with a port."""

    def __init__(self, name, process, port, log):
        self.name, self.process, self.port, self.log = name, process, port, log

    def cpu_seconds(self):
        """Processor time of all its threads so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def must_live(self):
        if self.process.poll() is not None:
            with open(self.log, errors="replace") as log:
                print(log.read()[-4000:], file=sys.stderr)
            sys.exit(f"{self.name} has ended by itself with status {self.process.returncode}")

    def ask(self, *words):
        """A reply, as redis-cli prints it."""
        return run(find("redis-cli"), "-p", self.port, *words).strip()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def must_be_free(*ports):
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                sys.exit(f"port {port} is taken")


@contextlib.contextmanager
def folder(scratch, name):
    """A folder for one run of a server."""
    path = tempfile.mkdtemp(prefix=f"{name}-", dir=scratch)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def server(name, words, port, log, is_ready, **options):
    """Starts a server, waits until it is ready, and ends it."""
    must_be_free(port)
    with open(log, "ab") as output:
        process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, **options)
    started = Server(name, process, port, log)
    try:
        until = time.monotonic() + START_SECONDS
        while not is_ready(started):
            started.must_live()
            if time.monotonic() > until:
                sys.exit(f"{name} was not ready within {START_SECONDS} s; see {log}")
            time.sleep(0.05)
        yield started
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listens(started):
    try:
        socket.create_connection(("127.0.0.1", started.port), timeout=1).close()
        return True
    except OSError:
        return False


def answers(started):
    """Whether a store is done with loading."""
    try:
        with socket.create_connection(("127.0.0.1", started.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


@contextlib.contextmanager
def store(kind, options, port):
    """A store under test, empty."""
    port = port or free_port()
    log = options.scratch / f"{kind}.log"
    with folder(options.scratch, kind) as files:
        common = ["--port", port, "--bind", "127.0.0.1", "--dir", files]
        if kind.startswith("redis"):
            words = [find(options.redis) or options.redis, *common, "--save", ""]
            if kind == "redis-always":
                words += ["--appendonly", "yes", "--appendfsync", "always"]
        else:
            words = [options.tarn, "server", *common, "--edition", kind, *shlex.split(options.tarn_options)]
        with server(kind, words, port, log, answers) as started:
            yield started


@contextlib.contextmanager
def mariadb(scratch):
    """A MariaDB of our own, as dtm's tests expect it: port 3306, root without a password."""
    with folder(scratch, "mariadb") as files:
        # As root it would give its files to a user of the system's service.
        user = ["--user=root"] if os.geteuid() == 0 else []
        run(find("mariadb-install-db"), "--no-defaults", *user, f"--datadir={files}/data",
            "--auth-root-authentication-method=normal", "--skip-test-db", stderr=subprocess.STDOUT)
        words = [find("mariadbd"), "--no-defaults", *user, f"--datadir={files}/data", f"--socket={files}/socket",
                 f"--pid-file={files}/pid", "--port=3306", "--bind-address=127.0.0.1",
                 # dtm closes a connection and commits what it has prepared by another. A thread for each would
                 # now and then do so in the other order, and "Unknown XID" is a success to dtm: one for all keeps it.
                 "--thread-handling=pool-of-threads", "--thread-pool-size=1"]
        with server("mariadb", words, 3306, scratch / "mariadb.log", listens) as started:
            yield started


@contextlib.contextmanager
def dtm_bench(dtm, kept):
    """dtm with its benchmark's routes, on a store."""
    must_be_free(36789, 36790, 36791)
    environment = dict(os.environ, STORE_DRIVER="redis", STORE_HOST="127.0.0.1", STORE_PORT=str(kept.port),
                       LOG_LEVEL="warn", BENCH_PORT="8083")
    words = [dtm.bench(), "redis"]
    with server("dtm", words, 8083, dtm.scratch / "dtm.log", listens, env=environment) as started:
        yield started
