//! Kinds of traces in which something goes wrong, each on a machine that was healthy until then.

use super::setup::{Class, Client, Fault, GENERATION, Look, Moment, PREFILL, Paging, Prompt, Setup, What};
use super::{EVERY, Kind};
use crate::envelope;
use crate::random::Random;

const LLAMA: &[Class] = &[Class::Llama];
const SLOTTED: &[Class] = &[Class::Llama, Class::Gateway, Class::Blind];
/// Where it is told how much a request generated.
const COUNTED: &[Class] = &[Class::Llama, Class::Gateway];

const PAGING: Paging =
    Paging::Bursts { on_s: (60.0, 400.0), off_s: (60.0, 400.0), factor: (2.0, envelope::PAGING_FACTOR) };

/// Waits for something that never comes.
const DEADLOCK: Look = Look { cores: 0.002, gpu_percent: 0, silent: false, stopped: false, unloading: false };
/// What was reported of a 35B model: 23 % of a core for hours.
const TRICKLE: Look = Look { cores: 0.23, ..DEADLOCK };
/// Busy without end.
const SPIN: Look = Look { cores: 4.0, ..DEADLOCK };
/// The GPU is said to be busy.
const GPU_FULL: Look = Look { cores: 0.02, gpu_percent: 100, ..DEADLOCK };
const SILENT: Look = Look { silent: true, ..DEADLOCK };
const STOPPED: Look = Look { stopped: true, cores: 0.0, ..DEADLOCK };

const IN_PREFILL: Moment = Moment::Prefill { done: 1 };

/// Something goes wrong in the first model's runner after it was watched for a while.
fn later(setup: &mut Setup, random: &mut Random, what: What) {
    setup.fault = Some(Fault { what, after_s: random.between((600.0, 3_600.0)), paging: None, model: 0 });
}

fn stuck(setup: &mut Setup, random: &mut Random, moment: Moment, look: Look) {
    later(setup, random, What::Stuck { moment, look });
}

fn fault(setup: &mut Setup) -> Option<&mut Fault> {
    setup.fault.as_mut()
}

fn prompts(setup: &mut Setup) {
    setup.clients = vec![Client::fresh(0, (3_000.0, 40_000.0), (5.0, 90.0)); 2];
}

pub const KINDS: &[Kind] = &[
    Kind {
        name: "stuck in a prompt, idle",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stuck in a prompt at 23 % CPU",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            stuck(setup, random, IN_PREFILL, TRICKLE);
        },
    },
    Kind {
        name: "stuck in a prompt, spinning",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            stuck(setup, random, IN_PREFILL, SPIN);
        },
    },
    Kind {
        name: "stuck in a prompt, GPU at 100 %",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            stuck(setup, random, IN_PREFILL, GPU_FULL);
        },
    },
    Kind {
        name: "stuck while generating, idle",
        classes: EVERY,
        shape: |setup, random| stuck(setup, random, Moment::Generation, DEADLOCK),
    },
    Kind {
        name: "stuck while generating at 23 % CPU",
        classes: EVERY,
        shape: |setup, random| stuck(setup, random, Moment::Generation, TRICKLE),
    },
    Kind {
        name: "stuck while generating, spinning",
        classes: EVERY,
        shape: |setup, random| stuck(setup, random, Moment::Generation, SPIN),
    },
    Kind {
        name: "stuck while generating, GPU at 100 %",
        classes: EVERY,
        shape: |setup, random| stuck(setup, random, Moment::Generation, GPU_FULL),
    },
    Kind {
        name: "stuck before the first token",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            stuck(setup, random, Moment::FirstBatch, DEADLOCK);
        },
    },
    Kind {
        name: "stuck in an image",
        classes: EVERY,
        shape: |setup, random| {
            setup.clients[1].image_s = Some((20.0, envelope::IMAGE_S));
            stuck(setup, random, Moment::FirstBatch, GPU_FULL);
        },
    },
    Kind {
        name: "stuck in the very first prompt",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            setup.model().loaded = false;
            stuck(setup, random, IN_PREFILL, DEADLOCK);
            if let Some(fault) = fault(setup) {
                fault.after_s = 0.0;
            }
        },
    },
    Kind {
        name: "stuck far into the context",
        classes: EVERY,
        shape: |setup, random| {
            let far = Prompt::Far { cached: (90_000.0, 110_000.0), new: (6_000.0, 12_000.0) };
            setup.clients = vec![Client { prompt: far, ..Client::chat(0) }];
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stuck deep in a long prompt",
        classes: EVERY,
        shape: |setup, random| {
            setup.model().prefill_tokens_per_s = random.between((200.0, PREFILL.1));
            setup.clients = vec![Client::fresh(0, (60_000.0, 120_000.0), (5.0, 60.0))];
            stuck(setup, random, Moment::Prefill { done: 40_000 }, SPIN);
        },
    },
    Kind {
        name: "stuck on the slowest machine",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            (setup.model().prefill_tokens_per_s, setup.model().batch_tokens) = (PREFILL.0, 2_048);
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stuck at the slowest generation",
        classes: EVERY,
        shape: |setup, random| {
            setup.model().generation_tokens_per_s = GENERATION.0;
            stuck(setup, random, Moment::Generation, DEADLOCK);
        },
    },
    Kind {
        name: "stuck on the fastest machine",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            (setup.model().prefill_tokens_per_s, setup.model().generation_tokens_per_s) = (PREFILL.1, GENERATION.1);
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "four slots stuck in a prompt beside answers",
        classes: SLOTTED,
        shape: |setup, random| {
            setup.model().slots = 4;
            setup.clients = vec![Client { rest_s: (1.0, 20.0), ..Client::chat(0) }; 3];
            setup.clients.push(Client::fresh(0, (30_000.0, 48_000.0), (5.0, 60.0)));
            stuck(setup, random, Moment::Shared, TRICKLE);
        },
    },
    Kind {
        name: "four slots stuck in answers",
        classes: SLOTTED,
        shape: |setup, random| {
            setup.model().slots = 4;
            setup.clients = vec![Client { rest_s: (1.0, 20.0), ..Client::chat(0) }; 4];
            stuck(setup, random, Moment::Generation, TRICKLE);
        },
    },
    Kind {
        name: "stuck with 200 behind it",
        classes: EVERY,
        shape: |setup, random| {
            setup.model().slots = 1;
            setup.clients = vec![Client::fresh(0, (100.0, 6_000.0), (0.5, 5.0)); 200];
            stuck(setup, random, Moment::Generation, DEADLOCK);
        },
    },
    Kind {
        name: "stuck in a prompt while paging",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            setup.paging = PAGING;
            stuck(setup, random, IN_PREFILL, DEADLOCK);
            if let Some(fault) = fault(setup) {
                fault.paging = Some(true);
            }
        },
    },
    Kind {
        name: "stuck in an answer while paging",
        classes: EVERY,
        shape: |setup, random| {
            setup.paging = PAGING;
            stuck(setup, random, Moment::Generation, DEADLOCK);
            if let Some(fault) = fault(setup) {
                fault.paging = Some(true);
            }
        },
    },
    Kind {
        name: "stuck between bursts of paging",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            setup.paging = PAGING;
            stuck(setup, random, IN_PREFILL, TRICKLE);
            if let Some(fault) = fault(setup) {
                fault.paging = Some(false);
            }
        },
    },
    Kind {
        name: "stuck, paging cannot be read",
        classes: EVERY,
        shape: |setup, random| {
            setup.sights.swap_unknown = true;
            stuck(setup, random, Moment::Generation, DEADLOCK);
        },
    },
    Kind {
        name: "stuck, pages move harmlessly",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            setup.paging = Paging::Harmless;
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stuck on a machine that sleeps",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            setup.sleeps = Some(((240.0, 900.0), (60.0, 28_800.0)));
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stuck, clock set back",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            setup.clock_set_back = true;
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stopped by a signal in a prompt",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            stuck(setup, random, IN_PREFILL, STOPPED);
        },
    },
    Kind {
        name: "stopped by a signal in an answer",
        classes: EVERY,
        shape: |setup, random| stuck(setup, random, Moment::Generation, STOPPED),
    },
    Kind {
        name: "stuck, HTTP side dead too",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            stuck(setup, random, IN_PREFILL, SILENT);
        },
    },
    Kind {
        name: "stuck in an answer, HTTP side dead too",
        classes: EVERY,
        shape: |setup, random| stuck(setup, random, Moment::Generation, SILENT),
    },
    Kind {
        name: "stuck, and told to unload",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            stuck(setup, random, IN_PREFILL, Look { unloading: true, ..DEADLOCK });
        },
    },
    Kind {
        name: "stuck, and its clients leave",
        classes: EVERY,
        shape: |setup, random| {
            let client =
                Client { patience_s: Some((60.0, 120.0)), ..Client::fresh(0, (3_000.0, 40_000.0), (5.0, 90.0)) };
            setup.clients = vec![client; 2];
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stuck, CPU use cannot be read",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            setup.sights.cpu_unknown = true;
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "one of two runners stuck",
        classes: EVERY,
        shape: |setup, random| {
            let other = setup.add_model("gemma3:12b", random);
            setup.clients.push(Client { rest_s: (1.0, 20.0), ..Client::fresh(other, (500.0, 20_000.0), (1.0, 60.0)) });
            stuck(setup, random, Moment::Generation, TRICKLE);
        },
    },
    Kind {
        name: "embedding runner stuck",
        classes: EVERY,
        shape: |setup, random| {
            setup.model().name = "nomic-embed-text".to_owned();
            setup.model().embedding = true;
            setup.model().slots = 1;
            setup.model().prefill_tokens_per_s = random.scaled((100.0, PREFILL.1));
            setup.clients = vec![Client::fresh(0, (20.0, 4_000.0), (0.2, 10.0)); 3];
            stuck(setup, random, Moment::FirstBatch, DEADLOCK);
        },
    },
    Kind {
        name: "stuck, slots answer after the batch",
        classes: LLAMA,
        shape: |setup, random| {
            prompts(setup);
            setup.sights.slots_wait_for_batch = true;
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stuck, no decode counter",
        classes: LLAMA,
        shape: |setup, random| {
            prompts(setup);
            setup.sights.no_decode_counter = true;
            stuck(setup, random, IN_PREFILL, DEADLOCK);
        },
    },
    Kind {
        name: "stuck when first seen",
        classes: EVERY,
        shape: |setup, random| {
            prompts(setup);
            setup.clients.iter_mut().for_each(|client| client.first_after_s = (1.0, 5.0));
            stuck(setup, random, IN_PREFILL, DEADLOCK);
            if let Some(fault) = fault(setup) {
                fault.after_s = 0.0;
            }
            setup.first_look_s = 3_600.0;
        },
    },
    Kind {
        name: "answers without text after a GPU reset",
        classes: COUNTED,
        shape: |setup, random| later(setup, random, What::EmptyAnswers),
    },
    Kind {
        name: "resident after its unload",
        classes: EVERY,
        shape: |setup, random| later(setup, random, What::Resident),
    },
    Kind {
        name: "orphan after the server died",
        classes: EVERY,
        shape: |setup, random| later(setup, random, What::Orphan),
    },
    Kind { name: "server silent", classes: EVERY, shape: |setup, random| later(setup, random, What::ServerSilent) },
    Kind {
        name: "scheduler blocked",
        classes: EVERY,
        shape: |setup, random| {
            setup.clients.iter_mut().for_each(|client| client.rest_s = (5.0, 60.0));
            later(setup, random, What::SchedulerBlocked);
        },
    },
    Kind {
        name: "every request fails",
        classes: EVERY,
        shape: |setup, random| later(setup, random, What::EverythingFails),
    },
];
