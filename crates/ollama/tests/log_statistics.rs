//! The statistics over whole logs: of two runners, of MLX, of an old server, cut and broken.

#![expect(clippy::expect_used, reason = "a helper of a test fails the test")]

use jiff::tz::TimeZone;
use proptest::prelude::*;
use stablehand_engine::Known;
use stablehand_engine::process::RunnerKind;
use stablehand_engine::stall::evidence::FinishedRequest;
use stablehand_engine::time::Wall;
use stablehand_ollama::log::{Line, Parser};
use stablehand_ollama::log_statistics::{ErrorClass, LivingRunner, LoadState, LogView, Statistics};
use std::time::Duration;

const TWO_RUNNERS: &str = include_str!("../fixtures/server.two-runners.log");
const MLX: &str = include_str!("../fixtures/server.mlx.log");
const HANGUL_MODEL: &str = "/Users/sim/큰 디스크/models/blobs/sha256-0a1b";

/// Feeds lines; those without a time come at the time of the last one that has one.
struct Feed {
    statistics: Statistics,
    parser: Parser,
    now: Wall,
}

impl Feed {
    fn new() -> Self {
        let parser = Parser::in_zone(TimeZone::UTC);
        Self { statistics: Statistics::new(), parser, now: Wall::from_unix_ms(1_796_022_000_000) }
    }

    fn line(&mut self, line: &[u8]) {
        let line = self.parser.line(line);
        self.now = line.at().unwrap_or(self.now);
        self.statistics.line(self.now, &line);
    }

    fn text(&mut self, text: &str) -> LogView {
        text.lines().for_each(|line| self.line(line.as_bytes()));
        self.statistics.snapshot(self.now)
    }

    fn living(&mut self, living: &[LivingRunner]) -> LogView {
        self.statistics.living(self.now, living);
        self.statistics.snapshot(self.now)
    }
}

fn runner(port: u16, model: &str) -> LivingRunner {
    LivingRunner { port: Some(port), kind: RunnerKind::LlamaServer, model: Known::Is(model.to_owned()) }
}

fn until<'a>(text: &'a str, mark: &str) -> &'a str {
    &text[..text.find(mark).expect("the fixture has this line")]
}

#[test]
fn the_only_runner_gets_its_requests_prompts_and_progress() {
    let view = Feed::new().text(until(TWO_RUNNERS, "time=2026-11-30T08:04:00.000"));
    let runner = view.runner(53411).expect("the runner");
    assert_eq!(runner.model, Known::Is(HANGUL_MODEL.to_owned()));
    let finished: Vec<_> = runner.finished.known().expect("finished").iter().map(tokens).collect();
    assert_eq!(finished, [(400, false), (300, false), (100, true)]);
    let progress = runner.progress.known().copied().flatten().expect("progress");
    assert_eq!((progress.prompt_tokens_total, progress.tokens_generated), (Some(2_103), 100));
    assert_eq!((runner.prompt_tokens_total(0, 820), runner.prompt_tokens_total(1, 820)), (Some(47_300), None));
    assert_eq!(view.unattributed, None);
}

fn tokens(request: &FinishedRequest) -> (u64, bool) {
    (request.tokens_generated, request.cancelled)
}

#[test]
fn a_thread_that_grows_is_named() {
    let view = Feed::new().text(until(TWO_RUNNERS, "time=2026-11-30T08:04:00.000"));
    let [longest] = &view.threads[..] else { panic!("{:?}", view.threads) };
    assert_eq!((longest.thread.tokens(), longest.thread.turns), (47_300, 3));
    assert_eq!(longest.thread.growth_tokens_per_turn, Some(2_100));
    assert_eq!((longest.runner.known(), longest.model.known().map(String::as_str)), (Some(&53411), Some(HANGUL_MODEL)));
    let prompts = view.prompts.expect("prompts");
    assert_eq!((prompts.count, prompts.longest_tokens), (4, 47_300));
}

#[test]
fn the_lines_of_two_runners_are_nobodys() {
    let mut feed = Feed::new();
    let view = feed.text(until(TWO_RUNNERS, "time=2026-11-30T08:04:30"));
    for port in [53411, 53477] {
        let runner = view.runner(port).expect("the runner");
        assert!(runner.progress.reason().is_some_and(|reason| reason.starts_with("2 runners write into one log")));
        assert!(runner.finished.reason().is_some() && runner.prompts.reason().is_some());
        assert_eq!(runner.prompt_tokens_total(0, 0), None);
    }
    assert!(view.unattributed.is_some());
    // The second runner fails to load, and the first one is the only one again, with nothing of the time between.
    let view = feed.text(&TWO_RUNNERS[until(TWO_RUNNERS, "time=2026-11-30T08:04:30").len()..]);
    assert!(view.runner(53477).is_none());
    assert_eq!(view.runner(53411).expect("the runner").finished, Known::Is(vec![]));
}

#[test]
fn a_load_whose_end_is_not_told_ends_with_its_runner() {
    let mut feed = Feed::new();
    let load = until(TWO_RUNNERS, "llama-server started in");
    let begun = feed.text(load);
    let port = begun.loading().expect("a load is under way").port.expect("its runner was started");
    feed.living(&[runner(port, HANGUL_MODEL)]);
    feed.now = Wall::from_unix_ms(feed.now.unix_ms + 29_000);
    assert!(feed.living(&[]).loading().is_some(), "it may be on its way");
    feed.now = Wall::from_unix_ms(feed.now.unix_ms + 2_000);
    let over = feed.living(&[]);
    assert_eq!(over.loading(), None);
    assert_eq!(over.loads.last().map(|load| &load.state), Some(&LoadState::EndUnknown));
}

#[test]
fn a_long_load_whose_runner_lives_goes_on() {
    let mut feed = Feed::new();
    let begun = feed.text(until(TWO_RUNNERS, "llama-server started in"));
    let port = begun.loading().expect("a load is under way").port.expect("its runner was started");
    for _minute in 0..50 {
        feed.now = Wall::from_unix_ms(feed.now.unix_ms + 60_000);
        assert!(feed.living(&[runner(port, HANGUL_MODEL)]).loading().is_some());
    }
}

#[test]
fn loads_evictions_and_single_slots_are_told() {
    let view = Feed::new().text(TWO_RUNNERS);
    let [first, second] = &view.loads[..] else { panic!("{:?}", view.loads) };
    assert_eq!((first.model.as_str(), first.port), (HANGUL_MODEL, Some(53411)));
    assert_eq!(first.state, LoadState::Ready { took: Duration::from_millis(4250) });
    assert!(matches!(second.state, LoadState::Failed { out_of_memory: true, .. }));
    assert_eq!(view.loading(), None);
    let [eviction] = &view.evictions[..] else { panic!("{:?}", view.evictions) };
    assert_eq!(eviction.made_room_for, Known::Is("/Users/sim/m/blobs/sha256-2c3d".to_owned()));
    assert!(eviction.evicted.reason().is_some());
    assert_eq!((view.one_slot[0].architecture.as_str(), view.one_slot[0].count), ("qwen35", 1));
    assert_eq!(view.one_slot[0].model.known().map(String::as_str), Some("/Users/sim/m/blobs/sha256-2c3d"));
}

#[test]
fn a_runner_that_is_gone_while_room_is_made_was_evicted() {
    let mut feed = Feed::new();
    feed.text(until(TWO_RUNNERS, "time=2026-11-30T08:04:01.000"));
    feed.living(&[]);
    let view = feed.living(&[]);
    assert_eq!(view.evictions[0].evicted, Known::Is(vec![HANGUL_MODEL.to_owned()]));
    assert_eq!(view.runners, []);
    let mut feed = Feed::new();
    let debug = "time=2026-11-30T08:00:00Z level=DEBUG source=sched.go:339 msg=\"resetting model to expire immediately to make room\" runner.name=registry.ollama.ai/library/a:b runner.size=\"5.0 GiB\" runner.pid=77 runner.model=/m/blobs/sha256-aa runner.num_ctx=4096 refCount=0\n\
                 time=2026-11-30T08:00:01Z level=DEBUG source=sched.go:465 msg=\"sending an unloaded event\" runner.name=registry.ollama.ai/library/a:b runner.pid=77 runner.model=/m/blobs/sha256-aa\n\
                 time=2026-11-30T08:00:02Z level=INFO source=server.go:109 msg=\"using llama-server for model\" model=/m/blobs/sha256-bb\n";
    let view = feed.text(debug);
    assert_eq!(view.evictions[0].evicted, Known::Is(vec!["/m/blobs/sha256-aa".to_owned()]));
    assert_eq!(view.evictions[0].made_room_for, Known::Is("/m/blobs/sha256-bb".to_owned()));
}

#[test]
fn requests_and_errors_are_counted() {
    let view = Feed::new().text(TWO_RUNNERS);
    let outcomes = view.outcomes;
    assert_eq!((outcomes.well, outcomes.server_errors, outcomes.queue_full, outcomes.clients_left), (3, 1, 1, 1));
    assert_eq!((view.load_failures, view.failures()), (1, 3));
    let chat = view.endpoints.iter().find(|endpoint| endpoint.endpoint == "/api/chat").expect("chat");
    assert_eq!(chat.longest, Duration::from_secs(126));
    let count = |class| view.errors.iter().find(|error| error.class == class).map(|error| error.count);
    assert_eq!((count(ErrorClass::OutOfMemory), count(ErrorClass::ContextTooLarge)), (Some(1), Some(1)));
    assert_eq!(count(ErrorClass::LoadFailed), None);
}

#[test]
fn a_log_of_mlx_tells_progress_and_growth() {
    let mut feed = Feed::new();
    let view = feed.text(until(MLX, "time=2026-11-30T09:02:30"));
    let runner = view.runner(53600).expect("the runner");
    assert_eq!((runner.kind, runner.model.known().map(String::as_str)), (RunnerKind::Mlx, Some("한국어 모델:최신")));
    let progress = runner.progress.known().copied().flatten().expect("progress");
    assert_eq!((progress.prompt_tokens_done, progress.prompt_tokens_total), (4096, Some(8192)));
    assert_eq!(view.loads[0].state, LoadState::Ready { took: Duration::from_secs(12) });
    let view = feed.text(&MLX[until(MLX, "time=2026-11-30T09:02:30").len()..]);
    let [thread] = &view.threads[..] else { panic!("{:?}", view.threads) };
    assert_eq!((thread.thread.tokens(), thread.thread.growth_tokens_per_turn), (10_192, Some(1_000)));
    let line = feed.parser.line(b"time=2026-11-30T09:02:30+01:00 level=INFO msg=\"peak memory\" size=\"12.34 GiB\"");
    feed.statistics.line(feed.now, &line);
    let view = feed.statistics.snapshot(feed.now);
    assert_eq!(view.runner(53600).expect("the runner").progress, Known::Is(None));
}

#[test]
fn an_old_log_is_counted_too() {
    let mut feed = Feed::new();
    let view = feed.text(include_str!("../fixtures/server.old.log"));
    assert!(matches!(view.loads[0].state, LoadState::Ready { took } if took == Duration::from_millis(2510)));
    assert_eq!((view.load_failures, view.runners.len()), (1, 1));
    let prompt = "time=2025-02-26T21:55:00.000Z level=DEBUG source=cache.go:104 msg=\"loading cache slot\" id=0 cache=3000 prompt=5100 used=3000 remaining=2100";
    let view = feed.text(prompt);
    assert_eq!(view.threads[0].thread.slot, Some(0));
    assert_eq!(view.threads[0].thread.prompt_tokens, 5_100);
    // Nothing would ever follow it.
    assert_eq!(view.runners[0].progress, Known::Is(None));
}

#[test]
fn a_log_that_is_joined_late_or_cut_tells_what_it_can() {
    let mut feed = Feed::new();
    let late = &TWO_RUNNERS[until(TWO_RUNNERS, "slot launch_slot_: id  0 | task 402").len()..];
    let view = feed.text(until(late, "time=2026-11-30T08:04:00.000"));
    assert_eq!(view.runners, []);
    assert!(view.unattributed.is_some_and(|lines| lines.progress.is_some()));
    // Once the process table tells that there is one, what follows is its.
    feed.living(&[runner(53411, HANGUL_MODEL)]);
    let view = feed.text(
        "slot print_timing: id  0 | task 820 | n_gen =    300, tg =  17.30 t/s, tg_3s =  17.40 t/s\n\
         slot print_timing: id  0 | task 820 |        eval time =   15000.00 ms /   302 tokens (   50.00 ms per token,    20.00 tokens per second)\n\
         slot      release: id  0 | task 820 | stop processing: n_tokens = 47601, truncated = 0\n",
    );
    let runner = view.runner(53411).expect("the runner");
    assert_eq!(runner.finished.known().expect("finished").iter().map(tokens).collect::<Vec<_>>(), [(302, false)]);
}

#[test]
fn an_embedding_is_no_empty_answer_and_an_empty_answer_is_one() {
    let mut feed = Feed::new();
    feed.living(&[runner(1, "m")]);
    let embedding = "slot launch_slot_: id  0 | task 1 | processing task, is_child = 0\n\
                     slot   operator(): id  0 | task 1 | new prompt, n_ctx_slot = 512, n_keep = 0, task.n_tokens = 12\n\
                     slot      release: id  0 | task 1 | stop processing: n_tokens = 12, truncated = 0\n";
    let view = feed.text(embedding);
    assert_eq!(view.runner(1).expect("the runner").finished, Known::Is(vec![]));
    let empty = "slot launch_slot_: id  0 | task 2 | processing task, is_child = 0\n\
                 slot print_timing: id  0 | task 2 |        eval time =       0.00 ms /     0 tokens (    0.00 ms per token,     0.00 tokens per second)\n\
                 slot      release: id  0 | task 2 | stop processing: n_tokens = 12, truncated = 0\n";
    let view = feed.text(empty);
    assert_eq!(view.runner(1).expect("the runner").finished.known().expect("finished").len(), 1);
    assert_eq!(view.errors[0].class, ErrorClass::EmptyResponse);
}

#[test]
fn sixty_runners_are_kept_apart_and_those_that_go_are_forgotten() {
    let mut feed = Feed::new();
    let all: Vec<_> = (0..60).map(|number| runner(50_000 + number, &format!("모델 {number}"))).collect();
    let view = feed.living(&all);
    assert_eq!(view.runners.len(), 60);
    assert!(view.runners.iter().all(|runner| runner.progress.reason().is_some()));
    for _ in 0..3 {
        feed.living(&all[7..8]);
    }
    let view = feed.text("slot print_timing: id  0 | task 3 | n_gen =    100, tg =  17.29 t/s, tg_3s =  17.47 t/s\n");
    let [only] = &view.runners[..] else { panic!("{:?}", view.runners) };
    assert_eq!((only.port, only.model.known().map(String::as_str)), (Some(50_007), Some("모델 7")));
    assert!(matches!(only.progress, Known::Is(Some(progress)) if progress.tokens_generated == 100));
    for number in 0..1000 {
        let mut bare = all[0].clone();
        bare.port = Some(number);
        feed.living(&[bare]);
    }
    assert!(feed.statistics.snapshot(feed.now).runners.len() <= 3);
}

#[test]
fn a_runner_that_was_only_logged_is_not_gone_before_it_could_be_seen() {
    let mut feed = Feed::new();
    feed.text(until(TWO_RUNNERS, "srv  update_slots"));
    for _ in 0..5 {
        assert_eq!(feed.living(&[]).runners.len(), 1);
    }
    feed.now.unix_ms += 60_000;
    assert_eq!(feed.living(&[]).runners, []);
}

fn some_line() -> impl Strategy<Value = Vec<u8>> {
    let known: Vec<&'static str> =
        [TWO_RUNNERS, MLX, include_str!("../fixtures/server.log"), include_str!("../fixtures/server.old.log")]
            .iter()
            .flat_map(|text| text.lines())
            .collect();
    let line = proptest::sample::select(known);
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        line.clone().prop_map(|line| line.as_bytes().to_vec()),
        (line.clone(), any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 0..6)).prop_map(
            |(line, at, bytes)| {
                let mut line = line.as_bytes().to_vec();
                let at = at.index(line.len());
                let end = (at + bytes.len()).min(line.len());
                line.splice(at..end, bytes);
                line
            }
        ),
        (line.clone(), line, any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
            |(one, other, cut, from)| {
                let (one, other) = (one.as_bytes(), other.as_bytes());
                [&one[..cut.index(one.len())], &other[from.index(other.len())..]].concat()
            }
        ),
        (0..3_u32, 0..4_u32, any::<u64>()).prop_map(|(slot, task, tokens)| {
            format!("slot   operator(): id {slot:2} | task {task} | new prompt, task.n_tokens = {tokens}").into_bytes()
        }),
        (0..3_u32, 0..4_u32, any::<u64>()).prop_map(|(slot, task, tokens)| {
            format!("slot release: id {slot:2} | task {task} | stop processing: n_tokens = {tokens}").into_bytes()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_parser_or_statistics_panic(
        lines in proptest::collection::vec(some_line(), 0..60),
        times in proptest::collection::vec(any::<i64>(), 1..4),
    ) {
        let parser = Parser::in_zone(TimeZone::UTC);
        let mut statistics = Statistics::new();
        for (index, line) in lines.iter().enumerate() {
            let now = Wall::from_unix_ms(times[index % times.len()]);
            statistics.line(now, &parser.line(line));
            if index % 16 == 0 {
                statistics.living(now, &[runner(53411, HANGUL_MODEL)]);
                statistics.snapshot(now);
            }
        }
        let view = statistics.snapshot(Wall::from_unix_ms(times[0]));
        prop_assert!(view.loads.len() <= 16 && view.evictions.len() <= 16);
    }

    #[test]
    fn a_raw_line_is_read_the_same_with_any_line_break(line in some_line()) {
        let parser = Parser::in_zone(TimeZone::UTC);
        let plain = parser.line(&line);
        let broken = parser.line(&[&line[..], b"\r\n"].concat());
        prop_assert!(plain == broken || matches!(plain, Line::Slot(_)));
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_is_no_failure_of_the_server() {
    let left = r#"level=INFO source=llama_server.go:1538 msg="aborting completion request due to client closing the connection""#;
    let view = Feed::new().text(&format!(
        "time=2026-11-30T07:20:38.989Z {left}\n\
         time=2026-11-30T07:20:39.057Z {left}\n\
         [GIN] 2026/11/30 - 07:20:38 | 500 |  2.008149365s |       127.0.0.1 | POST     \"/api/generate\"\n\
         [GIN] 2026/11/30 - 07:20:39 | 500 |  2.000363927s |       127.0.0.1 | POST     \"/api/generate\"\n\
         [GIN] 2026/11/30 - 07:20:39 | 500 |  9.000363927s |       127.0.0.1 | POST     \"/api/generate\"\n\
         time=2026-11-30T07:20:50.057Z {left}\n\
         [GIN] 2026/11/30 - 07:20:59 | 500 |  2.000363927s |       127.0.0.1 | POST     \"/api/chat\"\n"
    ));
    assert_eq!((view.clients_left, view.outcomes.clients_left, view.outcomes.server_errors), (3, 2, 2));
}
