//! The timer of a connection on which one head after the other is waited for.
//!
//! hyper makes a timer for each request and takes it back. This one is set once and rings early, when it looks whether
//! what is waited for now is late: deadlines only ever move on.

use hyper::rt::{Sleep, Timer};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// A timer for one deadline at a time.
#[derive(Clone, Debug, Default)]
pub struct HeadTimer {
    set: Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>,
}

#[derive(Debug)]
struct Until {
    timer: HeadTimer,
    deadline: Instant,
}

impl Timer for HeadTimer {
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + span)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Until { timer: self.clone(), deadline: deadline.into() })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into()
    }
}

impl Sleep for Until {}

impl Future for Until {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut set = self.timer.set.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = set.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.deadline)));
        if sleep.deadline() > self.deadline {
            sleep.as_mut().reset(self.deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(context));
            if sleep.deadline() >= self.deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(self.deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_deadline_is_kept_whatever_was_set_before() {
        let timer = HeadTimer::default();
        let began = Instant::now();
        let seconds = Duration::from_secs;
        let first = timer.sleep(seconds(30));
        assert!(tokio::time::timeout(seconds(20), first).await.is_err(), "its head came");
        timer.sleep(seconds(30)).await;
        assert_eq!(began.elapsed(), seconds(50));
        timer.sleep(seconds(30)).await;
        assert_eq!(began.elapsed(), seconds(80));
        assert!(tokio::time::timeout(seconds(1), timer.sleep(seconds(30))).await.is_err());
        timer.sleep(seconds(2)).await;
        assert_eq!(began.elapsed(), seconds(83), "a shorter one");
    }
}
