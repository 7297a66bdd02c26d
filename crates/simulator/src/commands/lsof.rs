//! `lsof(8)` for TCP sockets.

use std::fmt::Write;

use crate::process_table;
use crate::sockets::{self, Socket};
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
    pid: Option<i32>,
}

/// A socket with the name of its program.
struct Row {
    command: String,
    socket: Socket,
}

/// Runs the command. Nothing found is exit 1 without a word.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let call = parse(arguments);
    // Whoever holds the asked port is shown; else only programs of the world.
    let processes: Vec<_> = process_table::all()
        .into_iter()
        .filter(|process| process.executable.starts_with(&world.dir) || call.port.is_some())
        .filter(|process| call.pid.is_none_or(|pid| process.pid == pid))
        .collect();
    let pids: Vec<i32> = processes.iter().map(|process| process.pid).collect();
    let rows: Vec<Row> = sockets::of(&pids)
        .into_iter()
        .filter(|socket| {
            call.port.is_none_or(|port| {
                socket.local.port() == port || socket.remote.is_some_and(|remote| remote.port() == port)
            })
        })
        .filter(|socket| !call.listening_only || socket.state == "LISTEN")
        .map(|socket| Row {
            command: processes
                .iter()
                .find(|process| process.pid == socket.pid)
                .map(|process| process.name().to_owned())
                .unwrap_or_default(),
            socket,
        })
        .collect();
    if rows.is_empty() {
        return Reply::failed(1, "");
    }
    if call.terse {
        let mut pids: Vec<i32> = rows.iter().map(|row| row.socket.pid).collect();
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

/// The NAME column: one end, or both of a connection.
fn name_of(socket: &Socket) -> String {
    match socket.remote {
        Some(remote) => format!("{}->{remote}", socket.local),
        None => socket.local.to_string(),
    }
}

fn table(rows: &[Row], user: &str) -> String {
    let mut text = "COMMAND     PID           USER   FD   TYPE             DEVICE SIZE/OFF NODE NAME\n".to_owned();
    for Row { command, socket } in rows {
        let command: String = command.replace(' ', "\\x20").chars().take(9).collect();
        let kind = if socket.local.is_ipv4() { "IPv4" } else { "IPv6" };
        let device = 0xace4_297c_0000_0000_u64
            + u64::from(socket.pid.unsigned_abs()) * 65_536
            + u64::from(socket.local.port())
            + u64::from(socket.descriptor) * 16;
        let _ = writeln!(
            text,
            "{command:<9} {:>5} {user:>14} {:>4}u  {kind} {device:#018x}      0t0  TCP {} ({})",
            socket.pid,
            socket.descriptor,
            name_of(socket),
            socket.state
        );
    }
    text
}

fn machine_form(rows: &[Row], fields: &str) -> String {
    let mut text = String::new();
    let mut last = None;
    for Row { command, socket } in rows {
        if last != Some(socket.pid) {
            last = Some(socket.pid);
            let _ = writeln!(text, "p{}", socket.pid);
            if fields.contains('c') {
                let _ = writeln!(text, "c{command}");
            }
        }
        let _ = writeln!(text, "f{}", socket.descriptor);
        if fields.contains('n') {
            let _ = writeln!(text, "n{}", name_of(socket));
        }
        if fields.contains('T') {
            let _ = writeln!(text, "TST={}", socket.state);
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
