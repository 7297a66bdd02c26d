//! An upgrade or a rollback of Ollama: planned as data, carried out with a journal, finished or undone after whatever
//! cuts it off.
//!
//! [`plan`](plan::plan) and [`plan_rollback`](plan::plan_rollback) turn what was [`found`] into a [`plan::Plan`]: an
//! [`order::Order`] that names every path, and the [`deed::Deed`]s in their order. All that is slow or can be refused
//! comes before the stop; between the stop and the start stand renames and one small copy.
//!
//! Whoever carries it out writes a [`journal::Record`] before and after each deed. After a failed deed, and at every
//! start of the daemon, [`resume`](resume::resume) reads those records together with what is on disk now and says what
//! to do. It needs no record to be true about the disk: a deed that was begun may have happened, partly happened or
//! not happened, so what is seen decides, and the records tell only how far anything may have gone.
//!
//! ```text
//!   nothing taken from the running server        ─► undo: the download goes, nothing else has changed
//!   server stopped, old app in its place         ─► undo: old app started and proved
//!   no app in its place, or a broken one         ─► undo: the old one back; finish where only the new one is whole
//!   new app in its place, not yet proved         ─► finish: start, prove, commit; undo when that was cut off twice
//!   new app proved                               ─► finish: commit
//!   something in its place that nobody here put  ─► leave it, tell
//! ```

pub mod by_itself;
pub mod database;
pub mod deed;
pub mod fault;
pub mod found;
pub mod journal;
pub mod kept;
pub mod order;
pub mod plan;
pub mod refusal;
pub mod resume;
pub mod speed;

/// Words for a person, with a code for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// Stable code, kebab-case, e.g. `upgrade-no-space`.
    pub code: &'static str,
    /// What happened, and what was left unchanged.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl Words {
    /// Words from their three parts.
    pub fn new(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }
}

#[cfg(test)]
mod tests;
