"""What the runs need of the machine: Debian's packages, a Go that is new enough, and dtm built from its module."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

# The newest release. Asking the registry for it would make runs of different days differ.
DTM_VERSION = "v1.19.0"
MODULE = "github.com/dtm-labs/dtm"
# What dtm's go.mod asks for.
GO_LEAST = (1, 22)
# Line of dtm's test set-up that cannot be switched off and needs a MongoDB, which Debian does not have.
MONGO_LINE = "\tSetupMongoBarrierAndBusi()\n"


def run(*words, **options):
    """Runs a command that must succeed; its output."""
    words = [str(word) for word in words]
    ran = subprocess.run(words, text=True, stdout=subprocess.PIPE, **options)
    if ran.returncode:
        sys.exit(f"{ran.stdout[-4000:]}\n{' '.join(words)}: status {ran.returncode}")
    return ran.stdout


def as_root(*words):
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    environment = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1"]
    subprocess.run([*prefix, *environment, *words], check=True, stdout=sys.stderr)


def find(program):
    """A program's path; the system's own folders count though they may not be in PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/local/go/bin")


def install(needs_database):
    """Installs what is missing. Of MariaDB only the programs: its service is not wanted."""
    programs = {"ab": "apache2-utils", "redis-server": "redis-server", "redis-cli": "redis-tools"}
    if needs_database:
        programs |= {"mariadbd": "mariadb-server-core", "my_print_defaults": "mariadb-client-core"}
    missing = [package for program, package in programs.items() if not find(program)]
    if not (missing or not go()):
        return
    print("installing what is missing", file=sys.stderr)
    as_root("apt-get", "update", "-q")
    if missing:
        as_root("apt-get", "install", "-q", "-y", "--no-install-recommends", *missing)
    if not go():
        install_go()


def install_go():
    """The distribution's Go if it is new enough, else the one of its backports."""
    candidate = re.search(r"Candidate: (?:\d+:)?(\d+)\.(\d+)", run("apt-cache", "policy", "golang-go"))
    if candidate and tuple(map(int, candidate.groups())) >= GO_LEAST:
        as_root("apt-get", "install", "-q", "-y", "--no-install-recommends", "golang-go")
    else:
        add_backports()
        as_root("apt-get", "install", "-q", "-y", "--no-install-recommends", "-t", backports(), "golang-go")
    if not go():
        sys.exit(f"no Go of {GO_LEAST[0]}.{GO_LEAST[1]} or newer is to be had from this system's packages")


def backports():
    release = dict(line.rstrip().split("=", 1) for line in open("/etc/os-release") if "=" in line)
    return release["VERSION_CODENAME"].strip('"') + "-backports"


def add_backports():
    """Backports come from where the other packages come from."""
    listed = [*glob.glob("/etc/apt/sources.list.d/*"), *glob.glob("/etc/apt/sources.list")]
    texts = [open(path).read() for path in listed]
    if any(backports() in text for text in texts):
        return
    mirror = re.search(r"^(?:URIs:|deb(?: \[[^]]*\])?)\s+(\S+)", "\n".join(texts), re.M)
    if not mirror:
        sys.exit("no Debian mirror is configured: install Go by hand")
    source = f"Types: deb\nURIs: {mirror[1]}\nSuites: {backports()}\nComponents: main\n" \
             "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    as_root("sh", "-c", 'printf %s "$0" >/etc/apt/sources.list.d/backports.sources', source)
    as_root("apt-get", "update", "-q")


def go():
    """The path of a Go that can build dtm. None: there is none."""
    for path in [find("go"), *sorted(glob.glob("/usr/lib/go-*/bin/go"), reverse=True)]:
        if not path:
            continue
        # A toolchain that go.mod may ask for would be fetched; only this one's own version counts.
        version = run(path, "env", "GOVERSION", env=dict(os.environ, GOTOOLCHAIN="local"), cwd="/")
        found = re.match(r"go(\d+)\.(\d+)", version)
        if found and tuple(map(int, found.groups())) >= GO_LEAST:
            return path
    return None


class Dtm:
    """A release of dtm: a copy of its module, and its programs, built when they are first wanted."""

    def __init__(self, scratch, version):
        self.version = version
        self.folder = scratch / version
        self.folder.mkdir(parents=True, exist_ok=True)
        self.scratch = scratch

    def source(self):
        """A copy of the module in which the tests can do without MongoDB."""
        copy = self.folder / "source"
        if not copy.exists():
            print(f"fetching dtm {self.version}", file=sys.stderr)
            module = json.loads(run(go(), "mod", "download", "-json", f"{MODULE}@{self.version}", cwd=self.folder))
            unfinished = self.folder / "source.new"
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(module["Dir"], unfinished, copy_function=shutil.copyfile)
            for folder, _, _ in os.walk(unfinished):
                os.chmod(folder, 0o755)
            setup = unfinished / "test/busi/data.go"
            text = setup.read_text()
            if MONGO_LINE not in text:
                sys.exit(f"dtm {self.version} sets up its tests in another way: see {setup}")
            setup.write_text(text.replace(MONGO_LINE, "", 1))
            unfinished.rename(copy)
        return copy

    def bench(self):
        """The benchmark's program."""
        return self.built("bench", "build", "./helper/bench")

    def suite(self):
        """The program of the tests. They replace functions, so none may be inlined."""
        return self.built("suite", "test", "-c", "-gcflags=all=-l", "./test")

    def built(self, name, *words):
        source, program = self.source(), self.folder / name
        if not program.exists():
            print(f"building dtm's {name}", file=sys.stderr)
            verb, *rest = words
            run(go(), verb, "-buildvcs=false", "-o", program, *rest, cwd=source)
        return program
