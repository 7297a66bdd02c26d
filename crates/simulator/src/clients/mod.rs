//! Clients of the world's server: one program, `bin/bot`, that sends real
//! requests, so that the process table shows who asks.

pub mod asking;
pub mod ledger;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use crate::faults::{Fault, machine, work};
use crate::process_table;
use crate::wire::Reply;
use crate::world::{World, layout};
use asking::{Answer, Question};
use ledger::Event;

/// Where the program lies in a world.
const PROGRAM: &str = "/bin/bot";
/// World time between a failure and the next try.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Shortest real time between a failure and the next try.
const AFTER_FAILURE_REAL: Duration = Duration::from_millis(25);

/// What a bot does; its arguments.
#[derive(Clone, Debug, Parser)]
#[command(name = "bot")]
pub struct Plan {
    /// Name under which its answers are counted.
    pub work: String,
    /// Model that it asks.
    #[arg(long)]
    pub model: String,
    /// Port of the server.
    #[arg(long)]
    pub port: u16,
    /// Tokens of each prompt.
    #[arg(long, default_value_t = 60)]
    pub prompt_tokens: u64,
    /// Most tokens of each answer.
    #[arg(long, default_value_t = 120)]
    pub answer_tokens: u64,
    /// Context that it asks for.
    #[arg(long)]
    pub context: Option<u64>,
    /// Images beside each prompt.
    #[arg(long, default_value_t = 0)]
    pub images: u64,
    /// Requests that are under way at the same time.
    #[arg(long, default_value_t = 1)]
    pub at_once: u64,
    /// Go on for ever.
    #[arg(long)]
    pub again: bool,
    /// Stop reading in the middle of the first answer.
    #[arg(long)]
    pub stop_reading: bool,
}

impl Plan {
    /// One short request.
    pub fn new(work: Fault, model: &str, port: u16) -> Self {
        Self {
            work: work.name().to_owned(),
            model: model.to_owned(),
            port,
            prompt_tokens: 60,
            answer_tokens: 120,
            context: None,
            images: 0,
            at_once: 1,
            again: false,
            stop_reading: false,
        }
    }

    fn words(&self) -> Vec<String> {
        let mut words = vec![self.work.clone()];
        let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        flag("model", self.model.clone());
        flag("port", self.port.to_string());
        flag("prompt-tokens", self.prompt_tokens.to_string());
        flag("answer-tokens", self.answer_tokens.to_string());
        if let Some(context) = self.context {
            flag("context", context.to_string());
        }
        flag("images", self.images.to_string());
        flag("at-once", self.at_once.to_string());
        for (is_set, name) in [(self.again, "--again"), (self.stop_reading, "--stop-reading")] {
            if is_set {
                words.push(name.to_owned());
            }
        }
        words
    }
}

/// Starts a bot in the world.
pub fn start(world: &World, plan: &Plan) -> Result<()> {
    let program = world.path(PROGRAM);
    if !program.exists() {
        layout::install_program(world, &program)?;
    }
    let mut words = vec![program.display().to_string()];
    words.extend(plan.words());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    machine::spawn(world, &words)
}

/// Pids of the bots that live.
pub fn living(world: &World) -> Vec<i32> {
    process_table::of(world).iter().filter(|process| process.name() == "bot").map(|process| process.pid).collect()
}

/// Runs a bot.
pub fn run(world: World, arguments: &[String]) -> ExitCode {
    let words = std::iter::once("bot".to_owned()).chain(arguments.iter().cloned());
    let plan = match Plan::try_parse_from(words) {
        Ok(plan) => plan,
        Err(error) => {
            return Reply::failed(2, error.to_string()).deliver();
        }
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(live(Arc::new(world), Arc::new(plan)));
    ExitCode::SUCCESS
}

async fn live(world: Arc<World>, plan: Arc<Plan>) {
    let clients: Vec<_> =
        (0..plan.at_once.max(1)).map(|_| tokio::spawn(client(Arc::clone(&world), Arc::clone(&plan)))).collect();
    for client in clients {
        // A client that panicked has noted nothing more; the others go on.
        let _ = client.await;
    }
    work::forget(&world, |work| work.name() == plan.work);
}

async fn client(world: Arc<World>, plan: Arc<Plan>) {
    let question = Question::of(&plan);
    loop {
        let asked = || ledger::note(&world, &plan.work, &Event::Asked);
        let answer = asking::ask(&question, asked).await;
        let event = match answer {
            Answer::Served => Event::Served,
            Answer::Failed(words) => Event::Failed(words),
        };
        let failed = matches!(event, Event::Failed(_));
        ledger::note(&world, &plan.work, &event);
        if !plan.again {
            return;
        }
        if failed {
            tokio::time::sleep(world.clock.real(AFTER_FAILURE).max(AFTER_FAILURE_REAL)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_command_line() {
        let plan = Plan {
            context: Some(65_536),
            images: 1,
            at_once: 50,
            again: true,
            stop_reading: true,
            ..Plan::new(Fault::WorkQueue, "smollm:135m", 41_873)
        };
        let words = std::iter::once("bot".to_owned()).chain(plan.words());
        let read = Plan::try_parse_from(words).unwrap();
        assert_eq!(format!("{plan:?}"), format!("{read:?}"));
    }
}
