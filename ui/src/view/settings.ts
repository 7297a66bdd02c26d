//! Ollama's settings: what is wanted, what is in force, and how that is known.

import type { Ending, MemoryBound, Request, Setting, Snapshot } from '../protocol/protocol';
import type { Speech } from '../speech';
import { fact, figure, list, reason } from './known';

export type Preset = 'serial' | 'ollama-defaults' | 'custom';

/** What the preset of that name sets; it unsets everything else. */
export const PRESETS: Record<Exclude<Preset, 'custom'>, Record<string, string>> = {
  serial: { OLLAMA_NUM_PARALLEL: '1', OLLAMA_MAX_LOADED_MODELS: '1', OLLAMA_MAX_QUEUE: '10' },
  'ollama-defaults': {},
};

/** The settings that most people come for, in the order of the page. */
export const MAIN = [
  'OLLAMA_NUM_PARALLEL',
  'OLLAMA_MAX_LOADED_MODELS',
  'OLLAMA_MAX_QUEUE',
  'OLLAMA_CONTEXT_LENGTH',
  'OLLAMA_KEEP_ALIVE',
];

/** What a person has typed and not saved: a value by name, or `null` for unset. */
export type Draft = Record<string, string | null>;

export interface Field {
  name: string;
  label: string;
  /** What the input holds. */
  value: string;
  /** What stands in the empty input. */
  placeholder: string;
  /** What is in force. */
  effective: string;
  /** What is to be said beside it. */
  standing: string[];
  mark: 'proven' | 'drift' | 'left' | 'unknown';
  proof: string[];
  meaning: string;
  /** Default, allowed values, caution. */
  about: string[];
  changed: boolean;
}

export function fields(snapshot: Snapshot, draft: Draft, speech: Speech): { main: Field[]; others: Field[] } {
  const all = list(snapshot.settings);
  const by_name = new Map(all.map((setting) => [setting.name, setting]));
  return {
    main: MAIN.flatMap((name) => {
      const setting = by_name.get(name);
      return setting ? [field(setting, draft, speech)] : [];
    }),
    others: all.filter((setting) => !MAIN.includes(setting.name)).map((setting) => field(setting, draft, speech)),
  };
}

function field(setting: Setting, draft: Draft, speech: Speech): Field {
  const { say } = speech;
  const drafted = draft[setting.name];
  const effective = fact(setting.effective);
  const shown = (value: string) => (value === '' ? say('settings.empty') : value);
  const about = [
    setting.default === '' ? say('settings.default.empty') : say('settings.default', { value: setting.default }),
  ];
  if (setting.allowed) about.push(say('settings.allowed', { allowed: setting.allowed }));
  if (setting.caution) about.push(setting.caution);
  if (setting.standing === 'drift')
    about.push(
      say('settings.layers', {
        desired: setting.desired ?? say('settings.unset'),
        persisted: fact(setting.persisted) ?? (reason(setting.persisted) || say('settings.unset')),
        effective: effective ?? reason(setting.effective),
      }),
    );
  return {
    name: setting.name,
    label: speech.known(`settings.${setting.name}`, setting.name),
    value: drafted === undefined ? (setting.desired ?? '') : (drafted ?? ''),
    placeholder: setting.default,
    effective:
      effective === undefined
        ? say('settings.effective.unknown', { why: reason(setting.effective) })
        : say('settings.effective', { value: shown(effective) }),
    standing: standingOf(setting, speech),
    mark:
      setting.standing === 'proven'
        ? 'proven'
        : setting.standing === 'drift'
          ? 'drift'
          : setting.standing === 'unknown'
            ? 'unknown'
            : 'left',
    proof:
      list(setting.proof).length === 0
        ? [say('settings.proof.none')]
        : list(setting.proof).map((proof) =>
            proof.kind === 'server-config-line' || proof.kind === 'process-environment'
              ? say(`settings.proof.${proof.kind}`, { source: proof.source })
              : say('settings.proof.other', { kind: proof.kind, source: proof.source }),
          ),
    meaning: setting.meaning,
    about,
    changed: drafted !== undefined && drafted !== setting.desired,
  };
}

function standingOf(setting: Setting, speech: Speech): string[] {
  switch (setting.standing) {
    case 'proven': {
      const seen = list(setting.proof).map((proof) => speech.known(`settings.seen.${proof.kind}`, proof.kind));
      const said = [speech.say('settings.seen', { where: seen.join(', ') })];
      if (setting.default !== setting.desired && setting.default !== '')
        said.push(speech.say('settings.default', { value: setting.default }));
      return said;
    }
    case 'unknown':
      return [];
    case 'drift':
      return [speech.say('settings.wanted', { value: setting.desired ?? speech.say('settings.unset') })];
    default:
      return [speech.known(`settings.${setting.standing}`, setting.standing)];
  }
}

/** What a person would have if the draft were saved, by name. */
function wanted(snapshot: Snapshot, draft: Draft): Record<string, string> {
  const values: Record<string, string> = {};
  for (const { name, desired } of list(snapshot.settings)) {
    const value = draft[name] === undefined ? desired : draft[name];
    if (value !== null && value !== undefined) values[name] = value;
  }
  return values;
}

/** The preset that the wanted values are. */
export function presetOf(snapshot: Snapshot, draft: Draft): Preset {
  const values = Object.entries(wanted(snapshot, draft));
  for (const preset of ['serial', 'ollama-defaults'] as const) {
    const set = PRESETS[preset];
    if (values.length === Object.keys(set).length && values.every(([name, value]) => set[name] === value)) return preset;
  }
  return 'custom';
}

/** The draft that makes the wanted values those of a preset. */
export function draftOf(snapshot: Snapshot, preset: Exclude<Preset, 'custom'>): Draft {
  const draft: Draft = {};
  for (const { name, desired } of list(snapshot.settings)) {
    const value = PRESETS[preset][name] ?? null;
    if (value !== desired) draft[name] = value;
  }
  return draft;
}

/** A draft with one field typed; what is as it was falls out of it. */
export function typed(draft: Draft, setting: { name: string; desired: string | null }, text: string): Draft {
  const { [setting.name]: _, ...rest } = draft;
  const value = text.trim() === '' ? null : text.trim();
  return value === setting.desired ? rest : { ...rest, [setting.name]: value };
}

/** The request that saves a draft, or says what saving it would change. */
export function requestOf(draft: Draft, dry_run: boolean): Request {
  const set: Record<string, string> = {};
  const unset: string[] = [];
  for (const [name, value] of Object.entries(draft)) {
    if (value === null) unset.push(name);
    else set[name] = value;
  }
  return { verb: 'settings', set, unset, preset: null, dry_run };
}

export interface Bound {
  key: string;
  model: string;
  slots: string;
  /** `at most 14 GB`, or why it is not known. */
  most: string;
  /** Of the budget, 0 to 1, when both are known. */
  part: number | undefined;
  over: boolean;
}

/** What models can cost at most, dearest first, and the budget they have. */
export function bounds(ending: Ending | undefined, speech: Speech): { rows: Bound[]; budget: string } {
  const all = [...list(ending?.memory)].sort((a, b) => (figure(b.at_most_bytes) ?? 0) - (figure(a.at_most_bytes) ?? 0));
  const budget = figure(all[0]?.budget_bytes);
  return {
    rows: all.map((bound) => row(bound, speech)),
    budget:
      budget === undefined
        ? ''
        : speech.say('settings.memory.budget', { size: speech.bytes(budget), source: all[0]?.budget_source ?? '' }),
  };
}

function row(bound: MemoryBound, speech: Speech): Bound {
  const most = figure(bound.at_most_bytes);
  const budget = figure(bound.budget_bytes);
  return {
    key: bound.model,
    model: bound.model,
    slots: speech
      .count('settings.memory.slots', bound.slots)
      .replace('{context}', () => speech.number(bound.context_tokens)),
    most:
      most === undefined
        ? `${speech.say('app.unknown')}: ${reason(bound.at_most_bytes)}`
        : speech.say('settings.memory.most', { size: speech.bytes(most) }),
    part: most === undefined || budget === undefined || budget <= 0 ? undefined : Math.min(1, most / budget),
    over: most !== undefined && budget !== undefined && most > budget,
  };
}
