//! What people are told, and where it goes: the snapshot, the history and the desktop.
//!
//! Which alert is told when is the engine's rule (`stablehand_engine::alert`); here it is put into effect.

use crate::history::{Entry, History, Kind, detail};
use crate::translation;
use stablehand_engine::alert::desktop::{Desktop, MinuteOfDay, QuietHours};
use stablehand_engine::alert::{Alert, AlertGate, AlertKind};
use stablehand_engine::time::{Now, Wall};
use stablehand_platform::machine::Machine;
use stablehand_platform::notification;
use stablehand_protocol as protocol;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// How many alerts a snapshot carries.
const KEPT: usize = 20;

/// The alerts so far.
pub(crate) struct Alerts {
    machine: Machine,
    history: History,
    gate: AlertGate,
    desktop: Desktop,
    last: VecDeque<protocol::Alert>,
    /// A person wants no desktop notification until then.
    paused_until: Option<Now>,
}

impl Alerts {
    /// Nothing was told yet.
    pub(crate) fn new(machine: Machine, history: History) -> Self {
        let (gate, desktop) = (AlertGate::default(), Desktop::default());
        Self { machine, history, gate, desktop, last: VecDeque::new(), paused_until: None }
    }

    /// The last ones, oldest first.
    pub(crate) fn last(&self) -> &VecDeque<protocol::Alert> {
        &self.last
    }

    /// Until when a person wants no desktop notification.
    pub(crate) fn paused_until(&self, now: Now) -> Option<Wall> {
        self.paused_until.filter(|until| now.awake < until.awake).map(|until| until.wall)
    }

    /// Tells it, unless it was told and still holds, or has to wait for its minute.
    pub(crate) fn offer(&mut self, alert: Alert, quiet: Option<QuietHours>) {
        let now = self.machine.clock().now();
        if let Some(alert) = self.gate.offer(now.awake, alert) {
            self.tell(now, alert, quiet);
        }
    }

    /// What it was about is over.
    pub(crate) fn over(&mut self, kind: AlertKind) {
        self.gate.clear(self.machine.clock().awake(), kind);
    }

    /// What whoever watches told of and does not see any more is over.
    pub(crate) fn watched(&mut self, standing: &BTreeSet<AlertKind>) {
        self.gate.clear_all(self.machine.clock().awake(), |kind| match kind {
            AlertKind::Stall(_) | AlertKind::UnexpectedModel | AlertKind::MemoryBudget => !standing.contains(&kind),
            AlertKind::GaveUp
            | AlertKind::ServerSilent
            | AlertKind::LoginRace
            | AlertKind::Drift
            | AlertKind::Contested
            | AlertKind::Recovery(_)
            | AlertKind::NewVersion
            | AlertKind::Upgrade
            | AlertKind::GatewayAside
            | AlertKind::GatewayRestarted
            | AlertKind::MissingModel
            | AlertKind::SinceQuiet => false,
        });
    }

    /// Tells what had to wait for its minute, or for the end of the quiet hours; whether [`Self::last`] has changed.
    pub(crate) fn pass_owed(&mut self, quiet: Option<QuietHours>) -> bool {
        let now = self.machine.clock().now();
        let due = self.gate.due(now.awake);
        let news = !due.is_empty();
        for alert in due {
            self.tell(now, alert, quiet);
        }
        let is_quiet = self.is_quiet(now, quiet);
        if let Some(alert) = self.desktop.due(is_quiet, |kind| self.gate.holds(kind)) {
            self.show(alert);
        }
        news
    }

    /// A new pause takes the place of the one before; none ends it. What holds now, in words.
    pub(crate) fn pause(&mut self, span: Duration) -> String {
        let now = self.machine.clock().now();
        self.paused_until = (!span.is_zero()).then(|| Now { awake: now.awake + span, wall: later(now.wall, span) });
        match self.paused_until {
            Some(_) => format!("no desktop notifications for {} min; alerts are kept", span.as_secs().div_ceil(60)),
            None => "desktop notifications are delivered again".to_owned(),
        }
    }

    fn tell(&mut self, now: Now, alert: Alert, quiet: Option<QuietHours>) {
        tracing::warn!(kind = alert.kind.word(), message = %alert.message, action = %alert.action, "alert");
        self.last.push_back(translation::alert(&alert, now.wall));
        while self.last.len() > KEPT {
            self.last.pop_front();
        }
        let is_quiet = self.is_quiet(now, quiet);
        self.history.note(Entry {
            at: now.wall,
            kind: Kind::Alert,
            subject: alert.kind.word().to_owned(),
            words: alert.message.clone(),
            detail_json: detail::alert(&alert, is_quiet).to_string(),
        });
        match self.desktop.tell(is_quiet, alert) {
            Some(alert) => self.show(alert),
            None => tracing::info!("no desktop notification: quiet hours"),
        }
    }

    fn show(&self, alert: Alert) {
        tracing::info!(kind = alert.kind.word(), message = %alert.message, "desktop notification");
        let machine = self.machine.clone();
        tokio::spawn(async move {
            if let Err(reason) = notification::deliver(&machine, &alert).await {
                // The alert stands in every snapshot all the same.
                tracing::debug!(%reason, "no desktop notification");
            }
        });
    }

    fn is_quiet(&self, now: Now, quiet: Option<QuietHours>) -> bool {
        self.paused_until.is_some_and(|until| now.awake < until.awake)
            || quiet.zip(minute_of_day(now.wall)).is_some_and(|(hours, minute)| hours.hold_at(minute))
    }
}

fn later(wall: Wall, span: Duration) -> Wall {
    Wall::from_unix_ms(wall.unix_ms.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
}

/// In the time zone of this machine.
fn minute_of_day(wall: Wall) -> Option<MinuteOfDay> {
    let local = jiff::Timestamp::from_millisecond(wall.unix_ms).ok()?.to_zoned(jiff::tz::TimeZone::system());
    MinuteOfDay::new(local.hour().unsigned_abs().into(), local.minute().unsigned_abs().into())
}
