//! What the gateway finds out by itself while no daemon tells it: which models are in memory.

use crate::configuration::full_name;
use crate::gateway::Shared;
use stablehand_engine::admission::Event;
use stablehand_ollama::client::Client;
use std::sync::Arc;
use std::time::Duration;

/// What a daemon has told counts for so long.
const TOLD: Duration = Duration::from_secs(20);
/// How often the server is asked while requests wait or run.
const GAP: Duration = Duration::from_secs(5);
/// How long it may take; it answers late while it loads a model.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks now and then, and only while somebody is in the queue: each question is a line in Ollama's log.
pub async fn look(shared: Arc<Shared>) {
    let front = &shared.front;
    let mut changes = front.queue.changes();
    let mut busy = false;
    loop {
        // An empty queue stays so until something changes.
        if !busy {
            changes.changed().await;
        }
        let now = front.clock.awake();
        let told = shared.told.last().is_some_and(|at| now.since(at) < TOLD);
        changes.mark_seen();
        let view = front.queue.view().snapshot;
        busy = view.waiting.len() + view.running.len() > 0;
        if !told {
            // What went around in the time of a daemon that is gone blocks nobody for ever.
            for model in view.models.into_iter().filter(|model| model.around > 0) {
                front.queue.tell(Event::Around { model: model.model, busy: 0 });
            }
        }
        if busy
            && !told
            && !front.queue.is_away()
            && let Ok(client) = Client::new(front.upstream.address())
            && let Ok(loaded) = client.ps(front.clock.patience(PATIENCE)).await
        {
            let models = loaded.models.iter().map(|model| Arc::from(full_name(&model.name))).collect();
            front.queue.tell(Event::Loaded { models, asked: now });
        }
        tokio::time::sleep(front.clock.real_span(GAP)).await;
    }
}
