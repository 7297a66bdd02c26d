"""A simulated machine with a running daemon, for what asks and measures from outside: real processes, at real speed
unless another one is wanted."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target"))
STABLEHAND = Path(os.environ.get("STABLEHAND_PROGRAM", TARGET / "release" / "stablehand"))


def build():
    """Builds the two programs as they are shipped."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--bin", "stablehand", "--bin", "stablehand-sim"]
    subprocess.run(command, cwd=PROJECT, check=True, stdout=sys.stderr)


class World:
    """A world of its own in a temporary folder, from entering `with` to leaving it."""

    def __init__(self, speed=1):
        self._speed = speed

    def __enter__(self):
        # A short path: sockets in it must stay below the limit of their addresses.
        self._folder = tempfile.TemporaryDirectory(prefix="sh-", dir="/tmp")
        self.folder = Path(self._folder.name).resolve() / "w"
        self.environment = {**os.environ, "STABLEHAND_WORLD": str(self.folder)}
        self.daemon = None
        try:
            self._demo("start", "--speed", str(self._speed))
            self.port = json.loads((self.folder / "stablehand-world.json").read_text())["port"]
            log = Path(self._folder.name) / "daemon.log"
            with log.open("wb") as output:
                self.daemon = subprocess.Popen(
                    [STABLEHAND, "serve"], env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
            wait_until("the daemon answers", lambda: self.run("status").returncode == 0, seconds=20)
            wait_until("the server answers", self.answers, seconds=30)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait()
        self._demo("stop")
        self._folder.cleanup()

    def run(self, *arguments):
        """Runs `stablehand` in the world to its end."""
        return subprocess.run([STABLEHAND, *arguments], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True)

    def answers(self):
        """Whether the world's Ollama answers GET /api/version now."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}/api/version", timeout=1) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def processes(self, below):
        """The pids whose program is a file below this folder of the world, by program."""
        found = {}
        for line in _programs():
            pid, program = line
            if program.startswith(f"{self.folder}/{below}/"):
                found.setdefault(program[len(str(self.folder)) :], []).append(pid)
        return found

    def _demo(self, verb, *options):
        command = [STABLEHAND, "demo", verb, "--dir", self.folder, *options]
        result = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True)
        if result.returncode != 0:
            sys.exit(f"stablehand demo {verb} failed ({result.returncode}):\n{result.stderr.decode()}")


def wait_until(what, done, seconds, step_seconds=0.01):
    """Waits for a condition; gives up with a word after the deadline. Returns the seconds that it took."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            sys.exit(f"gave up after {seconds} s waiting until {what}")
        time.sleep(step_seconds)
    return time.monotonic() - began


def _programs():
    if Path("/proc/self/exe").exists():
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    yield int(entry.name), os.readlink(entry / "exe")
                except OSError:
                    continue
        return
    listing = subprocess.run(["/bin/ps", "-axo", "pid=,comm="], stdout=subprocess.PIPE, check=True).stdout.decode()
    for line in listing.splitlines():
        pid, _, program = line.strip().partition(" ")
        yield int(pid), program.strip()
