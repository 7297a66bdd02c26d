//! The stall benchmark: labelled traces of healthy and stalled machines, on which our rule and the rules of others are
//! replayed side by side.
//!
//! `cargo run --release -p stablehand-engine --example stalls -- [--seed N] [--hours N] [--json] [--tables] [--kinds] [--why] [--only TEXT]`
//!
//! - [`envelope`]: what healthy work can be like, fixed before the rule
//! - [`traces`]: seeded machines inside it, and what goes wrong with them
//! - [`oracle`]: the first instant at which a stall is provable
//! - [`rivals`]: rules of others
//! - [`replay`], [`report`]: one trace; all of them
//!
//! Only [`replay`] knows the engine's rule. The page for readers is `docs/stalls.md`.

mod envelope;
mod oracle;
mod random;
mod replay;
mod report;
mod rivals;
#[cfg(test)]
mod tests;
mod traces;

use report::{Part, Report};
use std::process::ExitCode;
use traces::setup::Class;
use traces::{HEALTHY, Kind, STALLED};

/// The seed of the table in the documentation.
const SEED: u64 = 20_261_130;
/// Traces of each kind in each class.
const TRACES: u64 = 25;
/// Shortest healthy trace, in seconds; fewer hours mean fewer traces.
const SHORTEST_S: f64 = 3_600.0;
const USAGE: &str = "usage: stalls [--seed N] [--hours N] [--json] [--tables] [--kinds] [--why] [--only TEXT]

  --seed N     another corpus from the same models
  --hours N    healthy hours in total (10000)
  --json       the figures as JSON, in one line
  --tables     the tables, after the JSON if both are wanted
  --kinds      our rule kind by kind
  --why        what our rule said in traces where it was wrong or late
  --only TEXT  kinds whose name holds this text";

struct Options {
    seed: u64,
    hours: f64,
    json: bool,
    tables: bool,
    kinds: bool,
    why: bool,
    only: String,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let report = run(&options);
    if options.json {
        println!("{}", report.json());
    }
    if options.why {
        print!("{}", report.notes());
    }
    if options.kinds {
        print!("{}", report.kinds());
    }
    if options.tables || !(options.json || options.why || options.kinds) {
        print!("{}", report.tables());
    }
    let errors = report.oracle_errors();
    if errors.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("the oracle contradicts the truth, so these figures cannot be trusted:\n{}", errors.join("\n"));
    ExitCode::FAILURE
}

fn run(options: &Options) -> Report {
    let wanted = |kind: &&Kind| kind.name.contains(&options.only);
    let healthy: Vec<&Kind> = HEALTHY.iter().filter(wanted).collect();
    let stalled: Vec<&Kind> = STALLED.iter().filter(wanted).collect();
    let places: usize = healthy.iter().map(|kind| kind.classes.len()).sum();
    let seconds = options.hours * 3_600.0 / places.max(1) as f64;
    let traces = ((seconds / SHORTEST_S) as u64).clamp(1, TRACES);
    let length_s = seconds / traces as f64;
    let mut parts = Vec::new();
    for class in Class::ALL {
        for (kinds, length_s) in [(&healthy, Some(length_s)), (&stalled, None)] {
            for kind in kinds.iter().filter(|kind| kind.classes.contains(&class)) {
                let trace = |number| replay::replay(kind, class, options.seed, number, length_s);
                parts.push(Part { class, kind: kind.name, outcomes: (0..traces).map(trace).collect() });
            }
        }
    }
    Report { seed: options.seed, parts }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        seed: SEED,
        hours: 10_000.0,
        json: false,
        tables: false,
        kinds: false,
        why: false,
        only: String::new(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--json" => options.json = true,
            "--kinds" => options.kinds = true,
            "--tables" => options.tables = true,
            "--why" => options.why = true,
            "--only" => options.only = value()?,
            "--seed" => options.seed = value()?.parse().map_err(|_| "the seed is a whole number".to_owned())?,
            "--hours" => {
                options.hours = value()?.parse().map_err(|_| "the hours are a number".to_owned())?;
                if !(options.hours > 0.0 && options.hours <= 1e6) {
                    return Err("the hours are between 0 and 1000000".to_owned());
                }
            }
            _ => return Err(format!("{word} is not an option")),
        }
    }
    Ok(options)
}
