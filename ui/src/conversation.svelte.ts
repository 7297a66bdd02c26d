//! The page's talk with the tray: the newest view, the last hour, and what came of what was asked.

import { getContext } from 'svelte';
import type { Backend } from './backend/backend';
import type { Answer, Ask, Failure, Past, View } from './protocol/protocol';
import { POINTS, SPAN_S } from './view/memory';
import type { Moment } from './view/moment';

const HISTORY_EVERY_MS = 30_000;
const TOLD_FOR_MS = 8_000;

export interface Conversation {
  readonly view: View | undefined;
  readonly moment: Moment;
  readonly past: Past | undefined;
  /** Wall time at which the past was asked for. */
  readonly past_ms: number;
  /** What came of the last deed. */
  readonly told: Told | undefined;
  /** Whether something that was asked under this name is still going on. */
  busy(name: string): boolean;
  /** Asks, and gives the answer alone. */
  ask(ask: Ask): Promise<Answer>;
  /** Asks for something that changes the world, and tells how it ended; not what `untold` tells in its own place. */
  act(name: string, ask: Ask, untold?: 'untold'): Promise<Answer>;
  hush(): void;
}

export type Told = { good: true; outcome: string } | { good: false; failure: Failure };

/** Why what was asked did not come about. */
export function failureOf(answer: Answer): Failure | undefined {
  if (answer.answer === 'failed') return answer.failure;
  return (answer.answer === 'ended' && answer.ending.failure) || undefined;
}

export const talkOf = (): Conversation => getContext<Conversation>('conversation');

export function conversation(backend: Backend): Conversation {
  let view = $state.raw<View>();
  let came_ms = $state(Date.now());
  let steady_ms = performance.now();
  let since_s = $state(0);
  let past = $state.raw<Past>();
  let past_ms = $state(Date.now());
  let told = $state.raw<Told>();
  let busy = $state.raw<ReadonlySet<string>>(new Set());
  let hushing: ReturnType<typeof setTimeout> | undefined;

  const tick = () => {
    since_s = Math.floor((performance.now() - steady_ms) / 1000);
  };
  const hear = (next: View) => {
    const was = view?.link.state;
    view = next;
    came_ms = Date.now();
    steady_ms = performance.now();
    tick();
    // After the picture of what is now: the past may come a moment later.
    if (next.link.state === 'live' && was !== 'live') requestAnimationFrame(() => setTimeout(looked));
  };
  if (backend.first) hear(backend.first);
  backend.view(hear);
  setInterval(tick, 1000);

  async function look() {
    const answer = await backend.ask({ what: 'history', since_s: SPAN_S, points: POINTS });
    if (answer.answer !== 'past') return;
    past = answer.past;
    past_ms = Date.now();
  }
  // A hidden page looks at nothing; shown again, it is at once up to date.
  function looked() {
    if (!document.hidden && view?.link.state === 'live') void look();
  }
  setInterval(looked, HISTORY_EVERY_MS);
  document.addEventListener('visibilitychange', () => requestAnimationFrame(() => setTimeout(looked)));

  function tell(what: Told) {
    clearTimeout(hushing);
    told = what;
    if (what.good) hushing = setTimeout(() => (told = undefined), TOLD_FOR_MS);
  }

  return {
    get view() {
      return view;
    },
    get moment() {
      return { came_ms, since_s };
    },
    get past() {
      return past;
    },
    get past_ms() {
      return past_ms;
    },
    get told() {
      return told;
    },
    busy: (name) => busy.has(name),
    ask: (ask) => backend.ask(ask),
    async act(name, ask, untold) {
      busy = new Set([...busy, name]);
      told = undefined;
      const answer = await backend.ask(ask);
      busy = new Set([...busy].filter((other) => other !== name));
      const failure = failureOf(answer);
      if (untold) return answer;
      if (failure) tell({ good: false, failure });
      else if (answer.answer === 'ended') tell({ good: true, outcome: answer.ending.outcome });
      void look();
      return answer;
    },
    hush: () => (told = undefined),
  };
}
