//! What becomes of the app's database, which holds the settings and the chats. No rule here ever drops the only copy of
//! a chat.

use crate::known::Known;

/// The form of the database's tables (`settings.schema_version`). Ollama.app migrates forward only: an older app may
/// fail on a newer form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Schema(pub i64);

/// Whether somebody has used the app since its database was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nobody: no chat was changed, no request came but our own.
    Nobody,
    /// Somebody; the phrase says how ("a chat was changed at 14:02").
    Somebody(String),
    /// It could not be told. Counts as used.
    Unknown(String),
}

/// What is seen of the database when a version is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Who has used it since.
    pub used: Use,
    /// Its form before.
    pub before: Known<Schema>,
    /// Its form now.
    pub now: Known<Schema>,
}

/// What becomes of the database when the old version is put back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterUndo {
    /// Nobody has touched it.
    Untouched,
    /// The copy goes back: nobody has used the version that changed it.
    PutBack,
    /// It stays: somebody has used it, and the old version can read it.
    Keep,
    /// It is set aside under a name of its own and the person is told, and the copy goes back: somebody has used it,
    /// and the old version could not read it, or might not.
    SetAside,
}

/// Decides what becomes of the database when the old version is put back by itself.
///
/// `may_have_run` says that the version taken back may have run; `replaced`, that its database was another.
pub fn after_undo(may_have_run: bool, replaced: bool, sight: &Sight) -> AfterUndo {
    if !may_have_run && !replaced {
        return AfterUndo::Untouched;
    }
    let same_form = sight.before.known().is_some() && sight.before.known() == sight.now.known();
    match &sight.used {
        Use::Nobody => AfterUndo::PutBack,
        Use::Somebody(_) | Use::Unknown(_) if same_form && !replaced => AfterUndo::Keep,
        Use::Somebody(_) | Use::Unknown(_) => AfterUndo::SetAside,
    }
}

/// Whether an old version can go on with the database as it is, at a rollback that a person asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtRollback {
    /// It can: the current database stays, with every chat.
    Keep,
    /// It can not, or might not: the reason as a phrase. A person decides whether the current one is set aside.
    Ask(String),
}

/// Decides it from the current form and the newest that the old version can read.
pub fn at_rollback(now: &Known<Schema>, readable: &Known<Schema>) -> AtRollback {
    match (now, readable) {
        (Known::Is(now), Known::Is(readable)) if now <= readable => AtRollback::Keep,
        (Known::Is(now), Known::Is(readable)) => {
            AtRollback::Ask(format!("its form is {}, the old version reads up to {}", now.0, readable.0))
        }
        (Known::Unknown(reason), _) => AtRollback::Ask(format!("its form could not be read: {reason}")),
        (Known::Is(_), Known::Unknown(reason)) => {
            AtRollback::Ask(format!("it is not known which forms the old version reads: {reason}"))
        }
    }
}
