//! Whose turn it is among the clients of one lane of one model.
//!
//! Deficit round robin on service time. Instead of going around a ring and handing out quanta, each client's account
//! says how much service it was charged; divided by the quantum, that is the round in which its next request may
//! start. So the next turn is the first entry of an ordered set, however deep anyone is in debt.

use super::TicketId;
use crate::time::Awake;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// When a request came, among all; it keeps that place when it is moved or put back.
pub(super) type Arrival = u64;
/// A number of the table of clients.
pub(super) type Client = usize;

/// Accounts of clients that neither wait nor run, kept beside so many others.
const IDLE_ACCOUNTS: usize = 64;

/// One lane of one model.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    accounts: BTreeMap<Client, Account>,
    /// Clients that may have a turn: round, place within it, client.
    order: BTreeSet<(u64, u64, Client)>,
    places: u64,
    /// What a client would have been charged by now that has always taken its share. Nobody who comes starts below
    /// it; and because it grows with every service, those who come under a new name each time pass nobody by for long.
    share_us: u64,
    quantum_us: u64,
    waiting: usize,
    /// Accounts that wait or run.
    active: usize,
    /// Clients that wait.
    waiting_clients: usize,
    /// Since when somebody has waited here without anybody's having had a turn.
    pub(super) passed_over_since: Option<Awake>,
}

#[derive(Clone, Debug, Default)]
struct Account {
    charged_us: u64,
    place: u64,
    waiting: BTreeMap<Arrival, TicketId>,
    running: u32,
    /// What it was charged for in this lane, here and elsewhere, when this account last took notice of it.
    served_us: u64,
    /// The client holds as many permits as it may.
    parked: bool,
}

/// What adding a request changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// The client has an account here for the first time.
    Account,
    /// It had one.
    Nothing,
}

impl Turns {
    pub(super) fn set_quantum(&mut self, quantum: Duration) {
        self.quantum_us = micros(quantum).max(1);
        let old = std::mem::take(&mut self.order);
        for (_, place, client) in old {
            let round = self.accounts.get(&client).map_or(0, |account| account.charged_us / self.quantum_us);
            self.order.insert((round, place, client));
        }
    }

    /// Whether nobody may have a turn.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn waiting_clients(&self) -> usize {
        self.waiting_clients
    }

    pub(super) fn waiting_of(&self, client: Client) -> usize {
        self.accounts.get(&client).map_or(0, |account| account.waiting.len())
    }

    /// How much more service this client was charged than its share.
    pub(super) fn debt(&self, client: Client) -> Duration {
        let charged_us = self.accounts.get(&client).map_or(0, |account| account.charged_us);
        Duration::from_micros(charged_us.saturating_sub(self.share_us))
    }

    pub(super) fn push(
        &mut self,
        client: Client,
        arrival: Arrival,
        ticket: TicketId,
        parked: bool,
        served_us: u64,
    ) -> Opened {
        if self.accounts.is_empty() {
            self.share_us = 0;
        }
        let known = self.accounts.contains_key(&client);
        let (floor_us, place) = (self.share_us, self.places);
        self.change(client, |account| {
            if !known {
                account.place = place;
            }
            if account.waiting.is_empty() {
                account.served_us = served_us;
                account.charged_us = account.charged_us.max(floor_us);
            }
            account.parked = parked;
            account.waiting.insert(arrival, ticket);
        });
        self.waiting += 1;
        if known { Opened::Nothing } else { Opened::Account }
    }

    /// Takes out a request that waits.
    pub(super) fn remove(&mut self, client: Client, arrival: Arrival) -> Option<TicketId> {
        let ticket = self.change(client, |account| account.waiting.remove(&arrival))?;
        self.waiting -= 1;
        Some(ticket)
    }

    /// The request whose turn it is, which runs from now on at this charge until [`Self::ended`].
    pub(super) fn take(&mut self, charge: Duration) -> Option<(Client, TicketId)> {
        let (_, _, client) = *self.order.first()?;
        self.share_us = self.share_us.max(self.accounts.get(&client)?.charged_us);
        let taken = self.change(client, |account| {
            let (_, ticket) = account.waiting.pop_first()?;
            account.running += 1;
            account.charged_us = account.charged_us.saturating_add(micros(charge));
            Some(ticket)
        });
        self.waiting -= 1;
        taken.map(|ticket| (client, ticket))
    }

    /// A request that ran has ended: what it was charged gives way to what it took; that in microseconds.
    pub(super) fn ended(&mut self, client: Client, charged: Duration, took: Duration) -> u64 {
        let took_us = micros(took);
        self.share_us = self.share_us.saturating_add(took_us / (self.active as u64).max(1));
        self.change(client, |account| {
            account.running = account.running.saturating_sub(1);
            account.served_us = account.served_us.saturating_add(took_us);
            account.charged_us = account.charged_us.saturating_add(took_us).saturating_sub(micros(charged));
        });
        took_us
    }

    /// Charges the client whose turn it is for what it has been served elsewhere meanwhile, as long as that makes it
    /// another one's turn; nobody is put back by it further than this behind its share.
    pub(super) fn catch_up(&mut self, at_most: Duration, served_us: impl Fn(Client) -> u64) {
        let ceiling_us = self.share_us.saturating_add(micros(at_most));
        while let Some((_, _, client)) = self.order.first().copied() {
            let total_us = served_us(client);
            let elsewhere_us =
                self.accounts.get(&client).map_or(0, |account| total_us.saturating_sub(account.served_us));
            if elsewhere_us == 0 {
                return;
            }
            self.change(client, |account| {
                account.served_us = total_us;
                let charged_us = account.charged_us.saturating_add(elsewhere_us).min(ceiling_us);
                account.charged_us = account.charged_us.max(charged_us);
            });
        }
    }

    /// Takes a client out of the turns or puts it in again; what it could not use in between is not saved up.
    pub(super) fn park(&mut self, client: Client, parked: bool) {
        if self.accounts.get(&client).is_none_or(|account| account.parked == parked) {
            return;
        }
        let floor_us = self.share_us;
        self.change(client, |account| {
            account.parked = parked;
            account.charged_us = account.charged_us.max(if parked { 0 } else { floor_us });
        });
    }

    /// Closes accounts that are of no use; whose.
    pub(super) fn close_accounts(&mut self) -> Vec<Client> {
        let idle = self.accounts.len() - self.active;
        if idle == 0 || (self.active > 0 && idle <= IDLE_ACCOUNTS + self.active) {
            return Vec::new();
        }
        let idle = self.accounts.iter().filter(|(_, account)| !account.is_active());
        let closed: Vec<Client> = idle.map(|(client, _)| *client).collect();
        for client in &closed {
            self.accounts.remove(client);
        }
        closed
    }

    /// Who waits, in the order of turns if each takes this long; those without a turn at the end.
    pub(super) fn in_order(&self, each: Duration) -> Vec<(Client, TicketId)> {
        let mut rest = self.clone();
        let mut order = Vec::with_capacity(self.waiting);
        while let Some(next) = rest.take(each) {
            order.push(next);
        }
        for (client, account) in &rest.accounts {
            order.extend(account.waiting.values().map(|ticket| (*client, *ticket)));
        }
        order
    }

    /// Every change of an account goes through here, so that order and counts follow it.
    fn change<R>(&mut self, client: Client, change: impl FnOnce(&mut Account) -> R) -> R {
        let quantum_us = self.quantum_us.max(1);
        let account = self.accounts.entry(client).or_default();
        let (was_active, was_waiting) = (account.is_active(), !account.waiting.is_empty());
        let (before, round) = (account.turn(quantum_us, client), account.charged_us / quantum_us);
        let result = change(account);
        if round < account.charged_us / quantum_us {
            account.place = self.places;
        }
        self.places += 1;
        let after = account.turn(quantum_us, client);
        match (was_active, account.is_active()) {
            (false, true) => self.active += 1,
            (true, false) => self.active -= 1,
            (false, false) | (true, true) => {}
        }
        match (was_waiting, !account.waiting.is_empty()) {
            (false, true) => self.waiting_clients += 1,
            (true, false) => self.waiting_clients -= 1,
            (false, false) | (true, true) => {}
        }
        if before != after {
            if let Some(turn) = before {
                self.order.remove(&turn);
            }
            self.order.extend(after);
        }
        result
    }
}

impl Account {
    fn is_active(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty()
    }

    fn turn(&self, quantum_us: u64, client: Client) -> Option<(u64, u64, Client)> {
        let has_turn = !self.parked && !self.waiting.is_empty();
        has_turn.then_some((self.charged_us / quantum_us, self.place, client))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Client = 0;
    const Y: Client = 1;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Both wait with many requests.
    fn busy() -> Turns {
        let mut turns = Turns::default();
        turns.set_quantum(seconds(1));
        for at in 0..100 {
            turns.push(X, at, TicketId(at), false, 0);
            turns.push(Y, at, TicketId(at + 100), false, 0);
        }
        turns
    }

    /// Whose the next turns are, each of them so long.
    fn next(turns: &mut Turns, count: usize, took: Duration) -> Vec<Client> {
        let turn = |_| {
            let (client, _) = turns.take(seconds(1)).unwrap();
            turns.ended(client, seconds(1), took);
            client
        };
        (0..count).map(turn).collect()
    }

    #[test]
    fn a_client_at_its_limit_saves_nothing_up() {
        let mut turns = busy();
        turns.park(X, true);
        assert_eq!(next(&mut turns, 10, seconds(20)), [Y; 10]);
        turns.park(X, false);
        let of_x = next(&mut turns, 10, seconds(20)).into_iter().filter(|client| *client == X).count();
        assert!((5..=6).contains(&of_x), "half of the turns from now on, not the ten that it missed: {of_x}");
    }

    #[test]
    fn service_elsewhere_counts_up_to_a_bound() {
        let mut turns = busy();
        turns.catch_up(seconds(10), |client| if client == X { 600_000_000 } else { 0 });
        assert_eq!(next(&mut turns, 12, seconds(1))[..10], [Y; 10]);
        turns.catch_up(seconds(10), |client| if client == X { 600_000_000 } else { 0 });
        assert!(next(&mut turns, 4, seconds(1)).contains(&X), "told once");
    }

    #[test]
    fn whoever_stops_waiting_is_forgotten_when_nobody_is_left_to_share_with() {
        let mut turns = busy();
        next(&mut turns, 9, seconds(5));
        assert_eq!(turns.close_accounts(), []);
        while !turns.is_empty() {
            next(&mut turns, 1, seconds(5));
        }
        assert_eq!((turns.close_accounts(), turns.waiting(), turns.waiting_clients()), (vec![X, Y], 0, 0));
    }

    #[test]
    fn another_quantum_changes_the_rounds_and_loses_nobody() {
        let mut turns = busy();
        next(&mut turns, 9, seconds(5));
        turns.set_quantum(seconds(100));
        let order = next(&mut turns, 191, seconds(5));
        assert_eq!(order.iter().filter(|client| **client == X).count() + 5, 100);
    }
}
