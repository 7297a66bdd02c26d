//! What the desired parallelism and context would cost at most, for the models that are loaded, or for all that are
//! installed when none is.

use stablehand_engine::Known;
use stablehand_engine::memory_bound::{BudgetSource, at_most, automatic_context_tokens, budget_bytes};
use stablehand_engine::setting::{Name, Wish};
use stablehand_ollama::client::Client;
use stablehand_ollama::model_shape::ModelShape;
use stablehand_platform::machine::Machine;
use stablehand_protocol::{self as protocol, MemoryBound};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How long each question may take, in real time. `/api/show` reads a file's header.
const DEADLINE: Duration = Duration::from_secs(5);
/// How many models are asked about.
const MODELS: usize = 12;

/// The bounds. Empty when the server does not answer: nothing is guessed.
pub async fn bounds(machine: &Machine, address: SocketAddr, desired: &BTreeMap<Name, Wish>) -> Vec<MemoryBound> {
    let Ok(client) = Client::new(address) else { return vec![] };
    let wanted = |name: &str| {
        let wish = desired.iter().find(|(known, _)| known.as_str() == name)?.1;
        wish.in_force.parse::<u64>().ok()
    };
    let slots = wanted("OLLAMA_NUM_PARALLEL").unwrap_or(1).max(1);
    let gpu = machine.gpu_working_set_bytes();
    let budget = budget_bytes(&gpu, &machine.memory_bytes());
    let context = match wanted("OLLAMA_CONTEXT_LENGTH").filter(|tokens| *tokens > 0) {
        Some(tokens) => tokens,
        // Without the GPU's limit the longest automatic context is assumed: the bound is an upper one.
        None => automatic_context_tokens(gpu.known().copied().unwrap_or(u64::MAX)),
    };
    let mut bounds = Vec::new();
    for (model, weights_bytes) in models(&client).await {
        bounds.push(bound(&client, &model, weights_bytes, slots, context, &budget).await);
    }
    bounds
}

async fn models(client: &Client) -> Vec<(String, u64)> {
    let installed = client.tags(DEADLINE).await.map(|tags| tags.models).unwrap_or_default();
    let loaded: Vec<String> =
        client.ps(DEADLINE).await.map(|ps| ps.models.into_iter().map(|model| model.name).collect()).unwrap_or_default();
    let mut models: Vec<(String, u64)> = installed
        .into_iter()
        .filter(|model| loaded.is_empty() || loaded.contains(&model.name))
        .map(|model| (model.name, model.size_bytes))
        .collect();
    models.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
    models.truncate(MODELS);
    models
}

async fn bound(
    client: &Client,
    model: &str,
    weights_bytes: u64,
    slots: u64,
    context: u64,
    budget: &Result<(u64, BudgetSource), String>,
) -> MemoryBound {
    let (slots, numbers) = match shape(client, model).await {
        Ok(shape) => (if shape.forced_to_one().is_some() { 1 } else { slots }, shape.numbers(weights_bytes)),
        Err(reason) => (slots, Known::Unknown(reason)),
    };
    let bound = numbers.map(|numbers| at_most(&numbers, context, slots));
    MemoryBound {
        model: model.to_owned(),
        context_tokens: bound.known().map_or(context, |bound| bound.context_per_slot_tokens),
        at_most_bytes: match bound {
            Known::Is(bound) => protocol::Known::Is(bound.total_bytes()),
            Known::Unknown(reason) => protocol::Known::unknown(reason),
        },
        slots: u32::try_from(slots).unwrap_or(u32::MAX),
        budget_bytes: match budget {
            Ok((bytes, _)) => protocol::Known::Is(*bytes),
            Err(reason) => protocol::Known::unknown(reason.clone()),
        },
        budget_source: match budget {
            Ok((_, source)) => source.words(),
            Err(_) => "",
        }
        .to_owned(),
    }
}

async fn shape(client: &Client, model: &str) -> Result<ModelShape, String> {
    let shown = client.show(model, false, DEADLINE).await.map_err(|error| error.to_string())?;
    let shape = ModelShape::from_shown(&shown);
    if !shape.needs_verbose {
        return Ok(shape);
    }
    // Per-layer numbers are longer than what the short answer shows.
    let shown = client.show(model, true, DEADLINE).await.map_err(|error| error.to_string())?;
    Ok(ModelShape::from_shown(&shown))
}
