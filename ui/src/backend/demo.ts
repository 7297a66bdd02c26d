//! The page without a tray: every state it can show, scripted. `?state=NAME` shows one, `?lang=ko` speaks Korean;
//! without a state a short story plays by itself. What is asked changes the script's world a little, so that a person
//! can press the buttons.

import type {
  Answer,
  Ask,
  Gateway,
  Judged,
  Phrase,
  MemoryBound,
  Past,
  PastEvent,
  QueueRequest,
  QueueView,
  Request,
  Setting,
  Snapshot,
  Upgrade,
  UpgradeEnd,
  Versions,
  View,
  WaitingRequest,
  Watched,
  WatchedRunner,
} from '../protocol/protocol';
import type { Backend } from './backend';

const GIB = 2 ** 30;

/** A script's page: the view, and the past beside it. */
interface Scene {
  view: View;
  past: Past;
}

export function demo(search: string): Backend {
  const options = new URLSearchParams(search);
  const language = options.get('lang');
  const state = options.get('state');
  let scene = (state !== null && SCENES[state]?.()) || calm();
  if (language !== null) scene.view.choices.language = language;
  let show: (view: View) => void = () => {};

  /** Changes the world by a deed, and shows it. */
  function change(deed: (view: View) => void) {
    scene = { ...scene, view: structuredClone(scene.view) };
    deed(scene.view);
    show(scene.view);
  }

  const snapshotIn = (view: View): Snapshot | undefined =>
    view.link.state === 'live' ? view.link.snapshot : undefined;

  async function request(request: Request): Promise<Answer> {
    const snapshot = snapshotIn(scene.view);
    if (!snapshot) return failed('daemon-away', 'The daemon cannot be reached, so nothing was changed.', '');
    switch (request.verb) {
      case 'settings':
        return settings(request, snapshot);
      case 'apply':
      case 'restart':
        change((view) => {
          const after = snapshotIn(view);
          if (!after) return;
          for (const setting of after.settings) {
            setting.effective = setting.desired ?? setting.default;
            setting.persisted = setting.desired;
            setting.drift = [];
            setting.standing = setting.desired === null ? 'not-managed' : 'proven';
          }
          Object.assign(after, { server: server('up', 3), work: null });
          after.watched = watched([]);
        });
        return ended('proven');
      case 'verify':
        return ended('proven');
      case 'unload':
      case 'stop-runner':
        change((view) => {
          const seen = snapshotIn(view)?.watched;
          if (!seen) return;
          seen.runners = seen.runners.filter((runner) => runner.model !== request.model);
          seen.queue = { at_least: 0, at_most: 0, clients: [] };
        });
        return ended('changed');
      case 'recover':
        change((view) => {
          const seen = snapshotIn(view)?.watched;
          if (seen) seen.recovery.given_up = [];
        });
        return ended('changed');
      case 'configure':
        change((view) => {
          const after = snapshotIn(view);
          if (!after) return;
          const { 'notifications.quiet': quiet, 'recovery.policy': policy } = request.set;
          if (quiet !== undefined) after.config.quiet = quiet || null;
          if (policy !== undefined && after.watched) after.watched.recovery = { policy, given_up: [], acts: false };
        });
        return ended('changed');
      case 'pause-alerts':
        change((view) => {
          const after = snapshotIn(view);
          if (after) after.alerts_paused_until = request.seconds === 0 ? null : ahead(request.seconds);
        });
        return ended('changed');
      case 'gateway':
        if (request.port === 11_434)
          return failed('bad-port', 'that is Ollama’s own port (`--takeover` stands in its place); nothing was changed', 'name a free port');
        if (request.dry_run)
          return {
            answer: 'ended',
            ending: {
              outcome: 'planned',
              settings: [],
              restarts: request.mode === 'takeover' || snapshot.gateway?.mode === 'takeover',
              steps: ['restart Ollama with a moved address, given to its own start alone', 'start the gateway and prove it by a real request through it'],
            },
          };
        change((view) => {
          const after = snapshotIn(view);
          if (after) after.gateway = placed(request.mode, request.port ?? undefined);
          view.queue = request.mode === 'off' ? null : queued({ waiting: [], running: [] });
        });
        return ended('changed');
      case 'pin':
        change((view) => {
          const versions = snapshotIn(view)?.versions;
          if (versions) versions.pin = request.version;
        });
        return ended('changed');
      case 'check-releases':
        change((view) => {
          const versions = snapshotIn(view)?.versions;
          if (versions) Object.assign(versions, { checked_at: ago(0), unreachable: null });
        });
        return ended('planned');
      case 'upgrade':
        if (snapshot.versions?.install === 'manual')
          return failed('install-manual', '/usr/local/bin/ollama was built or unpacked by hand, and is not replaced; nothing was changed', 'replace it the way it was made');
        return exchange('upgrade', request.to ?? '0.24.0');
      case 'rollback':
        if (!request.set_database_aside && snapshot.versions?.kept.some((kept) => kept.database))
          return failed('rollback-database', '0.22.1 can not go on with the current settings and chats: they have the form 14, it knows 12; nothing was changed', '');
        if (request.dry_run)
          return {
            answer: 'ended',
            ending: {
              outcome: 'planned',
              settings: [],
              steps: ['stop Ollama through Ollama.app, wait until port 11434 is free', 'move /Applications/Ollama.app to ~/Library/Application Support/dev.stablehand/versions/0.24.0', 'start 0.22.1 through Ollama.app', 'prove 0.22.1: version, settings in force, command line, one generation'],
            },
          };
        return exchange('rollback', request.to ?? '0.22.1');
    }
  }

  /** Another version takes the place of the present one, in a few pictures. */
  async function exchange(goal: 'upgrade' | 'rollback', to: string): Promise<Answer> {
    const show = (deed: (versions: Versions) => void) =>
      change((view) => {
        const versions = snapshotIn(view)?.versions;
        if (versions) deed(versions);
      });
    const from = String(snapshotIn(scene.view)?.versions?.installed);
    for (const more of [
      { step: 'download', index: 1, done_bytes: 71e6, of_bytes: 190e6 },
      { step: 'download', index: 1, done_bytes: 166e6, of_bytes: 190e6 },
      { step: 'prove', index: 14 },
    ] satisfies Partial<Upgrade>[]) {
      show((versions) => (versions.running = running({ goal, from, to, ...more })));
      await new Promise((done) => setTimeout(done, 1000));
    }
    show((versions) =>
      Object.assign(versions, {
        installed: to,
        newer: goal === 'rollback',
        pin: goal === 'rollback' ? to : null,
        running: null,
        last: upgradeEnd({ goal, from, to, at: ago(0) }),
        kept: [{ version: from, at: '~/kept', since: ago(0), database: false }],
      } satisfies Partial<Versions>),
    );
    return ended('proven');
  }

  function settings(request: Extract<Request, { verb: 'settings' }>, snapshot: Snapshot): Answer {
    const desired = new Map(snapshot.settings.map((setting) => [setting.name, setting.desired]));
    const steps: string[] = [];
    for (const [name, value] of [...Object.entries(request.set), ...request.unset.map((name) => [name, null] as const)]) {
      if (name === 'OLLAMA_NUM_PARALLEL' && value !== null && !/^([1-9]|[1-5]\d|6[0-4])$/.test(value))
        return failed('setting-refused', `OLLAMA_NUM_PARALLEL takes 1 to 64, not «${value}»; nothing was changed`, '');
      steps.push(`${name}: ${desired.get(name) ?? 'unset'} → ${value ?? 'unset'}`);
      desired.set(name, value);
    }
    const slots = Number(desired.get('OLLAMA_NUM_PARALLEL') ?? 1);
    const memory: MemoryBound[] = [
      bound('qwen3.6:35b-a3b-q4_K_M', 1, 24.1 * GIB),
      bound('gemma4:26b-mxfp8', slots, (15.8 + 5 * slots) * GIB),
      bound('smollm:135m', slots, 0.26 * GIB, 2048),
    ];
    if (!request.dry_run)
      change((view) => {
        for (const setting of snapshotIn(view)?.settings ?? []) {
          setting.desired = desired.get(setting.name) ?? null;
          if (setting.desired !== null && setting.effective !== setting.desired) {
            setting.standing = 'drift';
            setting.drift = ['effective'];
          } else setting.standing = setting.desired === null ? 'not-managed' : 'proven';
        }
      });
    return {
      answer: 'ended',
      ending: { outcome: request.dry_run ? 'planned' : 'changed', settings: [], steps, memory },
    };
  }

  function ofQueue(request: QueueRequest): Answer {
    change((view) => {
      const queue = view.queue;
      if (!queue || 'unknown' in queue) return;
      switch (request.verb) {
        case 'pause':
          queue.holds.push({ why: 'paused' });
          break;
        case 'resume':
          queue.holds = queue.holds.filter((hold) => hold.why !== 'paused');
          break;
        case 'drop':
          queue.waiting = queue.waiting.filter((one) => one.id !== request.id);
          break;
        case 'move':
          for (const one of queue.waiting) if (one.id === request.id) one.lane = request.lane;
      }
    });
    return { answer: 'done' };
  }

  async function answer(ask: Ask): Promise<Answer> {
    switch (ask.what) {
      case 'view':
        return { answer: 'view', view: scene.view };
      case 'request':
        return request(ask.request);
      case 'queue':
        return ofQueue(ask.request);
      case 'history':
        return { answer: 'past', past: scene.past };
      case 'install':
        if (ask.dry_run) return { answer: 'planned', steps: INSTALLS, owner: { owner: 'app', name: '/Applications/Ollama.app' } };
        scene = calm();
        change((view) => {
          if (language !== null) view.choices.language = language;
        });
        return { answer: 'done' };
      case 'uninstall':
        if (ask.dry_run) return { answer: 'planned', steps: UNINSTALLS, owner: null };
        change((view) => (view.link = { state: 'absent' }));
        return { answer: 'done' };
      case 'start-daemon':
        change((view) => {
          if (view.link.state === 'reconnecting' && view.link.snapshot)
            view.link = { state: 'live', snapshot: view.link.snapshot };
        });
        return { answer: 'done' };
      case 'stop-daemon':
        change((view) => {
          view.matter = null;
          view.link = {
            state: 'reconnecting',
            since: ago(0),
            snapshot: snapshotIn(view) ?? null,
            failure: failure('daemon-away', 'The daemon was stopped.', ''),
          };
        });
        return { answer: 'done' };
      case 'choose':
        change((view) => (view.choices = ask.choices));
        return { answer: 'done' };
      case 'dismiss':
        change((view) => Object.assign(view, { failures: [], matter: null }));
        return { answer: 'done' };
      case 'allow-notifications':
      case 'open-config':
      case 'open-system-settings':
      case 'hide':
        return { answer: 'done' };
    }
  }

  return {
    view(callback) {
      show = callback;
      callback(scene.view);
      if (state === null) void play();
    },
    ask: answer,
  };

  /** A morning in six pictures, over and over. */
  async function play() {
    const story = ['idle', 'loading', 'prefill', 'generating', 'hung', 'restart'] as const;
    for (let index = 0; ; index = (index + 1) % story.length) {
      const choices = scene.view.choices;
      scene = SCENES[story[index] ?? 'idle']?.() ?? calm();
      scene.view.choices = choices;
      show(scene.view);
      await new Promise((done) => setTimeout(done, 6000));
    }
  }
}

const ago = (seconds: number) => new Date(Date.now() - seconds * 1000).toISOString();
const ahead = (seconds: number) => ago(-seconds);
const failed = (code: string, message: string, hint: string): Answer => ({
  answer: 'failed',
  failure: { code, message, hint },
});
const ended = (outcome: 'proven' | 'changed' | 'planned'): Answer => ({
  answer: 'ended',
  ending: { outcome, settings: [] },
});

const INSTALLS = [
  'make the folder ~/Library/Logs/dev.stablehand (mode 0755)',
  'write ~/Library/LaunchAgents/dev.stablehand.daemon.plist (mode 0644): starts the daemon at every login',
  'start it now with launchctl bootstrap',
];
const UNINSTALLS = [
  'take OLLAMA_NUM_PARALLEL, OLLAMA_MAX_LOADED_MODELS and OLLAMA_MAX_QUEUE out of the session',
  'end the daemon',
  'remove ~/Library/LaunchAgents/dev.stablehand.daemon.plist',
  'remove ~/Library/LaunchAgents/dev.stablehand.ollama-env.plist',
  'remove ~/Library/Application Support/dev.stablehand',
  'put ~/Library/LaunchAgents/ai.ollama.envsetter.plist back as it was',
];

function bound(model: string, slots: number, at_most_bytes: number, context_tokens = 65_536): MemoryBound {
  return { model, at_most_bytes, slots, context_tokens, budget_bytes: 48 * GIB, budget_source: 'GPU working set' };
}

function setting(name: string, desired: string | null, fallback: string, meaning: string, more: Partial<Setting> = {}): Setting {
  const effective = desired ?? fallback;
  return {
    name,
    desired,
    persisted: desired,
    session: desired,
    effective,
    proof: [
      { kind: 'server-config-line', source: '~/.ollama/logs/server.log at 09:12:04' },
      { kind: 'process-environment', source: 'pid 718' },
    ],
    default: fallback,
    standing: desired === null ? 'not-managed' : 'proven',
    drift: [],
    meaning,
    allowed: '',
    caution: '',
    ...more,
  };
}

function settings(): Setting[] {
  return [
    setting('OLLAMA_CONTEXT_LENGTH', null, '0', 'How many tokens of context a model gets when a request does not say; 0 lets Ollama choose by GPU memory.', {
      allowed: '0 to 16777216',
      caution: 'every parallel request of every model gets this much, so memory grows with both',
    }),
    setting('OLLAMA_DEBUG', null, 'INFO', 'How much the server writes into its log.', { allowed: '0, 1 or 2' }),
    setting('OLLAMA_FLASH_ATTENTION', null, 'false', 'Forces flash attention on or off; without it the runner decides.'),
    setting('OLLAMA_HOST', null, 'http://127.0.0.1:11434', 'The address and port that the server listens on.', {
      standing: 'set-in-app',
    }),
    setting('OLLAMA_KEEP_ALIVE', null, '5m0s', 'How long a model stays in memory after its last request, unless the request says otherwise.'),
    setting('OLLAMA_KV_CACHE_TYPE', null, '', 'How exactly the context is kept in memory; q8_0 takes about half of f16.', {
      effective: { unknown: 'the log holds no config line' },
      standing: 'unknown',
      proof: [],
    }),
    setting('OLLAMA_MAX_LOADED_MODELS', '1', '0', 'How many models may be in memory at once; 0 is three for each GPU.', {
      allowed: '0 to 64',
    }),
    setting('OLLAMA_MAX_QUEUE', '10', '512', 'How many requests may wait for a model to be loaded before further ones are turned away.', {
      allowed: '1 to 10000',
      caution: 'it does not limit requests that wait for a model that is already loaded',
    }),
    setting('OLLAMA_NUM_PARALLEL', '1', '1', 'How many requests one model works on at the same time.', {
      allowed: '1 to 64',
      caution: 'every one of them takes a whole context of memory, whether it is used or not',
    }),
    setting('OLLAMA_ORIGINS', null, '[]', 'Which web pages may call the server, beside those of this machine.'),
  ];
}

function server(state: string, since_s: number, words = 'Ollama answers'): Snapshot['server'] {
  return {
    state,
    since: ago(since_s),
    words,
    version: '0.33.0',
    owner: 'app',
    owner_detail: { name: '/Applications/Ollama.app', can_restart: true, hint: '' },
    rivals: [],
    pid: 718,
    started: ago(since_s),
    address: '127.0.0.1:11434',
    serving: state === 'up',
  };
}

function judged(verdict: string, said: string | Phrase, for_s: number, more: Partial<Judged> = {}): Judged {
  const phrase = typeof said === 'string' ? { code: verdict, values: {}, words: said } : said;
  return { verdict, said: phrase, evidence: [], for_s, trouble: false, progress: null, tokens_per_s: null, ...more };
}

/** The words are what a newer daemon would say that the page has none for. */
const phrase = (code: string, values: Phrase['values'] = {}, words = code): Phrase => ({ code, values, words });

function runner(model: string, verdict: Judged, more: Partial<WatchedRunner> = {}): WatchedRunner {
  return {
    pid: 5495,
    model,
    kind: 'llama-server',
    judged: verdict,
    slots: 1,
    slots_busy: verdict.verdict === 'idle' ? 0 : 1,
    footprint_bytes: 6.1 * GIB,
    cpu_s: 95,
    listed_until: ahead(252),
    ...more,
  };
}

function watched(runners: WatchedRunner[], more: Partial<Watched> = {}): Watched {
  return {
    at: ago(0),
    memory: {
      total_bytes: 64 * GIB,
      used_bytes: 41.8 * GIB,
      wired_bytes: 4.2 * GIB,
      compressed_bytes: 1.1 * GIB,
      swap_total_bytes: 0,
      swap_used_bytes: 0,
      swap_in_bytes_per_s: 0,
      swap_out_bytes_per_s: 0,
      pressure_level: 1,
      gpu_limit_bytes: 48 * GIB,
      gpu_used_bytes: 29.1 * GIB,
      gpu_percent: 94,
      throttled: false,
    },
    queue: { at_least: 0, at_most: 0, clients: [] },
    runners,
    server: judged('idle', 'idle', 1860),
    recovery: { policy: 'alert', given_up: [], acts: false },
    log: { endpoints: [], turned_away: 0, clients_left: 0, failed: 0, errors: [], threads: [], evictions: [] },
    tokens: [],
    ...more,
  };
}

const EVENTS: Omit<PastEvent, 'at'>[] = [
  { kind: 'outcome', subject: 'server', words: 'apply: every desired setting is proven' },
  { kind: 'verdict', subject: 'qwen3.6:35b-a3b-q4_K_M', words: 'loading → idle' },
  { kind: 'alert', subject: 'qwen3.6:35b-a3b-q4_K_M', words: 'this thread is at 47324 tokens, and grows by 2100 a turn' },
  { kind: 'verdict', subject: 'qwen3.6:35b-a3b-q4_K_M', words: 'idle → reading the prompt' },
];

/** An hour whose use of memory steps up when a model is loaded, with a gap while the machine slept. */
function past(high: number, swap: (part: number) => number, events = EVENTS): Past {
  const points = Array.from({ length: 120 }, (_, index) => {
    const part = index / 119;
    const step = part < 0.22 ? 0.3 : part < 0.55 ? 0.74 : 1;
    const wave = Math.sin(index * 1.7) * 0.012 + Math.sin(index * 0.31) * 0.018;
    return {
      at: ago((119 - index) * 30),
      used_bytes: GIB * Math.min(high, 9 + (high - 9) * (index === 119 ? 1 : step + wave)),
      swap_used_bytes: GIB * swap(part),
      swap_out_bytes_per_s: 0,
      waiting_at_most: 0,
    };
  }).filter((_, index) => index < 38 || index > 46);
  return { points, events: events.map((event, index) => ({ at: ago((events.length - index) * 660), ...event })) };
}

function scene(seen: Watched | null, more: Partial<Snapshot> = {}, history = past(41.8, () => 0)): Scene {
  return {
    past: history,
    view: {
      link: {
        state: 'live',
        snapshot: {
          daemon_version: '0.1.0',
          simulated: null,
          server: server('up', 4980),
          work: null,
          settings: settings(),
          runners: [],
          versions: null,
          gateway: null,
          watched: seen,
          alerts: [],
          alerts_paused_until: null,
          config: { path: '~/Library/Application Support/dev.stablehand/config.toml', failure: null, quiet: null },
          notes: [],
          ...more,
        },
      },
      queue: null,
      choices: { language: null, title: 'off', at_login: true },
      failures: [],
      matter: null,
      version: '0.1.0',
      system: 'macos',
    },
  };
}

const NOTES = `## What's Changed
* Models that were quantised with the new recipe load in half the time on Apple silicon
* \`ollama ps\` shows the context of each model
* A prompt that is longer than the context is cut at a message, never inside of one
* Fixed a server that did not answer after its computer had slept

## New Contributors
* A person and another one made their first contribution`;

function versions(more: Partial<Versions> = {}): Versions {
  return {
    installed: '0.33.0',
    install: 'app',
    replaceable: true,
    latest: { version: '0.33.0', published: ago(86_400 * 9), notes: NOTES, size_bytes: 187_400_000, prerelease: false },
    newer: false,
    checked_at: ago(5040),
    unreachable: null,
    pin: null,
    kept: [],
    running: null,
    last: null,
    checks: true,
    ...more,
  };
}

const newer = (more: Partial<Versions> = {}): Versions =>
  versions({
    installed: '0.22.1',
    latest: { version: '0.24.0', published: ago(86_400 * 2), notes: NOTES, size_bytes: 187_400_000, prerelease: false },
    newer: true,
    ...more,
  });

function running(more: Partial<Upgrade> = {}): Upgrade {
  return {
    goal: 'upgrade',
    from: '0.22.1',
    to: '0.24.0',
    step: 'download',
    words: 'download https://github.com/ollama/ollama/releases/download/v0.24.0/Ollama-darwin.zip (188 MB)',
    index: 1,
    of: 16,
    done_bytes: null,
    of_bytes: null,
    undoing: null,
    ...more,
  };
}

function upgradeEnd(more: Partial<UpgradeEnd> = {}): UpgradeEnd {
  return { goal: 'upgrade', from: '0.22.1', to: '0.24.0', end: 'committed', failure: null, at: ago(95), measured: null, ...more };
}

const request = (id: number, client: string, waited_s: number, more: Partial<WaitingRequest> = {}): WaitingRequest => ({
  id,
  model: QWEN,
  client,
  lane: 'agent',
  path: '/api/chat',
  waited_ms: waited_s * 1000,
  position: id,
  ...more,
});

/** The gateway where it is wished. */
function placed(mode: string, port = 11_435, more: Partial<Gateway> = {}): Gateway {
  const off = mode === 'off';
  const takeover = mode === 'takeover';
  return {
    mode,
    state: takeover ? 'in-place' : mode,
    words: off ? 'there is no gateway' : takeover ? 'the gateway stands in Ollama’s place' : 'the gateway stands beside Ollama',
    listen: off ? null : `http://127.0.0.1:${takeover ? 11_434 : port}`,
    upstream: off ? null : `http://127.0.0.1:${takeover ? 11_436 : 11_434}`,
    healthy: off ? { unknown: 'the gateway does not run' } : true,
    pid: off ? null : 2207,
    aside: null,
    ...more,
  };
}

function queued(more: Partial<QueueView> = {}): QueueView {
  return {
    at: ago(0),
    version: '0.1.0',
    phase: 'open',
    listen: ['127.0.0.1:11434'],
    upstream: '127.0.0.1:11436',
    holds: [],
    waiting: [
      request(42, 'Terminal', 4, { lane: 'interactive', expected_ms: 31_000, model: QWEN }),
      request(37, 'bot-b', 41, { expected_ms: 74_000 }),
      request(38, 'bot-c', 38, { expected_ms: 118_000, model: 'gemma4:26b-mxfp8' }),
      request(40, '봇-가', 22),
      request(35, 'nightly-index', 230, { lane: 'batch', path: '/api/embed', model: 'nomic-embed-text' }),
      request(41, 'bot-b', 12),
    ],
    waiting_at_most: 512,
    running: [{ id: 36, model: QWEN, client: 'bot-a', lane: 'agent', path: '/api/chat', waited_ms: 12_400, running_ms: 46_000 }],
    models: [],
    switches: 3,
    bodies_bytes: 1.2e6,
    missing: [],
    ...more,
  };
}

/** A prompt is read, and the gateway keeps the queue. */
function gated(more: Partial<QueueView> = {}): Scene {
  const made = calm();
  made.view.queue = queued(more);
  live(made).gateway = placed('takeover');
  const seen = live(made).watched;
  const waits = made.view.queue.waiting.length;
  if (seen) Object.assign(seen.queue, { at_least: waits, at_most: waits });
  return made;
}

/** Nothing runs, and this is known of versions. */
function versioned(known: Versions, more: Partial<Snapshot> = {}): Scene {
  const made = scene(watched([runner(QWEN, judged('idle', 'idle', 240))]), { versions: known, ...more });
  live(made).server.version = known.installed;
  return made;
}

const KEPT = { version: '0.22.1', at: '~/Library/Application Support/dev.stablehand/versions/0.22.1', since: ago(95), database: false };

const QWEN = 'qwen3.6:35b-a3b-q4_K_M';
const client = (program: string, pid: number, connections: number, oldest_s: number) => ({
  program,
  pid,
  connections,
  oldest_s,
});

function calm(): Scene {
  return scene(
    watched(
      [
        runner(QWEN, judged('prefill', phrase('prefill.of', { done: 29_341, total: 47_324 }), 46, {
          evidence: [phrase('in-flight.slots', { count: 1 }), phrase('prompt', { done: 29_341 })],
          progress: { done_tokens: 29_341, total_tokens: 47_324, left_s: 28 },
        })),
      ],
      { queue: { at_least: 2, at_most: 3, clients: [client('bot-b', 5538, 1, 46), client('Terminal', 801, 1, 12), client('bot-a', 5540, 2, 41)] } },
    ),
    {
      versions: versions(),
      gateway: placed('off'),
      runners: [
        { pid: 5495, kind: 'llama-server', model: QWEN, slots: 1, forced: 'qwen35moe: Ollama works on one request at a time with models of this architecture, whatever the setting says' },
      ],
    },
  );
}

function hung(): Scene {
  const wanted = settings().map((one) =>
    one.name === 'OLLAMA_NUM_PARALLEL' ? { ...one, effective: '4', standing: 'drift', drift: ['effective'] } : one,
  );
  return scene(
    watched(
      [
        runner(
          'gemma4:26b-mxfp8',
          judged('hung', phrase('hung.decode-loop'), 141, {
            trouble: true,
            evidence: [
              phrase('still.token', { counter: 'n_decoded', from: 812, to: 812, silence_s: 141, honest_s: 38 }),
              phrase('decode-counter-still', { value: 90_211 }),
              phrase('cpu.unlike-decode', { use_percent: 23 }),
              phrase('in-flight.slots', { count: 4 }),
            ],
          }),
          { slots: 4, slots_busy: 4, footprint_bytes: 19.8 * GIB },
        ),
        runner('smollm:135m', judged('idle', 'idle', 900), { pid: 5601, footprint_bytes: 0.3 * GIB, listed_until: ahead(96) }),
      ],
      {
        memory: {
          total_bytes: 64 * GIB,
          used_bytes: 62.6 * GIB,
          wired_bytes: 6.9 * GIB,
          compressed_bytes: 14.3 * GIB,
          swap_total_bytes: 12 * GIB,
          swap_used_bytes: 11.4 * GIB,
          swap_in_bytes_per_s: 22 * 2 ** 20,
          swap_out_bytes_per_s: 180 * 2 ** 20,
          pressure_level: 4,
          gpu_limit_bytes: 48 * GIB,
          gpu_used_bytes: 45.9 * GIB,
          gpu_percent: 0,
          throttled: false,
        },
        queue: {
          at_least: 3,
          at_most: 5,
          clients: [client('봇-가', 5538, 3, 141), client('bot-c', 5539, 2, 131), client('bot-d', 5541, 2, 118), client('Terminal', 801, 1, 9)],
        },
      },
    ),
    { settings: wanted },
    past(62.6, (part) => Math.max(0, (part - 0.55) * 25), [
      ...EVENTS,
      { kind: 'alert', subject: 'gemma4:26b-mxfp8', words: 'gemma4:26b-mxfp8 hangs: no progress for 60 s with a request in it' },
    ]),
  );
}

const failure = (code: string, message: string, hint: string) => ({ code, message, hint });
const live = (scene: Scene): Snapshot => {
  if (scene.view.link.state !== 'live') throw new Error('a scene of the script is live');
  return scene.view.link.snapshot;
};
const linked = (link: View['link']): Scene => {
  const made = scene(null);
  made.view.link = link;
  return made;
};

/** Every state that the page can show. */
export const SCENES: Record<string, () => Scene> = {
  prefill: calm,
  hung,
  idle: () => scene(watched([runner(QWEN, judged('idle', 'idle', 240))])),
  empty: () => scene(watched([])),
  bare: () => scene(null, { settings: [] }, { points: [], events: [] }),
  loading: () => scene(watched([runner(QWEN, judged('loading', phrase('loading', { span_s: 17 }), 17), { listed_until: null, slots: { unknown: 'the runner does not answer yet' }, slots_busy: { unknown: 'the runner does not answer yet' } })])),
  generating: () =>
    scene(
      watched(
        [
          runner(QWEN, judged('generating', phrase('generating.rate', { rate: 31.4 }), 12, { tokens_per_s: 31.4 })),
          runner('gemma4:26b-mxfp8', judged('generating', phrase('generating.rate', { rate: 18.2 }), 3, { tokens_per_s: 18.2 }), { pid: 5601, slots: 2, listed_until: '2318-01-01T00:00:00Z' }),
        ],
        { queue: { at_least: 1, at_most: 1, clients: [client('bot-b', 5538, 1, 12), client('curl', 902, 1, 3)] } },
      ),
    ),
  restart: () =>
    scene(watched([]), {
      server: server('starting', 9, 'Ollama is being started'),
      work: { goal: 'apply', origin: 'person', step: { index: 5, of: 7, name: 'await-answer', words: 'wait until Ollama answers', attempt: 2 } },
    }),
  suspect: () =>
    scene(
      watched([
        runner(QWEN, judged('suspect', phrase('suspect', { silence_s: 95, allowed_s: 84 }), 95, { trouble: true, evidence: [phrase('in-flight.slots', { count: 1 }), phrase('no-independent-sign')] })),
      ]),
    ),
  down: () => scene(watched([]), { server: { ...server('down', 75, 'No Ollama runs, and nothing listens on 127.0.0.1:11434'), pid: null, version: { unknown: 'nothing answers' } } }),
  'gave-up': () => scene(watched([]), { server: server('gave-up', 130, 'Ollama was started three times and ended at once each time. Its log says: bind: address already in use') }),
  blocked: () =>
    scene(watched([]), {
      server: {
        ...server('blocked', 20, 'Another program listens on 127.0.0.1:11434'),
        rivals: [{ owner: 'brew', pid: 4410, path: '/opt/homebrew/bin/ollama', version: '0.31.2', why: 'it listens on the same port' }],
      },
    }),
  container: () =>
    scene(watched([]), {
      server: {
        ...server('silent', 48, 'Ollama’s port is open, and nothing is answered'),
        owner: 'container',
        owner_detail: { name: 'docker: ollama', can_restart: false, hint: 'Restart it with: docker restart ollama' },
      },
    }),
  drift: () => scene(watched([]), { settings: settings().map((one) => (one.desired === null ? one : { ...one, effective: '7', standing: 'drift', drift: ['session', 'effective'] })) }),
  config: () => {
    const made = calm();
    live(made).config.failure = failure('config-invalid', 'config.toml:12:9: quiet takes two times, "22:00-07:00"; the edit was not taken, the one before stays in force', 'mend line 12');
    return made;
  },
  failed: () => {
    const made = calm();
    made.view.failures = [failure('runner-gone', 'smollm:135m could not be unloaded: it had left already. Nothing was changed.', 'Nothing is to be done.')];
    return made;
  },
  stop: () => {
    const made = calm();
    made.view.matter = { matter: 'stop-daemon' };
    return made;
  },
  alerted: () => {
    const made = scene(watched([runner(QWEN, judged('idle', 'idle', 240))]));
    live(made).alerts = [{ kind: 'drift', message: 'not in force as desired: OLLAMA_NUM_PARALLEL', action: 'stablehand apply', at: ago(400) }];
    made.view.matter = { matter: 'alert', kind: 'drift' };
    return made;
  },
  'new-version': () => versioned(newer()),
  downloading: () => versioned(newer({ running: running({ done_bytes: 83_100_000, of_bytes: 187_400_000 }) })),
  upgrading: () =>
    versioned(newer({ running: running({ step: 'move-in', index: 12, words: 'move it' }) }), {
      server: { ...server('upgrading', 2, 'Ollama is being exchanged'), version: { unknown: 'nothing answers' } },
    }),
  undoing: () =>
    versioned(newer({ running: running({ step: 'move-old-back', index: 2, of: 6, undoing: 'it does not answer' }) }), {
      server: { ...server('upgrading', 40, 'Ollama is being exchanged'), version: { unknown: 'nothing answers' } },
    }),
  upgraded: () =>
    versioned(
      newer({
        installed: '0.24.0',
        newer: false,
        kept: [KEPT, { ...KEPT, version: '0.21.0', since: ago(86_400 * 30), database: true }],
        last: upgradeEnd({
          measured: { model: 'smollm:135m', before_millitokens_per_s: 101_300, after_millitokens_per_s: 84_200, before_load_ms: 840, after_load_ms: 1210, slower: true },
        }),
      }),
    ),
  undone: () =>
    versioned(
      newer({
        last: upgradeEnd({
          end: 'undone',
          failure: failure('not-proved-silent', 'upgrade to 0.24.0: prove failed, because it does not answer; 0.22.1 is put back', 'stay on 0.22.1 with `stablehand pin 0.22.1`, or choose another version with --to'),
        }),
      }),
    ),
  'app-management': () =>
    versioned(
      newer({
        last: upgradeEnd({
          end: 'undone',
          failure: failure('app-management', 'upgrade to 0.24.0: move-out failed, because macOS did not let Stablehand change /Applications/Ollama.app (App Management); 0.22.1 is put back', 'allow Stablehand in System Settings > Privacy & Security > App Management, then try again; it starts anew before it does'),
        }),
      }),
    ),
  pinned: () => versioned(newer({ pin: '0.22.1', kept: [{ ...KEPT, version: '0.21.0', database: true }] })),
  'came-for-versions': () => {
    const made = calm();
    made.view.matter = { matter: 'versions' };
    return made;
  },
  'by-hand': () => versioned(newer({ install: 'manual', replaceable: false })),
  'database-newer': () => versioned(newer({ installed: '0.24.0', newer: false, kept: [{ ...KEPT, database: true }] })),
  unreachable: () =>
    versioned(
      versions({
        latest: null,
        newer: { unknown: 'the releases were not read' },
        checked_at: null,
        checks: false,
        unreachable: failure('releases-offline', 'the releases of Ollama could not be read: no network; nothing was changed', 'check the network, then try again; a mirror can be named as `releases` in the configuration'),
      }),
    ),
  gateway: () => gated(),
  'gateway-paused': () => gated({ holds: [{ why: 'paused' }], running: [] }),
  'gateway-held': () =>
    gated({
      running: [],
      holds: [{ why: 'restart', left_ms: 290_000 }, { why: 'recovery', model: QWEN, left_ms: 40_000 }],
      waiting_at_most: 6,
      missing: [{ model: 'agentshield-red', client: 'bot-c' }],
      models: [{ model: QWEN, loaded: true, slots: 1, at_most: 1, running: 0, around: 1, waiting: 5 }],
      config_failure: failure('config-invalid', 'config.toml:30:1: the alias «a» leads to itself; the edit was not taken, the one before stays in force', 'mend line 30'),
    }),
  'gateway-aside': () => {
    const made = calm();
    live(made).gateway = placed('takeover', undefined, {
      state: 'aside',
      words: 'the gateway does not stand in Ollama’s place',
      listen: null,
      upstream: null,
      healthy: { unknown: 'the gateway does not run' },
      pid: null,
      aside: failure('exposed', 'Ollama.app is set to «Expose Ollama to the network», which outranks every address its start is given', 'Switch it off in Ollama.app’s settings'),
    });
    return made;
  },
  'gateway-unhealthy': () => {
    const made = gated();
    live(made).gateway = placed('takeover', undefined, { healthy: false, words: 'requests do not come through it; it is restarted' });
    return made;
  },
  'gateway-idle': () => gated({ running: [], waiting: [] }),
  'gateway-silent': () => {
    const made = calm();
    made.view.queue = { unknown: 'the gateway does not answer within 10 s' };
    return made;
  },
  simulated: () => {
    const made = calm();
    live(made).simulated = '/tmp/world';
    return made;
  },
  unknown: () => {
    const made = calm();
    const why = { unknown: 'lsof is not allowed to look at other programs' };
    const seen = live(made).watched;
    if (seen) {
      seen.queue = { at_least: why, at_most: why, clients: why };
      seen.memory = { ...seen.memory, swap_used_bytes: { unknown: 'sysctl failed' }, gpu_used_bytes: { unknown: 'no such counter' } };
    }
    return made;
  },
  connecting: () => linked({ state: 'connecting' }),
  reconnecting: () =>
    linked({
      state: 'reconnecting',
      since: ago(34),
      snapshot: live(calm()),
      failure: failure('daemon-away', 'The daemon’s socket is closed.', 'launchd starts it again within ten seconds.'),
    }),
  absent: () => linked({ state: 'absent' }),
  'absent-failed': () => {
    const made = linked({ state: 'absent' });
    made.view.failures = [failure('install-failed', 'The service could not be started: launchd answers 5. The file that was written stays.', 'Set it up once more.')];
    return made;
  },
  'other-version': () =>
    linked({
      state: 'other-version',
      daemon: '0.0.9',
      failure: failure('other-version', 'The daemon that runs is older than this app, so nothing is asked of it.', 'Installing this version restarts the daemon; Ollama goes on.'),
    }),
  // What must not break the page: many, long, strange, and words of a newer daemon.
  hard: () => {
    const long = `registry.example.com/${'very-long-name-'.repeat(19)}:70b`;
    const names = ['<script>alert(1)</script>', '🦙🐴 모델:최신', '{model} $& $1', long];
    const runners = Array.from({ length: 200 }, (_, index) =>
      runner(names[index] ?? `model-${index}:8b`, judged(index === 0 ? 'hung' : index < 4 ? 'dreaming' : 'idle', 'dreams of grass', 86_400 * index, { trouble: index < 2, evidence: [phrase('of-a-newer-daemon', {}, '<b>bold</b>'), phrase('another', {}, long)] }), { pid: 1000 + index, listed_until: ago(3600) }),
    );
    const made = scene(
      watched(runners, {
        at: ahead(86_400 * 400),
        queue: { at_least: 9_000, at_most: 10_000, clients: Array.from({ length: 300 }, (_, index) => client(names[index] ?? `클라이언트 ${index}`, index, 300 - index, 86_400)) },
      }),
      { server: { ...server('up', -9_999_999), owner: 'spaceship' } },
    );
    Object.assign(live(made), { novelty: { of: 'a newer daemon' } });
    return made;
  },
};
