//! Conversations, told by what a prompt shares with the ones before it.
//!
//! A client that goes on with a conversation sends all of it again: the new prompt begins with the whole of the last
//! one, and the runner finds it in its cache. A prompt that shares less (the same instructions, another question) is
//! another conversation. Below a thousand tokens nothing is told apart, and nothing hurts.

use stablehand_engine::time::Wall;
use std::collections::VecDeque;

/// A conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The slot that had it last, where the log tells.
    pub slot: Option<u32>,
    /// Its last prompt, in tokens.
    pub prompt_tokens: u64,
    /// Its last prompt with the answer, in tokens, once that is known.
    pub context_tokens: Option<u64>,
    /// How many of its prompts were seen.
    pub turns: u64,
    /// What its prompts grow by from turn to turn, over at most the last eight; known from the third one on.
    pub growth_tokens_per_turn: Option<u64>,
    /// When it was seen last.
    pub last: Wall,
}

impl Thread {
    /// Its length now.
    pub fn tokens(&self) -> u64 {
        self.context_tokens.unwrap_or(self.prompt_tokens).max(self.prompt_tokens)
    }
}

const LEAST_TOKENS: u64 = 1024;
const MOST_THREADS: usize = 32;
const MOST_STEPS: usize = 8;

/// The conversations that one runner has had.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    /// Each with what it grew by, the least recent first.
    threads: VecDeque<(Thread, VecDeque<u64>)>,
}

impl Threads {
    /// A prompt of which the first `shared_tokens` are known to the runner. Gives nothing back: it goes on with a thread
    /// or begins one.
    pub fn turn(&mut self, now: Wall, slot: Option<u32>, prompt_tokens: u64, shared_tokens: u64) {
        if prompt_tokens < LEAST_TOKENS {
            return;
        }
        // Chat templates close the last prompt a little differently once its answer is known.
        let slack = (prompt_tokens / 100).max(16);
        let goes_on = |thread: &Thread| {
            let reach = |tokens: u64| tokens.saturating_add(slack) >= thread.prompt_tokens;
            reach(shared_tokens) && reach(prompt_tokens)
        };
        let found = (0..self.threads.len())
            .filter(|at| goes_on(&self.threads[*at].0))
            .max_by_key(|at| (self.threads[*at].0.prompt_tokens, *at));
        let (mut thread, mut steps) = match found.and_then(|at| self.threads.remove(at)) {
            Some(known) => known,
            None => {
                let thread = Thread {
                    slot,
                    prompt_tokens,
                    context_tokens: None,
                    turns: 0,
                    growth_tokens_per_turn: None,
                    last: now,
                };
                (thread, VecDeque::new())
            }
        };
        if thread.turns > 0 {
            if steps.len() == MOST_STEPS {
                steps.pop_front();
            }
            steps.push_back(prompt_tokens.saturating_sub(thread.prompt_tokens));
        }
        thread.turns += 1;
        thread.growth_tokens_per_turn = (steps.len() >= 2).then(|| mean(&steps));
        (thread.slot, thread.prompt_tokens, thread.context_tokens, thread.last) = (slot, prompt_tokens, None, now);
        if self.threads.len() == MOST_THREADS {
            self.threads.pop_front();
        }
        self.threads.push_back((thread, steps));
    }

    /// The answer to the last prompt of that slot is complete, or was given up.
    pub fn ended(&mut self, now: Wall, slot: Option<u32>, prompt_tokens: u64, context_tokens: u64) {
        let of_slot = |thread: &Thread| thread.slot == slot && thread.prompt_tokens == prompt_tokens;
        if let Some((thread, _)) = self.threads.iter_mut().rev().find(|(thread, _)| of_slot(thread)) {
            (thread.context_tokens, thread.last) = (Some(context_tokens), now);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().map(|(thread, _)| thread)
    }
}

fn mean(steps: &VecDeque<u64>) -> u64 {
    let sum: u128 = steps.iter().map(|step| u128::from(*step)).sum();
    u64::try_from(sum / steps.len().max(1) as u128).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(threads: &Threads) -> Vec<(u64, u64, Option<u64>)> {
        threads.iter().map(|thread| (thread.tokens(), thread.turns, thread.growth_tokens_per_turn)).collect()
    }

    #[test]
    fn a_growing_conversation_is_one_thread() {
        let mut threads = Threads::default();
        let now = Wall::default();
        let mut cached = 0;
        for prompt in (0..9).map(|turn| 30_524 + turn * 2_100) {
            threads.turn(now, Some(0), prompt, cached);
            threads.ended(now, Some(0), prompt, prompt + 400);
            // The template closes the answer a little differently.
            cached = prompt - 5;
        }
        assert_eq!(all(&threads), [(47_724, 9, Some(2_100))]);
    }

    #[test]
    fn questions_with_the_same_instructions_are_not_one_thread() {
        let mut threads = Threads::default();
        for _ in 0..4 {
            threads.turn(Wall::default(), Some(0), 3_050, 3_000);
        }
        assert_eq!(all(&threads), [(3_050, 1, None); 4]);
    }

    #[test]
    fn two_conversations_that_take_turns_in_one_slot_stay_two() {
        let mut threads = Threads::default();
        let mut last = [20_000, 8_000];
        for which in [0, 1] {
            threads.turn(Wall::default(), Some(0), last[which], 0);
        }
        for _ in 0..3 {
            for (which, grows) in [(0, 1_000), (1, 300)] {
                let shared = last[which];
                last[which] += grows;
                threads.turn(Wall::default(), Some(0), last[which], shared);
            }
        }
        assert_eq!(all(&threads), [(23_000, 4, Some(1_000)), (8_900, 4, Some(300))]);
    }

    #[test]
    fn a_conversation_that_was_cut_short_begins_anew() {
        let mut threads = Threads::default();
        threads.turn(Wall::default(), Some(0), 40_000, 0);
        threads.turn(Wall::default(), Some(0), 9_000, 2_000);
        assert_eq!(all(&threads), [(40_000, 1, None), (9_000, 1, None)]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_short_prompts_are_not() {
        let mut threads = Threads::default();
        threads.turn(Wall::default(), None, 500, 500);
        assert_eq!(threads.iter().count(), 0);
        for length in 0..500 {
            threads.turn(Wall::default(), None, 2_000 + length * 100, 0);
        }
        assert_eq!(threads.iter().count(), MOST_THREADS);
        threads.turn(Wall::default(), None, u64::MAX, u64::MAX / 2);
    }
}
