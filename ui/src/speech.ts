//! What is said to a person, in their language: words from the message files, numbers by Intl.

import type en from './messages/en.json';
import type { Phrase } from './protocol/protocol';

export type Word = keyof typeof en;
export type Language = 'en' | 'ko';
type Words = Record<Word, string>;

const FILES: Record<Language, () => Promise<{ default: Words }>> = {
  en: () => import('./messages/en.json'),
  ko: () => import('./messages/ko.json'),
};
const learned = new Map<Language, Words>();

/** Reads the words of a language; only then it can be spoken. */
export async function learn(language: Language): Promise<void> {
  if (!learned.has(language)) learned.set(language, (await FILES[language]()).default);
}

/** A word whose plural forms are two entries, `….one` and `….other`. */
export type Counted = Word extends infer W ? (W extends `${infer Stem}.other` ? Stem : never) : never;

export interface Speech {
  language: Language;
  /** A message, with its placeholders filled. */
  say(word: Word, values?: Record<string, string>): string;
  /** A message that counts; `{count}` is filled. */
  count(stem: Counted, count: number): string;
  /** The message of that name if there is one, else what was given: a word that a newer daemon added is shown as it is. */
  known(name: string, otherwise: string): string;
  /** The same with its placeholders filled; what was given stays as it is. */
  fill(name: string, values: Record<string, string>, otherwise: string): string;
  /** What the daemon says, in this language; its own words where there are none here. */
  phrase(phrase: Phrase): string;
  number(value: number, digits?: number): string;
  /** `part` of 1. */
  percent(part: number): string;
  /** In GB of 2^30 bytes, the unit of Activity Monitor; small ones in MB. */
  bytes(bytes: number): string;
  /** The number of `bytes` in GB alone. */
  gigabytes(bytes: number): string;
  /** Of a file or a download, in the decimal units that it is told in elsewhere; never less than it is. */
  size(bytes: number): string;
  rate(bytes_per_s: number): string;
  /** The two greatest units of a duration. */
  duration(seconds: number): string;
  /** A time of the day, with the day when it is another. */
  clock(at: string, now_ms: number): string;
  /** A day of the calendar. */
  day(at: string): string;
}

/** The language to speak: the one that was chosen, else the first of the system's that there is. */
export function languageOf(chosen: string | null | undefined, system: readonly string[]): Language {
  for (const tag of [chosen ?? '', ...system]) {
    const primary = tag.toLowerCase().split('-')[0];
    if (primary === 'en' || primary === 'ko') return primary;
  }
  return 'en';
}

const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** The speech of a language that was learned. */
export function speech(language: Language, zone?: string): Speech {
  const words = learned.get(language);
  if (!words) throw new Error(`${language} was not learned`);
  const plain = memo((digits: number) => new Intl.NumberFormat(language, { maximumFractionDigits: digits }));
  const exact = once(() => new Intl.NumberFormat(language, { minimumFractionDigits: 1, maximumFractionDigits: 1 }));
  const percent = once(() => new Intl.NumberFormat(language, { style: 'percent', maximumFractionDigits: 0 }));
  const plural = once(() => new Intl.PluralRules(language));
  const unit = memo(
    (name: string) =>
      new Intl.NumberFormat(language, {
        style: 'unit',
        unit: name,
        unitDisplay: TIME.some(([, time]) => time === name) ? 'narrow' : 'short',
        maximumFractionDigits: name === 'gigabyte' ? 1 : 0,
      }),
  );
  const time = once(() => new Intl.DateTimeFormat(language, { timeStyle: 'short', ...(zone && { timeZone: zone }) }));
  const day = once(() => new Intl.DateTimeFormat(language, { dateStyle: 'short', ...(zone && { timeZone: zone }) }));
  const moment = once(
    () => new Intl.DateTimeFormat(language, { dateStyle: 'short', timeStyle: 'short', ...(zone && { timeZone: zone }) }),
  );

  const say: Speech['say'] = (word, values = {}) =>
    words[word].replace(/\{(\w+)\}/g, (whole, name: string) => values[name] ?? whole);
  const bytes = (value: number) => {
    if (value >= GIB / 10) return unit('gigabyte').format(value / GIB);
    return value >= MIB || value === 0 ? unit('megabyte').format(value / MIB) : unit('kilobyte').format(value / 1024);
  };

  const rate = (bytes_per_s: number) =>
    // Megabytes up to a whole gigabyte: rates are compared with each other and with what a disk can do.
    `${bytes_per_s >= MIB && bytes_per_s < GIB ? unit('megabyte').format(bytes_per_s / MIB) : bytes(bytes_per_s)}/s`;
  const duration = (seconds: number) => {
    let rest = Math.max(0, Math.floor(seconds));
    const parts: string[] = [];
    for (const [size, name] of TIME) {
      const count = Math.floor(rest / size);
      rest -= count * size;
      if (count > 0) parts.push(unit(name).format(count));
      if (parts.length === 2 || (parts.length === 1 && count === 0)) break;
    }
    return parts.join(' ') || unit('second').format(0);
  };
  const known = (name: string, otherwise: string) => (Object.hasOwn(words, name) ? words[name as Word] : otherwise);
  // A value's name ends with its unit.
  const value = (name: string, given: number | string) => {
    if (typeof given === 'string') return known(`phrase.counter.${given}`, given);
    if (name.endsWith('_bytes_per_s')) return rate(given);
    return name.endsWith('_s') ? duration(given) : plain(1).format(given);
  };

  return {
    language,
    say,
    phrase(phrase) {
      const template = known(`phrase.${phrase.code}`, '');
      if (template === '') return phrase.words;
      const given = phrase.values;
      return template.replace(/\{(\w+)\}/g, (whole, name: string) => {
        const one = given[name];
        return one === undefined ? whole : value(name, one);
      });
    },
    fill: (name, values, otherwise) =>
      Object.hasOwn(words, name) ? say(name as Word, values) : otherwise,
    count: (stem, count) =>
      say(`${stem}.${plural().select(count) === 'one' ? 'one' : 'other'}` as Word, { count: plain(0).format(count) }),
    known,
    number: (value, digits = 0) => plain(digits).format(value),
    percent: (part) => percent().format(part),
    bytes,
    gigabytes: (value) => (value % GIB === 0 ? plain(0) : exact()).format(value / GIB),
    size: (value) =>
      value >= 1e9 ? unit('gigabyte').format(value / 1e9) : unit('megabyte').format(Math.ceil(value / 1e6)),
    rate,
    duration,
    clock(at, now_ms) {
      const then = new Date(at);
      if (Number.isNaN(then.getTime())) return at;
      return (day().format(then) === day().format(now_ms) ? time() : moment()).format(then);
    },
    day(at) {
      const then = new Date(at);
      return Number.isNaN(then.getTime()) ? at : day().format(then);
    },
  };
}

const TIME: readonly (readonly [number, string])[] = [
  [86_400, 'day'],
  [3_600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
];

/** The system's tables for a format are read when it is needed, not before the first picture. */
function once<V>(make: () => V): () => V {
  const made = memo((_: 'it') => make());
  return () => made('it');
}

function memo<K, V>(make: (key: K) => V): (key: K) => V {
  const made = new Map<K, V>();
  return (key) => {
    let value = made.get(key);
    if (value === undefined) made.set(key, (value = make(key)));
    return value;
  };
}
