//! Honest work that looks like trouble, done by real clients in the world.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::runners::{self, DEFAULT_MODEL};
use super::{Details, Fault, machine};
use crate::clients::{self, Plan, ledger};
use crate::machine_memory;
use crate::models::Model;
use crate::runner::condition::PAGING;
use crate::runner::record::{self, Phase, Record};
use crate::serve::library::Library;
use crate::world::{World, notes};

/// World seconds of a long prompt.
const LONG_PREFILL_SECONDS: u64 = 660;
/// World seconds of the first batch while the machine pages.
const FIRST_BATCH_SECONDS: f64 = 180.0;
/// World seconds of an image.
const IMAGE_SECONDS: u64 = 120;
/// World seconds of a long load.
const LONG_LOAD_SECONDS: u64 = 300;
/// Tokens of the prompt beside three generating slots, and the context it needs.
const BIG_PROMPT_TOKENS: u64 = 47_000;
const BIG_CONTEXT_TOKENS: u64 = 65_536;
/// Requests in the queue, and the clients they come from.
const QUEUED: u64 = 200;
const QUEUE_CLIENTS: u64 = 4;
/// World seconds of one request of the queue.
const QUEUED_SECONDS: f64 = 5.0;
/// Tokens of an answer that nobody reads to its end.
const UNREAD_TOKENS: u64 = 12_000;

/// Ends every client and takes back what its work asked for.
pub fn stop(world: &World) -> Result<String> {
    let pids = clients::living(world);
    machine::end(&pids, Signal::TERM)?;
    forget(world, |_| true);
    Ok(format!("{} clients ended", pids.len()))
}

/// Takes back what work asked of runners and of the machine. A client does so
/// for its own when it has ended.
pub fn forget(world: &World, meant: impl Fn(Fault) -> bool) {
    let works = [Fault::WorkLongPrefill, Fault::WorkFirstPromptSwapping, Fault::WorkImage, Fault::WorkLongLoad];
    for work in works.into_iter().filter(|work| meant(*work)) {
        machine_memory::keep_counters(world, work);
        notes::clear(world, work);
    }
}

/// One work in one world. Each begins and returns once it is under way.
pub struct Site<'a> {
    world: &'a World,
    work: Fault,
    details: &'a Details,
    port: u16,
}

impl<'a> Site<'a> {
    /// Work needs a server that answers.
    pub fn new(world: &'a World, work: Fault, details: &'a Details) -> Result<Self> {
        let port = machine::answering_port(world).context("no server answers; nothing was changed")?;
        Ok(Self { world, work, details, port })
    }

    /// One client that generates all the time.
    pub fn steady(&self) -> Result<String> {
        let runner = runners::runner_of(self.world, self.details.model.as_deref())?;
        let plan = Plan { again: true, ..self.plan(&runner.model) };
        self.send(&[plan])?;
        Ok(format!("a client generates with {} all the time", runner.model))
    }

    /// A long prompt.
    pub fn long_prefill(&self) -> Result<String> {
        let (model, runner) = self.ready("qwen3.6:35b")?;
        let seconds = self.details.seconds.unwrap_or(LONG_PREFILL_SECONDS) as f64;
        let most = runner.context.saturating_sub(512).max(64);
        let tokens = model.tokens_of_prefill(seconds).clamp(64, most);
        // A context too short for such a prompt makes a slower one of it.
        let factor = seconds / model.prefill_seconds(0, tokens);
        notes::raise_for(self.world, self.work, runner.pid, json!({ "factor": factor.max(1.0) }))?;
        self.send(&[Plan { prompt_tokens: tokens, ..self.plan(&model.name) }])?;
        self.wait_for(runner.pid, Phase::Prefill)?;
        Ok(format!("{} works on a prompt of {tokens} tokens for {seconds:.0} s", model.name))
    }

    /// The first prompt of a runner while the machine pages.
    pub fn first_prompt_swapping(&self) -> Result<String> {
        let model = self.model("qwen3.6:35b")?;
        self.unload(&model)?;
        let runner = runners::runner_of(self.world, Some(&model.name))?;
        let tokens = 12_000.min(runner.context.saturating_sub(512)).max(64);
        let batch = model.prefill_seconds(0, model.batch_tokens.min(tokens)) * PAGING;
        let mut parameters = machine_memory::paging_from_now(self.world);
        parameters["seconds"] = json!((FIRST_BATCH_SECONDS - batch).max(0.0));
        notes::raise_for(self.world, self.work, runner.pid, parameters)?;
        self.send(&[Plan { prompt_tokens: tokens, ..self.plan(&model.name) }])?;
        self.wait_for(runner.pid, Phase::Prefill)?;
        Ok(format!("{} works on its first prompt while the machine pages", model.name))
    }

    /// An image that is encoded for long.
    pub fn image(&self) -> Result<String> {
        let model = self.model("gemma4:26b")?;
        if !model.sees_images() {
            bail!("{} understands no images; nothing was changed", model.name);
        }
        let runner = runners::runner_of(self.world, Some(&model.name))?;
        let seconds = self.details.seconds.unwrap_or(IMAGE_SECONDS);
        notes::raise_for(self.world, self.work, runner.pid, json!({ "seconds": seconds }))?;
        self.send(&[Plan { images: 1, ..self.plan(&model.name) }])?;
        self.wait_for(runner.pid, Phase::Encoding)?;
        Ok(format!("{} encodes an image for {seconds} s", model.name))
    }

    /// A big prompt beside three generating slots.
    pub fn four_slots(&self) -> Result<String> {
        let model = self.model("gemma4:26b")?;
        let slots = machine::slots_of_server(self.world).unwrap_or(1);
        if slots != 4 || model.is_mlx() || model.is_forced_to_one_slot() {
            bail!(
                "{} would get {} slots of this server, not 4; nothing was changed, set OLLAMA_NUM_PARALLEL to 4 and restart Ollama",
                model.name,
                if model.is_mlx() || model.is_forced_to_one_slot() { 1 } else { slots }
            );
        }
        let context = Some(BIG_CONTEXT_TOKENS.min(model.context_length));
        runners::load(self.world, &model.name, context)?;
        let runner = runners::runner_of(self.world, Some(&model.name))?;
        let short = Plan { answer_tokens: 600, again: true, context, ..self.plan(&model.name) };
        let big = Plan { prompt_tokens: BIG_PROMPT_TOKENS, context, ..self.plan(&model.name) };
        self.send(&[short.clone(), short.clone(), short, big])?;
        self.wait_until(|| record::of(self.world, runner.pid).is_some_and(|record| record.busy == 4))?;
        self.wait_for(runner.pid, Phase::Prefill)?;
        Ok(format!("{} works on {BIG_PROMPT_TOKENS} tokens beside three clients", model.name))
    }

    /// A client that does not read its answer.
    pub fn stalled_client(&self) -> Result<String> {
        let (model, runner) = self.ready("gemma4:26b")?;
        let plan = Plan { answer_tokens: UNREAD_TOKENS, stop_reading: true, ..self.plan(&model.name) };
        self.send(&[plan])?;
        self.wait_for(runner.pid, Phase::Generating)?;
        Ok(format!("a client of {} does not read its answer", model.name))
    }

    /// A load that takes long.
    pub fn long_load(&self) -> Result<String> {
        let model = self.model("gemma4:26b")?;
        self.unload(&model)?;
        let seconds = self.details.seconds.unwrap_or(LONG_LOAD_SECONDS);
        notes::raise(self.world, self.work, &json!({ "model": model.name, "seconds": seconds }))?;
        self.send(&[self.plan(&model.name)])?;
        self.wait_until(|| {
            let loading = |record: &Record| record.model == model.name && record.phase == Phase::Loading;
            runners::of_server(self.world).iter().any(loading)
        })?;
        Ok(format!("{} loads for {seconds} s", model.name))
    }

    /// Many requests at the same time.
    pub fn queue(&self) -> Result<String> {
        let (model, _) = self.ready(DEFAULT_MODEL)?;
        let requests = self.details.times.unwrap_or(QUEUED).max(1);
        let clients = QUEUE_CLIENTS.min(requests);
        let plans: Vec<Plan> = (0..clients)
            .map(|client| Plan {
                answer_tokens: ((QUEUED_SECONDS * model.decode_per_second) as u64).max(1),
                at_once: requests / clients + u64::from(client < requests % clients),
                ..self.plan(&model.name)
            })
            .collect();
        self.send(&plans)?;
        Ok(format!("{requests} requests for {} are under way", model.name))
    }

    fn plan(&self, model: &str) -> Plan {
        Plan::new(self.work, model, self.port)
    }

    /// Starts clients and waits until each has sent what it sends at first.
    fn send(&self, plans: &[Plan]) -> Result<()> {
        let before = ledger::count(self.world, self.work.name()).asked;
        for plan in plans {
            clients::start(self.world, plan)?;
        }
        let expected: u64 = plans.iter().map(|plan| plan.at_once).sum();
        self.wait_until(|| ledger::count(self.world, self.work.name()).asked >= before + expected)
    }

    fn wait_for(&self, pid: i32, phase: Phase) -> Result<()> {
        self.wait_until(|| record::of(self.world, pid).is_some_and(|record| record.phase == phase))
    }

    fn wait_until(&self, holds: impl Fn() -> bool) -> Result<()> {
        if machine::wait_until(Duration::from_secs(90), holds) {
            return Ok(());
        }
        let words = ledger::count(self.world, self.work.name()).last_error;
        bail!(
            "{} does not get under way; the last answer was: {}",
            self.work.name(),
            words.as_deref().unwrap_or("none")
        )
    }

    /// The model that is meant, known on disk.
    fn model(&self, usual: &str) -> Result<Model> {
        let name = self.details.model.as_deref().unwrap_or(usual);
        let folder = self.world.home().join(".ollama/models").display().to_string();
        let stored = Library::new(&folder).find(name);
        Ok(stored.with_context(|| format!("there is no model {name} here; nothing was changed"))?.model)
    }

    /// The model that is meant, with a runner.
    fn ready(&self, usual: &str) -> Result<(Model, Record)> {
        let model = self.model(usual)?;
        let runner = runners::runner_of(self.world, Some(&model.name))?;
        Ok((model, runner))
    }

    /// Sees to it that the model is not loaded.
    fn unload(&self, model: &Model) -> Result<()> {
        let is_loaded = || runners::of_server(self.world).iter().any(|record| record.model == model.name);
        if !is_loaded() {
            return Ok(());
        }
        let body = json!({ "model": model.name, "keep_alive": 0 }).to_string();
        let asked = crate::http_probe::post(self.port, "/api/generate", &body, Duration::from_secs(5)).is_some();
        if asked && machine::wait_until(machine::LIMIT, || !is_loaded()) {
            Ok(())
        } else {
            bail!("{} is in use: it was told to unload and has not yet; nothing else was changed", model.name)
        }
    }
}
