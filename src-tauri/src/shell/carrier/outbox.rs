//! What waits for its way to the popover. Of views only the newest waits: a popover that is slow to read is told how
//! things stand, not how they stood.

use super::lines::Order;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Filled from anywhere, emptied by one task.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    orders: VecDeque<Order>,
    closed: bool,
}

impl Outbox {
    /// Puts one in; after the end nothing is taken any more.
    pub fn put(&self, order: Order) {
        let mut waiting = self.waiting();
        if waiting.closed {
            return;
        }
        // In its place: the first that the popover hears must stay a view.
        let is_view = |order: &Order| matches!(order, Order::View { .. });
        match waiting.orders.iter_mut().find(|other| is_view(&order) && is_view(other)) {
            Some(older) => *older = order,
            None => waiting.orders.push_back(order),
        }
        drop(waiting);
        self.news.notify_one();
    }

    /// There will be no more.
    pub fn close(&self) {
        self.waiting().closed = true;
        self.news.notify_one();
    }

    /// The next one; `None` after the end. What still waited then is not wanted any more.
    pub async fn next(&self) -> Option<Order> {
        loop {
            {
                let mut waiting = self.waiting();
                if waiting.closed {
                    return None;
                }
                if let Some(order) = waiting.orders.pop_front() {
                    return Some(order);
                }
            }
            self.news.notified().await;
        }
    }

    /// Nothing panics while it holds the lock.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::testing::view;
    use stablehand_protocol::face::{Answer, Link};

    fn seen(version: &str) -> Order {
        let mut view = view(Link::Absent);
        version.clone_into(&mut view.version);
        Order::View { view: Box::new(view) }
    }

    #[tokio::test]
    async fn views_that_nobody_has_read_give_way_to_the_newest_and_nothing_else_does() {
        let outbox = Outbox::default();
        let answer = |number| Order::Answer { number, answer: Box::new(Answer::Done) };
        for order in [seen("1"), answer(1), Order::Hide, seen("2"), answer(2), Order::Show, seen("3")] {
            outbox.put(order);
        }
        for order in [seen("3"), answer(1), Order::Hide, answer(2), Order::Show] {
            assert_eq!(outbox.next().await, Some(order));
        }
        outbox.put(Order::Show);
        outbox.close();
        outbox.put(Order::Hide);
        assert_eq!(outbox.next().await, None);
    }

    #[tokio::test]
    async fn whoever_waits_hears_of_an_order_and_of_the_end() {
        let outbox = std::sync::Arc::new(Outbox::default());
        let reader = {
            let outbox = outbox.clone();
            tokio::spawn(async move { (outbox.next().await, outbox.next().await) })
        };
        tokio::task::yield_now().await;
        outbox.put(Order::Hide);
        tokio::task::yield_now().await;
        outbox.close();
        assert_eq!(reader.await.unwrap(), (Some(Order::Hide), None));
    }
}
