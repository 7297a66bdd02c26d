//! What happened lately, newest first.

import type { Past, Snapshot } from '../protocol/protocol';
import type { Speech } from '../speech';
import { list } from './known';

export interface Happening {
  key: string;
  at: string;
  when: string;
  words: string;
  /** Whom it is about, when the words do not say it. */
  subject: string;
  mark: 'alert' | 'deed' | 'plain';
}

export function events(past: Past | undefined, snapshot: Snapshot | undefined, now_ms: number, speech: Speech): Happening[] {
  const told = list(past?.events);
  const all: { at: string; kind: string; subject: string; words: string }[] =
    told.length > 0
      ? [...told]
      : list(snapshot?.alerts).map((alert) => ({ at: alert.at, kind: 'alert', subject: '', words: alert.message }));
  return all
    .map((event, index) => ({
      key: `${event.at} ${index}`,
      at: event.at,
      when: speech.clock(event.at, now_ms),
      words: event.words,
      subject: event.words.includes(event.subject) ? '' : event.subject,
      mark: markOf(event.kind),
    }))
    .reverse();
}

function markOf(kind: string): Happening['mark'] {
  switch (kind) {
    case 'alert':
      return 'alert';
    case 'kill':
    case 'restart':
    case 'upgrade':
      return 'deed';
    default:
      return 'plain';
  }
}
