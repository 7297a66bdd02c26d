//! The one sentence that stands first: what is happening, for how long, how far.

import type { Judged, Link, Snapshot, View, WatchedRunner } from '../protocol/protocol';
import type { Speech } from '../speech';
import { figure, list } from './known';
import { age_s, type Moment } from './moment';
import { judgedFor_s, nameOf } from './runner';
import { troubles } from './trouble';
import { runningOf } from './versions';

/** The stable as it is drawn: a shape before it is a colour. */
export type Shape = 'open' | 'busy' | 'mending' | 'barred' | 'dark' | 'asking';
export type Tone = 'calm' | 'work' | 'warn' | 'bad' | 'off';

export interface Headline {
  shape: Shape;
  tone: Tone;
  title: string;
  /** Pieces of the second line. */
  details: string[];
  /** How far, 0 to 1; `null` while something runs that cannot be measured; `undefined` when nothing does. */
  progress: number | null | undefined;
  /** What is told when it changes: the title without what changes every second. */
  told: string;
}

export function headline(view: View | undefined, moment: Moment, speech: Speech): Headline {
  const { say } = speech;
  const link: Link = view?.link ?? { state: 'connecting' };
  switch (link.state) {
    case 'connecting':
      return plain('dark', 'off', say('link.connecting'), [say('link.connecting.words')], null);
    case 'absent':
      return plain('dark', 'off', say('first.title'), [say('first.words')]);
    case 'other-version':
      return plain('asking', 'warn', say('link.other'), [
        say('link.other.words', { daemon: link.daemon, version: view?.version ?? '' }),
      ]);
    case 'reconnecting': {
      const details = [link.failure.message];
      const age = age_s(link.since, moment);
      if (age !== undefined) details.push(say('now.for', { duration: speech.duration(age) }));
      return plain('dark', 'warn', say('link.reconnecting'), details);
    }
    case 'live':
      return live(link.snapshot, moment, speech);
    default:
      return plain('asking', 'off', stateOf(link satisfies never), []);
  }
}

function live(snapshot: Snapshot, moment: Moment, speech: Speech): Headline {
  const { say } = speech;
  const server = snapshot.server;
  const stateTitle = speech.known(`server.${server.state}`, server.words);
  const age = age_s(server.since, moment);
  const forAge = age === undefined ? [] : [say('now.for', { duration: speech.duration(age) })];

  const upgrade = snapshot.versions?.running;
  if (upgrade && (server.state === 'upgrading' || snapshot.work?.origin === 'upgrade')) {
    // The card shows the steps in full; until the server stops, what it does is what matters here.
    const { title, step, part } = runningOf(upgrade, speech);
    return { shape: 'mending', tone: 'work', title, details: step, progress: part, told: title };
  }

  if (snapshot.work !== null && snapshot.work !== undefined) {
    const { goal, origin, step } = snapshot.work;
    const number = { index: speech.number(step.index), of: speech.number(step.of) };
    const title = speech.known(`work.${goal}`, goal);
    const details = [step.words];
    const why = speech.known(`work.origin.${origin}`, '');
    if (why !== '') details.push(why);
    if (step.attempt > 1) details.push(say('work.attempt', { attempt: speech.number(step.attempt) }));
    return {
      shape: 'mending',
      tone: 'work',
      title: `${title} · ${say('work.step', number)}`,
      details: [...details, ...forAge],
      progress: step.of > 0 ? Math.min(1, Math.max(0, (step.index - 0.5) / step.of)) : null,
      told: title,
    };
  }

  const worst = troubles(snapshot, moment, speech)[0];
  if (worst?.stops) {
    const details = worst.for_s === undefined ? [] : [say('now.for', { duration: speech.duration(worst.for_s) })];
    return plain('barred', 'bad', worst.title, [...details, ...waiting(snapshot, speech)]);
  }

  switch (server.state) {
    case 'up':
      break;
    case 'looking':
    case 'coming-up':
    case 'planning':
    case 'preparing':
    case 'stopping':
    case 'starting':
    case 'proving':
    case 'upgrading':
      return plain('mending', 'work', stateTitle, forAge, null);
    default:
      return plain('asking', 'off', stateTitle, forAge);
  }

  const working = atWork(snapshot);
  const first = working[0];
  const tone: Tone = worst === undefined ? 'work' : 'warn';
  if (first === undefined) {
    const loaded = list(snapshot.watched?.runners).length;
    const idle = figureOfIdle(snapshot, moment);
    const details = [say('now.idle')];
    if (idle !== undefined) details[0] += ` ${say('now.for', { duration: speech.duration(idle) })}`;
    if (loaded > 0) details.push(speech.count('now.models', loaded));
    return plain('open', worst === undefined ? 'calm' : 'warn', stateTitle, details);
  }
  const others = working.length > 1 ? [speech.count('now.others', working.length - 1)] : [];
  return { ...workOf(first.runner, first.judged, moment, snapshot, speech, others), tone, shape: 'busy' };
}

/** The runners with work, what a person waits for longest first. */
function atWork(snapshot: Snapshot): { runner: WatchedRunner; judged: Judged }[] {
  const rank = ['loading', 'prefill', 'slow', 'generating', 'queued'];
  return list(snapshot.watched?.runners)
    .flatMap((runner) => (runner.judged && rank.includes(runner.judged.verdict) ? [{ runner, judged: runner.judged }] : []))
    .sort((a, b) => rank.indexOf(a.judged.verdict) - rank.indexOf(b.judged.verdict));
}

function workOf(
  runner: WatchedRunner,
  judged: Judged,
  moment: Moment,
  snapshot: Snapshot,
  speech: Speech,
  others: string[],
): Omit<Headline, 'shape' | 'tone'> {
  const { say } = speech;
  const model = nameOf(runner, speech);
  const lasted = say('now.for', { duration: speech.duration(judgedFor_s(judged, snapshot, moment)) });
  switch (judged.verdict) {
    case 'loading': {
      const title = say('now.loading', { model });
      return { title, told: title, details: [lasted, ...others], progress: null };
    }
    case 'prefill': {
      const done = judged.progress?.done_tokens;
      const total = judged.progress?.total_tokens;
      const part = done !== undefined && total ? Math.min(1, done / total) : undefined;
      const details = [model, lasted];
      if (part === undefined && done !== undefined) details.push(speech.count('now.prefill.tokens', done));
      const left = judged.progress?.left_s;
      if (typeof left === 'number') details.push(say('now.left', { duration: speech.duration(left) }));
      return {
        title: part === undefined ? say('now.prefill') : say('now.prefill.percent', { percent: speech.percent(part) }),
        told: `${say('now.prefill')}, ${model}`,
        details: [...details, ...others],
        progress: part ?? null,
      };
    }
    case 'generating': {
      const rate = tokensPerSecond(snapshot);
      return {
        title:
          rate === undefined
            ? say('now.generating')
            : say('now.generating.rate', { rate: say('now.rate', { rate: speech.number(rate, 1) }) }),
        told: `${say('now.generating')}, ${model}`,
        details: [model, lasted, ...others],
        progress: undefined,
      };
    }
    default: {
      const title = speech.known(`verdict.${judged.verdict}`, speech.phrase(judged.said));
      return { title, told: `${title}, ${model}`, details: [model, lasted, ...others], progress: undefined };
    }
  }
}

/** Tokens that all runners generate per second, when any is known. */
export function tokensPerSecond(snapshot: Snapshot): number | undefined {
  const rates = list(snapshot.watched?.runners).flatMap((runner) => figure(runner.judged?.tokens_per_s) ?? []);
  return rates.length === 0 ? undefined : rates.reduce((sum, rate) => sum + rate, 0);
}

/** How many wait, as a piece of a sentence; nothing when nobody does or it is not known. */
export function waiting(snapshot: Snapshot, speech: Speech): string[] {
  const least = figure(snapshot.watched?.queue?.at_least);
  const most = figure(snapshot.watched?.queue?.at_most);
  if ((least ?? 0) === 0 && (most ?? 0) === 0) return [];
  if (least !== undefined && least === most) return [speech.count('queue.exact', least)];
  if (least !== undefined && most !== undefined)
    return least === 0
      ? [speech.say('queue.most', { count: speech.number(most) })]
      : [speech.say('queue.between', { least: speech.number(least), most: speech.number(most) })];
  return least === undefined
    ? [speech.say('queue.most', { count: speech.number(most ?? 0) })]
    : [speech.say('queue.least', { count: speech.number(least) })];
}

function figureOfIdle(snapshot: Snapshot, moment: Moment): number | undefined {
  const server = snapshot.watched?.server;
  return server?.verdict === 'idle' && list(snapshot.watched?.runners).length === 0
    ? judgedFor_s(server, snapshot, moment)
    : undefined;
}

function plain(shape: Shape, tone: Tone, title: string, details: string[], progress?: null): Headline {
  return { shape, tone, title, details: details.filter((text) => text !== ''), progress, told: title };
}

// A word of a newer tray: shown as it is.
function stateOf(link: never): string {
  return String((link as { state?: unknown }).state ?? '');
}

/** Whether the page is on the last picture of a daemon that is away. */
export function snapshotOf(view: View | undefined): { snapshot: Snapshot; stale: boolean } | undefined {
  const link = view?.link;
  if (link?.state === 'live') return { snapshot: link.snapshot, stale: false };
  if (link?.state === 'reconnecting' && link.snapshot) return { snapshot: link.snapshot, stale: true };
  return undefined;
}
