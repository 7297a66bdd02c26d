import type { Known } from '../protocol/protocol';

/** The fact, or `undefined` when it is not known (or the snapshot does not carry it). */
export function fact<T>(known: Known<T> | undefined): T | undefined {
  return known === undefined || isUnknown(known) ? undefined : known;
}

/** Why the fact is not known. */
export function reason<T>(known: Known<T> | undefined): string {
  return known !== undefined && isUnknown(known) ? known.unknown : '';
}

/** A number that is known and can be drawn. */
export function figure(known: Known<number> | null | undefined): number | undefined {
  const value = known === null ? undefined : fact(known);
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

/** A list that a daemon of another age may not send. */
export function list<T>(items: readonly T[] | null | undefined): readonly T[] {
  return Array.isArray(items) ? items : [];
}

function isUnknown<T>(known: Known<T>): known is { unknown: string } {
  return typeof known === 'object' && known !== null && 'unknown' in known;
}
