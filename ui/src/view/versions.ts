//! Versions of Ollama: which is in place, what is out, what is being done, how it ended.

import type { Ask, Failure, KeptVersion, Release, Snapshot, Upgrade, UpgradeEnd, Versions, View } from '../protocol/protocol';
import type { Speech, Word } from '../speech';
import { fact, figure, list, reason } from './known';
import { age_s, type Moment } from './moment';
import type { Deed } from './trouble';

export interface Card {
  /** It comes before everything else: there is something to decide or to wait for. */
  first: boolean;
  /** The version in place and how it came, in pieces. */
  installed: string[];
  /** What is out and not in place. */
  news: News | undefined;
  /** What else there is to say of versions, a line each. */
  lines: string[];
  running: Running | undefined;
  result: Result | undefined;
  pin: string | undefined;
  /** Old versions that can be gone back to, the one in use last first. */
  kept: Kept[];
}

export interface News {
  version: string;
  title: string;
  facts: string[];
  /** What is new in it, as plain text. */
  notes: string;
  deed: Deed;
  /** It can be put in place from here, which stops Ollama for a moment. */
  ours: boolean;
}

export interface Running {
  title: string;
  /** The step in words, and how far it is. */
  step: string[];
  /** Why the old version is put back, when it is. */
  undoing: string;
  /** How far the step has come, 0 to 1; `null` where that is not measured. */
  part: number | null;
}

export interface Result {
  good: boolean;
  title: string;
  when: string;
  /** What went wrong, and how both versions compare. */
  words: string[];
  /** The failure as the daemon says it. */
  failure: string | undefined;
  deed: Deed | undefined;
}

export interface Kept {
  version: string;
  facts: string[];
}

/** A result stays in front for so long. */
const FRESH_S = 3600;

export function versionsCard(
  snapshot: Snapshot,
  matter: View['matter'] | undefined,
  moment: Moment,
  speech: Speech,
): Card | undefined {
  const versions = snapshot.versions;
  if (!versions) return undefined;
  const result = versions.last ? resultOf(versions.last, moment, speech) : undefined;
  const news = newsOf(versions, speech);
  const age = versions.last ? age_s(versions.last.at, moment) : undefined;
  return {
    first:
      versions.running !== null ||
      (news !== undefined && versions.pin === null) ||
      (age !== undefined && age < FRESH_S) ||
      isAbout(matter),
    installed: installedOf(versions, speech),
    news: versions.running === null ? news : undefined,
    lines: versions.running === null ? linesOf(versions, moment, speech) : [],
    running: versions.running ? runningOf(versions.running, speech) : undefined,
    result: versions.running === null ? result : undefined,
    pin: versions.pin ?? undefined,
    kept: versions.running === null ? keptOf(versions, speech) : [],
  };
}

/** Whether a person came for the versions. */
export function isAbout(matter: View['matter'] | undefined): boolean {
  return matter?.matter === 'versions' || (matter?.matter === 'alert' && ['new-version', 'upgrade'].includes(matter.kind));
}

/** What helps against a failure, where that is a page to open. */
export function wayOut(failure: Failure | null | undefined, speech: Speech): Deed | undefined {
  if (failure?.code !== 'app-management') return undefined;
  return { words: speech.say('do.app-management'), ask: { what: 'open-system-settings', page: 'app-management' } };
}

export const rollback = (to: string, set_database_aside: boolean, dry_run: boolean): Ask => ({
  what: 'request',
  request: { verb: 'rollback', to, set_database_aside, dry_run },
});

function installedOf(versions: Versions, speech: Speech): string[] {
  const install = fact(versions.install);
  if (install === null) return [speech.say('versions.none')];
  const version = fact(versions.installed);
  const pieces = [version ?? speech.say('versions.unknown', { why: reason(versions.installed) })];
  if (install !== undefined) pieces.push(speech.known(`versions.install.${install}`, install));
  return pieces;
}

function newsOf(versions: Versions, speech: Speech): News | undefined {
  const release = versions.latest;
  if (!release || fact(versions.newer) !== true) return undefined;
  // Whoever installed it otherwise is told how it is done, and nothing is done.
  const ours = versions.replaceable;
  return {
    version: release.version,
    title: speech.say('versions.out', { version: release.version }),
    facts: factsOf(release, speech),
    notes: plainNotes(release.notes),
    deed: {
      words: speech.say(ours ? 'do.upgrade' : 'do.upgrade.how'),
      ask: {
        what: 'request',
        request: {
          verb: 'upgrade',
          to: release.version,
          prerelease: release.prerelease,
          downgrade: false,
          measure: false,
          dry_run: !ours,
        },
      },
    },
    ours,
  };
}

function factsOf(release: Release, speech: Speech): string[] {
  const facts: string[] = [];
  const size = figure(release.size_bytes);
  if (size === undefined) facts.push(speech.say('versions.size.unknown'));
  else facts.push(size === 0 ? speech.say('versions.size.homebrew') : speech.say('versions.size', { size: speech.size(size) }));
  const published = fact(release.published);
  if (published !== undefined) facts.push(speech.say('versions.published', { day: speech.day(published) }));
  if (release.prerelease) facts.push(speech.say('versions.testing'));
  return facts;
}

/** Notes are written for a page that draws headings and lists; here their marks alone would be in the way. */
export function plainNotes(notes: string): string {
  return notes
    .replace(/\r\n?/g, '\n')
    // What they begin with is said by the card's title.
    .replace(/^\s*#{1,6}[ \t][^\n]*\n/, '')
    .replace(/^[ \t]*#{1,6}[ \t]+/gm, '')
    .replace(/\*\*([^*\n]+)\*\*/g, '$1')
    .replace(/`([^`\n]+)`/g, '$1')
    .replace(/^([ \t]*)[*-][ \t]+/gm, '$1• ')
    .replace(/\n{3,}/g, '\n\n')
    .trim();
}

function linesOf(versions: Versions, moment: Moment, speech: Speech): string[] {
  const { say } = speech;
  const lines: string[] = [];
  const checked = versions.checked_at ? say('versions.checked', { time: speech.clock(versions.checked_at, moment.came_ms) }) : '';
  const newer = versions.latest ? fact(versions.newer) : undefined;
  if (newer === false) lines.push([say('versions.current'), checked].filter(Boolean).join(' · '));
  else if (!versions.latest && !versions.unreachable) lines.push(say('versions.unread'));
  else if (newer === undefined && versions.latest) lines.push(say('versions.compared', { why: reason(versions.newer) }));
  if (versions.unreachable) {
    const { code, message, hint } = versions.unreachable;
    lines.push(say('versions.unreachable', { why: speech.known(`versions.unreachable.${code}`, message) }));
    if (hint) lines.push(sentence(hint));
  }
  if (!versions.checks) lines.push(say('versions.unchecked'));
  return lines;
}

/** What is being done to the version in place. */
export function runningOf(running: Upgrade, speech: Speech): Running {
  const { say } = speech;
  const places = { from: running.from, to: running.to };
  const title = running.undoing !== null
    ? say('versions.undoing', { version: running.from })
    : say(running.goal === 'rollback' ? 'versions.rolling-back' : 'versions.upgrading', { version: running.to });
  const done = figure(running.done_bytes);
  const total = figure(running.of_bytes);
  const step = [speech.fill(`step.${running.step}`, places, running.words)];
  if (running.index > 0) step.push(say('work.step', { index: speech.number(running.index), of: speech.number(running.of) }));
  if (done !== undefined)
    step.push(total ? bytesOf(done, total, speech) : speech.size(done));
  return {
    title,
    step: step.filter((piece) => piece !== ''),
    undoing: running.undoing ? say('versions.undoing.why', { why: running.undoing }) : '',
    part: done !== undefined && total ? Math.min(1, done / total) : null,
  };
}

/** Both in one unit, which is said once. */
function bytesOf(done: number, total: number, speech: Speech): string {
  const megabytes = total < 1e9;
  const part = speech.number(megabytes ? Math.ceil(done / 1e6) : done / 1e9, megabytes ? 0 : 1);
  return speech.say('versions.bytes', { done: part, total: speech.size(total) });
}

function resultOf(last: UpgradeEnd, moment: Moment, speech: Speech): Result {
  const good = last.end === 'committed';
  const words: string[] = [];
  if (last.failure) words.push(...[last.failure.message, last.failure.hint].filter(Boolean).map(sentence));
  if (last.measured) words.push(...comparedOf(last, speech));
  return {
    good,
    title: speech.fill(`versions.end.${last.goal}.${last.end}`, { from: last.from, to: last.to }, `${last.goal}: ${last.end}`),
    when: speech.clock(last.at, moment.came_ms),
    words,
    failure: last.failure?.message,
    deed: wayOut(last.failure, speech),
  };
}

const sentence = (words: string) => words.charAt(0).toUpperCase() + words.slice(1);

function comparedOf(last: UpgradeEnd, speech: Speech): string[] {
  const measured = last.measured;
  if (!measured) return [];
  const { say } = speech;
  const words: string[] = [];
  const before = figure(measured.before_millitokens_per_s);
  const after = figure(measured.after_millitokens_per_s);
  if (before !== undefined && after !== undefined) {
    const rate = (milli: number) => speech.number(milli / 1000, 1);
    let line = say('versions.speed', { model: measured.model, before: rate(before), after: rate(after) });
    const load_before = figure(measured.before_load_ms);
    const load_after = figure(measured.after_load_ms);
    const seconds = (ms: number) => say('unit.seconds', { count: speech.number(ms / 1000, 1) }).replace(' ', '\u00a0');
    if (load_before !== undefined && load_after !== undefined)
      line += ` · ${say('versions.load', { before: seconds(load_before), after: seconds(load_after) })}`;
    words.push(line);
    if (measured.slower)
      words.push(say('versions.speed.slower', { to: last.to, percent: speech.percent(1 - after / before) }));
  }
  return words;
}

function keptOf(versions: Versions, speech: Speech): Kept[] {
  const installed = fact(versions.installed);
  return list(versions.kept)
    .filter((one, index, all) => one.version !== installed && all.findIndex((other) => other.version === one.version) === index)
    .map((one: KeptVersion) => {
      const facts = [speech.say('versions.kept.since', { time: speech.day(one.since) })];
      if (one.database) facts.push(speech.say('versions.kept.database'));
      return { version: one.version, facts };
    });
}

/** The pin in words, with what it keeps away. */
export function pinned(card: Card, speech: Speech): string {
  const word: Word = card.news ? 'versions.pinned.out' : 'versions.pinned';
  return speech.say(word, { version: card.pin ?? '', newer: card.news?.version ?? '' });
}
