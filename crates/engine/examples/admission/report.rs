//! Our queue and the order of arrival, side by side.

use crate::scene::{AGENTS, Scene, in_order_of_arrival};
use crate::world::{Fate, play};
use serde_json::{Value, json};
use stablehand_engine::admission::{Lane, Start};
use std::fmt::Write as _;
use std::time::Duration;

/// The figures of all scenes.
pub struct Report {
    seed: u64,
    affinity: Duration,
    scenes: Vec<(Scene, Figures, Figures)>,
}

/// The figures of one way to serve one scene.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// When the last answer ended.
    pub makespan_s: f64,
    /// Models that took another one's place.
    pub switches: usize,
    /// Waiting by lane.
    pub lanes: Vec<(Lane, Waits)>,
}

/// Waiting, from arrival to permit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    /// Half waited at most so long.
    pub p50_s: f64,
    /// 99 of 100 waited at most so long.
    pub p99_s: f64,
}

impl Report {
    /// Plays everything.
    pub fn new(seed: u64, affinity: Duration) -> Self {
        let scenes = Scene::ALL.map(|scene| {
            let setup = scene.setup(seed, affinity);
            let figures = |fates: &[Fate]| Figures::of(fates, |at| setup.requests[at].lane);
            (scene, figures(&play(&setup)), figures(&in_order_of_arrival(&setup)))
        });
        Self { seed, affinity, scenes: scenes.to_vec() }
    }

    /// The figures of this scene: ours, and in order of arrival.
    pub fn figures(&self, scene: Scene) -> Option<(&Figures, &Figures)> {
        self.scenes.iter().find(|(other, ..)| *other == scene).map(|(_, ours, arrival)| (ours, arrival))
    }

    /// As one object. The figures of the first scene stand at its top.
    pub fn json(&self) -> Value {
        let scenes = self.scenes.iter().map(|(scene, ours, arrival)| {
            json!({
                "scene": scene.title(),
                "makespan_ratio_vs_fcfs": ours.makespan_s / arrival.makespan_s,
                "ours": ours.json(),
                "fcfs": arrival.json(),
            })
        });
        let mut object = json!({
            "seed": self.seed,
            "affinity_s": self.affinity.as_secs(),
            "agents": AGENTS.map(Lane::word),
            "scenes": scenes.collect::<Vec<_>>(),
        });
        if let Some((ours, arrival)) = self.figures(Scene::Queued) {
            object["makespan_ratio_vs_fcfs"] = json!(ours.makespan_s / arrival.makespan_s);
            for (key, value) in ours.json().as_object().into_iter().flatten() {
                object[key] = value.clone();
            }
        }
        object
    }

    /// As Markdown.
    pub fn tables(&self) -> String {
        let mut text = format!(
            "Seed {}, affinity {} s. Agents by lane: {}.\n",
            self.seed,
            self.affinity.as_secs(),
            AGENTS.map(Lane::word).join(", ")
        );
        for (scene, ours, arrival) in &self.scenes {
            let _ = writeln!(text, "\n**{}**\n", capitalised(scene.title()));
            text.push_str("| order | makespan s | of first come | switches |");
            for lane in Lane::ALL {
                let _ = write!(text, " {} wait p50 / p99 s |", lane.word());
            }
            text.push_str("\n|---|---:|---:|---:|---:|---:|---:|\n");
            for (name, figures) in [("stablehand", ours), ("first come, first served", arrival)] {
                let part = figures.makespan_s / arrival.makespan_s;
                let _ = write!(text, "| {name} | {:.0} | {part:.2} | {} |", figures.makespan_s, figures.switches);
                for (_, waits) in &figures.lanes {
                    let _ = write!(text, " {:.0} / {:.0} |", waits.p50_s, waits.p99_s);
                }
                text.push('\n');
            }
        }
        text
    }
}

impl Figures {
    fn of(fates: &[Fate], lane_of: impl Fn(usize) -> Lane) -> Self {
        let ended = fates.iter().filter_map(|fate| fate.ended).max().unwrap_or_default();
        let switched = fates.iter().filter(|fate| matches!(fate.start, Some(Start::Switch { .. })));
        let lanes = Lane::ALL.map(|lane| {
            let of_lane = fates.iter().enumerate().filter(|(at, _)| lane_of(*at) == lane);
            let mut waited: Vec<Duration> = of_lane.filter_map(|(_, fate)| fate.waited()).collect();
            waited.sort_unstable();
            (lane, Waits { p50_s: at_part(&waited, 0.5), p99_s: at_part(&waited, 0.99) })
        });
        Self { makespan_s: ended.as_secs_f64(), switches: switched.count(), lanes: lanes.to_vec() }
    }

    fn json(&self) -> Value {
        let lanes = self.lanes.iter().map(|(lane, waits)| {
            (lane.word().to_owned(), json!({ "wait_p50_s": waits.p50_s, "wait_p99_s": waits.p99_s }))
        });
        json!({
            "makespan_s": self.makespan_s,
            "switches": self.switches,
            "lanes": lanes.collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// The smallest of these that so large a part of them does not pass.
fn at_part(sorted: &[Duration], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map_or(0.0, Duration::as_secs_f64)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
