//! The models that are loaded.

import type { Snapshot, WatchedRunner } from '../protocol/protocol';
import type { Speech } from '../speech';
import { fact, figure, list } from './known';
import { left_s, type Moment } from './moment';
import { judgedFor_s, nameOf } from './runner';

export interface Loaded {
  key: string;
  name: string;
  /** The name to ask with; `undefined` when the runner has none. */
  model: string | undefined;
  mark: 'idle' | 'busy' | 'trouble';
  /** What it does, e.g. `Generating · 31 tokens/s`. */
  doing: string;
  /** Slots, size and expiry, as far as they are known. */
  facts: string[];
  /** Why Ollama gives it one slot, when it does. */
  forced: string | undefined;
  progress: number | null | undefined;
}

export function models(snapshot: Snapshot, moment: Moment, speech: Speech): Loaded[] {
  const forced = new Map(list(snapshot.runners).map((runner) => [runner.pid, runner.forced]));
  const rank = { trouble: 0, busy: 1, idle: 2 };
  return list(snapshot.watched?.runners)
    .map((runner) => loaded(runner, forced.get(runner.pid) ?? undefined, snapshot, moment, speech))
    .sort((a, b) => rank[a.mark] - rank[b.mark] || (a.name < b.name ? -1 : 1));
}

const WORKING = ['loading', 'prefill', 'generating', 'queued', 'slow'];
/** Above this a model is meant to stay: Ollama writes an endless keep-alive as a date centuries ahead. */
const STAYS_S = 10 * 365 * 86_400;

function loaded(
  runner: WatchedRunner,
  forced: string | undefined,
  snapshot: Snapshot,
  moment: Moment,
  speech: Speech,
): Loaded {
  const { say } = speech;
  const judged = runner.judged ?? undefined;
  const rate = figure(judged?.tokens_per_s);
  const total = judged?.progress?.total_tokens;
  const part = judged?.progress && total ? Math.min(1, judged.progress.done_tokens / total) : undefined;
  const doing = [judged ? speech.known(`verdict.${judged.verdict}`, speech.phrase(judged.said)) : say('app.unknown')];
  if (rate !== undefined) doing.push(say('now.rate', { rate: speech.number(rate, 1) }));
  if (part !== undefined) doing.push(speech.percent(part));
  if (judged && (judged.trouble || judged.verdict === 'loading'))
    doing.push(say('now.for', { duration: speech.duration(judgedFor_s(judged, snapshot, moment)) }));

  const facts: string[] = [];
  const slots = figure(runner.slots);
  const busy = figure(runner.slots_busy);
  if (slots !== undefined)
    facts.push(
      busy === undefined
        ? speech.count('models.slots.all', slots)
        : say('models.slots', { busy: speech.number(busy), slots: speech.number(slots) }),
    );
  const footprint = figure(runner.footprint_bytes);
  if (footprint !== undefined) facts.push(say('models.footprint', { size: speech.bytes(footprint) }));
  const until = fact(runner.listed_until);
  if (until === null) facts.push(say('models.unlisted'));
  else if (until !== undefined) {
    const left = left_s(until, moment);
    if (left === undefined) facts.push(until);
    else if (left > STAYS_S) facts.push(say('models.stays'));
    else if (left <= 0) facts.push(say('models.leaving'));
    else facts.push(say('models.leaves', { duration: speech.duration(left) }));
  }
  return {
    key: String(runner.pid),
    name: nameOf(runner, speech),
    model: fact(runner.model),
    mark: judged?.trouble ? 'trouble' : judged && WORKING.includes(judged.verdict) ? 'busy' : 'idle',
    doing: doing.join(' · '),
    facts,
    forced,
    progress: judged?.verdict === 'prefill' ? part : undefined,
  };
}
