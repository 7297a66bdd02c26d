//! When the server itself is provably stalled.

use super::Clock;
use crate::envelope;
use stablehand_engine::process::Identity;
use stablehand_engine::stall::evidence::ServerSeen;

/// What is remembered of the server.
#[derive(Default)]
pub struct ServerWatch {
    id: Option<Identity>,
    /// Work done when it last answered.
    answered_s: f64,
    ps_answered_s: f64,
}

impl ServerWatch {
    pub fn is_stalled(&mut self, clock: Clock, seen: &ServerSeen) -> bool {
        let Some(id) = seen.id else {
            self.id = None;
            return false;
        };
        if self.id != Some(id) {
            (self.id, self.answered_s, self.ps_answered_s) = (Some(id), clock.work_s, clock.work_s);
        }
        if seen.answers {
            self.answered_s = clock.work_s;
        }
        if seen.ps_answers.known() != Some(&false) {
            self.ps_answered_s = clock.work_s;
        }
        clock.work_s - self.answered_s > envelope::SERVER_ANSWER_S
            || clock.work_s - self.ps_answered_s > envelope::PS_ANSWER_S + envelope::SERVER_ANSWER_S
    }
}
