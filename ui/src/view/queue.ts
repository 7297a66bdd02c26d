//! Who waits and what runs.

import type { Snapshot } from '../protocol/protocol';
import type { Speech } from '../speech';
import { tokensPerSecond, waiting } from './headline';
import { fact, figure, list, reason } from './known';
import type { Moment } from './moment';

export interface Queue {
  /** What runs, who waits, tokens per second. */
  summary: string[];
  /** The number is an interval, and why. */
  estimate: string | undefined;
  /** Why it is not known. */
  unknown: string | undefined;
  clients: { key: string; program: string; connections: string; age: string }[];
}

export function queue(snapshot: Snapshot, moment: Moment, speech: Speech): Queue | undefined {
  const seen = snapshot.watched?.queue;
  if (!seen) return undefined;
  const least = figure(seen.at_least);
  const most = figure(seen.at_most);
  const busy = list(snapshot.watched?.runners).flatMap((runner) => figure(runner.slots_busy) ?? []);
  const summary: string[] = [];
  const runs = busy.reduce((sum, slots) => sum + slots, 0);
  if (runs > 0) summary.push(speech.count('queue.running', runs));
  const wait = waiting(snapshot, speech);
  if (wait.length > 0) summary.push(...wait);
  else if (least !== undefined || most !== undefined) summary.push(speech.say('queue.none'));
  const rate = tokensPerSecond(snapshot);
  if (rate !== undefined) summary.push(speech.say('now.rate', { rate: speech.number(rate, 1) }));

  // One program may connect from several processes; a person knows it by its name.
  const programs = new Map<string, { connections: number; oldest_s: number }>();
  for (const { program, connections, oldest_s } of list(fact(seen.clients))) {
    const before = programs.get(program);
    programs.set(program, {
      connections: connections + (before?.connections ?? 0),
      oldest_s: Math.max(oldest_s, before?.oldest_s ?? 0),
    });
  }
  const clients = [...programs]
    .sort(([, a], [, b]) => b.connections - a.connections || b.oldest_s - a.oldest_s)
    .map(([program, { connections, oldest_s }]) => ({
      key: program,
      program,
      connections: speech.count('queue.connections', connections),
      age: speech.duration(oldest_s + moment.since_s),
    }));
  return {
    summary,
    estimate: least !== undefined && most !== undefined && least !== most ? speech.say('queue.estimate') : undefined,
    unknown: least === undefined && most === undefined ? reason(seen.at_most) || reason(seen.at_least) || undefined : undefined,
    clients,
  };
}
