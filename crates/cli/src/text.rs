//! What a person reads, as pure functions of what the daemon said.

use crate::paint::Paint;
use stablehand_protocol::{Ending, Event, Failure, Known, MemoryBound, Outcome, Runner, Setting, Snapshot};
use std::fmt::Write as _;

/// The whole state.
pub fn snapshot(snapshot: &Snapshot, paint: Paint) -> String {
    let mut out = String::new();
    simulated(&mut out, snapshot.simulated.as_deref(), paint);
    if snapshot.daemon_version != env!("CARGO_PKG_VERSION") {
        let words = format!(
            "the daemon is version {}, this program {}; restart the daemon",
            snapshot.daemon_version,
            env!("CARGO_PKG_VERSION")
        );
        line(&mut out, &paint.bad(&words));
    }
    let server = &snapshot.server;
    let version = server.version.known().map_or(String::new(), |version| format!(" {version}"));
    let state = match server.state.as_str() {
        "up" => paint.good("up"),
        "down" | "silent" | "blocked" | "gave-up" => paint.bad(&server.state),
        other => paint.doubtful(other),
    };
    line(
        &mut out,
        &format!("{} {state} since {} at {}", paint.strong(&format!("Ollama{version}")), server.since, server.address),
    );
    line(&mut out, &format!("  {}", server.words));
    match (&server.owner, &server.owner_detail) {
        (Known::Is(word), Some(owner)) => {
            let pid = server.pid.map_or(String::new(), |pid| format!(", pid {pid}"));
            line(&mut out, &format!("  owner: {word} ({}{pid})", owner.name));
            if !owner.can_restart {
                line(&mut out, &format!("  {}", paint.doubtful(&format!("to hand it over: {}", owner.hint))));
            }
        }
        (Known::Is(word), None) => line(&mut out, &format!("  owner: {word}")),
        (Known::Unknown { unknown }, _) => line(&mut out, &format!("  owner: unknown ({unknown})")),
    }
    for rival in &server.rivals {
        let pid = rival.pid.map_or(String::new(), |pid| format!(" pid {pid}"));
        let path = rival.path.as_deref().map_or(String::new(), |path| format!(" {path}"));
        line(&mut out, &format!("  {}", paint.bad(&format!("rival: {}{pid}{path}: {}", rival.owner, rival.why))));
    }
    if let Some(work) = &snapshot.work {
        let step = &work.step;
        line(&mut out, &format!("{} step {} of {}: {}", paint.strong(&work.goal), step.index, step.of, step.words));
    }
    out.push('\n');
    out.push_str(&settings(&main_settings(&snapshot.settings), paint));
    runners(&mut out, &snapshot.runners, paint);
    if let Some(failure) = &snapshot.config.failure {
        out.push('\n');
        out.push_str(&self::failure(failure, paint));
    }
    for note in &snapshot.notes {
        line(&mut out, &format!("{} {note}", paint.doubtful("note:")));
    }
    if !snapshot.alerts.is_empty() {
        line(&mut out, &format!("\n{}", paint.strong("alerts")));
        for alert in snapshot.alerts.iter().rev().take(5) {
            let evidence = alert.evidence.as_ref().map_or_else(String::new, |evidence| format!(" ({evidence})"));
            line(&mut out, &format!("  {} {}{evidence}  → {}", paint.faint(&alert.at), alert.message, alert.action));
        }
    }
    out
}

/// The settings a person cares for first: desired, main, drifted, or not at their default.
pub fn main_settings(all: &[Setting]) -> Vec<Setting> {
    let main = ["OLLAMA_NUM_PARALLEL", "OLLAMA_MAX_LOADED_MODELS", "OLLAMA_MAX_QUEUE"];
    let cares = |setting: &&Setting| {
        main.contains(&setting.name.as_str())
            || setting.desired.is_some()
            || setting.standing != "not-managed"
            || matches!(&setting.persisted, Known::Is(Some(_)))
    };
    all.iter().filter(cares).cloned().collect()
}

/// A table of settings with their layers.
pub fn settings(settings: &[Setting], paint: Paint) -> String {
    let with_session = settings.iter().any(|setting| setting.session.is_some());
    let mut rows = vec![{
        let mut head = vec!["setting".to_owned(), "desired".to_owned(), "persisted".to_owned()];
        if with_session {
            head.push("session".to_owned());
        }
        head.extend(["effective".to_owned(), "standing".to_owned()]);
        head
    }];
    for setting in settings {
        let mut row =
            vec![setting.name.clone(), setting.desired.clone().unwrap_or_else(unset), optional(&setting.persisted)];
        if with_session {
            row.push(setting.session.as_ref().map_or_else(|| "–".to_owned(), optional));
        }
        row.push(match &setting.effective {
            Known::Is(value) if value.is_empty() => "\"\"".to_owned(),
            Known::Is(value) => value.clone(),
            Known::Unknown { .. } => "unknown".to_owned(),
        });
        row.push(standing(setting));
        rows.push(row);
    }
    let mut out = table(&rows, |row, column, cell| match (row, column) {
        (0, _) => paint.faint(cell),
        (row, column) if column + 1 == rows[0].len() => match settings[row - 1].standing.as_str() {
            "proven" => paint.good(cell),
            "drift" | "set-in-app" => paint.bad(cell),
            "unknown" => paint.doubtful(cell),
            _ => paint.faint(cell),
        },
        (_, _) => cell.to_owned(),
    });
    for setting in settings {
        let layers = [("persisted", reason(&setting.persisted)), ("effective", setting.effective.reason())];
        let session = setting.session.as_ref().and_then(reason).map(|why| ("session", Some(why)));
        if setting.desired.is_some() {
            for (layer, why) in layers.into_iter().chain(session) {
                if let Some(why) = why {
                    line(&mut out, &format!("  {} {layer} is unknown: {why}", setting.name));
                }
            }
        }
    }
    out
}

/// What each setting means, takes and is by default.
pub fn meanings(settings: &[Setting], paint: Paint) -> String {
    let mut out = String::new();
    for setting in settings {
        line(&mut out, &paint.strong(&setting.name));
        line(
            &mut out,
            &format!("  {} Takes {}; default {}.", setting.meaning, setting.allowed, shown(&setting.default)),
        );
        if !setting.caution.is_empty() {
            line(&mut out, &format!("  {}", paint.doubtful(&setting.caution)));
        }
    }
    out
}

/// One setting in full.
pub fn setting(setting: &Setting, paint: Paint) -> String {
    let mut out = String::new();
    line(&mut out, &paint.strong(&setting.name));
    line(&mut out, &format!("  {}", setting.meaning));
    if !setting.allowed.is_empty() {
        line(&mut out, &format!("  takes      {}", setting.allowed));
    }
    if !setting.caution.is_empty() {
        line(&mut out, &format!("  {}", paint.doubtful(&setting.caution)));
    }
    line(&mut out, &format!("  default    {}", shown(&setting.default)));
    line(&mut out, &format!("  desired    {}", setting.desired.clone().unwrap_or_else(unset)));
    line(&mut out, &format!("  persisted  {}", with_reason(&setting.persisted)));
    if let Some(session) = &setting.session {
        line(&mut out, &format!("  session    {}", with_reason(session)));
    }
    match &setting.effective {
        Known::Is(value) => line(&mut out, &format!("  effective  {}", shown(value))),
        Known::Unknown { unknown } => line(&mut out, &format!("  effective  unknown: {unknown}")),
    }
    for proof in &setting.proof {
        line(&mut out, &format!("  proof      {} ({})", proof.kind, proof.source));
    }
    line(&mut out, &format!("  standing   {}", standing(setting)));
    out
}

/// One event of a request, as a line of progress; `None` for what is not shown.
pub fn event(event: &Event, paint: Paint) -> Option<String> {
    match event {
        Event::Planned { goal, owner, .. } => Some(format!("{} through {owner}", paint.strong(goal))),
        Event::StepBegan(step) if step.attempt > 1 => {
            Some(format!("  {}/{} {} (attempt {})", step.index, step.of, step.words, step.attempt))
        }
        Event::StepBegan(step) => Some(format!("  {}/{} {}", step.index, step.of, step.words)),
        Event::StepDone { note, .. } if note.is_empty() => None,
        Event::StepDone { note, .. } => Some(format!("      {}", paint.faint(note))),
        Event::StepRetrying { failure, .. } => {
            Some(format!("      {}", paint.doubtful(&format!("{}; trying again", failure.message))))
        }
        Event::TurnedBack { failure, steps } => {
            let steps: String = steps.iter().map(|step| format!("\n      then: {step}")).collect();
            Some(format!("  {}{}", paint.bad(&failure.message), paint.faint(&steps)))
        }
        Event::Bytes { .. } => None,
        Event::Again { reason } => Some(paint.doubtful(&format!("once more: {reason}"))),
        Event::Result(_) => None,
    }
}

/// The end of a request.
pub fn ending(ending: &Ending, paint: Paint) -> String {
    let mut out = String::new();
    simulated(&mut out, ending.simulated.as_deref(), paint);
    for step in &ending.steps {
        line(&mut out, step);
    }
    if let Some(found) = &ending.owner {
        let name = found.name.as_deref().map_or_else(String::new, |name| format!(" ({name})"));
        match &found.owner {
            Known::Is(owner) => line(&mut out, &format!("Ollama is started by {owner}{name}, and goes on being so")),
            Known::Unknown { unknown } => line(&mut out, &format!("who starts Ollama is not known: {unknown}")),
        }
    }
    if !ending.settings.is_empty() && !matches!(ending.outcome, Outcome::Planned) {
        out.push_str(&settings(&ending.settings, paint));
    }
    if let Some(versions) = &ending.versions {
        out.push_str(&crate::versions::page(versions, paint));
    }
    runners(&mut out, &ending.runners, paint);
    memory(&mut out, &ending.memory, paint);
    for note in &ending.notes {
        line(&mut out, &format!("{} {note}", paint.doubtful("note:")));
    }
    match ending.outcome {
        Outcome::Proven => line(&mut out, &paint.good("proven")),
        Outcome::Drift => line(&mut out, &paint.bad(&drift_in_words(&ending.settings))),
        Outcome::Unknown => line(&mut out, &paint.doubtful("unknown: not everything could be read")),
        Outcome::Planned if ending.versions.is_some() => {}
        Outcome::Planned => line(&mut out, &paint.faint("dry run: nothing was changed")),
        Outcome::Changed | Outcome::Failed => {}
    }
    out
}

/// A failure for stderr: one line of what happened, one of what to do.
pub fn failure(failure: &Failure, paint: Paint) -> String {
    let mut out = format!("{} {} [{}]\n", paint.bad("error:"), failure.message, failure.code);
    if !failure.hint.is_empty() {
        line(&mut out, &format!("{} {}", paint.strong("hint:"), failure.hint));
    }
    out
}

/// The line that everything shown of a simulated machine begins with; empty for a real one.
pub fn simulated_line(folder: Option<&str>, paint: Paint) -> String {
    let mut out = String::new();
    simulated(&mut out, folder, paint);
    out
}

fn simulated(out: &mut String, folder: Option<&str>, paint: Paint) {
    if let Some(folder) = folder {
        line(out, &paint.doubtful(&format!("SIMULATED machine in {folder}")));
    }
}

fn drift_in_words(settings: &[Setting]) -> String {
    let differing: Vec<_> = settings
        .iter()
        .filter(|setting| !setting.drift.is_empty())
        .map(|setting| format!("{} ({})", setting.name, setting.drift.join(", ")))
        .collect();
    format!("drift: {}", differing.join("; "))
}

fn runners(out: &mut String, runners: &[Runner], paint: Paint) {
    if runners.is_empty() {
        return;
    }
    line(out, &format!("\n{}", paint.strong("runners")));
    for runner in runners {
        let model = match &runner.model {
            Known::Is(model) => model.clone(),
            Known::Unknown { unknown } => format!("unknown model ({unknown})"),
        };
        let slots = match &runner.slots {
            Known::Is(1) => "1 slot".to_owned(),
            Known::Is(slots) => format!("{slots} slots"),
            Known::Unknown { unknown } => format!("slots unknown ({unknown})"),
        };
        let forced = runner.forced.as_deref().map_or(String::new(), |why| format!(", forced: {why}"));
        line(
            out,
            &format!("  {model}  {slots}{forced}  {}", paint.faint(&format!("{} pid {}", runner.kind, runner.pid))),
        );
    }
}

fn memory(out: &mut String, bounds: &[MemoryBound], paint: Paint) {
    for bound in bounds {
        let budget = match &bound.budget_bytes {
            Known::Is(bytes) => format!("budget {} ({})", gibibytes(*bytes), bound.budget_source),
            Known::Unknown { unknown } => format!("budget unknown: {unknown}"),
        };
        let cost = match &bound.at_most_bytes {
            Known::Is(bytes) => {
                let text = format!("at most {}", gibibytes(*bytes));
                match bound.budget_bytes.known() {
                    Some(budget) if bytes > budget => paint.bad(&text),
                    Some(_) | None => text,
                }
            }
            Known::Unknown { unknown } => format!("unknown: {unknown}"),
        };
        line(
            out,
            &format!("  {}: {cost} for {} × {} tokens; {budget}", bound.model, bound.slots, bound.context_tokens),
        );
    }
}

fn gibibytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let gibibytes = bytes as f64 / f64::from(1_u32 << 30);
    format!("{gibibytes:.1} GiB")
}

fn standing(setting: &Setting) -> String {
    match setting.standing.as_str() {
        "proven" => {
            let kinds: Vec<_> = setting.proof.iter().map(|proof| proof.kind.replace('-', " ")).collect();
            format!("proven by {}", kinds.join(" and "))
        }
        "drift" => format!("drift: {}", setting.drift.join(", ")),
        "set-in-app" => "set in Ollama.app".to_owned(),
        "not-managed" => "not managed".to_owned(),
        other => other.to_owned(),
    }
}

fn unset() -> String {
    "unset".to_owned()
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "\"\"" } else { value }
}

fn optional(known: &Known<Option<String>>) -> String {
    match known {
        Known::Is(Some(value)) => value.clone(),
        Known::Is(None) => unset(),
        Known::Unknown { .. } => "unknown".to_owned(),
    }
}

fn with_reason(known: &Known<Option<String>>) -> String {
    match known {
        Known::Is(_) => optional(known),
        Known::Unknown { unknown } => format!("unknown: {unknown}"),
    }
}

fn reason(known: &Known<Option<String>>) -> Option<&str> {
    known.reason()
}

fn line(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

/// Columns as wide as their widest cell, painted after measuring.
pub fn table(rows: &[Vec<String>], paint: impl Fn(usize, usize, &str) -> String) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut out = String::new();
    for (row_index, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            out.push_str(&paint(row_index, column, cell));
            if column + 1 < columns {
                out.push_str(&" ".repeat(widths[column] - cell.chars().count() + 2));
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests;
