//! Models that clients ask the gateway for and that are not installed: a person is told once for each.

use super::link::Link;
use stablehand_engine::alert::{Alert, AlertKind};
use stablehand_platform::clock::Clock;
use stablehand_protocol::queue::MissingModel;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the gateway is asked.
const GAP: Duration = Duration::from_secs(10);

/// Tells for as long as the daemon runs.
pub async fn run(link: Link, clock: Clock, notices: mpsc::Sender<Alert>) {
    let mut told = BTreeSet::new();
    loop {
        clock.sleep(GAP).await;
        let Ok(view) = link.queue().await else { continue };
        for alert in news(&mut told, &view.missing) {
            if notices.send(alert).await.is_err() {
                return;
            }
        }
    }
}

/// What was not told yet. One that the gateway has forgotten may be told again.
fn news(told: &mut BTreeSet<String>, missing: &[MissingModel]) -> Vec<Alert> {
    told.retain(|model| missing.iter().any(|one| one.model == *model));
    let fresh = missing.iter().filter(|one| told.insert(one.model.clone()));
    fresh
        .map(|MissingModel { model, client }| {
            Alert::new(
                AlertKind::MissingModel,
                format!("{client} asks for {model}, which is not installed; it was told so"),
                "stablehand queue".to_owned(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_is_told_once() {
        let missing = |names: &[&str]| -> Vec<_> {
            let one = |name: &&str| MissingModel { model: (*name).to_owned(), client: "node".to_owned() };
            names.iter().map(one).collect()
        };
        let mut told = BTreeSet::new();
        assert_eq!(news(&mut told, &missing(&["a:1b"])).len(), 1);
        assert!(news(&mut told, &missing(&["a:1b"])).is_empty());
        let alerts = news(&mut told, &missing(&["a:1b", "b:1b"]));
        assert_eq!(alerts[0].message, "node asks for b:1b, which is not installed; it was told so");
        assert_eq!(alerts.len(), 1);
    }
}
