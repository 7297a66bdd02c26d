import { describe, expect, test } from 'vitest';
import { SCENES } from '../backend/demo';
import type { Past, Snapshot, View, WatchedRunner } from '../protocol/protocol';
import { learn, speech } from '../speech';
import { events } from './events';
import { exactQueue, gatewayStands, gatewayTroubles, isPaused, queueTroubles, type ExactQueue } from './gateway';
import { headline, waiting } from './headline';
import { bounds, draftOf, fields, presetOf, requestOf, typed } from './settings';
import { chart, memory, WIDTH } from './memory';
import { models } from './models';
import type { Moment } from './moment';
import { queue } from './queue';
import { failures, troubles } from './trouble';
import { isAbout, pinned, plainNotes, versionsCard, type Card } from './versions';

await Promise.all([learn('en'), learn('ko')]);
const english = speech('en', 'UTC');
const korean = speech('ko', 'UTC');
const now = (): Moment => ({ came_ms: Date.now(), since_s: 0 });

function view(state: string): View {
  const scene = SCENES[state];
  if (!scene) throw new Error(`no scene ${state}`);
  return scene().view;
}
function snapshot(state: string): Snapshot {
  const { link } = view(state);
  if (link.state !== 'live') throw new Error(`${state} is not live`);
  return link.snapshot;
}
const first = (state: string) => troubles(snapshot(state), now(), english)[0];
const asked = (state: string) => {
  const ask = first(state)?.deed?.ask;
  return ask?.what === 'request' ? ask.request : ask;
};

describe('headline', () => {
  test.each([
    ['connecting', 'dark', 'Connecting to Stablehand'],
    ['absent', 'dark', 'Keep your local models moving'],
    ['reconnecting', 'dark', 'Stablehand’s daemon is away'],
    ['other-version', 'asking', 'The daemon is of another version'],
    ['empty', 'open', 'Ollama is ready'],
    ['idle', 'open', 'Ollama is ready'],
    ['prefill', 'busy', 'Reading a prompt · 62%'],
    ['loading', 'busy', 'Loading qwen3.6:35b-a3b-q4_K_M'],
    ['generating', 'busy', 'Generating · 49.6 tokens/s'],
    ['restart', 'mending', 'Applying settings · step 5 of 7'],
    ['hung', 'barred', 'gemma4:26b-mxfp8 has stopped moving'],
    ['down', 'barred', 'Ollama is not running'],
    ['gave-up', 'barred', 'Ollama could not be brought back'],
    ['drift', 'open', 'Ollama is ready'],
  ])('%s is a stable that is %s: %s', (state, shape, title) => {
    expect(headline(view(state), now(), english)).toMatchObject({ shape, title });
  });

  test('before the first view it connects', () => {
    expect(headline(undefined, now(), english).title).toBe('Connecting to Stablehand');
  });

  test('progress is a part, unmeasured, or absent', () => {
    expect(headline(view('prefill'), now(), english).progress).toBeCloseTo(0.62, 2);
    expect(headline(view('loading'), now(), english).progress).toBeNull();
    expect(headline(view('generating'), now(), english).progress).toBeUndefined();
    const restarting = headline(view('restart'), now(), english).progress;
    expect(restarting).toBeGreaterThan(0.5);
    expect(restarting).toBeLessThan(0.8);
  });

  test('what is told aloud does not change with the seconds', () => {
    const shown = view('prefill');
    const early = headline(shown, now(), english);
    const later = headline(shown, { ...now(), since_s: 30 }, english);
    expect(later.details).not.toEqual(early.details);
    expect(later.told).toBe(early.told);
    expect(early.told).not.toContain('62');
  });

  test('a state that this page does not know is shown in the daemon’s words', () => {
    const shown = view('idle');
    if (shown.link.state === 'live') Object.assign(shown.link.snapshot.server, { state: 'levitating', words: 'It floats' });
    expect(headline(shown, now(), english)).toMatchObject({ shape: 'asking', title: 'It floats' });
    const other = { ...view('idle'), link: { state: 'quantum' } } as unknown as View;
    expect(headline(other, now(), english).title).toBe('quantum');
  });

  test('a clock that jumps gives no negative and no endless age', () => {
    const shown = view('hung');
    const back = headline(shown, { came_ms: 0, since_s: 5 }, english);
    expect(back.details[0]).toBe('for 2m 26s');
    const ahead = headline(shown, { came_ms: Date.now() + 1e12, since_s: 5 }, english);
    expect(ahead.details[0]).toBe('for 4m 21s');
  });
});

describe('trouble', () => {
  test('drift of what the next start would bring says so', () => {
    const seen = structuredClone(snapshot('drift'));
    const setting = seen.settings.find((one) => one.standing === 'drift');
    if (!setting) throw new Error('no drift');
    Object.assign(setting, { desired: '1', effective: '1', persisted: '1', session: '7', drift: ['session'] });
    seen.settings = [setting];
    const told = troubles(seen, now(), english).find((one) => one.key === 'drift');
    expect(told?.evidence).toEqual([expect.stringContaining('1 is in force, and 7 would be after the next start')]);
  });

  test('each verdict offers the first rung of recovery', () => {
    expect(asked('hung')).toEqual({
      verb: 'stop-runner',
      model: 'gemma4:26b-mxfp8',
      force: true,
      dry_run: false,
    });
    expect(asked('down')).toEqual({ verb: 'restart', take_over: false, dry_run: false });
    expect(asked('gave-up')).toEqual({ verb: 'restart', take_over: false, dry_run: false });
    expect(asked('drift')).toEqual({ verb: 'apply', take_over: false, dry_run: false });
    expect(asked('config')).toEqual({ what: 'open-config' });
  });

  test('evidence is said in the language, and in the daemon’s words where there are none', () => {
    const told = troubles(snapshot('hung'), now(), korean)[0];
    expect(told?.words).toBe('디코드 루프가 멈춰 있음');
    expect(told?.evidence[0]).toBe('n_decoded 812 → 812, 깨어 있는 2분 21초 동안; 정상인 토큰은 최대 38초');
    expect(english.phrase({ code: 'of-a-newer-daemon', values: {}, words: 'as it is' })).toBe('as it is');
  });

  test('in doubt nothing is offered that would end a runner', () => {
    expect(first('suspect')).toMatchObject({ stops: true });
    expect(first('suspect')?.deed).toBeUndefined();
  });

  test('what we may not restart has no button, and says what to do', () => {
    expect(first('container')).toMatchObject({ words: 'Restart it with: docker restart ollama' });
    expect(first('container')?.deed).toBeUndefined();
    expect(first('blocked')?.deed).toBeUndefined();
    expect(first('blocked')?.evidence[0]).toContain('/opt/homebrew/bin/ollama');
  });

  test('a server of a terminal is taken over, and the button says so', () => {
    const by_hand = snapshot('down');
    Object.assign(by_hand.server, { owner: 'manual', owner_detail: { name: 'ollama serve', can_restart: false, hint: 'h' } });
    expect(troubles(by_hand, now(), english)[0]?.deed).toEqual({
      words: 'Take over and restart',
      ask: { what: 'request', request: { verb: 'restart', take_over: true, dry_run: false } },
    });
  });

  test('the worst comes first, and the rest is not lost', () => {
    expect(troubles(snapshot('hung'), now(), english).map((trouble) => trouble.key)).toEqual([
      'runner 5495 hung',
      'memory',
      'drift',
    ]);
  });

  test('what recovery gave up can be taken up again', () => {
    const shown = snapshot('hung');
    expect(troubles(shown, now(), english).some((trouble) => trouble.key === 'given-up')).toBe(false);
    const words = 'the same came back soon after each step';
    shown.watched!.recovery.given_up = [{ cause: 'hung', subject: 'gemma4:26b (pid 7)', words }];
    const given = troubles(shown, now(), english).find((trouble) => trouble.key === 'given-up');
    expect(given?.evidence).toEqual([`gemma4:26b (pid 7) (hung): ${words}`]);
    expect(given?.deed?.ask).toEqual({ what: 'request', request: { verb: 'recover', dry_run: false } });
  });

  test('memory that is short offers the idle model that holds most', () => {
    const short = troubles(snapshot('hung'), now(), english).find((trouble) => trouble.key === 'memory');
    expect(short?.deed?.ask).toEqual({ what: 'request', request: { verb: 'unload', model: 'smollm:135m', dry_run: false } });
    expect(short?.evidence).toEqual([
      '62.6 GB of 64 GB in use, 180 MB/s written to swap',
      'smollm:135m is idle and holds 0.3 GB',
    ]);
  });

  test('while Ollama is restarted, what is seen of it is no trouble', () => {
    const restarting = snapshot('restart');
    Object.assign(restarting.server, { state: 'down' });
    expect(troubles(restarting, now(), english)).toEqual([]);
  });

  test('calm is empty', () => {
    for (const state of ['prefill', 'idle', 'empty', 'generating', 'bare']) expect(first(state), state).toBeUndefined();
  });

  test('the newest failure of the tray comes first', () => {
    const shown = view('failed');
    shown.failures.push({ code: 'later', message: 'later', hint: '' });
    expect(failures(shown, english).map((trouble) => trouble.title)[0]).toBe('later');
  });
});

describe('queue', () => {
  const unknown = { unknown: 'not allowed' };
  test.each([
    [0, 0, []],
    [1, 1, ['1 waits']],
    [10_000, 10_000, ['10,000 wait']],
    [2, 5, ['2 to 5 wait']],
    [0, 197, ['at most 197 wait']],
    [unknown, 5, ['at most 5 wait']],
    [3, unknown, ['at least 3 wait']],
    [unknown, unknown, []],
  ])('%j to %j', (at_least, at_most, said) => {
    const seen = snapshot('idle');
    if (seen.watched) seen.watched.queue = { at_least, at_most, clients: [] };
    expect(waiting(seen, english)).toEqual(said);
  });

  test('an interval says why it is one, an exact number does not', () => {
    expect(queue(snapshot('prefill'), now(), english)?.estimate).toContain('An estimate');
    expect(queue(snapshot('generating'), now(), english)?.estimate).toBeUndefined();
  });

  test('what is unknown has its reason and no zero', () => {
    const seen = queue(snapshot('unknown'), now(), english);
    expect(seen?.unknown).toBe('lsof is not allowed to look at other programs');
    expect(seen?.summary).toEqual(['1 runs']);
  });

  test('one program is one line, however many processes it has', () => {
    const seen = snapshot('idle');
    const client = { program: 'bot', connections: 50, oldest_s: 7 };
    if (seen.watched) seen.watched.queue.clients = [{ ...client, pid: 1 }, { ...client, pid: 2, oldest_s: 9 }];
    expect(queue(seen, now(), english)?.clients).toEqual([
      { key: 'bot', program: 'bot', connections: '100 connections', age: '9s' },
    ]);
  });

  test('nothing observed is no queue', () => {
    expect(queue(snapshot('bare'), now(), english)).toBeUndefined();
  });
});

describe('memory', () => {
  test('numbers, pressure and swap of a machine in need', () => {
    expect(memory(snapshot('hung'), english).map((bar) => [bar.label, bar.value, bar.notes, bar.strain])).toEqual([
      ['Memory', '62.6 of 64 GB', ['critical'], 'bad'],
      ['Swap', '11.4 GB', ['writing 180 MB/s', 'reading 22 MB/s'], 'bad'],
      ['GPU', '45.9 of 48 GB', ['0% busy'], 'none'],
    ]);
  });

  test('heat is told beside the pressure', () => {
    const hot = structuredClone(snapshot('hung'));
    if (hot.watched) hot.watched.memory.throttled = true;
    expect(memory(hot, english)[0]?.notes).toEqual(['critical', 'slowed down by heat']);
  });

  test('what is not known has no bar', () => {
    expect(memory(snapshot('unknown'), english).map((bar) => bar.label)).toEqual(['Memory']);
    expect(memory(snapshot('bare'), english)).toEqual([]);
  });

  const point = (at: string, used_bytes: number | null) => ({
    at,
    used_bytes,
    swap_used_bytes: 0,
    swap_out_bytes_per_s: 0,
    waiting_at_most: 0,
  });
  const past = (...points: Past['points']): Past => ({ points, events: [] });
  const end = Date.parse('2026-11-30T11:00:00Z');

  test('a gap is drawn as a gap', () => {
    const drawn = chart(
      past(
        point('2026-11-30T10:00:00Z', 1),
        point('2026-11-30T10:00:30Z', 2),
        point('2026-11-30T10:01:00Z', null),
        point('2026-11-30T10:30:00Z', 2),
        point('2026-11-30T10:30:30Z', 4),
      ),
      4,
      end,
      english,
    );
    expect(drawn?.used).toEqual(['M0 33L2.7 22', 'M160 22L162.7 0']);
    expect(drawn?.swap).toEqual([]);
  });

  test('after a jump of the clock every point still lies in the box', () => {
    const drawn = chart(past(point('2027-01-01T00:00:00Z', 1), point('2027-01-01T00:00:30Z', 2)), 4, end, english);
    expect(drawn?.used).toEqual([`M317.3 33L${WIDTH} 22`]);
  });

  test('nothing to join is no chart', () => {
    expect(chart(undefined, 4, end, english)).toBeUndefined();
    expect(chart(past(point('2026-11-30T10:30:00Z', 1)), 4, end, english)).toBeUndefined();
    expect(chart(past(point('never', 1), point('ever', 2)), 4, end, english)).toBeUndefined();
  });
});

describe('models', () => {
  const facts = (until: WatchedRunner['listed_until']) => {
    const seen = snapshot('idle');
    const runner = seen.watched?.runners[0];
    if (runner) runner.listed_until = until;
    return models(seen, { came_ms: Date.parse('2026-11-30T10:00:00Z'), since_s: 0 }, english)[0]?.facts.at(-1);
  };
  test.each([
    ['2026-11-30T10:04:12Z', 'leaves in 4m 12s'],
    ['2026-11-30T09:59:00Z', 'leaving now'],
    ['2318-03-11T00:00:00Z', 'stays loaded'],
    [null, 'not listed by Ollama'],
    ['tomorrow', 'tomorrow'],
    [{ unknown: 'no answer' }, '6.1 GB of its own'],
  ])('listed until %j', (until, said) => {
    expect(facts(until)).toBe(said);
  });

  test('trouble stands first, then work', () => {
    expect(models(snapshot('hard'), now(), english).slice(0, 3).map((one) => one.mark)).toEqual(['trouble', 'trouble', 'idle']);
  });

  test('a runner without a name has its pid and nothing to ask with', () => {
    const seen = snapshot('idle');
    const runner = seen.watched?.runners[0];
    if (runner) runner.model = { unknown: 'its arguments name no blob' };
    expect(models(seen, now(), english)[0]).toMatchObject({ name: 'a runner without a name, pid 5495', model: undefined });
  });
});

describe('settings', () => {
  test('the preset is recognised from what is wanted', () => {
    expect(presetOf(snapshot('idle'), {})).toBe('serial');
    expect(presetOf(snapshot('idle'), { OLLAMA_NUM_PARALLEL: '2' })).toBe('custom');
    expect(presetOf(snapshot('idle'), { OLLAMA_DEBUG: '1' })).toBe('custom');
  });

  test('a preset’s draft makes it that preset, and asks for exactly the difference', () => {
    const draft = draftOf(snapshot('idle'), 'ollama-defaults');
    expect(presetOf(snapshot('idle'), draft)).toBe('ollama-defaults');
    expect(requestOf(draft, true)).toEqual({
      verb: 'settings',
      set: {},
      unset: ['OLLAMA_MAX_LOADED_MODELS', 'OLLAMA_MAX_QUEUE', 'OLLAMA_NUM_PARALLEL'],
      preset: null,
      dry_run: true,
    });
    expect(draftOf(snapshot('idle'), 'serial')).toEqual({});
  });

  test('typing back what was there is no change', () => {
    const setting = { name: 'OLLAMA_MAX_QUEUE', desired: '10' };
    const draft = typed({}, setting, ' 20 ');
    expect(draft).toEqual({ OLLAMA_MAX_QUEUE: '20' });
    expect(typed(draft, setting, '10')).toEqual({});
    expect(typed({}, setting, '')).toEqual({ OLLAMA_MAX_QUEUE: null });
    expect(typed({}, { name: 'OLLAMA_DEBUG', desired: null }, '  ')).toEqual({});
  });

  test('a field says what is in force and how that is known', () => {
    const { main, others } = fields(snapshot('idle'), {}, english);
    expect(main.map((field) => [field.label, field.effective, field.standing.join(' · '), field.mark])).toEqual([
      ['Requests at once, per model', 'in force: 1', 'proof: log, process', 'proven'],
      ['Models in memory at once', 'in force: 1', 'proof: log, process · default 0', 'proven'],
      ['Requests that may wait for a load', 'in force: 10', 'proof: log, process · default 512', 'proven'],
      ['Context, in tokens', 'in force: 0', 'left to Ollama', 'left'],
      ['Kept loaded for', 'in force: 5m0s', 'left to Ollama', 'left'],
    ]);
    const cache = others.find((field) => field.name === 'OLLAMA_KV_CACHE_TYPE');
    expect(cache).toMatchObject({ effective: 'in force: unknown (the log holds no config line)', mark: 'unknown' });
  });

  test('drift names what is wanted', () => {
    expect(fields(snapshot('hung'), {}, english).main[0]).toMatchObject({
      effective: 'in force: 4',
      standing: ['wanted: 1'],
      mark: 'drift',
    });
  });

  test('what a model can cost stands dearest first, and over the budget is said', () => {
    const memory = [
      { model: 'a', at_most_bytes: 2 ** 30, slots: 1, context_tokens: 2048, budget_bytes: 2 ** 31, budget_source: 's' },
      { model: 'b', at_most_bytes: 2 ** 32, slots: 4, context_tokens: 65_536, budget_bytes: 2 ** 31, budget_source: 's' },
      { model: 'c', at_most_bytes: { unknown: 'no header' }, slots: 4, context_tokens: 1, budget_bytes: 2 ** 31, budget_source: 's' },
    ];
    const cost = bounds({ outcome: 'planned', settings: [], memory }, english);
    expect(cost.budget).toBe('Budget 2 GB (s)');
    expect(cost.rows.map((row) => [row.model, row.slots, row.most, row.over])).toEqual([
      ['b', '4 slots × 65,536 tokens', 'at most 4 GB', true],
      ['a', '1 slot × 2,048 tokens', 'at most 1 GB', false],
      ['c', '4 slots × 1 tokens', 'unknown: no header', false],
    ]);
    expect(bounds(undefined, english)).toEqual({ rows: [], budget: '' });
  });
});

describe('the gateway’s queue', () => {
  const exact = (state: string, words = english, moment = now()): ExactQueue => {
    const made = exactQueue(view(state), moment, words);
    if (!made || typeof made === 'string') throw new Error(`${state} has no queue`);
    return made;
  };

  test('who runs stands first, then everybody in the order of turns', () => {
    const { summary, rows } = exact('gateway');
    expect(summary).toEqual(['1 runs', '6 wait']);
    expect(rows.map((row) => [row.client, row.waits, row.time])).toEqual([
      ['bot-a', false, '46s'],
      ['Terminal', true, '4s'],
      ['bot-b', true, '41s'],
      ['bot-c', true, '38s'],
      ['봇-가', true, '22s'],
      ['nightly-index', true, '3m 50s'],
      ['bot-b', true, '12s'],
    ]);
    expect(rows[0]?.facts).toEqual(['qwen3.6:35b-a3b-q4_K_M', 'runs', 'waited 12s']);
    expect(rows[1]).toMatchObject({ lane: 'interactive', facts: ['qwen3.6:35b-a3b-q4_K_M', 'turn in about 31s'] });
    expect(exact('gateway-idle').summary).toEqual(['nobody waits']);
  });

  test('between two pictures waits grow and turns come closer', () => {
    const later = exact('gateway', english, { ...now(), since_s: 10 });
    expect(later.rows[1]).toMatchObject({ time: '14s', facts: ['qwen3.6:35b-a3b-q4_K_M', 'turn in about 21s'] });
    expect(exact('gateway', english, { ...now(), since_s: 40 }).rows[1]?.facts).toHaveLength(1);
  });

  test('a pause stands among what is wrong, with the button that ends it; other holds say how long they last', () => {
    expect(isPaused(view('gateway-paused'))).toBe(true);
    expect(queueTroubles(view('gateway-paused'), english)[0]).toMatchObject({
      key: 'paused',
      stops: false,
      deed: { words: 'Go on', ask: { what: 'queue', request: { verb: 'resume' } } },
    });
    expect(exact('gateway-paused')).toMatchObject({ holds: [], deed: undefined });
    expect(exact('gateway').deed).toEqual({ words: 'Pause', ask: { what: 'queue', request: { verb: 'pause' } } });
    const held = exact('gateway-held');
    expect(isPaused(view('gateway-held'))).toBe(false);
    expect(held.holds).toEqual([
      'Held while Ollama restarts · at most 4m 50s more',
      'Held while a stall is cleared (qwen3.6:35b-a3b-q4_K_M) · at most 40s more',
    ]);
    expect(held.notes).toEqual([
      'The queue is full: 6 wait, and the next one is turned away',
      '1 request goes around the gateway',
      'agentshield-red was asked for by bot-c and is not installed',
    ]);
    expect(queueTroubles(view('gateway-held'), english)[0]).toMatchObject({ key: 'gateway-config', deed: { ask: { what: 'open-config' } } });
  });

  test('where it stands: in place with both addresses, aside with the reason, and unhealthy', () => {
    const gateway = snapshot('gateway').gateway;
    expect(gateway && gatewayStands(gateway, english)).toEqual([
      'in Ollama’s place',
      'http://127.0.0.1:11434',
      'Ollama behind it: http://127.0.0.1:11436',
    ]);
    expect(gatewayTroubles(snapshot('gateway'), english)).toEqual([]);
    expect(gatewayTroubles(snapshot('gateway-aside'), english)[0]).toMatchObject({
      title: 'The gateway is not in Ollama’s place',
      words: expect.stringMatching(/Expose.*Switch it off/),
      stops: false,
    });
    const sick = snapshot('gateway-unhealthy');
    expect(gatewayTroubles(sick, english)[0]?.title).toBe('Requests do not come through the gateway');
    if (sick.gateway) sick.gateway.state = 'changing';
    expect(gatewayTroubles(sick, english)).toEqual([]);
    expect(gateway && gatewayStands({ ...gateway, state: 'orbiting', words: 'it orbits' }, english)[0]).toBe('it orbits');
  });

  test('no gateway is nothing, and one that does not tell says why', () => {
    expect(exactQueue(view('prefill'), now(), english)).toBeUndefined();
    expect(exactQueue(undefined, now(), english)).toBeUndefined();
    expect(exactQueue(view('gateway-silent'), now(), english)).toBe('The gateway does not tell: the gateway does not answer within 10 s');
    expect(queueTroubles(view('gateway-silent'), english)).toEqual([]);
  });

  test('words of a newer gateway are shown as they are', () => {
    const shown = view('gateway');
    const queue = shown.queue;
    if (queue && !('unknown' in queue)) Object.assign(queue, { holds: [{ why: 'eclipse' }], phase: 'napping' });
    const made = exactQueue(shown, now(), english);
    expect(typeof made === 'object' && made.holds).toEqual(['eclipse']);
  });
});

describe('versions', () => {
  const card = (state: string, words = english, matter: View['matter'] = null): Card => {
    const made = versionsCard(snapshot(state), matter, now(), words);
    if (!made) throw new Error(`${state} has no card`);
    return made;
  };

  test('a new version comes first, with its size, its day and the deed', () => {
    const made = card('new-version');
    expect(made).toMatchObject({ first: true, installed: ['0.22.1', 'Ollama.app'], lines: [], running: undefined });
    expect(made.news?.title).toBe('0.24.0 is out');
    expect(made.news?.facts[0]).toBe('188 MB to download');
    expect(made.news?.deed).toEqual({
      words: 'Upgrade',
      ask: {
        what: 'request',
        request: { verb: 'upgrade', to: '0.24.0', prerelease: false, downgrade: false, measure: false, dry_run: false },
      },
    });
  });

  test('up to date is one line below the rest, unless a person came for it', () => {
    expect(card('prefill')).toMatchObject({ first: false, news: undefined });
    expect(card('prefill').lines).toEqual([expect.stringMatching(/^Up to date · checked /)]);
    expect(card('prefill', english, { matter: 'versions' }).first).toBe(true);
    expect(isAbout({ matter: 'alert', kind: 'new-version' })).toBe(true);
    expect(isAbout({ matter: 'alert', kind: 'hung' })).toBe(false);
    expect(versionsCard(snapshot('idle'), null, now(), english)).toBeUndefined();
  });

  test('what can not be known is said with its reason', () => {
    expect(card('unreachable').lines).toEqual([
      'The releases could not be read: no network',
      expect.stringContaining('Check the network'),
      expect.stringContaining('by itself'),
    ]);
    const unknown = snapshot('new-version');
    Object.assign(unknown.versions ?? {}, { newer: { unknown: 'a build of its own' }, installed: { unknown: 'no Info.plist' } });
    const made = versionsCard(unknown, null, now(), english);
    expect(made?.installed[0]).toBe('unknown: no Info.plist');
    expect(made?.lines[0]).toContain('a build of its own');
    expect(made?.news).toBeUndefined();
  });

  test('a download is measured in bytes, other steps in their number', () => {
    expect(card('downloading').running).toEqual({
      title: 'Upgrading to 0.24.0',
      step: ['Downloading 0.24.0', 'step 1 of 16', '84 of 188 MB'],
      undoing: '',
      part: 83_100_000 / 187_400_000,
    });
    expect(card('upgrading').running).toMatchObject({ part: null, step: ['Moving 0.24.0 in', 'step 12 of 16'] });
    // Nothing else is offered meanwhile.
    expect(card('downloading')).toMatchObject({ news: undefined, lines: [], kept: [], result: undefined });
  });

  test('going back says what is put back, and why', () => {
    expect(card('undoing').running).toMatchObject({ title: 'Putting 0.22.1 back', undoing: 'Going back, because: it does not answer' });
    expect(card('undoing', korean).running?.title).toBe('0.22.1 버전을 되살리는 중');
  });

  test('a step that this page does not know is shown in the daemon’s words', () => {
    const seen = snapshot('upgrading');
    Object.assign(seen.versions?.running ?? {}, { step: 'levitate', words: 'let it {float}' });
    expect(versionsCard(seen, null, now(), english)?.running?.step[0]).toBe('let it {float}');
  });

  test('the end is told: proved and measured, or undone with its reason and what to do', () => {
    const good = card('upgraded').result;
    expect(good).toMatchObject({ good: true, title: '0.24.0 is in place and proved' });
    expect(good?.words).toEqual([
      'smollm:135m: 101.3 tokens/s before, 84.2 now · loaded in 0.8\u00a0s before, in 1.2\u00a0s now',
      '0.24.0 is slower by 17% here.',
    ]);
    const undone = card('undone').result;
    expect(undone).toMatchObject({ good: false, title: 'The upgrade to 0.24.0 was undone: 0.22.1 is in place', deed: undefined });
    expect(undone?.words).toHaveLength(2);
  });

  test('a refusal of App Management offers the page on which it is allowed', () => {
    expect(card('app-management').result?.deed).toEqual({
      words: 'Open App Management',
      ask: { what: 'open-system-settings', page: 'app-management' },
    });
  });

  test('a pin is shown with what it keeps away, and keeps the card back', () => {
    const made = card('pinned');
    expect(made.first).toBe(false);
    expect(pinned(made, english)).toBe('Stays on 0.22.1, though 0.24.0 is out');
    expect(pinned({ ...made, news: undefined }, english)).toBe('Stays on 0.22.1');
  });

  test('an install that is not ours to change is told how, and nothing is done', () => {
    const request = card('by-hand').news?.deed;
    expect(request?.words).toBe('How to upgrade');
    expect(request?.ask).toMatchObject({ request: { dry_run: true } });
  });

  test('old versions: the last in use first, the installed one never, none twice', () => {
    expect(card('upgraded').kept.map((kept) => kept.version)).toEqual(['0.22.1', '0.21.0']);
    const seen = snapshot('upgraded');
    const kept = seen.versions?.kept ?? [];
    if (kept[0]) kept.push({ ...kept[0] }, { ...kept[0], version: '0.24.0' });
    expect(versionsCard(seen, null, now(), english)?.kept.map((one) => one.version)).toEqual(['0.22.1', '0.21.0']);
  });

  test('marks of a page’s text are taken out of notes, and nothing else', () => {
    expect(plainNotes('## What\r\n* a*b\n  - #5 by @x\n\n\n\n## New\n**end**: *z* ')).toBe('• a*b\n  • #5 by @x\n\nNew\nend: *z*');
    expect(plainNotes('One `line`')).toBe('One line');
  });

  test('while the server is down for it, the headline is the upgrade; before, it is the server’s work', () => {
    expect(headline(view('upgrading'), now(), english)).toMatchObject({ shape: 'mending', title: 'Upgrading to 0.24.0' });
    expect(headline(view('downloading'), now(), english).title).toBe('Ollama is ready');
  });
});

describe('events', () => {
  test('the newest stands first; without a past, the alerts of the snapshot', () => {
    const told = events(SCENES['hung']?.().past, undefined, Date.now(), english);
    expect(told[0]).toMatchObject({ mark: 'alert', subject: '' });
    expect(told.at(-1)).toMatchObject({ subject: 'server', mark: 'plain' });
    expect(events(undefined, snapshot('alerted'), Date.now(), english)).toHaveLength(1);
    expect(events(undefined, undefined, Date.now(), english)).toEqual([]);
  });
});

test.each(Object.keys(SCENES))('%s is drawn in both languages without a hole', (state) => {
  const scene = SCENES[state]?.();
  if (!scene) throw new Error(state);
  for (const words of [english, korean]) {
    const link = scene.view.link;
    const seen = 'snapshot' in link ? link.snapshot : null;
    const drawn = [
      headline(scene.view, now(), words),
      failures(scene.view, words),
      ...(seen
        ? [
            troubles(seen, now(), words).map(({ deed, ...rest }) => ({ ...rest, words: [rest.words, deed?.words] })),
            memory(seen, words),
            queue(seen, now(), words),
            models(seen, now(), words).slice(4),
            fields(seen, {}, words),
            events(scene.past, seen, Date.now(), words),
            versionsCard(seen, null, now(), words),
            exactQueue(scene.view, now(), words),
            gatewayTroubles(seen, words),
            seen.gateway && gatewayStands(seen.gateway, words),
            queueTroubles(scene.view, words).map(({ deed, ...rest }) => ({ ...rest, words: [rest.words, deed?.words] })),
          ]
        : []),
    ];
    const text = JSON.stringify(drawn);
    expect(text).not.toMatch(/NaN|undefined|Infinity|\[object/);
    if (state !== 'hard') expect(text).not.toMatch(/\{\w+\}/);
  }
});
