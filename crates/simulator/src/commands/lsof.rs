//! `lsof(8)` for TCP sockets.

use std::fmt::Write;

use listeners::{Listener, Protocol, SocketState};

use crate::process_table;
use crate::wire::Reply;
use crate::world::World;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    port: Option<u16>,
    listening_only: bool,
    /// Letters after `-F`.
    fields: Option<String>,
    /// `-t`: only pids.
    terse: bool,
    pid: Option<u32>,
}

/// Runs the command. Nothing found is exit 1 without a word.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let call = parse(arguments);
    let Ok(sockets) = listeners::get_all() else {
        return Reply::failed(1, "lsof: cannot read the sockets");
    };
    let ours: Vec<u32> = process_table::all()
        .iter()
        .filter(|process| {
            process.executable.starts_with(&world.dir) || call.port.is_some()
        })
        .map(|process| process.pid as u32)
        .collect();
    let mut rows: Vec<Listener> = sockets
        .into_iter()
        .filter(|row| row.protocol == Protocol::TCP && ours.contains(&row.process.pid))
        .filter(|row| call.port.is_none_or(|port| row.socket.port() == port))
        .filter(|row| call.pid.is_none_or(|pid| row.process.pid == pid))
        .filter(|row| !call.listening_only || row.state == SocketState::Listen)
        .collect();
    rows.sort_by_key(|row| (row.process.pid, row.socket.port()));
    if rows.is_empty() {
        return Reply::failed(1, "");
    }
    if call.terse {
        let mut pids: Vec<u32> = rows.iter().map(|row| row.process.pid).collect();
        pids.dedup();
        return Reply::said(pids.iter().map(|pid| format!("{pid}\n")).collect::<String>());
    }
    Reply::said(match &call.fields {
        Some(fields) => machine_form(&rows, fields),
        None => table(&rows, &world.marker.user),
    })
}

fn parse(arguments: &[String]) -> Call {
    let mut call = Call::default();
    let mut words = arguments.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if let Some(rest) = word.strip_prefix("-i") {
            let filter = if rest.is_empty() { words.next().unwrap_or_default() } else { rest };
            call.port = filter.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        } else if let Some(rest) = word.strip_prefix("-s") {
            call.listening_only = rest.eq_ignore_ascii_case("TCP:LISTEN");
        } else if let Some(rest) = word.strip_prefix("-F") {
            let separate = words.peek().filter(|next| rest.is_empty() && !next.starts_with('-'));
            call.fields = Some(separate.map_or(rest, |next| next).to_owned());
        } else if word == "-p" {
            call.pid = words.next().and_then(|pid| pid.parse().ok());
        } else if let Some(flags) = word.strip_prefix('-') {
            call.terse |= flags.contains('t');
        }
    }
    call
}

fn command_of(row: &Listener) -> String {
    std::path::Path::new(&row.process.path)
        .file_name()
        .map_or_else(|| row.process.name.clone(), |name| name.to_string_lossy().into_owned())
}

fn table(rows: &[Listener], user: &str) -> String {
    let mut text =
        "COMMAND     PID           USER   FD   TYPE             DEVICE SIZE/OFF NODE NAME\n".to_owned();
    for row in rows {
        let command: String = command_of(row).replace(' ', "\\x20").chars().take(9).collect();
        let kind = if row.socket.is_ipv4() { "IPv4" } else { "IPv6" };
        let state = format!("{:?}", row.state).to_uppercase();
        let device = 0xace4_297c_0000_0000_u64
            + u64::from(row.process.pid) * 65_536
            + u64::from(row.socket.port());
        let _ = writeln!(
            text,
            "{command:<9} {:>5} {user:>14}    3u  {kind} {device:#018x}      0t0  TCP {} ({state})",
            row.process.pid, row.socket
        );
    }
    text
}

fn machine_form(rows: &[Listener], fields: &str) -> String {
    let mut text = String::new();
    let mut last = None;
    for row in rows {
        if last != Some(row.process.pid) {
            last = Some(row.process.pid);
            let _ = writeln!(text, "p{}", row.process.pid);
            if fields.contains('c') {
                let _ = writeln!(text, "c{}", command_of(row));
            }
        }
        let _ = writeln!(text, "f3");
        if fields.contains('n') {
            let _ = writeln!(text, "n{}", row.socket);
        }
        if fields.contains('T') {
            let _ = writeln!(text, "TST={}", format!("{:?}", row.state).to_uppercase());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> Call {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn the_usual_calls_are_read() {
        let usual = call("-nP -iTCP:11434 -sTCP:LISTEN");
        assert_eq!((usual.port, usual.listening_only, usual.fields), (Some(11434), true, None));
        assert_eq!(call("-nP -iTCP:1 -F pcn").fields.as_deref(), Some("pcn"));
        assert_eq!(call("-Fpcn -i :1").fields.as_deref(), Some("pcn"));
        assert_eq!(call("-i :77").port, Some(77));
    }
}
