//! The admission benchmark: agents that share one server, in simulated time, with our queue and in order of arrival.
//!
//! `cargo run --release -p stablehand-engine --example admission -- [--seed N] [--affinity SECONDS] [--json] [--tables]`
//!
//! - [`scene`]: who asks what, and what the server does with it in order of arrival
//! - [`world`]: the same with the queue in front
//! - [`report`]: both, side by side
//!
//! The page for readers is `docs/admission.md`.

// Shared with the stall benchmark, which uses all of it.
#[allow(dead_code)]
#[path = "../stalls/random.rs"]
mod random;
mod report;
mod scene;
#[cfg(test)]
mod tests;
mod world;

use report::Report;
use std::process::ExitCode;
use std::time::Duration;

/// The seed of the table in the documentation.
const SEED: u64 = 20_261_130;
const USAGE: &str = "usage: admission [--seed N] [--affinity SECONDS] [--json] [--tables]

  --seed N            other service times of the same kind
  --affinity SECONDS  how long the model in memory goes before a switch (120)
  --json              the figures as JSON, in one line
  --tables            the tables, after the JSON if both are wanted";

struct Options {
    seed: u64,
    affinity: Duration,
    json: bool,
    tables: bool,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let report = Report::new(options.seed, options.affinity);
    if options.json {
        println!("{}", report.json());
    }
    if options.tables || !options.json {
        print!("{}", report.tables());
    }
    ExitCode::SUCCESS
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { seed: SEED, affinity: Duration::from_secs(120), json: false, tables: false };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => options.seed = number(words.next(), "--seed")?,
            "--affinity" => options.affinity = Duration::from_secs(number(words.next(), "--affinity")?),
            "--json" => options.json = true,
            "--tables" => options.tables = true,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn number(word: Option<String>, option: &str) -> Result<u64, String> {
    let word = word.ok_or_else(|| format!("{option} takes a number"))?;
    word.parse().map_err(|_| format!("{option} takes a number, not {word}"))
}
