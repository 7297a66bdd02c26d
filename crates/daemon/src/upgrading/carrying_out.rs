//! Carrying a plan out: each deed with a record before and after it, and what the engine says when one fails.

use super::journal::JournalFile;
use stablehand_engine::plan::{Again, StepFailure};
use stablehand_engine::upgrade::Words;
use stablehand_engine::upgrade::deed::{Deed, Phase, WhenFailed};
use stablehand_engine::upgrade::fault::Fault;
use stablehand_engine::upgrade::journal::Record;
use stablehand_engine::upgrade::order::Order;
use stablehand_engine::upgrade::resume::{Course, Resume, Seen, Turn, resume};
use stablehand_platform::clock::Clock;
use std::collections::VecDeque;
use std::time::Duration;

/// Between two tries of a deed that a known race has failed.
const PAUSE: Duration = Duration::from_secs(2);

/// What is told on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A deed begins.
    Began {
        /// Position, from 0.
        index: usize,
        /// How many there are, on this way.
        of: usize,
        /// Which.
        deed: Deed,
    },
    /// Bytes of the deed under way.
    Bytes {
        /// So far.
        done_bytes: u64,
        /// Of how many.
        of_bytes: Option<u64>,
    },
    /// The deed will be tried again, or goes on after a pause.
    Waiting(String),
    /// The deed is done.
    Done {
        /// Position, from 0.
        index: usize,
        /// A short note, may be empty.
        note: String,
    },
    /// Another way is taken from here on.
    Turned {
        /// Why.
        failure: StepFailure,
        /// The deeds that follow.
        deeds: Vec<Deed>,
    },
}

/// Where news goes.
pub(super) type Tell<'a> = &'a (dyn Fn(News) + Send + Sync);

/// What carries deeds out, and looks.
pub(super) trait Works: Send {
    /// Carries one deed out; a short note of it.
    fn carry_out(
        &mut self,
        deed: Deed,
        order: &Order,
        tell: Tell<'_>,
    ) -> impl Future<Output = Result<String, Fault>> + Send;

    /// Looks at what lies where.
    fn look(&mut self, order: &Order) -> impl Future<Output = Seen> + Send;
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The way to the end; `None` when it was halted, with the journal open.
    pub(super) turn: Option<Turn>,
    /// Why the wish was not fulfilled, when it was not.
    pub(super) failure: Option<StepFailure>,
    /// What the engine says of a way other than the planned one.
    pub(super) words: Option<Words>,
    /// What else did not work, and was passed over.
    pub(super) also: Vec<StepFailure>,
}

/// The time that deeds are measured in.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a> {
    /// Of the machine.
    pub(super) clock: &'a Clock,
    /// What every allowance gets more, in real time: a simulated machine's time can run faster than its processes do.
    pub(super) slack: Duration,
}

/// Carries deeds out to the end of their way.
pub(super) async fn carry_out<W: Works>(
    works: &mut W,
    pace: Pace<'_>,
    mut journal: JournalFile<'_>,
    course: Course,
    tell: Tell<'_>,
) -> End {
    let order = course.order.clone();
    let mut end = End { turn: Some(course.turn), failure: None, words: None, also: vec![] };
    let mut way = Way::of(&course);
    if way.turn != Turn::Finish {
        journal.note(Record::Undoing(course.why.clone()));
    }
    while let Some(deed) = way.next() {
        tell(News::Began { index: way.index, of: way.of, deed });
        let fault = match one(works, pace, &mut journal, &order, way.turn, deed, tell).await {
            Ok(note) => {
                tell(News::Done { index: way.index, note });
                continue;
            }
            Err(fault) => fault,
        };
        let failure = fault.failure(deed, &order);
        tracing::warn!(deed = deed.name(), message = %failure.message, "a deed failed");
        match deed.when_failed() {
            WhenFailed::GoOn => end.also.push(failure),
            WhenFailed::Halt => {
                end.failure.get_or_insert(failure);
                end.turn = None;
                return end;
            }
            WhenFailed::TurnBack => {
                end.failure.get_or_insert_with(|| failure.clone());
                journal.note(Record::Undoing(fault.to_string()));
                let seen = works.look(&order).await;
                match resume(&Ok(journal.records().to_vec()), &seen) {
                    Resume::Go(course) => {
                        tell(News::Turned { failure, deeds: course.deeds.clone() });
                        end.turn = Some(course.turn);
                        end.words = Some(course.words.clone());
                        way = Way::of(&course);
                    }
                    Resume::Wait(words) => {
                        end.turn = None;
                        end.words = Some(words);
                        return end;
                    }
                    // The journal is open, so there is always a way.
                    Resume::Nothing => {
                        end.turn = None;
                        return end;
                    }
                }
            }
        }
    }
    journal.close(way.turn.ending());
    end
}

/// The deeds that are left.
struct Way {
    turn: Turn,
    left: VecDeque<Deed>,
    /// Position of the deed under way.
    index: usize,
    of: usize,
    begun: bool,
}

impl Way {
    fn of(course: &Course) -> Self {
        let left: VecDeque<_> = course.deeds.iter().copied().collect();
        Self { turn: course.turn, of: left.len(), left, index: 0, begun: false }
    }

    fn next(&mut self) -> Option<Deed> {
        let deed = self.left.pop_front()?;
        self.index += usize::from(self.begun);
        self.begun = true;
        Some(deed)
    }
}

/// One deed with its records.
async fn one<W: Works>(
    works: &mut W,
    pace: Pace<'_>,
    journal: &mut JournalFile<'_>,
    order: &Order,
    turn: Turn,
    deed: Deed,
    tell: Tell<'_>,
) -> Result<String, Fault> {
    // On the way forward nothing begins without its record. On the way back, and where the server runs proved, a full
    // disk is no reason to stop: what is seen at the next start stands in for what could not be written down.
    let must_be_written = match (turn, deed.phase()) {
        (Turn::Undo | Turn::Leave, _) | (Turn::Finish, Phase::Settling | Phase::Undoing) => false,
        (Turn::Finish, Phase::Preparing | Phase::Switching | Phase::Proving) => true,
    };
    if must_be_written {
        journal.append(Record::Before(deed))?;
    } else {
        journal.note(Record::Before(deed));
    }
    let note = tries(works, pace, order, deed, tell).await?;
    // What was proved is not taken back for want of a record of it.
    if must_be_written && deed != Deed::Prove {
        journal.append(Record::After(deed))?;
    } else {
        journal.note(Record::After(deed));
    }
    Ok(note)
}

/// Tries a deed within its allowance, again where a known race has failed it.
async fn tries<W: Works>(
    works: &mut W,
    pace: Pace<'_>,
    order: &Order,
    deed: Deed,
    tell: Tell<'_>,
) -> Result<String, Fault> {
    let clock = pace.clock;
    let began = clock.awake();
    let allowance = deed.allowance();
    let all = async {
        loop {
            let fault = match works.carry_out(deed, order, tell).await {
                Ok(note) => return Ok(note),
                Err(fault) => fault,
            };
            let over = clock.awake().since(began) + PAUSE >= allowance;
            match fault.again() {
                Again::Soon if !over && !matches!(fault, Fault::Network(_)) => {
                    tell(News::Waiting(fault.to_string()));
                    clock.sleep(PAUSE).await;
                }
                Again::Soon | Again::Few | Again::Never => return Err(fault),
            }
        }
    };
    match tokio::time::timeout(clock.real_span(allowance) + pace.slack, all).await {
        Ok(ended) => ended,
        Err(_too_late) => Err(Fault::TookTooLong(deed)),
    }
}
