//! Requests by endpoint and outcome over a sliding window of wall time.
//!
//! The window is a ring of slices, each one minute. A slice knows which minute it stands for, so that a clock that is
//! set back, a log that is read late and hours without a line need no special case: a slice of another time is emptied
//! when it is written and passed over when it is read.

use super::histogram::Histogram;
use crate::log::Access;
use stablehand_engine::time::Wall;
use std::time::Duration;

/// The window that percentiles and counts are told for.
pub const WINDOW: Duration = Duration::from_secs(SLICES as u64 * SLICE_MS as u64 / 1000);

const SLICES: usize = 15;
const SLICE_MS: i64 = 60_000;

/// How requests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Statuses below 400.
    pub well: u64,
    /// Other statuses below 500: the client's mistake.
    pub client_errors: u64,
    /// 499: the client left while its request waited for a model. Other clients that leave are logged as 200 or 500.
    pub clients_left: u64,
    /// 503: the server's queue for loads was full.
    pub queue_full: u64,
    /// Other statuses from 500 on.
    pub server_errors: u64,
}

impl Outcomes {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.well + self.client_errors + self.clients_left + self.queue_full + self.server_errors
    }

    fn add(&mut self, status: u16) {
        let counter = match status {
            499 => &mut self.clients_left,
            503 => &mut self.queue_full,
            0..400 => &mut self.well,
            400..500 => &mut self.client_errors,
            500.. => &mut self.server_errors,
        };
        *counter += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.well += other.well;
        self.client_errors += other.client_errors;
        self.clients_left += other.clients_left;
        self.queue_full += other.queue_full;
        self.server_errors += other.server_errors;
    }
}

/// One endpoint in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Its path; `other` for all that are not Ollama's.
    pub endpoint: &'static str,
    /// How its requests ended.
    pub outcomes: Outcomes,
    /// Half of its requests took no longer. Latencies are known to about six percent.
    pub p50: Duration,
    /// Nine of ten took no longer.
    pub p90: Duration,
    /// 99 of a hundred took no longer.
    pub p99: Duration,
    /// The longest.
    pub longest: Duration,
}

/// Prompts in the window, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptsView {
    /// How many.
    pub count: u64,
    /// Half of them are no longer.
    pub p50_tokens: u64,
    /// Nine of ten are no longer.
    pub p90_tokens: u64,
    /// The longest.
    pub longest_tokens: u64,
}

/// So many of [`ENDPOINTS`], from the first on, ask a model.
const INFERENCE: usize = 10;

/// The endpoints that are told apart (`ollama server/routes.go`).
const ENDPOINTS: [&str; 24] = [
    "/api/generate",
    "/api/chat",
    "/api/embed",
    "/api/embeddings",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/audio/transcriptions",
    "/v1/models",
    "/api/ps",
    "/api/tags",
    "/api/version",
    "/api/show",
    "/api/status",
    "/api/pull",
    "/api/push",
    "/api/create",
    "/api/copy",
    "/api/delete",
    "/api/blobs",
    "/",
    "other",
];

#[derive(Clone, Debug, Default)]
struct Slice {
    /// Which minute since 1970 it stands for.
    minute: i64,
    endpoints: Vec<(usize, Outcomes, Histogram)>,
    prompts: Option<Histogram>,
}

/// The ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    slices: [Slice; SLICES],
    /// Since the statistics began.
    totals: Outcomes,
    /// Of it, what models answered well.
    served: u64,
    /// When clients left whose requests have not ended yet.
    leaving: Vec<Wall>,
}

/// Access lines tell whole seconds.
const LEFT_TOGETHER: Duration = Duration::from_secs(2);

impl Traffic {
    /// A client left while it waited for a slot. The server ends its request with 500 in the same moment
    /// (`llm/llama_server.go`); nothing of it has failed.
    pub fn client_left(&mut self, at: Wall) {
        self.leaving.retain(|earlier| at - *earlier <= LEFT_TOGETHER);
        self.leaving.push(at);
    }

    pub fn request(&mut self, access: &Access) {
        let left = |at: &Wall| access.ended - *at <= LEFT_TOGETHER && *at - access.ended <= LEFT_TOGETHER;
        let status = match self.leaving.iter().position(left) {
            Some(index) if access.status == 500 => {
                self.leaving.swap_remove(index);
                499
            }
            Some(_) | None => access.status,
        };
        self.totals.add(status);
        let endpoint = endpoint(&access.path);
        self.served += u64::from(endpoint < INFERENCE && status < 400);
        let slice = self.slice(access.ended);
        let at = slice.endpoints.iter().position(|(index, ..)| *index == endpoint).unwrap_or_else(|| {
            slice.endpoints.push((endpoint, Outcomes::default(), Histogram::default()));
            slice.endpoints.len() - 1
        });
        let (_, outcomes, latencies) = &mut slice.endpoints[at];
        outcomes.add(status);
        latencies.add(u64::try_from(access.latency.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn prompt(&mut self, now: Wall, prompt_tokens: u64) {
        self.slice(now).prompts.get_or_insert_default().add(prompt_tokens);
    }

    /// Requests that models answered well since the statistics began.
    pub fn served(&self) -> u64 {
        self.served
    }

    pub fn totals(&self) -> Outcomes {
        self.totals
    }

    /// The endpoints that were asked in the window, the busiest first.
    pub fn endpoints(&self, now: Wall) -> Vec<EndpointView> {
        let mut merged: Vec<(usize, Outcomes, Histogram)> = Vec::new();
        for (endpoint, outcomes, latencies) in self.recent(now).flat_map(|slice| &slice.endpoints) {
            match merged.iter_mut().find(|(index, ..)| index == endpoint) {
                Some((_, counts, histogram)) => {
                    counts.merge(outcomes);
                    histogram.merge(latencies);
                }
                None => merged.push((*endpoint, *outcomes, latencies.clone())),
            }
        }
        let mut views: Vec<EndpointView> = merged.iter().map(view).collect();
        views.sort_by_key(|view| (std::cmp::Reverse(view.outcomes.total()), view.endpoint));
        views
    }

    /// Prompts in the window; `None` when no length was told.
    pub fn prompts(&self, now: Wall) -> Option<PromptsView> {
        let mut merged: Option<Histogram> = None;
        for prompts in self.recent(now).filter_map(|slice| slice.prompts.as_ref()) {
            merged.get_or_insert_default().merge(prompts);
        }
        let merged = merged?;
        Some(PromptsView {
            count: merged.count(),
            p50_tokens: merged.share(0.5)?,
            p90_tokens: merged.share(0.9)?,
            longest_tokens: merged.largest(),
        })
    }

    fn slice(&mut self, at: Wall) -> &mut Slice {
        let minute = at.unix_ms.div_euclid(SLICE_MS);
        let slice = &mut self.slices[minute.rem_euclid(SLICES as i64) as usize];
        if slice.minute != minute {
            *slice = Slice { minute, ..Slice::default() };
        }
        slice
    }

    fn recent(&self, now: Wall) -> impl Iterator<Item = &Slice> {
        let minute = now.unix_ms.div_euclid(SLICE_MS);
        self.slices.iter().filter(move |slice| (minute - SLICES as i64 + 1..=minute).contains(&slice.minute))
    }
}

fn view((endpoint, outcomes, latencies): &(usize, Outcomes, Histogram)) -> EndpointView {
    let share = |share| Duration::from_micros(latencies.share(share).unwrap_or(0));
    EndpointView {
        endpoint: ENDPOINTS[*endpoint],
        outcomes: *outcomes,
        p50: share(0.5),
        p90: share(0.9),
        p99: share(0.99),
        longest: Duration::from_micros(latencies.largest()),
    }
}

/// Which endpoint a path belongs to. What follows a known path names a model or a blob.
fn endpoint(path: &str) -> usize {
    let other = ENDPOINTS.len() - 1;
    let known = |path: &str| ENDPOINTS[..other].iter().position(|endpoint| *endpoint == path);
    let shortened = || {
        let ends = path.match_indices('/').map(|(at, _)| at).nth(2)?;
        known(&path[..ends])
    };
    known(path).or_else(shortened).unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(path: &str, status: u16, ended_s: i64, latency_ms: u64) -> Access {
        Access {
            ended: Wall::from_unix_ms(ended_s * 1000),
            status,
            latency: Duration::from_millis(latency_ms),
            client: "127.0.0.1".to_owned(),
            method: "POST".to_owned(),
            path: path.to_owned(),
        }
    }

    fn wall(seconds: i64) -> Wall {
        Wall::from_unix_ms(seconds * 1000)
    }

    #[test]
    fn outcomes_and_latencies_are_told_by_endpoint() {
        let mut traffic = Traffic::default();
        for request in 0..100 {
            traffic.request(&access("/api/chat", if request < 3 { 503 } else { 200 }, 1000, request * 10));
        }
        for (path, status) in
            [("/v1/models/gemma3:4b", 404), ("/api/blobs/sha256:ab", 201), ("/x", 500), ("/api/chat", 499)]
        {
            traffic.request(&access(path, status, 1001, 1));
        }
        let views = traffic.endpoints(wall(1010));
        let names: Vec<_> = views.iter().map(|view| view.endpoint).collect();
        assert_eq!(names, ["/api/chat", "/api/blobs", "/v1/models", "other"]);
        let chat = Outcomes { well: 97, queue_full: 3, clients_left: 1, ..Outcomes::default() };
        assert_eq!(views[0].outcomes, chat);
        let near = |span: Duration, ms: f64| (span.as_secs_f64() * 1000.0 / ms - 1.0).abs() < 0.07;
        assert!(near(views[0].p50, 490.0) && near(views[0].p90, 890.0) && near(views[0].p99, 980.0));
        assert_eq!(views[0].longest, Duration::from_millis(990));
        assert_eq!(traffic.totals().total(), 104);
        assert_eq!((traffic.totals().client_errors, traffic.totals().server_errors), (1, 1));
    }

    #[test]
    fn the_window_slides_and_a_clock_set_back_does_not_hide_what_follows() {
        let mut traffic = Traffic::default();
        traffic.request(&access("/api/chat", 200, 100_000, 5));
        assert_eq!(traffic.endpoints(wall(100_800)).len(), 1);
        assert_eq!(traffic.endpoints(wall(101_000)), []);
        traffic.request(&access("/api/chat", 200, 50_000, 5));
        assert_eq!(traffic.endpoints(wall(50_001))[0].outcomes.total(), 1);
        assert_eq!(traffic.totals().well, 2);
    }

    #[test]
    fn prompts_are_told_when_any_was() {
        let mut traffic = Traffic::default();
        assert_eq!(traffic.prompts(wall(0)), None);
        traffic.prompt(wall(10), 47_324);
        traffic.prompt(wall(20), 12);
        let prompts = traffic.prompts(wall(30)).unwrap();
        assert_eq!((prompts.count, prompts.p50_tokens, prompts.longest_tokens), (2, 12, 47_324));
    }
}
