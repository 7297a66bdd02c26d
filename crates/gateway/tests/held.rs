//! While Ollama is away the queue holds and goes on; whoever waits is told that it lives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod stage;

use http::{Method, StatusCode};
use stablehand_protocol::client::ClientError;
use stablehand_protocol::queue::{Hold, Upstream, UpstreamModel};
use stage::{Ollama, Stage, chat, get, header, piece, post, post_with, soon, text, with_method};

const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream")];

fn restart() -> Hold {
    Hold { why: "restart".to_owned(), model: None, for_s: Some(600) }
}

#[tokio::test]
async fn a_restart_loses_nobody_who_waits_and_sends_nobody_twice() {
    let mut stage = Stage::at_speed("", 50.0).await;
    let sent = stage.asking(chat("m"));
    let running = stage.ollama.asked().await;
    let waiting = [stage.asking(chat("m")), stage.asking(chat("m"))];
    stage.until_waiting(2).await;
    stage.control.hold(&restart()).await.unwrap();
    let address = std::mem::replace(&mut stage.ollama, Ollama::start().await).kill().await;
    drop(running);
    let told = sent.await.unwrap();
    assert_eq!(told.status(), StatusCode::BAD_GATEWAY);
    assert!(text(told).await.contains("the request had been sent and is not sent a second time"));
    // Simple questions wait a little.
    let question = stage.ask(get("/api/version")).await;
    assert_eq!(question.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(question).await.contains("being restarted"));
    // A browser that asks whether it may ask gets Ollama's answer.
    let page = [("origin", "http://localhost:3000"), ("access-control-request-method", "POST")];
    let preflight = stage.ask(with_method(Method::OPTIONS, "/api/chat", &page)).await;
    assert_eq!(preflight.status(), StatusCode::NO_CONTENT);
    assert_eq!(header(&preflight, "access-control-allow-origin"), "http://localhost:3000");
    assert!(header(&preflight, "access-control-allow-headers").contains("X-Stainless-Arch"));
    let arrives = stage.asking(chat("m"));
    stage.until_waiting(3).await;
    stage.ollama = Ollama::start_at(address).await;
    stage.control.release(&restart()).await.unwrap();
    for _ in 0..3 {
        stage.ollama.asked().await.json("{}");
    }
    for asking in waiting.into_iter().chain([arrives]) {
        assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
    }
    assert!(stage.ollama.is_idle());
}

#[tokio::test]
async fn a_question_goes_on_when_the_restart_is_over_in_time() {
    let mut stage = Stage::with("").await;
    stage.control.hold(&restart()).await.unwrap();
    let question = stage.asking(get("/api/tags"));
    stage.control.release(&restart()).await.unwrap();
    stage.ollama.asked().await.json("{\"models\":[]}");
    assert_eq!(question.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_hold_ends_by_itself_and_one_of_a_model_holds_only_that() {
    let mut stage = Stage::at_speed("loaded_models = 2", 50.0).await;
    let hold = Hold { why: "recovery".to_owned(), model: Some("M".to_owned()), for_s: Some(100) };
    stage.control.hold(&hold).await.unwrap();
    let held = stage.asking(chat("m"));
    let view = stage.until_waiting(1).await;
    assert_eq!(view.holds[0].model.as_deref(), Some("m:latest"));
    let other = stage.asking(chat("n"));
    assert!(stage.ollama.asked().await.text().contains("\"n\""));
    assert!(stage.ollama.asked().await.text().contains("\"m\""), "after its hold has ended");
    held.abort();
    other.abort();
}

#[tokio::test]
async fn an_ollama_that_is_gone_is_waited_for_and_then_given_up() {
    let mut stage = Stage::at_speed("unreachable_s = 20", 50.0).await;
    let address = std::mem::replace(&mut stage.ollama, Ollama::start().await).kill().await;
    let waits = stage.asking(chat("m"));
    let view = stage.until_waiting(1).await;
    assert_eq!(view.holds[0].why, "unreachable");
    stage.ollama = Ollama::start_at(address).await;
    // The gateway asks a simple question until there is an answer.
    let question = stage.ollama.asked().await;
    assert_eq!(question.path, "/api/version");
    question.json("{}");
    stage.ollama.asked().await.json("{}");
    assert_eq!(waits.await.unwrap().status(), StatusCode::OK);
    std::mem::replace(&mut stage.ollama, Ollama::start().await).kill().await;
    let told = stage.ask(chat("m")).await;
    assert_eq!(told.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(told).await.contains("cannot be reached"));
}

#[tokio::test]
async fn streams_of_events_get_signs_of_life_and_lines_get_none() {
    let mut stage = Stage::at_speed("keep_alive_after_s = 15", 100.0).await;
    let _first = stage.asking(chat("m"));
    let running = stage.ollama.asked().await;
    let lines = stage.asking(chat("m"));
    stage.until_waiting(1).await;
    let whole = stage.asking(post("/v1/chat/completions", r#"{"model":"m"}"#));
    let openai = stage.ask(post("/v1/chat/completions", r#"{"model":"m","stream":true}"#)).await;
    let anthropic = stage.ask(post("/v1/messages", r#"{"model":"m","stream":true}"#)).await;
    assert_eq!((openai.status(), header(&openai, "content-type")), (StatusCode::OK, "text/event-stream"));
    let (mut openai, mut anthropic) = (openai.into_body(), anthropic.into_body());
    for _ in 0..2 {
        assert!(piece(&mut openai).await.unwrap().starts_with(": "));
        assert_eq!(piece(&mut anthropic).await.unwrap(), "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    }
    assert!(!lines.is_finished() && !whole.is_finished(), "nothing is said to those");
    running.json("{}");
    let mut left = 4;
    while left > 0 {
        let asked = stage.ollama.asked().await;
        left -= 1;
        if asked.path == "/v1/chat/completions" && asked.text().contains("stream") {
            let answering = asked.begin(EVENTS);
            assert!(answering.piece("data: {}\n\n"));
        } else if asked.path == "/v1/messages" {
            asked.whole(
                StatusCode::NOT_FOUND,
                &[],
                r#"{"type":"error","error":{"type":"x","message":"no such model"}}"#,
            );
        } else {
            asked.json("{}");
        }
    }
    let rest = async |body: &mut hyper::body::Incoming| {
        let mut all = String::new();
        while let Some(piece) = piece(body).await {
            all.push_str(&piece);
        }
        all
    };
    assert!(rest(&mut openai).await.ends_with("data: {}\n\n"));
    let told = rest(&mut anthropic).await;
    assert!(told.contains("event: error\ndata: ") && told.contains("no such model"), "{told}");
    let lines = lines.await.unwrap();
    assert!(header(&lines, "x-stablehand-queued-ms").parse::<u64>().unwrap() >= 15_000);
    assert_eq!(text(lines).await, "{}");
    stage.until_running(0).await;
}

#[tokio::test]
async fn a_stream_that_could_not_be_sent_gets_signs_of_life_like_one_that_waits() {
    let mut stage = Stage::at_speed("keep_alive_after_s = 15\nunreachable_s = 3000", 100.0).await;
    let other = Ollama::start().await;
    let address = std::mem::replace(&mut stage.ollama, other).kill().await;
    let response = stage.ask(post("/v1/chat/completions", r#"{"model":"m","stream":true}"#)).await;
    assert_eq!((header(&response, "x-stablehand-position"), response.status()), ("1", StatusCode::OK));
    let mut body = response.into_body();
    assert!(piece(&mut body).await.unwrap().starts_with(": "));
    let mut ollama = Ollama::start_at(address).await;
    loop {
        let asked = ollama.asked().await;
        if asked.path != "/v1/chat/completions" {
            asked.json("{}");
            continue;
        }
        // The head of the answer is gone, and the model is told all the same.
        asked.whole(StatusCode::NOT_FOUND, &[("content-type", "application/json")], r#"{"error":{"message":"none"}}"#);
        break;
    }
    let view = stage.until("the alert", |view| !view.missing.is_empty()).await;
    assert_eq!(view.missing[0].model, "m:latest");
}

#[tokio::test]
async fn what_is_written_as_ollamas_address_is_never_the_gateway_itself() {
    let mut stage = Stage::with("").await;
    let own = stage.address();
    stage.rewrite_upstream(own);
    let view = stage.until("the failure", |view| view.config_failure.is_some()).await;
    assert_eq!(view.config_failure.unwrap().code, "upstream-is-gateway");
    let asking = stage.asking(chat("m"));
    stage.ollama.asked().await.json("{}");
    assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
    assert!(stage.control.leave().await.is_ok());
    let view = stage.control.queue().await.unwrap();
    assert_eq!(view.upstream, own.to_string(), "whoever is there now");
}

#[tokio::test]
async fn whoever_is_dropped_is_told_even_in_a_stream_that_has_begun() {
    let mut stage =
        Stage::at_speed("keep_alive_after_s = 15\n[gateway.clients.quiet]\nkeep_alive = false", 100.0).await;
    let _first = stage.asking(chat("m"));
    let running = stage.ollama.asked().await;
    let quiet = [("x-stablehand-client", "quiet")];
    let stream = r#"{"model":"m","stream":true}"#;
    let silent = stage.asking(post_with("/v1/chat/completions", &quiet, stream));
    stage.until_waiting(1).await;
    let began = stage.ask(post("/v1/chat/completions", stream)).await;
    let view = stage.control.queue().await.unwrap();
    assert_eq!(view.waiting.len(), 2);
    assert!(!silent.is_finished(), "its client wants none");
    for request in &view.waiting {
        stage.control.drop_request(request.id).await.unwrap();
    }
    let silent = silent.await.unwrap();
    assert_eq!(silent.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(silent).await.contains("taken out of the queue by a person"));
    let began = text(began).await;
    assert!(began.contains("data: {\"error\":") && began.contains("taken out of the queue"), "{began}");
    let gone = stage.control.drop_request(view.waiting[0].id).await;
    assert!(matches!(gone, Err(ClientError::Refused(failure)) if failure.code == "not-waiting"));
    running.json("{}");
}

#[tokio::test]
async fn a_person_pauses_moves_and_resumes() {
    let mut stage = Stage::with("").await;
    stage.control.pause().await.unwrap();
    let first = stage.asking(chat("m"));
    stage.until_waiting(1).await;
    let second = stage.asking(post("/v1/completions", r#"{"model":"m"}"#));
    let view = stage.until_waiting(2).await;
    assert_eq!(view.holds[0].why, "paused");
    // Ollama is there; only the queue stands.
    let question = stage.asking(get("/api/version"));
    stage.ollama.asked().await.json("{}");
    assert_eq!(question.await.unwrap().status(), StatusCode::OK);
    let behind = view.waiting.iter().find(|request| request.path == "/v1/completions").unwrap();
    stage.control.move_request(behind.id, "interactive").await.unwrap();
    let wrong = stage.control.move_request(behind.id, "fast").await;
    assert!(
        matches!(wrong, Err(ClientError::Refused(failure)) if failure.message.contains("interactive, agent, batch"))
    );
    stage.control.resume().await.unwrap();
    let asked = stage.ollama.asked().await;
    assert_eq!(asked.path, "/v1/completions");
    asked.json("{}");
    stage.ollama.asked().await.json("{}");
    for asking in [first, second] {
        assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn slots_are_what_the_daemon_says_less_what_goes_around() {
    let mut stage = Stage::with("").await;
    let told = |slots, around_busy| Upstream {
        models: vec![UpstreamModel { model: "m".to_owned(), slots: Some(slots), around_busy, costs: None }],
        loaded: Some(vec!["m:latest".to_owned()]),
        ..Upstream::default()
    };
    stage.control.tell(&told(3, 1)).await.unwrap();
    let _asking: Vec<_> = (0..4).map(|_| stage.asking(chat("m"))).collect();
    let _running = [stage.ollama.asked().await, stage.ollama.asked().await];
    let view = stage.until_waiting(2).await;
    assert_eq!(view.running.len(), 2);
    assert_eq!((view.models[0].slots, view.models[0].around, view.models[0].at_most), (Some(3), 1, 2));
    stage.control.tell(&told(3, 0)).await.unwrap();
    let _third = stage.ollama.asked().await;
    stage.until_running(3).await;
    let elsewhere = Upstream { address: Some("192.0.2.1:11434".to_owned()), ..Upstream::default() };
    assert!(stage.control.tell(&elsewhere).await.is_err(), "Ollama is on this machine");
    let own = Upstream { address: Some(stage.address().to_string()), ..Upstream::default() };
    assert!(stage.control.tell(&own).await.is_err(), "it would ask itself");
    let costs = UpstreamModel {
        model: "n".to_owned(),
        slots: None,
        around_busy: 0,
        costs: Some(stablehand_protocol::queue::ModelCosts { service_ms: Some(5_000), load_ms: Some(30_000) }),
    };
    stage.control.tell(&Upstream { models: vec![costs], ..Upstream::default() }).await.unwrap();
    assert_eq!(stage.control.costs().await.unwrap()["n:latest"].load_ms, Some(30_000));
}

#[tokio::test]
async fn who_leaves_its_address_serves_what_it_has() {
    let mut stage = Stage::with("").await;
    let first = stage.asking(chat("m"));
    let running = stage.ollama.asked().await;
    let second = stage.asking(chat("m"));
    stage.until_waiting(1).await;
    stage.control.leave().await.unwrap();
    let address = stage.address();
    let taken = tokio::net::TcpListener::bind(address).await;
    assert!(taken.is_ok(), "somebody else can listen there now");
    // Ollama moves to where the gateway was.
    let elsewhere = Ollama::start().await;
    let told = Upstream { address: Some(elsewhere.address.to_string()), ..Upstream::default() };
    stage.control.tell(&told).await.unwrap();
    running.json("{}");
    assert_eq!(first.await.unwrap().status(), StatusCode::OK);
    stage.ollama = elsewhere;
    stage.ollama.asked().await.json("{}");
    assert_eq!(second.await.unwrap().status(), StatusCode::OK);
    soon("the end", stage.gateway.left()).await;
}

#[tokio::test]
async fn whoever_still_waits_at_the_end_is_told_and_whoever_runs_ends() {
    let mut stage = Stage::with("").await;
    let first = stage.asking(chat("m"));
    let running = stage.ollama.asked().await;
    let second = stage.asking(chat("m"));
    stage.until_waiting(1).await;
    let Stage { gateway, .. } = stage;
    let stopping = tokio::spawn(gateway.stop());
    let second = second.await.unwrap();
    assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(text(second).await.contains("the gateway is ending"));
    running.json("{\"a\":1}");
    assert_eq!(text(first.await.unwrap()).await, "{\"a\":1}");
    soon("the end", stopping).await.unwrap();
}

#[tokio::test]
async fn a_new_configuration_drops_nobody_and_a_bad_one_changes_nothing() {
    let mut stage = Stage::with("[gateway.aliases]\nagent = \"m\"").await;
    let first = stage.asking(chat("agent"));
    let running = stage.ollama.asked().await;
    assert!(running.text().contains(r#""model":"m""#), "{}", running.text());
    let second = stage.asking(chat("agent"));
    let view = stage.until_waiting(1).await;
    assert_eq!(view.waiting[0].model, "m:latest");
    stage.rewrite("waiting = 1\n[gateway.aliases]\nagent = \"n\"");
    stage.until("the new limit", |view| view.waiting_at_most == 1).await;
    assert_eq!(stage.ask(chat("m")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    stage.rewrite("waiting = 9\n[gateway.aliases]\nagent = \"red\"\nred = \"agent\"");
    let view = stage.until("the complaint", |view| view.config_failure.is_some()).await;
    assert!(view.config_failure.unwrap().message.contains("circle"));
    assert_eq!(view.waiting_at_most, 1);
    running.json("{}");
    let first = first.await.unwrap();
    assert_eq!((first.status(), header(&first, "x-stablehand-changed")), (StatusCode::OK, "model=m"));
    stage.ollama.asked().await.json("{}");
    assert_eq!(second.await.unwrap().status(), StatusCode::OK);
    let third = stage.asking(chat("agent"));
    let asked = stage.ollama.asked().await;
    assert!(asked.text().contains(r#""model":"n""#), "{}", asked.text());
    let kind = [("content-type", "application/json; charset=utf-8")];
    asked.whole(StatusCode::NOT_FOUND, &kind, r#"{"error":"model 'n' not found"}"#);
    let third = third.await.unwrap();
    assert_eq!(third.status(), StatusCode::NOT_FOUND);
    assert_eq!(text(third).await, r#"{"error":"model 'n' not found"}"#, "Ollama's own words");
    let view = stage.until("the alert", |view| !view.missing.is_empty()).await;
    assert_eq!(view.missing[0].model, "n:latest");
}

#[tokio::test]
async fn with_keys_only_who_has_one_is_let_in() {
    let keys = tempfile::tempdir().unwrap();
    let path = keys.path().join("keys.toml");
    std::fs::write(&path, "red = \"0123456789abcdef\"\n").unwrap();
    std::os::unix::fs::chown(&path, None, None).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut stage = Stage::with(&format!("require_key = true\nkeys = \"{}\"", path.display())).await;
    let refused = stage.ask(post("/v1/messages", r#"{"model":"m"}"#)).await;
    assert_eq!((refused.status(), header(&refused, "www-authenticate")), (StatusCode::UNAUTHORIZED, "Bearer"));
    assert!(text(refused).await.contains("authentication_error"));
    assert_eq!(stage.ask(get("/api/tags")).await.status(), StatusCode::UNAUTHORIZED);
    let open = stage.asking(get("/api/version"));
    stage.ollama.asked().await.json("{}");
    assert_eq!(open.await.unwrap().status(), StatusCode::OK, "whether it lives may be asked by all");
    let asking = stage.asking(post_with("/v1/messages", &[("x-api-key", "0123456789abcdef")], r#"{"model":"m"}"#));
    let running = stage.ollama.asked().await;
    let view = stage.until_running(1).await;
    assert_eq!(view.running[0].client, "red");
    running.json("{}");
    assert_eq!(asking.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn the_numbers_and_the_log_say_who_and_how_long_and_never_what() {
    let mut stage = Stage::with("").await;
    let secret = r#"{"model":"m","prompt":"the secret of the prompt"}"#;
    let asking = stage.asking(post_with("/api/generate?x=secret", &[("x-stablehand-client", "red")], secret));
    stage.ollama.asked().await.json(r#"{"response":"secret","load_duration":2000000000}"#);
    assert!(text(asking.await.unwrap()).await.contains("secret"));
    stage.until_running(0).await;
    let numbers = stage.control.metrics().await.unwrap();
    let line = r#"stablehand_gateway_ended_total{lane="agent",client="red",model="m:latest"} 1"#;
    assert!(numbers.lines().any(|one| one == line), "{numbers}");
    let path = stablehand_platform::paths::stablehand_files(stage.machine()).log_dir.join("gateway-access.log");
    let noted = soon("a line", async {
        loop {
            match std::fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text,
                Ok(_) | Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    for part in [r#""path":"/api/generate""#, r#""client":"red""#, r#""model":"m:latest""#, r#""status":200"#] {
        assert!(noted.contains(part), "{noted}");
    }
    assert!(!noted.contains("secret"), "{noted}");
}
