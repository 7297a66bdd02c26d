//! What is wrong, the evidence, and the one deed that mends it; worst first.

import type { Ask, Judged, Request, Snapshot, View, WatchedRunner } from '../protocol/protocol';
import type { Speech, Word } from '../speech';
import { fact, figure, list } from './known';
import type { Moment } from './moment';
import { judgedFor_s, nameOf } from './runner';

export interface Deed {
  words: string;
  ask: Ask;
}

export interface Trouble {
  /** The same trouble in the next snapshot has the same key. */
  key: string;
  title: string;
  /** What it means, in a sentence; may be empty. */
  words: string;
  evidence: string[];
  for_s?: number;
  /** Work stands still because of it. */
  stops: boolean;
  deed?: Deed;
}

const request = (request: Request): Ask => ({ what: 'request', request });

/** What the tray itself failed at, newest first. */
export function failures(view: View, speech: Speech): Trouble[] {
  return list(view.failures)
    .map((failure, index) => ({
      key: `failure ${index} ${failure.code}`,
      title: failure.message,
      words: failure.hint,
      evidence: [],
      stops: false,
      deed: { words: speech.say('app.dismiss'), ask: { what: 'dismiss' } as Ask },
    }))
    .reverse();
}

export function troubles(snapshot: Snapshot, moment: Moment, speech: Speech): Trouble[] {
  // While Ollama is being restarted or exchanged, what is seen of it is that.
  if (snapshot.work || snapshot.server.state === 'upgrading') return ofConfig(snapshot, speech);
  const runners = list(snapshot.watched?.runners).flatMap((runner) => ofRunner(runner, snapshot, moment, speech));
  runners.sort((a, b) => Number(b.stops) - Number(a.stops));
  const server = ofServer(snapshot, moment, speech);
  return [
    ...server,
    ...runners.filter((trouble) => trouble.stops),
    ...ofRecovery(snapshot, speech),
    ...ofMemory(snapshot, speech),
    ...runners.filter((trouble) => !trouble.stops),
    ...ofRivals(snapshot, speech),
    ...ofConfig(snapshot, speech),
    ...ofDrift(snapshot, speech),
  ];
}

function ofServer(snapshot: Snapshot, moment: Moment, speech: Speech): Trouble[] {
  const { say } = speech;
  const { server, watched } = snapshot;
  const stopped = (title: string, words: string, start: Word): Trouble => ({
    key: `server ${server.state}`,
    title,
    words,
    evidence: [],
    stops: true,
    ...restart(snapshot, speech, start),
  });
  switch (server.state) {
    case 'down':
      return [stopped(say('server.down'), server.words, 'do.start')];
    case 'silent':
      return [stopped(say('server.silent'), server.words, 'do.restart')];
    case 'gave-up':
      return [stopped(say('server.gave-up'), server.words, 'do.again')];
    case 'blocked':
      return [{ ...stopped(say('server.blocked'), server.words, 'do.restart'), evidence: rivals(snapshot) }].map(
        ({ deed: _, ...rest }) => rest,
      );
    default:
      break;
  }
  const judged = watched?.server;
  if (!judged?.trouble) return [];
  return [
    {
      key: `server ${judged.verdict}`,
      title: speech.known(`trouble.${judged.verdict}`, speech.phrase(judged.said)),
      words: sentence(speech.phrase(judged.said)),
      evidence: list(judged.evidence).map((fact) => speech.phrase(fact)),
      for_s: judgedFor_s(judged, snapshot, moment),
      stops: true,
      ...restart(snapshot, speech, 'do.restart'),
    },
  ];
}

/** Words of a verdict, which begin small, as a sentence. */
const sentence = (words: string) => words.charAt(0).toUpperCase() + words.slice(1);

/** The restart, when we may do it; else what to do so that we may stands in `words`. */
function restart(snapshot: Snapshot, speech: Speech, words: Word): Partial<Trouble> {
  const owner = snapshot.server.owner_detail;
  const by_hand = fact(snapshot.server.owner) === 'manual';
  if (owner && !owner.can_restart && !by_hand) return { words: owner.hint };
  return {
    deed: {
      words: speech.say(by_hand ? 'do.take-over' : words),
      ask: request({ verb: 'restart', take_over: by_hand, dry_run: false }),
    },
  };
}

function ofRunner(runner: WatchedRunner, snapshot: Snapshot, moment: Moment, speech: Speech): Trouble[] {
  const judged = runner.judged;
  if (!judged?.trouble) return [];
  const model = nameOf(runner, speech);
  const named = speech.known(`trouble.${judged.verdict}`, speech.say('trouble.other')).replace('{words}', () => speech.phrase(judged.said));
  const deed = deedFor(runner, judged, snapshot, speech);
  return [
    {
      key: `runner ${runner.pid} ${judged.verdict}`,
      title: named.replace('{model}', () => model),
      words: sentence(speech.phrase(judged.said)),
      evidence: list(judged.evidence).map((fact) => speech.phrase(fact)),
      for_s: judgedFor_s(judged, snapshot, moment),
      stops: judged.verdict !== 'slow' && judged.verdict !== 'orphan',
      ...(deed && { deed }),
    },
  ];
}

/** Each verdict's first rung, as recovery would take it. */
function deedFor(runner: WatchedRunner, judged: Judged, snapshot: Snapshot, speech: Speech): Deed | undefined {
  const model = fact(runner.model);
  const { say } = speech;
  switch (judged.verdict) {
    case 'hung':
    case 'stuck-unloading':
    case 'orphan':
      return model === undefined
        ? undefined
        : { words: say('do.end-runner'), ask: request({ verb: 'stop-runner', model, force: true, dry_run: false }) };
    case 'empty-replies':
      return model === undefined
        ? undefined
        : { words: say('do.unload'), ask: request({ verb: 'unload', model, dry_run: false }) };
    case 'dead-but-listed':
      return restart(snapshot, speech, 'do.restart').deed;
    default:
      // In doubt nothing is ended: a suspect runner may be at honest work.
      return undefined;
  }
}

/** What recovery does nothing about any more, until a person lets it. */
function ofRecovery(snapshot: Snapshot, speech: Speech): Trouble[] {
  const given_up = list(snapshot.watched?.recovery?.given_up);
  if (given_up.length === 0) return [];
  return [
    {
      key: 'given-up',
      title: speech.say('trouble.given-up'),
      words: '',
      evidence: given_up.map(({ subject, cause, words }) => `${subject} (${cause}): ${words}`),
      stops: false,
      deed: { words: speech.say('do.again'), ask: request({ verb: 'recover', dry_run: false }) },
    },
  ];
}

function ofMemory(snapshot: Snapshot, speech: Speech): Trouble[] {
  const memory = snapshot.watched?.memory;
  const level = figure(memory?.pressure_level);
  const out = figure(memory?.swap_out_bytes_per_s) ?? 0;
  if (level !== 4 && !(level === 2 && out >= 2 ** 20)) return [];
  const used = figure(memory?.used_bytes);
  const total = figure(memory?.total_bytes);
  const evidence: string[] = [];
  if (used !== undefined && total !== undefined)
    evidence.push(
      speech.say('trouble.memory.line', { used: speech.bytes(used), total: speech.bytes(total), rate: speech.rate(out) }),
    );
  // An idle model is what can leave without harm.
  const idle = list(snapshot.watched?.runners)
    .filter((runner) => runner.judged?.verdict === 'idle' && fact(runner.model) !== undefined)
    .sort((a, b) => (figure(b.footprint_bytes) ?? 0) - (figure(a.footprint_bytes) ?? 0))[0];
  const model = idle && fact(idle.model);
  const size = idle && figure(idle.footprint_bytes);
  if (model !== undefined && size !== undefined)
    evidence.push(speech.say('trouble.memory.model', { model, size: speech.bytes(size) }));
  return [
    {
      key: 'memory',
      title: speech.say(level === 4 ? 'trouble.memory' : 'trouble.memory.warning'),
      words: '',
      evidence,
      stops: false,
      ...(model !== undefined && {
        deed: {
          words: speech.say('do.unload.of', { model }),
          ask: request({ verb: 'unload', model, dry_run: false }),
        },
      }),
    },
  ];
}

const rivals = (snapshot: Snapshot): string[] =>
  list(snapshot.server.rivals).map((rival) =>
    [rival.path ?? rival.owner, rival.pid === null ? '' : `pid ${rival.pid}`, rival.version ?? '', rival.why]
      .filter((part) => part !== '')
      .join(' · '),
  );

function ofRivals(snapshot: Snapshot, speech: Speech): Trouble[] {
  const evidence = rivals(snapshot);
  if (evidence.length === 0 || snapshot.server.state === 'blocked') return [];
  return [{ key: 'rivals', title: speech.count('trouble.rivals', evidence.length), words: '', evidence, stops: false }];
}

function ofConfig(snapshot: Snapshot, speech: Speech): Trouble[] {
  const failure = snapshot.config?.failure;
  if (!failure) return [];
  return [
    {
      key: 'config',
      title: speech.say('trouble.config'),
      words: failure.message,
      evidence: failure.hint === '' ? [] : [failure.hint],
      stops: false,
      deed: { words: speech.say('do.open-config'), ask: { what: 'open-config' } },
    },
  ];
}

function ofDrift(snapshot: Snapshot, speech: Speech): Trouble[] {
  const { say } = speech;
  const differs = list(snapshot.settings).filter((setting) => setting.standing === 'drift');
  if (differs.length === 0) return [];
  const owner = snapshot.server.owner_detail;
  const by_hand = fact(snapshot.server.owner) === 'manual';
  const may = by_hand || owner === null || owner === undefined || owner.can_restart;
  return [
    {
      key: 'drift',
      title: speech.count('trouble.drift', differs.length),
      words: may ? '' : (owner?.hint ?? ''),
      evidence: differs.map((setting) => {
        const name = speech.known(`settings.${setting.name}`, setting.name);
        const desired = setting.desired ?? say('settings.unset');
        const layers = list(setting.drift);
        if (layers.includes('effective') || layers.length === 0)
          return say('trouble.drift.line', { name, desired, effective: fact(setting.effective) ?? say('app.unknown') });
        // What the server uses is right, and will not be after its next start.
        const later = layers.includes('session') ? setting.session : setting.persisted;
        const next = later === null || later === undefined ? undefined : fact(later);
        return say('trouble.drift.next', { name, desired, next: next ?? say('settings.unset') });
      }),
      stops: false,
      ...(may && {
        deed: {
          words: say(by_hand ? 'do.take-over' : 'do.apply'),
          ask: request({ verb: 'apply', take_over: by_hand, dry_run: false }),
        },
      }),
    },
  ];
}
