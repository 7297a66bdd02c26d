//! What the log tells over time: latencies and outcomes, errors, loads and evictions, prompts that grow, and the
//! progress and finished requests of runners.
//!
//! [`Statistics`] is fed with every line in order and asked for a [`LogView`] at any time. It does no I/O, reads no
//! clock and keeps a bounded amount, however long the log and however many runners. Lines of the server carry their
//! time; those of runners do not and count as written when they are read.

mod errors;
mod histogram;
mod loads;
mod runners;
mod threads;
mod traffic;
mod voice;

pub use errors::{ErrorClass, ErrorView};
pub use loads::{Eviction, Load, LoadState, OneSlot};
pub use runners::{LivingRunner, RunnerView, ThreadView, Unattributed};
pub use threads::Thread;
pub use traffic::{EndpointView, Outcomes, PromptsView, WINDOW};
pub use voice::PromptInSlot;

use crate::log::Line;
use errors::Errors;
use loads::Loads;
use runners::Runners;
use stablehand_engine::process::RunnerKind;
use stablehand_engine::time::Wall;
use std::time::Duration;
use traffic::Traffic;

/// The log so far.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    traffic: Traffic,
    errors: Errors,
    loads: Loads,
    runners: Runners,
    load_failures: u64,
    clients_left: u64,
    prompts_cut: u64,
}

/// The log at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LogView {
    /// The window of [`endpoints`](Self::endpoints) and [`prompts`](Self::prompts).
    pub window: Duration,
    /// The endpoints asked in the window, the busiest first.
    pub endpoints: Vec<EndpointView>,
    /// How all requests ended since the statistics began.
    pub outcomes: Outcomes,
    /// Requests that models answered well (a status below 400) since the statistics began.
    pub served: u64,
    /// Classes of errors since the statistics began.
    pub errors: Vec<ErrorView>,
    /// Prompts in the window; `None` when the log told none.
    pub prompts: Option<PromptsView>,
    /// Prompts that were longer than the context and were cut, since the statistics began.
    pub prompts_cut: u64,
    /// Clients that left while their model was loading or their answer was being made, since the statistics began.
    pub clients_left: u64,
    /// Loads that failed since the statistics began.
    pub load_failures: u64,
    /// The last loads, the newest last.
    pub loads: Vec<Load>,
    /// The last evictions, the newest last.
    pub evictions: Vec<Eviction>,
    /// Models that got one slot whatever the setting says.
    pub one_slot: Vec<OneSlot>,
    /// Conversations of a thousand tokens and more, the longest first.
    pub threads: Vec<ThreadView>,
    /// The runners that live.
    pub runners: Vec<RunnerView>,
    /// Lines that are no certain runner's.
    pub unattributed: Option<Unattributed>,
}

impl LogView {
    /// The load under way.
    pub fn loading(&self) -> Option<&Load> {
        self.loads.last().filter(|load| load.state == LoadState::Running)
    }

    /// The runner at that port.
    pub fn runner(&self, port: u16) -> Option<&RunnerView> {
        self.runners.iter().find(|runner| runner.port == Some(port))
    }

    /// 5xx answers and failed loads since the statistics began, in one number that only grows.
    pub fn failures(&self) -> u64 {
        self.outcomes.queue_full + self.outcomes.server_errors + self.load_failures
    }
}

impl Statistics {
    /// Nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in who lives, from a process table that was read *before* the log was read to its end: lines of a runner
    /// that has just ended are then already in. Until it is told, no line is any runner's.
    pub fn living(&mut self, now: Wall, runners: &[LivingRunner]) {
        for model in self.runners.living(now, runners) {
            self.loads.gone(now, &model);
        }
        self.loads.living(now, |port| runners.iter().any(|runner| runner.port == Some(port)));
    }

    /// Takes in the next line, read at that time.
    pub fn line(&mut self, now: Wall, line: &Line) {
        match line {
            Line::Access(access) => self.traffic.request(access),
            Line::Slot(slot) => {
                let told = self.runners.slot(now, slot);
                if let Some(prompt_tokens) = told.prompt_tokens {
                    self.traffic.prompt(now, prompt_tokens);
                }
                if told.empty_response {
                    self.errors.add(ErrorClass::EmptyResponse, now, "a request ended without a single token");
                }
            }
            Line::SlotsIdle => self.runners.voice(RunnerKind::LlamaServer).all_idle(),
            Line::TaskCancelled { task } => self.runners.voice(RunnerKind::LlamaServer).cancelled(*task),
            Line::TaskRefused { task, beyond_context } => {
                self.runners.voice(RunnerKind::LlamaServer).refused(*task);
                if *beyond_context {
                    self.errors.add(ErrorClass::ContextTooLarge, now, "a prompt is longer than the context");
                } else {
                    self.errors.add(ErrorClass::Other, now, "a runner refused a request");
                }
            }
            Line::MlxPromptProgress { at, done_tokens, prompt_tokens } => {
                self.runners.voice(RunnerKind::Mlx).prompt_progress(*at, *done_tokens, *prompt_tokens);
            }
            Line::PromptCompared { at, kind, slot, prompt_tokens, cached_tokens } => {
                self.traffic.prompt(*at, *prompt_tokens);
                let voice = self.runners.voice(*kind);
                voice.threads.turn(*at, *slot, *prompt_tokens, *cached_tokens);
                match kind {
                    RunnerKind::Mlx => voice.prompt_progress(*at, 0, prompt_tokens.saturating_sub(*cached_tokens)),
                    // It tells no more of this prompt: a first sign without a second one would look like standing still.
                    RunnerKind::OllamaRunner | RunnerKind::LlamaServer => {}
                }
            }
            Line::MlxRequestEnded { .. } => self.runners.voice(RunnerKind::Mlx).forget_progress(),
            Line::OutOfMemory { text } => self.errors.add(ErrorClass::OutOfMemory, now, text),
            Line::Config(_) => {
                self.runners.server_began();
                self.loads.server_began();
            }
            Line::Loading { at, model } => self.loads.begun(*at, model),
            Line::RunnerStarting { at, args } => {
                self.runners.starts(*at, args);
                self.loads.runner_starts(*at, &args.model, args.port.known().copied());
            }
            Line::RunnerReady { at, took } => self.loads.ready(*at, *took),
            Line::ForcedToOne { at, architecture } => self.loads.forced_to_one(*at, architecture),
            Line::Evicting { at, why, model } => self.loads.evicting(*at, why, model.as_ref()),
            Line::MakingRoom { at, model } => self.loads.making_room(*at, model),
            Line::Unloaded { at, model, .. } => {
                self.loads.gone(*at, model);
                self.runners.unloaded(model);
            }
            Line::LoadFailed(failure) => {
                self.load_failures += 1;
                self.errors.add(ErrorClass::of(failure, true), failure.at, &failure.error);
                self.end_loading_runner();
                self.loads.failed(failure);
            }
            Line::LoadRetried(failure) => {
                self.errors.add(ErrorClass::of(failure, true), failure.at, &failure.error);
                self.end_loading_runner();
                self.loads.retried();
            }
            Line::RunnerFailed(failure) => {
                let while_loading = self.loads.running().is_some();
                self.errors.add(ErrorClass::of(failure, while_loading), failure.at, &failure.error);
            }
            Line::ClientLeft { at, while_loading } => {
                self.clients_left += 1;
                self.traffic.client_left(*at);
                if *while_loading {
                    self.end_loading_runner();
                    self.loads.given_up();
                }
            }
            Line::PromptCut { .. } => self.prompts_cut += 1,
            Line::ContextBeyondModel { at, asked_tokens, limit_tokens } => {
                let words =
                    format!("{asked_tokens} tokens of context are asked for, the model was made for {limit_tokens}");
                self.errors.add(ErrorClass::ContextTooLarge, *at, &words);
            }
            Line::Listening { .. }
            | Line::DefaultContext { .. }
            | Line::Compute { .. }
            | Line::SettingIgnored { .. }
            | Line::AddressInUse { .. }
            | Line::RunnersLoaded { .. }
            | Line::Buffer(_)
            | Line::Other => {}
        }
    }

    /// A load that failed took its runner with it.
    fn end_loading_runner(&mut self) {
        if let Some(port) = self.loads.running().and_then(|load| load.port) {
            self.runners.ended(port);
        }
    }

    /// The log at that moment.
    pub fn snapshot(&self, now: Wall) -> LogView {
        LogView {
            window: WINDOW,
            endpoints: self.traffic.endpoints(now),
            outcomes: self.traffic.totals(),
            served: self.traffic.served(),
            errors: self.errors.view(),
            prompts: self.traffic.prompts(now),
            prompts_cut: self.prompts_cut,
            clients_left: self.clients_left,
            load_failures: self.load_failures,
            loads: self.loads.loads(),
            evictions: self.loads.evictions(),
            one_slot: self.loads.one_slot(),
            threads: self.runners.threads(),
            runners: self.runners.view(),
            unattributed: self.runners.unattributed(),
        }
    }
}
