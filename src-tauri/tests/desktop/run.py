#!/usr/bin/python3
"""Tests of the real program. Run through scripts/test-desktop, which gives them a screen and a session bus."""

import json
import os
import signal
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from stage import (
    Desktop, Page, Programs, StandIn, Tray, World, context_switches_a_minute, settle, take_focus, until, windows,
)

PROGRAMS = None
# Memory that may stay behind when the popover is gone.
LEFT_BEHIND_MB = 10


class Staged(unittest.TestCase):
    """One world and one desktop for the tests of a class; a tray for each test."""

    daemon = True
    speed = 1
    ollama = None
    services = ("tray", "notices")

    @classmethod
    def setUpClass(cls):
        cls.world = World(PROGRAMS, daemon=cls.daemon, speed=cls.speed, ollama=cls.ollama)
        cls.addClassCleanup(cls.world.close)
        cls.desktop = Desktop(*cls.services)
        cls.addClassCleanup(cls.desktop.close)

    def start(self, *arguments, world=None, **options):
        has_host = "tray" in self.services
        tray = Tray(PROGRAMS, world or self.world, self.desktop if has_host else None, *arguments, **options)
        self.addCleanup(tray.close)
        return tray

    def second(self, *arguments):
        """Starts another copy to its end."""
        return subprocess.run(
            [PROGRAMS.tray, *arguments], env=self.world.environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=20,
        )


class TheMenu(Staged):
    def setUp(self):
        self.tray = self.start()
        self.menu = self.tray.menu
        hear(self.tray)

    def test_the_menu_says_what_it_is_and_that_it_is_simulated(self):
        labels = self.menu.labels()
        self.assertEqual(labels[0], "SIMULATED machine")
        for words in (
            "Serial", "Ollama defaults", "Custom", "Recover runners by itself", "Launch at login",
            "Pause alerts for 1 h", "Open Stablehand", "Quit menu (supervision continues)", "Stop Stablehand…",
        ):
            self.assertIn(words, labels)
        self.assertEqual(self.menu.property("XAyatanaLabel"), "SIMULATED")
        self.assertTrue(Path(self.menu.property("IconName")).is_file())

    def test_a_preset_is_put_in_force(self):
        self.world.run("settings", "preset", "ollama-defaults")
        until("nothing is desired", lambda: self.menu.is_on("Ollama defaults"))
        self.menu.click("Serial")
        until("the mark moves", lambda: self.menu.is_on("Serial") and not self.menu.is_on("Ollama defaults"))
        self.assertEqual(
            self.world.desired(),
            {"OLLAMA_NUM_PARALLEL": "1", "OLLAMA_MAX_LOADED_MODELS": "1", "OLLAMA_MAX_QUEUE": "10"},
        )
        until("it is proven", lambda: self.world.standing("OLLAMA_NUM_PARALLEL") == "proven", seconds=60)
        self.world.run("settings", "set", "OLLAMA_NUM_PARALLEL=2")
        until("two is no preset", lambda: self.menu.is_on("Custom") and not self.menu.is_on("Serial"))
        self.menu.click("Serial")
        until("one is proven again", lambda: self.world.standing("OLLAMA_NUM_PARALLEL") == "proven", seconds=60)

    def test_recovery_is_switched_on_and_off(self):
        policy = lambda: self.world.snapshot()["watched"]["recovery"]["policy"]
        label = "Recover runners by itself"
        until("the policy is known", lambda: self.menu.is_on(label) is not None)
        self.assertFalse(self.menu.is_on(label))
        self.menu.click(label)
        until("runners are recovered", lambda: policy() == "runner" and self.menu.is_on(label))
        self.menu.click(label)
        until("nothing is done again", lambda: policy() == "alert" and not self.menu.is_on(label))

    def test_alerts_are_paused_and_resumed(self):
        paused = lambda: self.world.snapshot()["alerts_paused_until"] is not None
        self.menu.click("Pause alerts for 1 h")
        until("they are paused", lambda: paused() and self.menu.is_on("Pause alerts for 1 h"))
        self.menu.click("Pause alerts for 1 h")
        until("they are not", lambda: not paused() and not self.menu.is_on("Pause alerts for 1 h"))

    def test_launch_at_login_writes_the_agent_and_takes_it_away(self):
        agent = self.world.home / "Library/LaunchAgents/dev.stablehand.tray.plist"
        self.assertFalse(agent.exists())
        self.menu.click("Launch at login")
        until("the agent is there", agent.is_file)
        until("the mark is set", lambda: self.menu.is_on("Launch at login"))
        self.assertIn(f"<string>{PROGRAMS.tray}</string>", agent.read_text())
        self.assertNotIn("STABLEHAND_WORLD", agent.read_text())
        self.menu.click("Launch at login")
        until("it is gone", lambda: not agent.exists() and not self.menu.is_on("Launch at login"))

    def test_a_model_is_unloaded_and_another_one_stopped(self):
        for model, command in (("smollm:135m", "Unload"), ("gemma4:26b", "Force stop")):
            self.world.fault("work-steady", "--model", model)
            # A runner is there before the server has its model.
            until(f"{model} is loaded", lambda model=model: model in self.world.listed_models(), seconds=60)
            until(f"{model} is in the menu", lambda model=model: model in self.menu.labels(), seconds=60)
            self.world.fault("work-stop")
            self.menu.click(command, after=model)
            until(f"{model} is gone", lambda model=model: model not in self.world.models(), seconds=60)
            until("the menu says so", lambda model=model: model not in self.menu.labels(), seconds=60)

    def test_ollama_is_restarted(self):
        pid = lambda: self.world.snapshot()["server"]["pid"]
        before = until("it runs", pid)
        self.menu.click("Restart Ollama")
        until("another server serves", lambda: pid() not in (None, before), seconds=60)
        until("the menu is calm again", lambda: "Restarting" not in self.menu.labels()[1], seconds=60)
        self.assertEqual(self.tray.process.poll(), None)

    def test_quitting_ends_the_menu_alone(self):
        self.menu.click("Quit menu (supervision continues)")
        self.assertEqual(self.tray.process.wait(10), 0)
        self.assertEqual(self.world.run("status").returncode, 0)


class TheLink(Staged):
    def test_a_daemon_that_goes_and_comes_is_followed(self):
        tray = self.start()
        hear(tray)
        self.world.end_daemon()
        until("it is missed", lambda: "Restart Ollama" not in tray.menu.labels())
        self.assertIn("Stablehand does not answer; trying again", tray.menu.labels())
        until("nothing installed is nothing to wait for",
              lambda: "Stablehand is not installed yet" in tray.menu.labels(), seconds=30)
        self.world.serve()
        until("it is heard again", lambda: "Restart Ollama" in tray.menu.labels(), seconds=30)

    def test_a_failure_of_a_menu_item_is_read_in_the_menu(self):
        tray = self.start()
        until("it is heard", lambda: "Launch at login" in tray.menu.labels())
        agents = self.world.home / "Library/LaunchAgents"
        blocked = agents / "dev.stablehand.tray.plist"
        blocked.mkdir()
        self.addCleanup(lambda: blocked.rmdir() if blocked.exists() else None)
        tray.menu.click("Launch at login")
        until("it says so", lambda: any(words.startswith("Did not work: ") for words in tray.menu.labels()))


class StrangeDaemons(Staged):
    """Whatever answers, the menu stands, and shows what it was told as text."""

    def test_a_daemon_of_another_version_is_named(self):
        snapshot = {**self.world.snapshot(), "daemon_version": "9.9.9"}
        self.world.end_daemon()
        for answer in (snapshot, {"a word": "of tomorrow"}, []):
            stand_in = StandIn(self.world, answer, "9.9.9")
            try:
                tray = self.start()
                until("it is named", lambda: "Stablehand’s daemon is version 9.9.9" in tray.menu.labels())
                self.assertNotIn("Restart Ollama", tray.menu.labels())
                self.assertIn("Stop Stablehand…", tray.menu.labels())
                tray.close()
            finally:
                stand_in.close()

    def test_many_models_and_names_of_any_kind(self):
        self.world.serve()
        self.world.fault("work-steady", "--model", "smollm:135m")
        until("a runner is seen", self.world.listed_models, seconds=60)
        snapshot = self.world.snapshot()
        self.world.fault("work-stop")
        self.world.end_daemon()
        strange = [
            "<script>window.bad = 1</script>", "<img src=x onerror=window.bad=1>", "모델/한글:27b", "😀🚀:latest",
            "a & b_c__d %s \\ \" ' ;", "x" * 300, "한" * 299 + ":8b",
        ]
        names = [f"model-{number}:latest" for number in range(200 - len(strange))] + strange
        one = snapshot["watched"]["runners"][0]
        snapshot["watched"]["runners"] = [
            {**one, "pid": 100_000 + number, "model": name} for number, name in enumerate(names)
        ]
        stand_in = StandIn(self.world, snapshot, snapshot["daemon_version"])
        self.addCleanup(stand_in.close)
        tray = self.start()
        hear(tray)
        labels = tray.menu.labels()
        self.assertEqual(labels.count("Unload"), 200)
        for name in names:
            # A long one keeps both ends.
            self.assertTrue(any(name == label or (len(name) > 72 and "…" in label and name[:36] == label[:36]
                                                  and name[-35:] == label[-35:]) for label in labels), name)
        self.assertLess(max(map(len, labels)), 80)
        for name in ("<script>window.bad = 1</script>", "모델/한글:27b"):
            tray.menu.click("Unload", after=name)
            asked = lambda name=name: [it for it in stand_in.asked if it["verb"] == "unload" and it["model"] == name]
            until(f"{name} is to be unloaded", asked)
        tray.close()
        page = Page(PROGRAMS, self.world)
        self.addCleanup(page.close)
        until("the page shows models", lambda: "194 more" in page.text())
        page.press("194 more")
        for name in strange:
            until(f"the page shows {name}", lambda: name in page.run("return document.body.textContent"), seconds=30)
        self.assertIsNone(page.run("return window.bad ?? null"))
        self.assertEqual(page.run("return document.querySelectorAll('main script, main img').length"), 0)
        wide = page.run("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(wide[0], wide[1], "nothing stands beyond the right edge")


class AStall(Staged):
    speed = 20

    def test_a_stall_is_told_on_the_desktop_and_cleared_with_the_pages_button(self):
        model = "qwen3.6:35b"
        page = Page(PROGRAMS, self.world)
        self.addCleanup(page.close)
        judged = lambda: {row["model"]: row["judged"]["verdict"] for row in self.world.runners() if row["judged"]}
        self.world.fault("work-steady", "--model", model)
        until("it generates", lambda: judged().get(model) == "generating", seconds=90)
        self.world.fault("runner-stuck")
        until("the daemon tells", lambda: any(a["kind"] == "hung" for a in self.world.snapshot()["alerts"]), seconds=120)
        stopped = lambda: [n for n in self.desktop.notices if "decode loop stands still" in n["summary"]]
        notice = until("it is on the desktop", stopped)[-1]
        self.assertTrue(notice["summary"].startswith("SIMULATED: ") and model in notice["summary"], notice)
        self.desktop.click(notice)
        until("the page names it", lambda: f"{model} has stopped moving" in page.text())

        def ended():
            # A button that has just come is not what a finger was on its way to, and does nothing yet.
            if "End this runner" in page.text():
                page.press("End this runner")
            return judged().get(model) in ("loading", "generating", "prefill", "idle")

        until("another runner works", ended, seconds=90, step_seconds=1)
        until("the page is calm", lambda: "has stopped moving" not in page.text())


class NoDaemon(Staged):
    daemon = False

    def test_without_stablehand_the_menu_offers_only_what_works(self):
        tray = self.start()
        until("it is absent", lambda: "Stablehand is not installed yet" in tray.menu.labels())
        self.assertNotIn("Restart Ollama", tray.menu.labels())
        self.assertIn("Quit menu", tray.menu.labels())

    def test_install_stop_start_uninstall_through_the_page(self):
        page = Page(PROGRAMS, self.world)
        self.addCleanup(page.close)
        ask = lambda ask: page_ask(page, ask)
        planned = ask({"what": "install", "dry_run": True})
        self.assertEqual(planned["answer"], "planned")
        plist = self.world.home / "Library/LaunchAgents/dev.stablehand.daemon.plist"
        self.assertTrue(any("dev.stablehand.daemon" in step for step in planned["steps"]), planned)
        self.assertFalse(plist.exists())
        state = lambda: ask({"what": "view"})["view"]["link"]["state"]
        self.assertEqual(ask({"what": "install", "dry_run": False}), {"answer": "done"})
        until("the daemon is heard", lambda: state() == "live", seconds=30)
        self.assertTrue(plist.is_file())
        self.assertEqual(ask({"what": "stop-daemon"}), {"answer": "done"})
        until("it is gone and waited for", lambda: state() == "reconnecting", seconds=30)
        self.assertEqual(ask({"what": "start-daemon"}), {"answer": "done"})
        until("it is back", lambda: state() == "live", seconds=30)
        command = self.world.folder / "usr/local/bin/stablehand"
        self.assertTrue(command.is_symlink())
        agent = self.world.home / "Library/LaunchAgents/dev.stablehand.tray.plist"
        choices = {**ask({"what": "view"})["view"]["choices"], "at_login": True}
        self.assertEqual(ask({"what": "choose", "choices": choices}), {"answer": "done"})
        self.assertTrue(agent.is_file())
        steps = ask({"what": "uninstall", "dry_run": True})["steps"]
        for path in (agent, command, plist):
            self.assertEqual(sum(str(path) in step for step in steps), 1, steps)
        self.assertEqual(ask({"what": "uninstall", "dry_run": False}), {"answer": "done"})
        until("it is absent", lambda: state() == "absent", seconds=30)
        self.assertFalse(plist.exists() or agent.exists() or command.is_symlink())
        self.assertFalse(ask({"what": "view"})["view"]["choices"]["at_login"])


class Notices(Staged):
    def test_a_notice_is_posted_and_its_click_opens_the_popover_at_the_matter(self):
        tray = self.start()
        hear(tray)
        self.world.run("settings", "preset", "serial")
        self.world.run("apply")
        self.world.fault("session-changed-by-hand")
        self.world.run("verify", check=False)
        alerts = until("the daemon tells", lambda: self.world.snapshot()["alerts"], seconds=60)
        second = self.second("notify", alerts[-1]["kind"])
        self.assertEqual(second.returncode, 0, second.stderr)
        notice = until("it is posted", lambda: self.desktop.notices)[-1]
        self.assertEqual(notice["summary"], f"SIMULATED: {alerts[-1]['message']}")
        self.assertIn(alerts[-1]["action"], notice["body"])
        self.assertEqual(tray.web_processes(), {})
        self.desktop.click(notice)
        until("the popover opens", tray.web_processes)


class ANewVersion(Staged):
    speed = 20
    ollama = "0.22.1"

    def test_it_is_told_put_in_place_from_the_notice_and_rolled_back_from_the_page(self):
        page = Page(PROGRAMS, self.world)
        self.addCleanup(page.close)
        told = lambda: [n for n in self.desktop.notices if n["summary"] == "SIMULATED: Ollama 0.24.0 is out"]
        notice = until("it is on the desktop", told, seconds=60)[-1]
        self.assertEqual(notice["body"], "0.22.1 is installed.")
        self.assertEqual(notice["actions"][2:], ["deed", "Upgrade"])
        until("the page offers it", lambda: "0.24.0 is out" in page.text())
        self.assertIn("Faster prompts", page.text())
        self.desktop.click(notice, "deed")
        until("it is in place", lambda: "0.24.0 is in place and proved" in page.text(), seconds=90)
        self.assertEqual(self.world.snapshot()["versions"]["installed"], "0.24.0")
        page.press("Roll back to 0.22.1")
        until("it is asked first", lambda: "Roll back to 0.22.1?" in page.text(), seconds=30)
        # The second button of these words is the one that means it.
        page.run(
            "[...document.querySelectorAll('.question button')]"
            ".find(one => one.textContent.includes('Roll back')).click()"
        )

        def set_aside():
            if "Set aside and roll back" in page.text():
                page.press("Set aside and roll back")
            return "Back on 0.22.1, and it is proved" in page.text()

        until("the old one is back", set_aside, seconds=90, step_seconds=0.5)
        self.assertIn("Stays on 0.22.1, though 0.24.0 is out", page.text())

        def offered_again():
            # What the page still says of the rollback may move the button away from under the pointer.
            if "Unpin" in page.text():
                page.press("Unpin")
            return not self.world.snapshot()["versions"]["pin"]

        until("it is offered again", offered_again, step_seconds=1)

    def test_the_menu_says_it_in_one_line(self):
        tray = self.start()
        hear(tray)
        lines = {"Upgrade to 0.24.0…", "Up to date (0.24.0)", "Pinned to 0.22.1"}
        until("it says so", lambda: lines & set(tray.menu.labels()), seconds=60)


class TheGateway(Staged):
    def test_it_takes_ollamas_place_and_its_queue_is_paused_from_the_menu(self):
        tray = self.start()
        hear(tray)
        place = "Gateway in Ollama’s place (a change restarts Ollama)"
        gateway = lambda: self.world.snapshot()["gateway"] or {"state": None}
        until("the daemon knows of it", lambda: tray.menu.is_on(place) is False, seconds=60)
        self.assertNotIn("Pause the queue", tray.menu.labels())
        tray.menu.click(place)
        until("it stands there", lambda: gateway()["state"] == "in-place", seconds=90)
        until("the menu knows", lambda: tray.menu.is_on(place) and "Pause the queue" in tray.menu.labels(), seconds=60)

        queue = lambda: json.loads(self.world.run("queue", "--json").stdout)
        tray.menu.click("Pause the queue")
        until("it is paused", lambda: [hold["why"] for hold in queue()["holds"]] == ["paused"])
        until("the menu says so", lambda: "The queue is paused; waiting: 0" in tray.menu.labels())
        tray.menu.click("Pause the queue")
        until("it goes on", lambda: not queue()["holds"] and not tray.menu.is_on("Pause the queue"))

        tray.menu.click(place)
        until("it has left", lambda: gateway()["state"] == "off", seconds=90)
        until("the menu knows that", lambda: tray.menu.is_on(place) is False and "Pause the queue" not in tray.menu.labels(),
              seconds=60)


    def test_the_page_lists_who_waits_and_drops_one(self):
        on = lambda: self.world.run("gateway", "on", "--takeover", "--yes", check=False).returncode == 0
        until("it stands in Ollama's place", on, seconds=90, step_seconds=1)
        page = Page(PROGRAMS, self.world)
        self.addCleanup(page.close)
        until("the page has the exact queue", lambda: page.run("return !!document.querySelector('.exact')"), seconds=60)
        page.press("Pause")
        until("the page says so", lambda: "The queue is paused" in page.text())
        listen = self.world.snapshot()["gateway"]["listen"]
        answers = {}
        asked = [threading.Thread(target=self.generate, args=(listen, lane, answers)) for lane in ("batch", "interactive")]
        for one in asked:
            one.start()
        until("both wait", lambda: "2 wait" in page.text(), seconds=30)
        first = page.run("return document.querySelector('.request select').value")
        until("one is dropped", lambda: "1 waits" in page.text() or page.press("Drop"), step_seconds=2)
        page.press("Go on")
        for one in asked:
            one.join(60)
        self.assertEqual(first, "interactive", "its lane goes first")
        self.assertGreaterEqual(answers["interactive"], 500, answers)
        self.assertEqual(answers["batch"], 200, answers)

    @staticmethod
    def generate(listen, lane, answers):
        """Asks for a short answer, and keeps the status that came."""
        body = json.dumps({"model": "smollm:135m", "prompt": "hello", "stream": False}).encode()
        headers = {"content-type": "application/json", "x-stablehand-lane": lane}
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{listen}/api/generate", body, headers)) as answer:
                answers[lane] = answer.status
        except urllib.error.HTTPError as error:
            answers[lane] = error.code


class ThePopover(Staged):
    def test_it_is_made_when_wanted_destroyed_later_and_leaves_nothing_behind(self):
        tray = self.start()
        hear(tray)
        settle(tray)
        before = tray.pss_mb()
        self.assertEqual(tray.web_processes(), {})
        self.assertEqual(self.second().returncode, 0)
        until("the popover opens", tray.web_processes)
        until("its window is there", lambda: "Stablehand" in windows())
        open_mb = tray.pss_mb()
        take_focus("Stablehand")
        until("it is hidden", lambda: "Stablehand" not in windows())
        self.assertTrue(tray.web_processes(), "it is kept for a while")
        until("its processes are gone", lambda: not tray.web_processes(), seconds=45)
        settle(tray)
        after = tray.pss_mb()
        print(f"\n    PSS before {before:.1f} MB, open {open_mb:.1f} MB, after {after:.1f} MB", file=sys.stderr)
        self.assertLess(after - before, LEFT_BEHIND_MB)

    def test_a_window_that_breaks_is_told_and_opened_anew(self):
        tray = self.start()
        hear(tray)
        for broken in ("WebKitWebProces", "stablehand-page"):
            tray.menu.click("Open Stablehand")
            until("its window is there", lambda: "Stablehand" in windows())
            for pid, name in tray.children().items():
                if name == broken:
                    os.kill(pid, signal.SIGKILL)
            until("it is gone", lambda: "Stablehand" not in windows() and not tray.children())
            lost = lambda: any(words.startswith("Did not work: The window was lost") for words in tray.menu.labels())
            until("the menu tells", lost)
        tray.menu.click("Open Stablehand")
        until("it is opened anew", lambda: "Stablehand" in windows())

    def test_it_ends_with_its_tray(self):
        tray = self.start("--open")
        until("its window is there", lambda: "Stablehand" in windows())
        children = tray.children()
        tray.process.kill()
        until("nothing is left", lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in children))

    def test_of_many_copies_one_stays_and_opens_the_window(self):
        copies = [Tray(PROGRAMS, self.world) for _ in range(6)]
        for copy in copies:
            self.addCleanup(copy.close)
        running = lambda: [copy for copy in copies if copy.process.poll() is None]
        until("one is left", lambda: len(running()) == 1)
        self.assertEqual([copy.process.returncode for copy in copies if copy not in running()], [0] * 5)
        # Without a window manager the focus may go elsewhere at once, which hides it again.
        until("it opens the window", lambda: running()[0].web_processes())

    def test_at_rest_it_hardly_wakes(self):
        tray = self.start()
        hear(tray)
        settle(tray)
        a_minute = context_switches_a_minute(tray.process.pid, 20)
        print(f"\n    {a_minute:.0f} context switches a minute, PSS {tray.pss_mb():.1f} MB", file=sys.stderr)
        self.assertLess(a_minute, 120)
        self.assertFalse(tray.children(), "nothing runs beside it")


class ThePage(Staged):
    def test_the_page_shows_the_simulated_machine_and_its_button_works(self):
        page = Page(PROGRAMS, self.world)
        self.addCleanup(page.close)
        until("the page says what it is", lambda: "SIMULATED" in page.text().upper())
        view = page_ask(page, {"what": "view"})
        self.assertEqual(view["view"]["system"], "macos")
        self.assertTrue(view["view"]["link"]["snapshot"]["simulated"])
        past = page_ask(page, {"what": "history", "since_s": 600, "points": 10})
        self.assertEqual(past["answer"], "past", past)
        done = page_ask(page, {"what": "choose", "choices": {"language": "ko", "title": "memory", "at_login": False}})
        self.assertEqual(done, {"answer": "done"})
        kept = self.world.home / "Library/Application Support/dev.stablehand/face.json"
        self.assertEqual(json.loads(kept.read_text())["language"], "ko")
        until("the page is Korean", lambda: any("가" <= letter <= "힣" for letter in page.text()))
        page_ask(page, {"what": "choose", "choices": {"language": "en", "title": "off", "at_login": False}})
        until("the page is English", lambda: "Settings" in page.text())
        page.press("Settings")
        until("the page of choices is there", lambda: "Pause for 1 hour" in page.text())
        page.press("Pause for 1 hour")
        until("alerts are paused", lambda: self.world.snapshot()["alerts_paused_until"])

    def test_the_page_can_ask_nothing_else_of_the_program(self):
        page = Page(PROGRAMS, self.world)
        self.addCleanup(page.close)
        until("the page is there", page.text)
        for command in ("plugin:window|close", "plugin:webview|create_webview_window", "plugin:event|emit"):
            answer = invoke(page, command, {"event": "x", "label": "popover"})
            self.assertIn("refused", answer, command)
        page.run(
            "document.addEventListener('securitypolicyviolation', e => window.__stopped = e.effectiveDirective);"
            "fetch('http://127.0.0.1:1/').catch(() => {});"
        )
        self.assertEqual(until("the policy stops it", lambda: page.run("return window.__stopped")), "connect-src")


class NoTrayHost(Staged):
    services = ("notices",)

    def test_a_desktop_without_a_tray_is_told_and_gets_the_window(self):
        tray = self.start()
        until("it says so", lambda: "This desktop shows no tray icons" in tray.words(), seconds=30)
        until("the window opens", lambda: "Stablehand" in windows())
        self.assertIsNone(tray.process.poll())


def page_ask(page, ask):
    answer = invoke(page, "ask", {"ask": ask})
    assert "answered" in answer, answer
    return answer["answered"]


def invoke(page, command, arguments):
    page.run(
        "window.__answer = null;"
        "window.__TAURI_INTERNALS__.invoke(arguments[0], arguments[1])"
        ".then(a => window.__answer = {answered: a}, e => window.__answer = {refused: String(e)});",
        command, arguments,
    )
    return until(f"{command} is answered", lambda: page.run("return window.__answer"), seconds=120)


def hear(tray):
    """Waits until the daemon has been heard."""
    try:
        until("the daemon is heard", lambda: "Restart Ollama" in tray.menu.labels())
    except AssertionError as error:
        raise AssertionError(f"{error}\n{tray.menu.labels()}\n{tray.words()}") from error


class Counting(unittest.TextTestResult):
    def counted(self):
        failed = len(self.failures) + len(self.errors) + len(self.unexpectedSuccesses)
        return max(self.testsRun - failed, 0), failed


def main():
    global PROGRAMS
    PROGRAMS = Programs.built()
    try:
        names = [word for word in sys.argv[1:] if not word.startswith("-")]
        loader = unittest.TestLoader()
        loader.testNamePatterns = [f"*{name}*" for name in names] or None
        runner = unittest.TextTestRunner(verbosity=2, resultclass=Counting)
        passed, failed = runner.run(loader.loadTestsFromModule(sys.modules["__main__"])).counted()
    finally:
        PROGRAMS.remove()
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed")
    print(f"tests: {passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


main()
