//! What every part of the page says of a runner in the same way.

import type { Judged, Snapshot, WatchedRunner } from '../protocol/protocol';
import type { Speech } from '../speech';
import { fact } from './known';
import { age_s, type Moment } from './moment';

/** A runner's name; without one, its pid. */
export function nameOf(runner: WatchedRunner, speech: Speech): string {
  return fact(runner.model) || speech.say('models.unnamed', { pid: String(runner.pid) });
}

/** For how long a verdict holds at this moment. */
export function judgedFor_s(judged: Judged, snapshot: Snapshot, moment: Moment): number {
  return judged.for_s + (snapshot.watched ? Math.min(age_s(snapshot.watched.at, moment) ?? 0, 120) : 0);
}
