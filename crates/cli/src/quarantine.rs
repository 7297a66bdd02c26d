//! A quarantine as a person reads it.

use crate::paint::Paint;
use crate::text::simulated_line;
use stablehand_daemon::quarantine::{MarkShown, Report, State};
use stablehand_protocol::Known;
use std::path::Path;

/// How many paths that could not be read are shown.
const SHOWN: usize = 5;

/// What was found, what was done, and what to do; `named` is the path that was asked for.
pub fn page(report: &Report, named: Option<&Path>, paint: Paint) -> String {
    let mut lines = Vec::new();
    let words = format!("{} {}", report.path, report.words);
    lines.push(match report.state {
        State::NothingBlocks => paint.good(&words),
        State::WouldBlock => paint.bad(&words),
        State::Unknown => paint.doubtful(&words),
    });
    match &report.mark {
        Known::Is(Some(mark)) => lines.extend(details(mark, if report.cleared { "was " } else { "" })),
        Known::Is(None) | Known::Unknown { .. } => {}
    }
    if report.marked > 0 {
        let verb = if report.cleared { "carried" } else { "carry" };
        let all = report.looked_at;
        lines.push(format!("  {} of {all} files and folders {verb} com.apple.quarantine", report.marked));
    }
    // One alone stands in the first line already.
    let told = report.state == State::Unknown && report.unreadable.len() == 1;
    if !report.cleared && !told {
        lines.extend(report.unreadable.iter().take(SHOWN).map(|unread| format!("  not readable: {unread}")));
        let more = report.unreadable.len().saturating_sub(SHOWN);
        if more > 0 {
            lines.push(format!("  and {more} more"));
        }
    }
    if report.cleared {
        lines.extend(report.signature.iter().map(|said| format!("  {said}")));
        lines.push(format!("  cleared, and all {} read again to prove it", report.looked_at));
    } else if !report.steps.is_empty() {
        lines.push("would do:".to_owned());
        lines.extend(report.steps.iter().enumerate().map(|(index, step)| format!("  {}. {step}", index + 1)));
    } else {
        match report.state {
            State::WouldBlock | State::Unknown if report.app => {
                let path = named.map_or_else(String::new, |path| format!(" '{}'", path.display()));
                lines.push(format!("  → `stablehand quarantine --clear{path}` checks its signature and clears it"));
            }
            State::WouldBlock | State::Unknown | State::NothingBlocks => {}
        }
    }
    let mut text = simulated_line(report.simulated.as_deref(), paint);
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn details(mark: &MarkShown, was: &str) -> Vec<String> {
    let time = match &mark.at {
        Known::Is(at) => at.clone(),
        Known::Unknown { unknown } => format!("unknown ({unknown})"),
    };
    let mut lines = vec![
        format!("  {was}flags {}: {}", mark.flags, mark.meanings.join(", ")),
        format!("  {was}marked by {} at {time}", mark.agent.as_deref().unwrap_or("an unnamed program")),
    ];
    lines.extend(mark.event.as_ref().map(|event| format!("  {was}download {event}")));
    lines
}
