//! The gateway as the daemon sees it: where it stands and whether it is well ([`view`]), what is exchanged with it
//! ([`link`], [`exchange`]), and how it comes to stand there and leaves again ([`placing`]).
//!
//! The gateway is a process of its own. It goes on when the daemon ends, with what it last knew.

pub mod exchange;
pub mod exposure;
pub mod link;
pub mod missing;
pub mod record;
pub mod seating;
pub mod view;
