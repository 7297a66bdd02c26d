//! What the gateway is for: many clients at once before one slot, on a simulated machine with Ollama's own queue behind.

#![allow(clippy::unwrap_used, reason = "tests panic where they fail; clippy's own exception does not reach here")]

mod world;

use serde_json::{Value, json};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use world::World;
use world::gateway::{ask_as, gateway_socket, home, in_queue, queue, take_over, until};

const MODEL: &str = "gemma4:26b";
/// As the simulated runner counts: four bytes a token.
const BYTES_PER_TOKEN: usize = 4;

fn serial_machine() -> World {
    let world = World::start(&["--speed", "30"]);
    assert_eq!(world.text(&["settings", "preset", "serial"]).0, 0);
    assert_eq!(world.text(&["apply"]).0, 0);
    world
}

/// A client that waits for its answer; status and text of it.
fn client(port: u16, name: String, prompt_tokens: usize, answer_tokens: u64) -> JoinHandle<(u16, String)> {
    std::thread::spawn(move || {
        let prompt: String = "oats ".chars().cycle().take(prompt_tokens * BYTES_PER_TOKEN).collect();
        let options = json!({ "num_predict": answer_tokens, "num_ctx": 65_536 });
        let body = json!({ "model": MODEL, "prompt": prompt, "stream": false, "options": options });
        ask_as(port, "POST", "/api/generate", &[("X-Stablehand-Client", &name)], &body.to_string())
    })
}

fn header(answer: &str, name: &str) -> u64 {
    let line = answer.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {answer:.400}")).trim().parse().unwrap()
}

#[test]
fn four_clients_with_prompts_of_47000_tokens_complete_in_order_and_their_waits_are_shown() {
    let world = serial_machine();
    take_over(&world);
    let (port, socket) = (home(&world), gateway_socket(&world));
    let (ended, order) = channel();
    let mut clients = Vec::new();
    for number in 0..4_u64 {
        let (asking, ended) = (client(port, format!("bot-{number}"), 47_000, 20), ended.clone());
        until(|| in_queue(&socket) as u64 == number + 1);
        clients.push(std::thread::spawn(move || {
            let answer = asking.join().unwrap();
            ended.send(number).unwrap();
            answer
        }));
    }
    let shown = queue(&socket);
    let waiting = |key: &str| -> Vec<Value> {
        shown["waiting"].as_array().unwrap().iter().map(|waiting| waiting[key].clone()).collect()
    };
    assert_eq!(waiting("client"), ["bot-1", "bot-2", "bot-3"], "{shown}");
    assert_eq!(waiting("position"), [1, 2, 3]);
    let (code, page) = world.text(&["queue"]);
    assert!(code == 0 && page.contains("bot-3") && page.contains(MODEL), "{page}");

    let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    let mut waited = Vec::new();
    for (number, (status, said)) in answers.iter().enumerate() {
        assert_eq!(*status, 200, "{said:.400}");
        let evaluated = said.rsplit("\"prompt_eval_count\":").next().unwrap();
        assert!(evaluated.starts_with("4700"), "the whole prompt was read: {evaluated:.40}");
        assert_eq!(header(said, "x-stablehand-position:"), number as u64);
        waited.push(header(said, "x-stablehand-queued-ms:"));
    }
    assert!(waited.is_sorted() && waited[3] > waited[1], "{waited:?}");
}

#[test]
fn the_queue_is_bounded_where_ollamas_own_is_not_and_a_restart_loses_nobody_who_waits() {
    let world = serial_machine();
    let port = home(&world);
    // Ollama by itself: with a queue of 10 in force, 14 requests for a loaded model are all taken.
    assert_eq!(client(port, String::new(), 10, 5).join().unwrap().0, 200);
    let bare: Vec<_> = (0..14).map(|_| client(port, String::new(), 10, 100)).collect();
    let statuses: Vec<u16> = bare.into_iter().map(|client| client.join().unwrap().0).collect();
    assert_eq!(statuses, [200; 14], "Ollama bounds only what waits for a model to be loaded");

    take_over(&world);
    let socket = gateway_socket(&world);
    // The first is at work for longer than the others take to come; the restart breaks it off.
    let bot = |number: u64| client(port, format!("bot-{number}"), 10, if number == 0 { 40_000 } else { 100 });
    let mut clients = Vec::new();
    for number in 0..11 {
        clients.push(bot(number));
        until(|| in_queue(&socket) as u64 == number + 1);
    }
    let (status, said) = bot(11).join().unwrap();
    assert_eq!(status, 503, "{said}");
    assert!(said.contains("server busy, please try again.  maximum pending requests exceeded"), "{said}");
    assert_eq!(in_queue(&socket), 11, "one runs, ten wait, and the one too many was told at once");

    let (code, ending) = world.last(&["restart"]);
    assert_eq!(code, 0, "{ending}");
    let mut answers = clients.into_iter().map(|client| client.join().unwrap());
    let (status, said) = answers.next().unwrap();
    assert!(status == 502 && said.contains("not sent a second time"), "{status}: {said}");
    for (status, said) in answers {
        assert_eq!(status, 200, "whoever waited is served after the restart: {said:.400}");
    }
}
