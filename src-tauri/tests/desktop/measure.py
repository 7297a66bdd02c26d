#!/usr/bin/python3
"""What the menu costs. Run through scripts/bench app, which gives it release builds, a screen and a session bus.

Time is taken from the click on "Open Stablehand" to the frame that the page itself says is on the screen: the second
animation frame after it shows a view. The empty page is opened by the same program in the same way, by turns.
"""

import argparse
import gzip
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

ASSETS = Path(__file__).resolve().parents[3] / "ui" / "dist" / "assets"
LIMIT_PSS_MB = 60
LIMIT_OVER_EMPTY = 1.3
LIMIT_PAGE_KB = 60
LIMIT_SWITCHES = 60
FRAME = "frame "


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench app", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="openings of each of the two pages, at least 5 (7)")
    parser.add_argument("--seconds", type=float, default=60, help="length of the rest in which wakes are counted (60)")
    parser.add_argument("--json", action="store_true", help="only JSON, without words for a person")
    options = parser.parse_args()
    if options.rounds < 5:
        parser.error("a median of fewer than 5 openings says little")
    # Its modules are those of Debian's Python, which the help does without.
    from stage import Desktop, Programs, World

    say = (lambda _: None) if options.json else (lambda words: print(words, file=sys.stderr))
    programs = Programs.built()
    world = desktop = None
    try:
        world, desktop = World(programs), Desktop("tray", "notices")
        stage = (programs, world, desktop)
        memory, switches = at_rest(stage, options.seconds)
        say(f"at rest: {memory:.1f} MB, {switches:.0f} context switches a minute")
        first, warm, empty = openings(stage, options.rounds, say)
    finally:
        for made in (desktop, world):
            if made:
                made.close()
        programs.remove()
    report(
        {
            "bench": "app",
            "tray_pss_mb": round(memory, 1),
            "popover_warm_ms": round(statistics.median(warm)),
            "popover_first_ms": round(statistics.median(first)),
            "bare_webview_ms": round(statistics.median(empty)),
            "page_gzip_kb": round(page_bytes() / 1000, 1),
            "context_switches_per_min": round(switches),
            "rounds_first_ms": [round(value) for value in first],
            "rounds_bare_ms": [round(value) for value in empty],
            "rounds_warm_ms": [round(value) for value in warm],
        },
        say,
    )


def start(stage, **options):
    from stage import Tray, settle, until

    tray = Tray(*stage, **options)
    until("the daemon is heard", lambda: "Restart Ollama" in tray.menu.labels())
    settle(tray)
    return tray


def at_rest(stage, seconds):
    """Memory and context switches of a menu that nobody has clicked on, the daemon apart."""
    from stage import context_switches_a_minute

    tray = start(stage)
    try:
        # What was begun at its start is over.
        time.sleep(10)
        switches = context_switches_a_minute(tray.process.pid, seconds)
        return tray.pss_mb(), switches
    finally:
        tray.close()


def openings(stage, rounds, say):
    first, warm, empty = [], [], []
    for number in range(rounds):
        # By turns, and each kind first every other time, so that neither has the warmer machine.
        for kind in ("page", "empty") if number % 2 == 0 else ("empty", "page"):
            tray = start(stage, environment={"STABLEHAND_FRAMES": kind})
            try:
                if kind == "empty":
                    empty.append(opened(tray))
                else:
                    first.append(opened(tray))
                    warm.append(opened_again(tray))
            finally:
                tray.close()
        say(f"first {first[-1]:.0f} ms, empty {empty[-1]:.0f} ms, again {warm[-1]:.0f} ms")
    return first, warm, empty


def opened_again(tray):
    from stage import take_focus, until, windows

    take_focus("Stablehand")
    until("the window is hidden", lambda: "Stablehand" not in windows())
    return opened(tray)


def opened(tray):
    """Milliseconds from a click to the first frame after it."""
    from stage import until

    number = tray.menu.number("Open Stablehand")
    frames = lambda: [float(line[len(FRAME) :]) for line in tray.words().splitlines() if line.startswith(FRAME)]
    clicked = time.time() * 1000
    tray.menu.click_number(number)
    # The page's clock has whole milliseconds.
    frame = until("a frame is painted", lambda: [at for at in frames() if at > clicked - 1], step_seconds=0.01)[0]
    return frame - clicked


def page_bytes():
    """What the menu loads, packed: the page and the heavier language, without the demo for plain browsers."""
    packed = lambda name: sum(len(gzip.compress(path.read_bytes(), 9)) for path in ASSETS.glob(f"{name}-*.js"))
    if not packed("index"):
        sys.exit(f"there is no page in {ASSETS}; scripts/build-ui makes it")
    return packed("index") + max(packed("en"), packed("ko"))


def report(figures, say):
    most_first = figures["bare_webview_ms"] * LIMIT_OVER_EMPTY
    limits = (
        ("the menu's memory", "tray_pss_mb", "MB", LIMIT_PSS_MB),
        ("the first opening", "popover_first_ms", "ms", most_first),
        ("the page's script", "page_gzip_kb", "kB packed", LIMIT_PAGE_KB),
        ("context switches at rest", "context_switches_per_min", "a minute", LIMIT_SWITCHES),
    )
    print(json.dumps({**figures, "limit_first_ms": round(most_first), "met": all(figures[n] <= m for _, n, _, m in limits)}))
    for words, name, unit, most in limits:
        say(f"app: {words}: {figures[name]:g} {unit}, at most {most:g}")
    say(f"app: an empty page opens in {figures['bare_webview_ms']} ms, ours again in {figures['popover_warm_ms']} ms")
    missed = [f"{words}: {figures[name]:g} {unit} instead of at most {most:g}" for words, name, unit, most in limits if figures[name] > most]
    sys.exit("\n".join(f"app: not met: {line}" for line in missed) if missed else 0)


main()
