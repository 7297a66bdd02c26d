import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import en from './messages/en.json';
import ko from './messages/ko.json';
import { languageOf, learn, speech } from './speech';

await Promise.all([learn('en'), learn('ko')]);

const placeholders = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).sort();

describe('messages', () => {
  test('both languages have the same messages, in the same order', () => {
    expect(Object.keys(ko)).toEqual(Object.keys(en));
  });

  test('a message has the same placeholders in both languages, and is not empty', () => {
    const korean: Record<string, string> = ko;
    for (const [key, text] of Object.entries(en)) {
      expect(placeholders(korean[key] ?? ''), key).toEqual(placeholders(text));
      expect(text.trim(), key).not.toBe('');
      expect(korean[key]?.trim(), key).not.toBe('');
    }
  });

  test('what counts has both plural forms', () => {
    const stems = (form: string) =>
      Object.keys(en).filter((key) => key.endsWith(form)).map((key) => key.slice(0, -form.length));
    // `trouble.other` is a message of its own, not a plural.
    expect(stems('.other').filter((stem) => `${stem}.one` in en)).toEqual(stems('.one'));
  });
});

describe('the daemon’s fixed words', () => {
  const api = readFileSync(`${import.meta.dirname}/../../docs/api.md`, 'utf8');
  const listed = (from: RegExp) => [...(from.exec(api)?.[1] ?? '').matchAll(/`([a-z-]+)`/g)].map((match) => match[1] ?? '');

  test.each([
    ['verdict', listed(/^Verdicts: ((?:.*\n)+?)\n/m)],
    ['server', listed(/^\| `server\.state` \| (.*) \|$/m)],
    ['owner', listed(/^\| `server\.owner` \| (.*) \|$/m)],
  ])('every %s of docs/api.md has words', (kind, words) => {
    expect(words.length).toBeGreaterThan(5);
    for (const word of words) expect(Object.keys(en)).toContain(`${kind}.${word}`);
  });
});

test('every step of an upgrade has words', () => {
  const deeds = readFileSync(`${import.meta.dirname}/../../crates/engine/src/upgrade/deed.rs`, 'utf8');
  const names = [...deeds.matchAll(/^ {4}[A-Z]\w+ "([a-z-]+)" (?:Preparing|Switching|Proving|Settling|Undoing) /gm)];
  expect(names.length).toBeGreaterThan(30);
  for (const [, name] of names) expect(Object.keys(en)).toContain(`step.${name}`);
});

describe('language', () => {
  test.each([
    [null, ['ko-KR', 'en'], 'ko'],
    [null, ['de-DE', 'ko'], 'ko'],
    [null, ['de-DE'], 'en'],
    [null, [], 'en'],
    ['en', ['ko'], 'en'],
    ['ko', ['en'], 'ko'],
    ['klingon', ['ko'], 'ko'],
  ] as const)('chosen %s with the system’s %j is %s', (chosen, system, language) => {
    expect(languageOf(chosen, system)).toBe(language);
  });
});

describe('speech', () => {
  const english = speech('en', 'UTC');
  const korean = speech('ko', 'UTC');

  test.each([
    [0, '0s', '0초'],
    [59.9, '59s', '59초'],
    [141, '2m 21s', '2분 21초'],
    [3600, '1h', '1시간'],
    [3661, '1h 1m', '1시간 1분'],
    [90_000, '1d 1h', '1일 1시간'],
    [-5, '0s', '0초'],
  ])('%d seconds', (seconds, in_english, in_korean) => {
    expect(english.duration(seconds)).toBe(in_english);
    expect(korean.duration(seconds)).toBe(in_korean);
  });

  test.each([
    [0, '0 MB'],
    [2048, '2 kB'],
    [2_669_568, '3 MB'],
    [2 ** 30, '1 GB'],
    [41.84 * 2 ** 30, '41.8 GB'],
    [1024 * 2 ** 30, '1,024 GB'],
  ])('%d bytes', (bytes, said) => {
    expect(english.bytes(bytes)).toBe(said);
  });

  test('files and downloads are told in decimal units, never smaller than they are', () => {
    expect(english.size(187_400_000)).toBe('188 MB');
    expect(english.size(1_640_000_000)).toBe('1.6 GB');
    expect(korean.size(1)).toBe('1MB');
  });

  test('rates stay in one unit up to a gigabyte', () => {
    expect(english.rate(180 * 2 ** 20)).toBe('180 MB/s');
    expect(english.rate(1.5 * 2 ** 30)).toBe('1.5 GB/s');
  });

  test('a value that looks like a placeholder or a pattern is said as it is', () => {
    expect(english.say('now.loading', { model: '{model} $& $1' })).toBe('Loading {model} $& $1');
  });

  test('a placeholder without a value stays visible', () => {
    expect(english.say('now.loading')).toBe('Loading {model}');
  });

  test('plurals follow the language', () => {
    expect(english.count('now.models', 1)).toBe('1 model loaded');
    expect(english.count('now.models', 10_000)).toBe('10,000 models loaded');
    expect(korean.count('now.models', 1)).toBe('모델 1개 올라와 있음');
  });

  test('the day stands beside a time of another day', () => {
    const noon = Date.parse('2026-11-30T12:00:00Z');
    expect(english.clock('2026-11-30T10:41:07Z', noon)).toMatch(/^10:41\sAM$/);
    expect(english.clock('2026-11-29T10:41:07Z', noon)).toMatch(/^11\/29\/26, 10:41\sAM$/);
    expect(english.clock('soon', noon)).toBe('soon');
  });

  test('a word of a newer daemon is shown as it is', () => {
    expect(english.known('verdict.dreaming', 'dreams of grass')).toBe('dreams of grass');
    expect(english.known('constructor', 'constructor')).toBe('constructor');
  });
});
