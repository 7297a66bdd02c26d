"""Starts an Ollama with the gateway before it, and asks with each client; `scripts/test-clients` calls it."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import ask
from demo_world import STABLEHAND, World, wait_until


def main():
    folder, *real = sys.argv[1:]
    with real_ollama(*real) if real else simulated_mac() as (base, model):
        failed, passed = 0, 0
        for name, test in ask.tests(base, model):
            failed, passed = run(name, test, failed, passed)
        script = [shutil.which("node"), HERE / "ask.mjs", folder, base, model]
        failed, passed = run("javascript", lambda: subprocess.run(script, check=True), failed, passed)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed")
    sys.exit(1 if failed else 0)


def run(name, test, failed, passed):
    try:
        test()
    except Exception as error:  # Whatever it is, the others are asked too.
        print(f"test {name} ... FAILED\n  {type(error).__name__}: {error}")
        return failed + 1, passed
    print(f"test {name} ... ok")
    return failed, passed + 1


@contextlib.contextmanager
def simulated_mac():
    """In Ollama's place, so that the clients ask where they would without it."""
    with World(speed=20) as world:
        on = world.run("gateway", "on", "--takeover", "--yes")
        if on.returncode != 0:
            sys.exit(f"the gateway is not in place:\n{on.stderr.decode()}")
        base = f"http://127.0.0.1:{world.port}"
        with urllib.request.urlopen(f"{base}/api/tags", timeout=10) as reply:
            models = json.load(reply)["models"]
        yield base, min(models, key=lambda one: one["size"])["name"]


@contextlib.contextmanager
def real_ollama(program, weights):
    """Beside it, with a home for both."""
    with tempfile.TemporaryDirectory(prefix="sh-", dir="/tmp") as home, contextlib.ExitStack() as running:
        upstream, gateway = free_port(), free_port()
        configuration = f'[gateway]\nlisten = ["127.0.0.1:{gateway}"]\nupstream = "127.0.0.1:{upstream}"\n'
        for place in (".config/stablehand", "Library/Application Support/dev.stablehand"):
            Path(home, place).mkdir(parents=True)
            Path(home, place, "config.toml").write_text(configuration)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("STABLEHAND_", "XDG_", "OLLAMA_"))}
        environment = clean | {"HOME": home, "OLLAMA_HOST": f"127.0.0.1:{upstream}"}
        log = running.enter_context(Path(home, "ollama.log").open("wb"))
        running.enter_context(ended(subprocess.Popen([program, "serve"], env=environment, stdout=log, stderr=log)))
        wait_until("Ollama answers", lambda: answers(upstream), seconds=60)
        Path(home, "Modelfile").write_text(f"FROM {weights}\n")
        create = [program, "create", "small", "-f", Path(home, "Modelfile")]
        subprocess.run(create, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        command = [STABLEHAND, "serve", "--gateway"]
        running.enter_context(ended(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)))
        wait_until("the gateway answers", lambda: answers(gateway), seconds=20)
        yield f"http://127.0.0.1:{gateway}", "small:latest"


@contextlib.contextmanager
def ended(process):
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def answers(port):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/api/version", timeout=2) as reply:
            return "version" in json.load(reply)
    except OSError:
        return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


main()
