//! Kinds of healthy traces: everyday work, and what looks most like a stall without being one.

use super::setup::{Class, Client, GENERATION, PREFILL, Paging, Prompt};
use super::{EVERY, Kind};
use crate::envelope;

const LLAMA: &[Class] = &[Class::Llama];
/// Machines on which several requests share a runner.
const SLOTTED: &[Class] = &[Class::Llama, Class::Gateway, Class::Blind];

const HEAVY: Paging =
    Paging::Bursts { on_s: (20.0, 600.0), off_s: (30.0, 600.0), factor: (2.0, envelope::PAGING_FACTOR) };
const WORST: Paging =
    Paging::Bursts { on_s: (300.0, 3_000.0), off_s: (5.0, 60.0), factor: (9.0, envelope::PAGING_FACTOR) };

pub const KINDS: &[Kind] = &[
    Kind { name: "chat", classes: EVERY, shape: |_, _| {} },
    Kind {
        name: "at rest",
        classes: EVERY,
        shape: |setup, _| setup.clients.iter_mut().for_each(|client| client.rest_s = (600.0, 5_400.0)),
    },
    Kind {
        name: "long prompts",
        classes: EVERY,
        shape: |setup, _| setup.clients = vec![Client::fresh(0, (20_000.0, 128_000.0), (5.0, 120.0)); 2],
    },
    Kind {
        name: "slowest prefill",
        classes: EVERY,
        shape: |setup, random| {
            let model = setup.model();
            (model.prefill_tokens_per_s, model.slowdown_at_end) = (PREFILL.0, envelope::SLOWDOWN_AT_END);
            model.batch_tokens = 2_048;
            let far = Prompt::Far { cached: (0.0, 120_000.0), new: (2_100.0, 9_000.0) };
            setup.clients = vec![Client { prompt: far, ..Client::chat(0) }];
            setup.first_look_s = random.between((0.0, 900.0));
        },
    },
    Kind {
        name: "slowest prefill under paging",
        classes: EVERY,
        shape: |setup, _| {
            let model = setup.model();
            (model.prefill_tokens_per_s, model.slowdown_at_end) = (PREFILL.0, envelope::SLOWDOWN_AT_END);
            model.batch_tokens = 2_048;
            let far = Prompt::Far { cached: (0.0, 120_000.0), new: (2_100.0, 9_000.0) };
            setup.clients = vec![Client { prompt: far, first_after_s: (1.0, 5.0), ..Client::chat(0) }];
            setup.paging = WORST;
        },
    },
    Kind {
        name: "fastest machine",
        classes: EVERY,
        shape: |setup, _| {
            let model = setup.model();
            (model.prefill_tokens_per_s, model.generation_tokens_per_s) = (PREFILL.1, GENERATION.1);
            setup.clients = vec![Client { rest_s: (0.5, 20.0), ..Client::chat(0) }; 4];
        },
    },
    Kind {
        name: "slowest generation",
        classes: EVERY,
        shape: |setup, random| {
            setup.model().generation_tokens_per_s = random.between((GENERATION.0, 1.0));
        },
    },
    Kind {
        name: "slowest generation under paging",
        classes: EVERY,
        shape: |setup, _| {
            setup.model().generation_tokens_per_s = GENERATION.0;
            setup.paging = WORST;
        },
    },
    Kind {
        name: "first prompt under paging",
        classes: EVERY,
        shape: |setup, _| {
            setup.model().loaded = false;
            setup.model().keep_alive_s = Some(60.0);
            let mut client = Client::fresh(0, (8_000.0, 60_000.0), (90.0, 300.0));
            client.first_after_s = (1.0, 10.0);
            setup.clients = vec![client];
            setup.paging = WORST;
        },
    },
    Kind {
        name: "four slots, one 47K prompt",
        classes: SLOTTED,
        shape: |setup, _| {
            setup.model().slots = 4;
            setup.clients = vec![Client { rest_s: (1.0, 30.0), ..Client::chat(0) }; 3];
            setup.clients.push(Client::fresh(0, (47_000.0, 48_000.0), (60.0, 600.0)));
        },
    },
    Kind {
        name: "four slots, four 47K prompts at once",
        classes: SLOTTED,
        shape: |setup, _| {
            setup.model().slots = 4;
            let client = Client { first_after_s: (5.0, 6.0), ..Client::fresh(0, (47_000.0, 48_000.0), (60.0, 61.0)) };
            setup.clients = vec![client; 4];
        },
    },
    Kind {
        name: "200 queued at one slot",
        classes: EVERY,
        shape: |setup, _| {
            setup.model().slots = 1;
            setup.clients = vec![Client::fresh(0, (100.0, 6_000.0), (0.5, 5.0)); 200];
        },
    },
    Kind {
        name: "images",
        classes: EVERY,
        shape: |setup, _| {
            let client =
                Client { image_s: Some((60.0, envelope::IMAGE_S)), ..Client::fresh(0, (300.0, 2_500.0), (2.0, 60.0)) };
            setup.clients = vec![client; 2];
        },
    },
    Kind {
        name: "images under paging",
        classes: EVERY,
        shape: |setup, _| {
            let client =
                Client { image_s: Some((90.0, envelope::IMAGE_S)), ..Client::fresh(0, (300.0, 2_500.0), (2.0, 60.0)) };
            setup.clients = vec![client; 2];
            setup.paging = WORST;
        },
    },
    Kind {
        name: "an image after many texts",
        classes: EVERY,
        shape: |setup, _| {
            setup.clients = vec![Client { rest_s: (1.0, 10.0), ..Client::chat(0) }];
            setup.clients.push(Client {
                image_s: Some((110.0, envelope::IMAGE_S)),
                rest_s: (900.0, 2_400.0),
                ..Client::chat(0)
            });
        },
    },
    Kind {
        name: "five-minute loads",
        classes: EVERY,
        shape: |setup, _| {
            setup.model().load_s = (240.0, envelope::LOAD_S);
            setup.model().keep_alive_s = Some(20.0);
            setup.model().loaded = false;
        },
    },
    Kind {
        name: "loads under paging",
        classes: EVERY,
        shape: |setup, _| {
            setup.model().load_s = (100.0, envelope::LOAD_S);
            setup.model().keep_alive_s = Some(30.0);
            setup.paging = WORST;
        },
    },
    Kind {
        name: "loads that the server gives up",
        classes: EVERY,
        shape: |setup, _| {
            setup.model().stuck_loads_share = 0.7;
            setup.model().keep_alive_s = Some(20.0);
        },
    },
    Kind {
        name: "two models by turns",
        classes: EVERY,
        shape: |setup, random| {
            let other = setup.add_model("gemma3:12b", random);
            setup.exclusive = true;
            setup.clients.push(Client::chat(other));
        },
    },
    Kind {
        name: "two models at once",
        classes: EVERY,
        shape: |setup, random| {
            let other = setup.add_model("gemma3:12b", random);
            setup.clients.push(Client { rest_s: (1.0, 20.0), ..Client::fresh(other, (500.0, 40_000.0), (1.0, 60.0)) });
        },
    },
    Kind {
        name: "embeddings",
        classes: EVERY,
        shape: |setup, random| {
            setup.model().name = "nomic-embed-text".to_owned();
            setup.model().embedding = true;
            setup.model().slots = 1;
            setup.model().prefill_tokens_per_s = random.scaled((100.0, PREFILL.1));
            setup.clients = vec![Client::fresh(0, (20.0, 4_000.0), (0.2, 30.0)); 3];
        },
    },
    Kind {
        name: "answers of one token",
        classes: EVERY,
        shape: |setup, _| {
            setup.clients.iter_mut().for_each(|client| (client.one_token_share, client.rest_s) = (0.5, (1.0, 30.0)));
        },
    },
    Kind {
        name: "answers at the end only",
        classes: EVERY,
        shape: |setup, _| setup.clients.iter_mut().for_each(|client| client.streams = false),
    },
    Kind {
        name: "some answers at the end only",
        classes: EVERY,
        shape: |setup, _| {
            setup.clients[1].streams = false;
            setup.clients.push(Client { rest_s: (1.0, 20.0), ..Client::chat(0) });
        },
    },
    Kind {
        name: "a thread that grows to the limit",
        classes: EVERY,
        shape: |setup, _| {
            let thread = Prompt::Thread { first: (8_000.0, 16_000.0), turn: (1_500.0, 3_000.0) };
            setup.clients = vec![Client { prompt: thread, rest_s: (2.0, 30.0), ..Client::chat(0) }];
        },
    },
    Kind {
        name: "far after near",
        classes: EVERY,
        shape: |setup, random| {
            setup.model().slowdown_at_end = random.between((6.0, envelope::SLOWDOWN_AT_END));
            setup.model().batch_tokens = 2_048;
            setup.clients = vec![Client::fresh(0, (3_000.0, 6_000.0), (5.0, 30.0))];
            let far = Prompt::Far { cached: (100_000.0, 122_000.0), new: (2_100.0, 6_000.0) };
            setup.clients.push(Client { prompt: far, first_after_s: (1_200.0, 3_600.0), ..Client::chat(0) });
        },
    },
    Kind {
        name: "clients that leave",
        classes: EVERY,
        shape: |setup, _| {
            let client = Client { patience_s: Some((5.0, 90.0)), ..Client::fresh(0, (500.0, 30_000.0), (1.0, 60.0)) };
            setup.clients = vec![client; 3];
        },
    },
    Kind {
        name: "clients that stop reading",
        classes: EVERY,
        shape: |setup, _| setup.clients.iter_mut().for_each(|client| client.stops_reading_share = 0.5),
    },
    Kind { name: "bursts of paging", classes: EVERY, shape: |setup, _| setup.paging = HEAVY },
    Kind {
        name: "long prompts in bursts of paging",
        classes: EVERY,
        shape: |setup, _| {
            setup.clients = vec![Client::fresh(0, (10_000.0, 90_000.0), (5.0, 120.0))];
            setup.paging = HEAVY;
        },
    },
    Kind { name: "paging that slows nothing", classes: EVERY, shape: |setup, _| setup.paging = Paging::Harmless },
    Kind {
        name: "paging that cannot be read",
        classes: EVERY,
        shape: |setup, _| {
            setup.paging = HEAVY;
            setup.sights.swap_unknown = true;
        },
    },
    Kind {
        name: "sleeps of 8 hours",
        classes: EVERY,
        shape: |setup, _| {
            setup.clients = vec![Client::fresh(0, (2_000.0, 60_000.0), (2.0, 90.0)); 2];
            setup.sleeps = Some(((300.0, 2_400.0), (60.0, 28_800.0)));
        },
    },
    Kind { name: "clock set back", classes: EVERY, shape: |setup, _| setup.clock_set_back = true },
    Kind {
        name: "restarts of the server",
        classes: EVERY,
        shape: |setup, _| setup.server_restarts_every_s = Some((900.0, 3_600.0)),
    },
    Kind {
        name: "restarts of the server under paging",
        classes: EVERY,
        shape: |setup, _| {
            setup.server_restarts_every_s = Some((1_800.0, 5_400.0));
            setup.paging = HEAVY;
        },
    },
    Kind {
        name: "failures that mean nothing",
        classes: EVERY,
        shape: |setup, _| setup.failures_every_s = Some((10.0, 120.0)),
    },
    Kind {
        name: "a runner that ended is still listed",
        classes: EVERY,
        shape: |setup, _| setup.model().ends_every_s = Some(300.0),
    },
    Kind {
        name: "CPU use cannot be read",
        classes: EVERY,
        shape: |setup, _| {
            setup.sights.cpu_unknown = true;
            setup.clients = vec![Client::fresh(0, (1_000.0, 50_000.0), (5.0, 120.0)); 2];
        },
    },
    Kind {
        name: "first seen in the middle of a prompt",
        classes: EVERY,
        shape: |setup, random| {
            let client = Client { first_after_s: (1.0, 5.0), ..Client::fresh(0, (60_000.0, 128_000.0), (5.0, 60.0)) };
            setup.clients = vec![client; 2];
            setup.first_look_s = random.between((30.0, 1_200.0));
        },
    },
    Kind {
        name: "slots that answer after the batch",
        classes: LLAMA,
        shape: |setup, _| {
            setup.sights.slots_wait_for_batch = true;
            setup.clients = vec![Client::fresh(0, (1_000.0, 60_000.0), (5.0, 120.0)); 2];
        },
    },
    Kind {
        name: "no decode counter",
        classes: LLAMA,
        shape: |setup, _| {
            setup.sights.no_decode_counter = true;
            setup.clients = vec![Client::fresh(0, (1_000.0, 60_000.0), (5.0, 120.0)); 2];
        },
    },
];
