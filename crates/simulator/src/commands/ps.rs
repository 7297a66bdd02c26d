//! `ps(1)` of macOS over the processes of the world.

use crate::process_table::{self, Process};
use crate::wire::Reply;
use crate::world::clock::real_unix_ms;
use crate::world::{World, moments};

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    all: bool,
    pids: Vec<i32>,
    /// Column and its heading; an empty heading hides the header.
    columns: Vec<(String, Option<String>)>,
    /// `-E`: the environment after the arguments.
    environment: bool,
}

/// Runs the command. No process is exit 1.
pub fn run(world: &World, arguments: &[String]) -> Reply {
    let call = parse(arguments);
    let inside = format!("{}={}", crate::world::WORLD_VARIABLE, world.dir.display());
    let own = std::process::id() as i32;
    let processes: Vec<Process> = process_table::all()
        .into_iter()
        .filter(|process| {
            let here = process.executable.starts_with(&world.dir) || process.environment.contains(&inside);
            here && process.pid != own && (call.all || call.pids.contains(&process.pid))
        })
        .collect();
    let mut text = String::new();
    if call.columns.iter().any(|(_, heading)| heading.as_deref() != Some("")) {
        let headings: Vec<String> = call
            .columns
            .iter()
            .map(|(column, heading)| heading.clone().unwrap_or_else(|| column.to_uppercase()))
            .collect();
        text.push_str(&headings.join(" "));
        text.push('\n');
    }
    let last = call.columns.len().saturating_sub(1);
    for process in &processes {
        let cells: Vec<String> = call
            .columns
            .iter()
            .enumerate()
            .map(|(index, (column, _))| cell(world, process, column, index == last, call.environment))
            .collect();
        text.push_str(&cells.join(" "));
        text.push('\n');
    }
    let code = u8::from(processes.is_empty());
    Reply { code, stdout: text, stderr: String::new() }
}

fn parse(arguments: &[String]) -> Call {
    let mut call = Call::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let flags = word.trim_start_matches('-');
        for (at, flag) in flags.char_indices() {
            match flag {
                'a' | 'x' | 'A' | 'e' => call.all = true,
                'E' => call.environment = true,
                'o' | 'p' => {
                    let rest = &flags[at + 1..];
                    let value =
                        if rest.is_empty() { words.next().cloned().unwrap_or_default() } else { rest.to_owned() };
                    if flag == 'p' {
                        call.pids.extend(value.split(',').filter_map(|pid| pid.trim().parse::<i32>().ok()));
                    } else {
                        call.columns.extend(columns(&value));
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    if call.columns.is_empty() {
        call.columns = columns("pid,tt,stat,time,command");
    }
    if !call.pids.is_empty() {
        call.all = false;
    }
    call
}

fn columns(list: &str) -> Vec<(String, Option<String>)> {
    list.split([',', ' '])
        .filter(|column| !column.is_empty())
        .map(|column| match column.split_once('=') {
            Some((name, heading)) => (name.to_owned(), Some(heading.to_owned())),
            None => (column.to_owned(), None),
        })
        .collect()
}

fn cell(world: &World, process: &Process, column: &str, last: bool, environment: bool) -> String {
    let started = world.clock.wall_of_real_ms(process.started_unix_ms);
    let elapsed_s = ((world.clock.wall_ms() - started) / 1000).max(0);
    match column {
        "pid" => format!("{:>5}", process.pid),
        "ppid" => format!("{:>5}", process.ppid),
        "pgid" => format!("{:>5}", process.pid),
        "uid" => format!("{:>5}", process.uid),
        "user" => format!("{:<16}", world.marker.user),
        "rss" => format!("{:>6}", process.rss_bytes / 1024),
        "vsz" => format!("{:>9}", process.rss_bytes / 1024 * 40),
        "%cpu" | "pcpu" => {
            let age_ms = (real_unix_ms() - process.started_unix_ms).max(1);
            format!("{:>5.1}", process.cpu_ms as f64 * 100.0 / age_ms as f64)
        }
        "%mem" | "pmem" => format!("{:>4.1}", 0.0),
        "tt" | "tty" => "??      ".to_owned(),
        "stat" | "state" => format!("{:<4}", process.state),
        "lstart" => format!("{:<28}", moments::ctime(started)),
        "etime" => format!("{:>11}", elapsed(elapsed_s)),
        "etimes" => format!("{elapsed_s:>11}"),
        "time" | "cputime" => {
            format!("{:>3}:{:05.2}", process.cpu_ms / 60_000, (process.cpu_ms % 60_000) as f64 / 1000.0)
        }
        "comm" | "ucomm" => {
            let path = process.executable.display().to_string();
            if last { path } else { format!("{:<16.16}", path) }
        }
        "args" | "command" => {
            let mut text = process.arguments.join(" ");
            if environment && !process.environment.is_empty() {
                text.push(' ');
                text.push_str(&process.environment.join(" "));
            }
            text
        }
        _ => String::new(),
    }
}

fn elapsed(seconds: i64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    if days > 0 {
        format!("{days:02}-{hours:02}:{minutes:02}:{seconds:02}")
    } else if hours > 0 {
        format!("{hours:02}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes:02}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(words: &[&str]) -> Call {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_usual_calls_are_read() {
        let all = call(&["-axo", "pid=,ppid=,args="]);
        assert!(all.all);
        assert_eq!(all.columns[2], ("args".to_owned(), Some(String::new())));
        let one = call(&["-Eww", "-o", "command=", "-p", "77"]);
        assert!(one.environment && !one.all);
        assert_eq!(one.pids, [77]);
    }

    #[test]
    fn elapsed_time_grows_by_fields() {
        assert_eq!(elapsed(65), "01:05");
        assert_eq!(elapsed(3_700), "01:01:40");
        assert_eq!(elapsed(90_061), "01-01:01:01");
    }
}
