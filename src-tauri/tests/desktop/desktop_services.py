#!/usr/bin/python3
"""What a desktop gives a tray: a host for icons and a service for notifications, on the session bus.

Prints one JSON object a line: {"ready": true}, {"item": ADDRESS} for each icon that registers, {"notice": {…}} for each
notification. A line `click NUMBER` on standard input is a click on that notification.
"""

import json
import sys

import dbus
import dbus.service
from dbus.mainloop.glib import DBusGMainLoop
from gi.repository import GLib

WATCHER = "org.kde.StatusNotifierWatcher"
NOTICES = "org.freedesktop.Notifications"


def say(**words):
    print(json.dumps(words), flush=True)


class TrayHost(dbus.service.Object):
    """Keeps the list of icons (freedesktop.org, StatusNotifierItem)."""

    def __init__(self, bus):
        super().__init__(bus, "/StatusNotifierWatcher")
        self.items = []

    @dbus.service.method(WATCHER, in_signature="s", sender_keyword="sender")
    def RegisterStatusNotifierItem(self, service, sender=None):
        address = sender + service if service.startswith("/") else service
        self.items.append(address)
        say(item=address)
        self.StatusNotifierItemRegistered(address)

    @dbus.service.method(WATCHER, in_signature="s")
    def RegisterStatusNotifierHost(self, service):
        pass

    @dbus.service.signal(WATCHER, signature="s")
    def StatusNotifierItemRegistered(self, address):
        pass

    @dbus.service.method(dbus.PROPERTIES_IFACE, in_signature="ss", out_signature="v")
    def Get(self, interface, name):
        return self.GetAll(interface)[name]

    @dbus.service.method(dbus.PROPERTIES_IFACE, in_signature="s", out_signature="a{sv}")
    def GetAll(self, interface):
        return {
            "RegisteredStatusNotifierItems": dbus.Array(self.items, signature="s"),
            "IsStatusNotifierHostRegistered": True,
            "ProtocolVersion": dbus.Int32(0),
        }


class NoticeService(dbus.service.Object):
    """Takes notifications (freedesktop.org, Desktop Notifications 1.2)."""

    def __init__(self, bus):
        super().__init__(bus, "/org/freedesktop/Notifications")
        self.last = 0

    @dbus.service.method(NOTICES, in_signature="susssasa{sv}i", out_signature="u")
    def Notify(self, app, replaces, icon, summary, body, actions, hints, timeout):
        self.last += 1
        say(notice={"number": self.last, "app": app, "summary": summary, "body": body, "actions": list(actions)})
        return dbus.UInt32(self.last)

    @dbus.service.method(NOTICES, out_signature="as")
    def GetCapabilities(self):
        return dbus.Array(["body", "actions"], signature="s")

    @dbus.service.method(NOTICES, out_signature="ssss")
    def GetServerInformation(self):
        return "desktop_services", "Stablehand", "1", "1.2"

    @dbus.service.method(NOTICES, in_signature="u")
    def CloseNotification(self, number):
        pass

    @dbus.service.signal(NOTICES, signature="us")
    def ActionInvoked(self, number, action):
        pass


def main():
    DBusGMainLoop(set_as_default=True)
    bus = dbus.SessionBus()
    wanted = sys.argv[1:] or ["tray", "notices"]
    held = []
    notices = None
    if "tray" in wanted:
        held += [dbus.service.BusName(WATCHER, bus), TrayHost(bus)]
    if "notices" in wanted:
        notices = NoticeService(bus)
        held += [dbus.service.BusName(NOTICES, bus), notices]

    def on_input(source, _condition):
        words = source.readline().split()
        if len(words) == 3 and words[0] == "click" and notices:
            notices.ActionInvoked(dbus.UInt32(int(words[1])), words[2])
        return bool(words)

    GLib.io_add_watch(sys.stdin, GLib.IO_IN, on_input)
    say(ready=True)
    GLib.MainLoop().run()


main()
