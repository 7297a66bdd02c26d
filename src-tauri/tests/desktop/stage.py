"""The pieces that the tests of the real program stand on: a simulated Mac with its daemon, a desktop's services, the
program itself, its menu over D-Bus, and a driver for its page."""

import http.client
import http.server
import json
import os
import queue
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import dbus

HERE = Path(__file__).resolve().parent
MENU = "com.canonical.dbusmenu"
ITEM = "org.kde.StatusNotifierItem"
PROPERTIES = dbus.PROPERTIES_IFACE


def until(what, look, seconds=20, step_seconds=0.05):
    """Waits until `look` gives something true, and returns it; fails with words after the deadline."""
    began = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() - began > seconds:
            raise AssertionError(f"after {seconds} s still not: {what} (last seen: {found!r})")
        time.sleep(step_seconds)


class Programs:
    """The three programs side by side, as they are installed."""

    def __init__(self, sources):
        self.folder = Path(tempfile.mkdtemp(prefix="shp-", dir="/tmp"))
        for source in sources:
            target = self.folder / Path(source).name
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)
        self.tray, self.cli = self.folder / "stablehand-tray", self.folder / "stablehand"

    @classmethod
    def built(cls):
        """Those in the folders of STABLEHAND_PROGRAMS; the first folder that has one counts."""
        folders = os.environ["STABLEHAND_PROGRAMS"].split(":")
        sources = []
        for name in ("stablehand-tray", "stablehand", "stablehand-sim"):
            found = [Path(folder) / name for folder in folders if (Path(folder) / name).is_file()]
            if not found:
                sys.exit(f"{name} is in none of {folders}; build it first")
            sources.append(found[0])
        return cls(sources)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class World:
    """A simulated Mac, and its daemon while it runs."""

    def __init__(self, programs, *, daemon=True, speed=1, ollama=None):
        self.cli = programs.cli
        # A short path: sockets in it must stay below the limit of their addresses.
        self.parent = Path(tempfile.mkdtemp(prefix="shw-", dir="/tmp"))
        self.folder = self.parent / "w"
        self.home = self.folder / "Users" / "sim"
        self.environment = {**os.environ, "STABLEHAND_WORLD": str(self.folder)}
        self.daemon = None
        self._demo("start", "--speed", str(speed), *(["--ollama", ollama] if ollama else []))
        if daemon:
            try:
                self.serve()
            except BaseException:
                self.close()
                raise

    def serve(self):
        with (self.parent / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [self.cli, "serve"], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            until("the daemon answers", lambda: self.run("status", check=False).returncode == 0)
        except AssertionError as error:
            ended = f"it ended with {self.daemon.poll()}; " if self.daemon.poll() is not None else ""
            said = self.run("status", check=False)
            log = (self.parent / "daemon.log").read_text(errors="replace")[-4000:]
            raise AssertionError(f"{ended}{error}\n{said.stdout}{said.stderr}\n{log}") from error

    def end_daemon(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait()

    def close(self):
        self.end_daemon()
        self._demo("stop")
        shutil.rmtree(self.parent, ignore_errors=True)

    def run(self, *arguments, check=True):
        done = subprocess.run(
            [self.cli, *arguments], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if check and done.returncode != 0:
            raise AssertionError(f"stablehand {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def snapshot(self):
        return json.loads(self.run("status", "--json").stdout)

    def desired(self):
        return {row["name"]: row["desired"] for row in self.snapshot()["settings"] if row["desired"] is not None}

    def standing(self, name):
        return next(row["standing"] for row in self.snapshot()["settings"] if row["name"] == name)

    def fault(self, *arguments):
        self.run("demo", "fault", *arguments)

    def models(self):
        """Models that have a runner."""
        return [row["model"] for row in self.runners()]

    def listed_models(self):
        """Those that the server says are loaded."""
        return [row["model"] for row in self.runners() if isinstance(row["listed_until"], str)]

    def runners(self):
        return (self.snapshot()["watched"] or {"runners": []})["runners"]

    def _demo(self, verb, *options):
        subprocess.run(
            [self.cli, "demo", verb, "--dir", str(self.folder), *options],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True,
        )


class StandIn:
    """What answers in a daemon's place: the same snapshot to everybody; it keeps what it is asked to do."""

    def __init__(self, world, snapshot, version):
        self.snapshot, self.version = snapshot, version
        self.asked, self.ended = [], threading.Event()
        path = world.home / "Library/Application Support/dev.stablehand/s"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        self.server = _Server(str(path), _Answers)
        self.server.stand_in = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        Path(self.server.server_address).unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, *_):
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
            raise


class _Answers(http.server.BaseHTTPRequestHandler):
    """See docs/api.md."""

    def do_GET(self):
        snapshot = json.dumps(self.server.stand_in.snapshot)
        if self.path.startswith("/v1/events"):
            self._begin("text/event-stream")
            self.wfile.write(f"event: snapshot\ndata: {snapshot}\n\n".encode())
            self.server.stand_in.ended.wait()
        else:
            self._begin("application/json")
            empty = json.dumps({"points": [], "events": []})
            self.wfile.write((empty if self.path.startswith("/v1/history") else snapshot).encode())

    def do_POST(self):
        self.server.stand_in.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self._begin("application/x-ndjson")
        self.wfile.write(b'{"event":"result","outcome":"changed","settings":[],"steps":[]}\n')

    def _begin(self, kind):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("stablehand-version", self.server.stand_in.version)
        self.end_headers()

    def log_message(self, *_):
        pass


class Desktop:
    """The desktop's services in a process of their own."""

    def __init__(self, *services):
        self.process = subprocess.Popen(
            ["/usr/bin/python3", HERE / "desktop_services.py", *services],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )
        self.said = queue.Queue()
        self.notices, self.items = [], []
        threading.Thread(target=self._read, daemon=True).start()
        until("the desktop's services are there", lambda: not self.said.empty())

    def _read(self):
        for line in self.process.stdout:
            words = json.loads(line)
            if "item" in words:
                self.items.append(words["item"])
            elif "notice" in words:
                self.notices.append(words["notice"])
            else:
                self.said.put(words)

    def click(self, notice, action="default"):
        self.process.stdin.write(f"click {notice['number']} {action}\n")
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()


class Tray:
    """The program under test."""

    def __init__(self, programs, world, desktop=None, *arguments, environment=None):
        self.world, self.desktop = world, desktop
        self.log = (world.parent / f"tray-{time.monotonic_ns()}.log").open("w+b")
        self.process = subprocess.Popen(
            [programs.tray, *arguments], env={**world.environment, **(environment or {})},
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )
        self.menu = None
        if desktop:
            self.menu = TrayMenu(until("the icon is registered", self._icon))

    def _icon(self):
        """The address of its icon, which is one of all that were ever registered."""
        bus = dbus.SessionBus()
        for address in self.desktop.items:
            try:
                owner = bus.get_object("org.freedesktop.DBus", "/").GetConnectionUnixProcessID(
                    address.partition("/")[0], dbus_interface="org.freedesktop.DBus"
                )
            except dbus.DBusException:
                continue
            if owner == self.process.pid:
                return address
        return None

    def words(self):
        self.log.flush()
        return Path(self.log.name).read_text(errors="replace")

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    def children(self):
        """The pids of all processes below it, with their names."""
        return descendants(self.process.pid)

    def web_processes(self):
        return {pid: name for pid, name in self.children().items() if "WebKit" in name}

    def pss_mb(self):
        return sum(pss_kb(pid) for pid in [self.process.pid, *self.children()]) / 1024


class TrayMenu:
    """An icon's menu over D-Bus. Items are found by their words: numbers change."""

    def __init__(self, address):
        service, _, path = address.partition("/")
        self.bus = dbus.SessionBus(private=True)
        self.item = self.bus.get_object(service, f"/{path}")
        self.menu = self.bus.get_object(service, self.item.Get(ITEM, "Menu", dbus_interface=PROPERTIES))

    def property(self, name):
        return str(self.item.Get(ITEM, name, dbus_interface=PROPERTIES))

    def rows(self):
        """(number, words, on) of each row, from top to bottom, inner menus after their row; on is None without a mark."""
        self.menu.AboutToShow(0, dbus_interface=MENU)
        _, root = self.menu.GetLayout(0, -1, dbus.Array([], signature="s"), dbus_interface=MENU)
        found = []

        def walk(node):
            number, properties, inner = node
            if "label" in properties:
                mark = bool(properties.get("toggle-state", 0)) if "toggle-type" in properties else None
                # An underline in a label marks a key; two of them are one of the text.
                label = str(properties["label"]).replace("__", "\0").replace("_", "").replace("\0", "_")
                found.append((int(number), label, mark))
            for child in inner:
                walk(child)

        walk(root)
        return found

    def labels(self):
        return [words for _, words, _ in self.rows()]

    def is_on(self, label):
        return next((on for _, words, on in self.rows() if words == label), None)

    def click(self, label, after=None):
        """Clicks the first row of these words (below the row `after`, if given)."""
        self.click_number(self.number(label, after))

    def number(self, label, after=None):
        rows = self.rows()
        begin = next(i for i, row in enumerate(rows) if row[1] == after) if after else 0
        number = next((row[0] for row in rows[begin:] if row[1] == label), None)
        if number is None:
            raise AssertionError(f"«{label}» is not in the menu: {self.labels()}")
        return number

    def click_number(self, number):
        nothing = dbus.String("", variant_level=1)
        self.menu.Event(number, "clicked", nothing, dbus.UInt32(0), dbus_interface=MENU)


class Page:
    """A tray that WebKit's own driver has started with its popover open, and that popover's page."""

    def __init__(self, programs, world, port=14444):
        # The driver starts the program without our arguments about the world, so it inherits them.
        environment = {**world.environment, "TAURI_AUTOMATION": "true", "TAURI_WEBVIEW_AUTOMATION": "true"}
        self.driver = subprocess.Popen(
            ["WebKitWebDriver", f"--port={port}"], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.session = None
        try:
            self.connection = until("the driver listens", lambda: self._connect(port))
            options = {"binary": str(programs.tray), "args": ["--open"]}
            wanted = {"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": options}}}
            self.session = self._call("POST", "/session", wanted)["sessionId"]
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _connect(port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.connect()
        except OSError:
            return None
        return connection

    def _call(self, method, path, body=None):
        text = json.dumps(body or {}) if method == "POST" else None
        self.connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = json.loads(self.connection.getresponse().read())["value"]
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{path}: {answer['error']}: {answer.get('message')}")
        return answer

    def run(self, script, *arguments):
        body = {"script": script, "args": list(arguments)}
        return self._call("POST", f"/session/{self.session}/execute/sync", body)

    def text(self):
        return self.run("return document.body.innerText")

    def press(self, words):
        """Clicks the button that says this."""
        body = {"using": "xpath", "value": f"//button[contains(normalize-space(.), '{words}')]"}
        found = self._call("POST", f"/session/{self.session}/element", body)
        # The driver scrolls to the edge only, where the footer lies above it.
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        self._call("POST", f"/session/{self.session}/element/{next(iter(found.values()))}/click")

    def close(self):
        # A tray ends when a person quits it, not with its last window.
        trays = [pid for pid, name in descendants(self.driver.pid).items() if name == "stablehand-tray"]
        if self.session:
            try:
                self._call("DELETE", f"/session/{self.session}")
            except (AssertionError, OSError, http.client.HTTPException):
                pass
        for pid in trays:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
        until("the driver's tray is gone", lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in trays))
        self.driver.terminate()
        self.driver.wait()


def descendants(pid):
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
            parents[int(entry.name)] = (int(rest.split()[1]), name)
    found, grown = {}, True
    while grown:
        grown = False
        for child, (parent, name) in parents.items():
            if child not in found and (parent == pid or parent in found):
                found[child] = name
                grown = True
    return found


def pss_kb(pid):
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def context_switches_a_minute(pid, seconds):
    """Of all its threads, also of those that begin and end meanwhile but for their last second."""
    total, before, began = 0, _context_switches(pid), time.monotonic()
    while time.monotonic() - began < seconds:
        time.sleep(1)
        now = _context_switches(pid)
        total += sum(count - before.get(thread, 0) for thread, count in now.items())
        before = now
    return total * 60 / (time.monotonic() - began)


def _context_switches(pid):
    """By thread, since each began."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (thread / "status").read_text().splitlines()
        except OSError:
            continue
        found[thread.name] = sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return found


def settle(tray):
    """Waits until the memory stands still for a second."""
    last = [0.0]

    def still():
        now = tray.pss_mb()
        same = abs(now - last[0]) < 0.2
        last[0] = now
        return same

    until("its memory stands still", still, seconds=20, step_seconds=1)


def windows():
    """The titles of the windows that can be seen."""
    done = subprocess.run(["xwininfo", "-root", "-tree"], capture_output=True, text=True, check=True)
    seen = []
    for line in done.stdout.splitlines():
        number, _, title = line.strip().partition(" ")
        if number.startswith("0x") and title.startswith('"'):
            about = subprocess.run(["xwininfo", "-id", number, "-stats"], capture_output=True, text=True).stdout
            if "IsViewable" in about:
                seen.append(title.split('"')[1])
    return seen


def take_focus(title):
    """Gives a window the focus and then to the desktop behind it, as a click beside it does."""
    run = lambda *words: subprocess.run(["xdotool", *words], check=True, capture_output=True, text=True).stdout
    root = subprocess.run(["xwininfo", "-root"], check=True, capture_output=True, text=True).stdout
    run("windowfocus", "--sync", run("search", "--onlyvisible", "--name", f"^{title}$").split()[0])
    run("windowfocus", root.split("Window id: ")[1].split()[0])
