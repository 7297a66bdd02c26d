//! The gateway: where it stands, and its queue: exactly who runs, who waits, and what holds them.

import type { Ask, Gateway, QueueHold, QueueRequest, QueueView, Snapshot, View } from '../protocol/protocol';
import type { Speech } from '../speech';
import { fact, figure, list, reason } from './known';
import type { Moment } from './moment';
import type { Deed, Trouble } from './trouble';

export interface ExactQueue {
  /** What runs and who waits, in pieces. */
  summary: string[];
  /** What holds the queue, a line each. */
  holds: string[];
  rows: QueueRow[];
  /** What else is worth knowing. */
  notes: string[];
  /** Pauses it. A pause is ended where it is told. */
  deed: Deed | undefined;
}

export interface QueueRow {
  key: string;
  id: number;
  waits: boolean;
  client: string;
  model: string;
  /** Its lane as the gateway names it. */
  lane: string;
  facts: string[];
  /** How long it waits or runs. */
  time: string;
}

export const LANES = ['interactive', 'agent', 'batch'] as const;

/** What the gateway tells; `undefined` where there is none, a text when it does not tell. */
export function exactQueue(view: View | undefined, moment: Moment, speech: Speech): ExactQueue | string | undefined {
  const told = view?.queue;
  if (!told) return undefined;
  const seen = fact(told);
  return seen ? of(seen, moment, speech) : speech.say('queue.silent', { why: reason(told) });
}

/** Where it can stand. */
export const MODES = ['off', 'takeover', 'beside'] as const;

export const placeGateway = (mode: string, port: number | null, dry_run: boolean): Ask => ({
  what: 'request',
  request: { verb: 'gateway', mode, port, dry_run },
});

/** Where it stands, in pieces. */
export function gatewayStands(gateway: Gateway, speech: Speech): string[] {
  const pieces = [speech.known(`gateway.state.${gateway.state}`, gateway.words)];
  if (gateway.listen) pieces.push(gateway.listen);
  if (gateway.upstream) pieces.push(speech.say('gateway.upstream', { address: gateway.upstream }));
  return pieces;
}

/** Why it is not where it is wished, or of no use there. */
export function gatewayTroubles(snapshot: Snapshot, speech: Speech): Trouble[] {
  const gateway = snapshot.gateway;
  if (!gateway) return [];
  const plain = { evidence: [], stops: false };
  if (gateway.aside)
    return [
      {
        ...plain,
        key: 'gateway aside',
        title: speech.say('gateway.aside'),
        words: [gateway.aside.message, gateway.aside.hint].filter(Boolean).join('. '),
      },
    ];
  // On its way nothing comes through for a moment.
  if (fact(gateway.healthy) !== false || gateway.state === 'changing') return [];
  return [{ ...plain, key: 'gateway unhealthy', title: speech.say('gateway.unhealthy'), words: gateway.words }];
}

export const ofQueue = (request: QueueRequest): Ask => ({ what: 'queue', request });

/** Whether a person has paused it. */
export function isPaused(view: View | undefined): boolean {
  const seen = view?.queue ? fact(view.queue) : undefined;
  return list(seen?.holds).some((hold) => hold.why === 'paused');
}

/** What is wrong with the gateway's queue. */
export function queueTroubles(view: View, speech: Speech): Trouble[] {
  const seen = view.queue ? fact(view.queue) : undefined;
  if (!seen) return [];
  const { say } = speech;
  const troubles: Trouble[] = [];
  if (isPaused(view))
    troubles.push({
      key: 'paused',
      title: say('trouble.paused'),
      words: say('trouble.paused.words'),
      evidence: [],
      stops: false,
      deed: { words: say('do.resume'), ask: ofQueue({ verb: 'resume' }) },
    });
  if (seen.config_failure)
    troubles.push({
      key: 'gateway-config',
      title: say('trouble.gateway-config'),
      words: seen.config_failure.message,
      evidence: seen.config_failure.hint === '' ? [] : [seen.config_failure.hint],
      stops: false,
      deed: { words: say('do.open-config'), ask: { what: 'open-config' } },
    });
  return troubles;
}

function of(seen: QueueView, moment: Moment, speech: Speech): ExactQueue {
  const { say } = speech;
  const running = list(seen.running);
  const waiting = list(seen.waiting);
  const since = (milliseconds: number) => speech.duration(milliseconds / 1000 + moment.since_s);
  const summary: string[] = [];
  if (running.length > 0) summary.push(speech.count('queue.running', running.length));
  summary.push(waiting.length > 0 ? speech.count('queue.exact', waiting.length) : say('queue.none'));

  const paused = list(seen.holds).some((hold) => hold.why === 'paused');
  return {
    summary,
    // The pause itself stands above, with the button that ends it.
    holds: list(seen.holds).filter((hold) => hold.why !== 'paused').map((hold) => holdOf(hold, moment, speech)),
    rows: [
      ...running.map((one) => ({
        key: `runs ${one.id}`,
        id: one.id,
        waits: false,
        client: one.client,
        model: one.model,
        lane: one.lane,
        facts: [
          one.model,
          say('queue.runs'),
          ...(one.waited_ms >= 1000 ? [say('queue.after', { duration: speech.duration(one.waited_ms / 1000) })] : []),
        ],
        time: since(one.running_ms),
      })),
      ...waiting.map((one) => ({
        key: `waits ${one.id}`,
        id: one.id,
        waits: true,
        client: one.client,
        model: one.model,
        lane: one.lane,
        facts: [one.model, ...expected(one.expected_ms, moment, speech)],
        time: since(one.waited_ms),
      })),
    ],
    notes: notesOf(seen, waiting.length, speech),
    deed: paused ? undefined : { words: say('do.pause'), ask: ofQueue({ verb: 'pause' }) },
  };
}

/** Its turn comes closer as time goes by, and is not told once it should have come. */
function expected(expected_ms: number | null | undefined, moment: Moment, speech: Speech): string[] {
  const left = figure(expected_ms);
  if (left === undefined) return [];
  const seconds = left / 1000 - moment.since_s;
  return seconds >= 1 ? [speech.say('queue.turn', { duration: speech.duration(seconds) })] : [];
}

function holdOf(hold: QueueHold, moment: Moment, speech: Speech): string {
  const why = speech.known(`queue.hold.${hold.why}`, hold.why);
  const pieces = [hold.model ? speech.say('queue.hold.model', { why, model: hold.model }) : why];
  const left = figure(hold.left_ms);
  if (left !== undefined)
    pieces.push(speech.say('queue.hold.left', { duration: speech.duration(Math.max(0, left / 1000 - moment.since_s)) }));
  return pieces.join(' · ');
}

function notesOf(seen: QueueView, waiting: number, speech: Speech): string[] {
  const notes: string[] = [];
  const { say } = speech;
  if (seen.phase !== 'open') notes.push(say('queue.leaving'));
  if (waiting > 0 && waiting >= seen.waiting_at_most) notes.push(say('queue.full', { count: speech.number(waiting) }));
  const around = list(seen.models).reduce((sum, model) => sum + model.around, 0);
  if (around > 0) notes.push(speech.count('queue.around', around));
  for (const { model, client } of list(seen.missing).slice(-2).reverse()) notes.push(say('queue.missing', { model, client }));
  return notes;
}
