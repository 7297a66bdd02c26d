//! What people and programs are told of versions, and of how an upgrade ended.

use super::carrying_out::End;
use super::finding::InPlace;
use super::{Links, Upgrading};
use crate::translation::rfc3339;
use stablehand_engine::Known;
use stablehand_engine::upgrade::Words;
use stablehand_engine::upgrade::order::Order;
use stablehand_engine::upgrade::resume::Turn;
use stablehand_protocol::{self as protocol, Failure, Versions};
use std::sync::Arc;

impl Upgrading {
    pub(super) fn versions(&self, links: &Links, there: &InPlace, prerelease: bool) -> Versions {
        let upgrades = links.configuration.borrow().upgrades.clone();
        let install = match &there.install {
            Known::Is(install) => protocol::Known::Is(install.as_ref().map(|install| install.word().to_owned())),
            Known::Unknown(reason) => protocol::Known::unknown(reason.clone()),
        };
        let installed = match &there.installed {
            Known::Is(version) => protocol::Known::Is(version.clone()),
            Known::Unknown(reason) => protocol::Known::unknown(reason.clone()),
        };
        let (latest, newer) = self.releases.latest(there, prerelease);
        Versions {
            installed,
            install,
            replaceable: there.install.known().is_some_and(|install| {
                install.as_ref().is_some_and(stablehand_engine::upgrade::found::Install::is_replaceable)
            }),
            latest,
            newer,
            checked_at: self.releases.checked_at().map(rfc3339),
            unreachable: self.releases.failure(),
            pin: upgrades.pin.clone(),
            kept: there
                .kept
                .iter()
                .map(|kept| protocol::KeptVersion {
                    version: kept.version.clone(),
                    at: kept.at.display().to_string(),
                    since: rfc3339(kept.since),
                    database: kept.database.is_some(),
                })
                .collect(),
            running: self.work.as_ref().map(|work| work.shown.clone()),
            last: self.last.clone(),
            checks: upgrades.check,
        }
    }

    /// Shows how far the work has come, without looking at anything.
    pub(super) fn show(&self, links: &Links) {
        let running = self.work.as_ref().map(|work| work.shown.clone());
        links.versions.send_if_modified(|versions| match versions {
            Some(shown) if shown.running != running => {
                *versions = Some(Arc::new(Versions { running, ..Versions::clone(shown) }));
                true
            }
            Some(_) | None => false,
        });
    }

    pub(super) async fn publish(&self, links: &Links) {
        let prerelease = links.configuration.borrow().upgrades.prerelease;
        let versions = self.versions(links, &self.look(links).await, prerelease);
        links.versions.send_if_modified(|shown| {
            let news = shown.as_deref() != Some(&versions);
            if news {
                *shown = Some(Arc::new(versions));
            }
            news
        });
    }
}

/// What became of it: a word for programs, and words for people.
pub(super) fn words_of(end: &End, order: &Order) -> (&'static str, Words) {
    let (goal, from, to) = (order.goal.word(), &order.from, &order.to);
    let hint =
        end.failure.as_ref().map_or_else(|| "see `stablehand history`".to_owned(), |failure| failure.hint.clone());
    let code = end.failure.as_ref().map(|failure| failure.code);
    match (end.turn, &end.words, &end.failure) {
        (Some(Turn::Finish), _, _) => {
            let mut message = format!("{goal} from {from} to {to}: done, and {to} is proved");
            if let Some(database) = order.database.as_ref().filter(|database| database.instead.is_some()) {
                message.push_str(&format!("; settings and chats of {from} are in {}", database.copy.display()));
            }
            ("committed", Words::new("upgrade-committed", message, "`stablehand rollback` goes back"))
        }
        (Some(Turn::Undo), Some(words), _) => {
            ("undone", Words::new(code.unwrap_or(words.code), words.message.clone(), hint))
        }
        (Some(Turn::Undo), None, _) => {
            let message = format!("the {goal} to {to} was cut off and is undone; {from} is in its place");
            ("undone", Words::new("upgrade-undone", message, format!("try again with `stablehand {goal}`")))
        }
        (Some(Turn::Leave), Some(words), _) => ("left", words.clone()),
        (Some(Turn::Leave), None, _) => {
            ("left", Words::new("upgrade-left", format!("the {goal} to {to} was left as it was found"), hint))
        }
        (None, Some(words), None) => ("halted", words.clone()),
        (None, _, Some(failure)) => ("halted", Words::new(failure.code, failure.message.clone(), hint)),
        (None, None, None) => ("halted", Words::new("upgrade-halted", format!("the {goal} to {to} was halted"), hint)),
    }
}

pub(super) fn failure_of(words: &Words) -> Failure {
    Failure::new(words.code, words.message.clone(), words.hint.clone())
}
