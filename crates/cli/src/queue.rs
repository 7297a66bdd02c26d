//! The gateway's queue, for people.

use crate::paint::Paint;
use crate::text;
use stablehand_protocol::queue::{QueueHold, QueueView};
use std::time::Duration;

/// One page.
pub fn page(view: &QueueView, paint: Paint) -> String {
    let mut lines = vec![match view.phase.as_str() {
        "open" => format!("gateway on {}, Ollama behind it at {}", view.listen.join(" and "), view.upstream),
        "leaving" => paint.doubtful("the gateway listens no more and serves what it has"),
        _ => paint.doubtful("the gateway is ending"),
    }];
    lines.extend(view.holds.iter().map(|hold| paint.doubtful(&held(hold))));
    if let Some(failure) = &view.config_failure {
        lines.push(paint.bad(&format!("the configuration was not taken: {}", failure.message)));
    }
    for missing in &view.missing {
        let words = format!("{} was asked for by {}, and is not installed", missing.model, missing.client);
        lines.push(paint.bad(&words));
    }
    let mut out = text::simulated_line(view.simulated.as_deref(), paint);
    out.extend(lines.iter().map(|line| format!("{line}\n")));
    if view.running.is_empty() && view.waiting.is_empty() {
        out.push_str("nobody runs or waits\n");
    }
    let rows = view.running.iter().map(|one| {
        let waited = format!("waited {}", span(one.waited_ms));
        vec![one.id.to_string(), one.lane.clone(), one.client.clone(), one.model.clone(), span(one.running_ms), waited]
    });
    section(&mut out, "running", &["id", "lane", "client", "model", "runs", ""], rows.collect(), paint);
    let title = format!("waiting ({} of at most {})", view.waiting.len(), view.waiting_at_most);
    let rows = view.waiting.iter().map(|one| {
        let held = view.holds.iter().any(|hold| hold.model.as_ref().is_none_or(|model| *model == one.model));
        let expected = match one.expected_ms {
            Some(left) => format!("in {}", span(left)),
            None if held => "when it goes on".to_owned(),
            None => "not measured yet".to_owned(),
        };
        vec![
            one.id.to_string(),
            one.lane.clone(),
            one.client.clone(),
            one.model.clone(),
            span(one.waited_ms),
            one.position.to_string(),
            expected,
        ]
    });
    let head = ["id", "lane", "client", "model", "waits", "place", "turn"];
    section(&mut out, &title, &head, rows.collect(), paint);
    out
}

fn section(out: &mut String, title: &str, head: &[&str], rows: Vec<Vec<String>>, paint: Paint) {
    if rows.is_empty() {
        return;
    }
    let head = head.iter().map(ToString::to_string).collect();
    let all: Vec<_> = std::iter::once(head).chain(rows).collect();
    out.push_str(&format!("\n{}\n", paint.strong(title)));
    out.push_str(&text::table(&all, |row, _, cell| if row == 0 { paint.faint(cell) } else { cell.to_owned() }));
}

fn held(hold: &QueueHold) -> String {
    let whom = hold.model.as_deref().map_or_else(String::new, |model| format!(" for {model}"));
    let what = match hold.why.as_str() {
        "paused" => return "paused by hand; `stablehand queue resume` lets it go on".to_owned(),
        "restart" => "while Ollama is restarted",
        "upgrade" => "while Ollama is upgraded",
        "recovery" => "while a runner is recovered",
        "unreachable" => "because Ollama cannot be reached",
        other => other,
    };
    let left = hold.left_ms.map_or_else(String::new, |left| format!(", for at most {}", span(left)));
    format!("requests{whom} are held {what}{left}")
}

fn span(milliseconds: u64) -> String {
    let span = Duration::from_millis(milliseconds);
    match span.as_secs() {
        0..10 => format!("{:.1} s", span.as_secs_f64()),
        seconds @ 10..100 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stablehand_protocol::queue::{RunningRequest, WaitingRequest};

    fn view() -> QueueView {
        QueueView {
            at: "2026-11-30T16:00:00Z".to_owned(),
            version: "0.1.0".to_owned(),
            phase: "open".to_owned(),
            listen: vec!["127.0.0.1:11434".to_owned()],
            upstream: "127.0.0.1:11435".to_owned(),
            holds: vec![],
            waiting: vec![],
            waiting_at_most: 10,
            running: vec![],
            models: vec![],
            switches: 0,
            bodies_bytes: 0,
            missing: vec![],
            config_failure: None,
            simulated: None,
        }
    }

    fn waiting() -> WaitingRequest {
        WaitingRequest {
            id: 12,
            model: "gemma4:26b".to_owned(),
            client: "night job".to_owned(),
            lane: "batch".to_owned(),
            path: "/api/chat".to_owned(),
            waited_ms: 1_240,
            position: 1,
            expected_ms: None,
        }
    }

    #[test]
    fn an_empty_queue_says_so() {
        let page = page(&view(), Paint::Plain);
        assert_eq!(page, "gateway on 127.0.0.1:11434, Ollama behind it at 127.0.0.1:11435\nnobody runs or waits\n");
    }

    #[test]
    fn everybody_has_a_line() {
        let mut view = view();
        view.holds.push(QueueHold { why: "restart".to_owned(), model: None, left_ms: Some(125_000) });
        view.running.push(RunningRequest {
            id: 1,
            model: "gemma4:26b".to_owned(),
            client: "node".to_owned(),
            lane: "agent".to_owned(),
            path: "/api/chat".to_owned(),
            waited_ms: 0,
            running_ms: 12_300,
        });
        view.waiting.push(waiting());
        let expected = "\
gateway on 127.0.0.1:11434, Ollama behind it at 127.0.0.1:11435
requests are held while Ollama is restarted, for at most 2 min 5 s

running
id  lane   client  model       runs  
1   agent  node    gemma4:26b  12 s  waited 0.0 s

waiting (1 of at most 10)
id  lane   client     model       waits  place  turn
12  batch  night job  gemma4:26b  1.2 s  1      when it goes on
";
        assert_eq!(page(&view, Paint::Plain), expected);
    }

    #[test]
    fn a_turn_that_is_not_known_says_why() {
        let turn = |holds: Vec<QueueHold>| {
            let page = page(&QueueView { holds, waiting: vec![waiting()], ..view() }, Paint::Plain);
            page.trim_end().rsplit("  ").next().map(str::to_owned)
        };
        let hold = |model: &str| QueueHold { why: "recovery".to_owned(), model: Some(model.to_owned()), left_ms: None };
        assert_eq!(turn(vec![]).as_deref(), Some("not measured yet"));
        assert_eq!(turn(vec![hold("gemma4:26b")]).as_deref(), Some("when it goes on"));
        assert_eq!(turn(vec![hold("qwen3.5:4b")]).as_deref(), Some("not measured yet"));
    }
}
