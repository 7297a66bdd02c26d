//! What a runner works on: slots, waiting requests and counters.

use std::collections::VecDeque;

use tokio::sync::{mpsc, oneshot};

/// A request in a slot.
#[derive(Debug)]
pub struct Task {
    /// Number of the task.
    pub id: u64,
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the prompt handed to a batch so far.
    pub taken: u64,
    /// Tokens of the prompt processed.
    pub processed: u64,
    /// Images that are still to be encoded before the prompt.
    pub images: u64,
    /// Tokens generated.
    pub decoded: u64,
    /// Tokens to generate.
    pub limit: u64,
    /// Whether the limit came from the request.
    pub limited: bool,
    /// World time spent on the prompt, ms.
    pub prompt_ms: f64,
    /// World time spent generating, ms.
    pub generate_ms: f64,
    /// Where the events go; closed when the client left.
    pub events: mpsc::UnboundedSender<String>,
}

impl Task {
    /// A request that nothing has been done for.
    pub fn new(prompt: u64, limit: u64, events: mpsc::UnboundedSender<String>) -> Self {
        Self {
            id: 0,
            prompt,
            taken: 0,
            processed: 0,
            images: 0,
            decoded: 0,
            limit,
            limited: true,
            prompt_ms: 0.0,
            generate_ms: 0.0,
            events,
        }
    }

    /// Whether tokens of the prompt are left.
    pub fn is_filling(&self) -> bool {
        self.processed < self.prompt
    }
}

/// One slot.
#[derive(Debug, Default)]
pub struct Slot {
    /// What it works on.
    pub task: Option<Task>,
}

/// Sums for `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Prompt tokens processed.
    pub prompt_tokens: u64,
    /// World seconds spent on prompts.
    pub prompt_seconds: f64,
    /// Tokens generated.
    pub tokens: u64,
    /// World seconds spent generating.
    pub token_seconds: f64,
    /// Decode calls.
    pub decodes: u64,
    /// Busy slots of all decode calls together.
    pub busy_slots: u64,
    /// Longest sequence.
    pub longest: u64,
}

/// Slots, waiting requests and counters.
#[derive(Debug)]
pub struct State {
    /// Whether the model is loaded.
    pub ready: bool,
    /// Share of the load done, 0 to 1.
    pub progress: f64,
    /// Context of one slot.
    pub context: u64,
    /// The slots.
    pub slots: Vec<Slot>,
    /// Requests without a slot.
    pub deferred: VecDeque<Task>,
    /// Counters.
    pub totals: Totals,
    /// Questions that the decode loop answers between two steps.
    pub questions: Vec<oneshot::Sender<()>>,
    next_task: u64,
}

impl State {
    /// Empty slots.
    pub fn new(slots: u64, context: u64) -> Self {
        Self {
            ready: false,
            progress: 0.0,
            context,
            slots: (0..slots).map(|_| Slot::default()).collect(),
            deferred: VecDeque::new(),
            totals: Totals::default(),
            questions: Vec::new(),
            next_task: 0,
        }
    }

    /// Queues a request.
    pub fn enqueue(&mut self, mut task: Task) {
        task.id = self.next_task;
        self.next_task += 1;
        task.prompt = task.prompt.clamp(1, self.context.saturating_sub(4).max(1));
        let room = self.context.saturating_sub(task.prompt).max(1);
        task.limit = task.limit.min(room);
        self.deferred.push_back(task);
    }

    /// Requests that were ever put into a queue here.
    pub fn requests(&self) -> u64 {
        self.next_task
    }

    /// Number of busy slots.
    pub fn busy(&self) -> usize {
        self.tasks().count()
    }

    /// The requests that are in slots.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.slots.iter().filter_map(|slot| slot.task.as_ref())
    }

    /// Whether nothing is to be done.
    pub fn is_idle(&self) -> bool {
        self.busy() == 0 && self.deferred.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(prompt: u64, limit: u64) -> Task {
        let (events, _receiver) = mpsc::unbounded_channel();
        Task::new(prompt, limit, events)
    }

    #[test]
    fn a_prompt_is_cut_to_the_context() {
        let mut state = State::new(1, 2048);
        state.enqueue(task(47_000, 500));
        assert_eq!(state.deferred[0].prompt, 2044);
        assert_eq!(state.deferred[0].limit, 4);
    }

    #[test]
    fn tasks_are_numbered_in_order() {
        let mut state = State::new(2, 2048);
        state.enqueue(task(1, 1));
        state.enqueue(task(1, 1));
        assert_eq!(state.deferred[1].id, 1);
        assert_eq!(state.requests(), 2);
        assert_eq!(state.busy(), 0);
    }
}
