//! What is printed: a table per class of evidence, and the same as JSON.

use crate::replay::{Outcome, RULES};
use crate::rivals::Rival;
use crate::traces::setup::Class;
use serde_json::{Value, json};
use std::fmt::Write;

/// Where our rule stands among the rules.
const OURS: usize = 0;

/// The outcomes of one kind in one class.
pub struct Part {
    pub class: Class,
    pub kind: &'static str,
    pub outcomes: Vec<Outcome>,
}

/// Everything.
pub struct Report {
    pub seed: u64,
    pub parts: Vec<Part>,
}

/// What one rule reached over some parts.
struct Score {
    healthy_hours: f64,
    false_kills: u32,
    stalls: usize,
    provable: usize,
    found: usize,
    found_of_all: usize,
    /// Verdicts that came before the stall was provable.
    early: usize,
    seconds: Vec<f64>,
}

impl Report {
    /// The shape that is promised: the rules over the classes with progress evidence, and each class beside it.
    pub fn json(&self) -> Value {
        let with_progress: Vec<&Part> = self.parts.iter().filter(|part| part.class.shows_progress()).collect();
        let classes: Vec<Value> = Class::ALL.iter().map(|&class| self.class_json(class)).collect();
        json!({ "seed": self.seed, "rules": rules_json(&with_progress), "classes": classes })
    }

    fn class_json(&self, class: Class) -> Value {
        let parts = self.of_class(class);
        let score = Score::of(&parts, OURS);
        json!({
            "class": class.name(),
            "progress_evidence": class.shows_progress(),
            "healthy_hours": round(score.healthy_hours),
            "stalls": score.stalls,
            "provable_stalls": score.provable,
            "rules": rules_json(&parts),
        })
    }

    fn of_class(&self, class: Class) -> Vec<&Part> {
        self.parts.iter().filter(|part| part.class == class).collect()
    }

    /// The tables in Markdown.
    pub fn tables(&self) -> String {
        let mut out = String::new();
        let all: Vec<&Part> = self.parts.iter().collect();
        let score = Score::of(&all, OURS);
        let kinds = {
            let mut names: Vec<&str> = all.iter().map(|part| part.kind).collect();
            names.sort_unstable();
            names.dedup();
            names.len()
        };
        let traces: usize = all.iter().map(|part| part.outcomes.len()).sum();
        let _ = writeln!(
            out,
            "Seed {}: {kinds} kinds, {traces} traces, {:.0} healthy hours, {} stalls.",
            self.seed, score.healthy_hours, score.stalls
        );
        for class in Class::ALL {
            let parts = self.of_class(class);
            let score = Score::of(&parts, OURS);
            let _ = writeln!(
                out,
                "\n**{}**: {:.0} healthy hours, {} stalls, {} of them provable\n",
                class.name(),
                score.healthy_hours,
                score.stalls,
                score.provable
            );
            table(&mut out, &parts);
        }
        let with_progress: Vec<&Part> = all.into_iter().filter(|part| part.class.shows_progress()).collect();
        let _ = writeln!(out, "\n**All classes with progress evidence**\n");
        table(&mut out, &with_progress);
        out
    }

    /// Our rule, kind by kind.
    pub fn kinds(&self) -> String {
        let mut out = String::from(
            "| class | kind | healthy hours | false kills | stalls | provable | found | early | found of all | median s | worst s |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for part in &self.parts {
            let score = Score::of(&[part], OURS);
            let _ = writeln!(
                out,
                "| {} | {} | {:.0} | {} | {} | {} | {} | {} | {} | {} | {} |",
                part.class.name(),
                part.kind,
                score.healthy_hours,
                score.false_kills,
                score.stalls,
                score.provable,
                score.found,
                score.early,
                score.found_of_all,
                text(score.median()),
                text(score.worst())
            );
        }
        out
    }

    /// Where our rule was wrong or late, in its own words.
    pub fn notes(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            for (number, outcome) in part.outcomes.iter().enumerate() {
                for note in &outcome.notes {
                    let _ = writeln!(out, "{}, {}, trace {number}: {note}", part.class.name(), part.kind);
                }
            }
        }
        out
    }

    /// Traces in which the oracle contradicts the truth, which would be a fault of this program.
    pub fn oracle_errors(&self) -> Vec<String> {
        let bad = |part: &&Part| part.outcomes.iter().any(|outcome| outcome.oracle_errors > 0);
        let name = |part: &Part| {
            let numbers = part.outcomes.iter().enumerate().filter(|(_, outcome)| outcome.oracle_errors > 0);
            let numbers: Vec<String> = numbers.map(|(number, _)| number.to_string()).collect();
            format!("{}, {}: traces {}", part.class.name(), part.kind, numbers.join(", "))
        };
        self.parts.iter().filter(bad).map(name).collect()
    }
}

impl Score {
    fn of(parts: &[&Part], rule: usize) -> Self {
        let mut score = Self {
            healthy_hours: 0.0,
            false_kills: 0,
            stalls: 0,
            provable: 0,
            found: 0,
            found_of_all: 0,
            early: 0,
            seconds: Vec::new(),
        };
        for outcome in parts.iter().flat_map(|part| &part.outcomes) {
            score.healthy_hours += outcome.healthy_s / 3_600.0;
            score.false_kills += outcome.false_kills[rule];
            let Some(stall) = outcome.stall else { continue };
            score.stalls += 1;
            let verdict_s = stall.verdicts_s[rule];
            score.found_of_all += usize::from(verdict_s.is_some());
            let Some(provable_s) = stall.provable_s else { continue };
            score.provable += 1;
            if let Some(verdict_s) = verdict_s {
                score.found += 1;
                score.early += usize::from(verdict_s < provable_s);
                score.seconds.push((verdict_s - provable_s).max(0.0));
            }
        }
        score.seconds.sort_unstable_by(f64::total_cmp);
        score
    }

    fn recall(&self) -> Option<f64> {
        (self.provable > 0).then(|| self.found as f64 / self.provable as f64)
    }

    fn kills_per_1000_hours(&self) -> f64 {
        if self.healthy_hours > 0.0 { f64::from(self.false_kills) * 1_000.0 / self.healthy_hours } else { 0.0 }
    }

    fn median(&self) -> Option<f64> {
        let middle = self.seconds.len() / 2;
        match self.seconds.len() {
            0 => None,
            even if even % 2 == 0 => Some((self.seconds[middle - 1] + self.seconds[middle]) / 2.0),
            _ => Some(self.seconds[middle]),
        }
    }

    fn worst(&self) -> Option<f64> {
        self.seconds.last().copied()
    }
}

fn name(rule: usize) -> &'static str {
    if rule == OURS { "stablehand" } else { Rival::NAMES[rule - 1] }
}

fn rules_json(parts: &[&Part]) -> Vec<Value> {
    let rule_json = |rule| {
        let score = Score::of(parts, rule);
        json!({
            "rule": name(rule),
            "recall": score.recall().map(|recall| (recall * 1e4).round() / 1e4),
            "false_kills_per_1000_healthy_hours": round(score.kills_per_1000_hours()),
            "median_seconds_to_verdict": score.median().map(round),
            "worst_seconds_to_verdict": score.worst().map(round),
        })
    };
    (0..RULES).map(rule_json).collect()
}

fn table(out: &mut String, parts: &[&Part]) {
    out.push_str(
        "| rule | recall | of all stalls | false kills per 1,000 healthy hours | median s to verdict | worst s | before provable |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for rule in 0..RULES {
        let score = Score::of(parts, rule);
        let share = |part: usize, of: usize| {
            if of == 0 { "–".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / of as f64) }
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            name(rule),
            share(score.found, score.provable),
            share(score.found_of_all, score.stalls),
            kills(score.kills_per_1000_hours()),
            text(score.median()),
            text(score.worst()),
            score.early
        );
    }
}

/// A small number of kills must not read as none.
fn kills(per_1000_hours: f64) -> String {
    if per_1000_hours == 0.0 || per_1000_hours >= 10.0 {
        format!("{per_1000_hours:.0}")
    } else {
        format!("{per_1000_hours:.2}")
    }
}

fn text(seconds: Option<f64>) -> String {
    seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.0}"))
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}
