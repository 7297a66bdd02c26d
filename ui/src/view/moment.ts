/**
 * A moment as the page counts it. The wall clock is read once, when a view comes; from there the page counts by the
 * steady clock, so that a clock that jumps neither shows negative ages nor sudden days.
 */
export interface Moment {
  /** Wall time when the view came, in ms since 1970. */
  came_ms: number;
  /** Steady time since then, in seconds. */
  since_s: number;
}

/** Seconds from a time (RFC 3339) until the moment; at least 0, `undefined` when it is no time. */
export function age_s(at: string, moment: Moment): number | undefined {
  const then = Date.parse(at);
  return Number.isNaN(then) ? undefined : Math.max(0, (moment.came_ms - then) / 1000) + moment.since_s;
}

/** Seconds from the moment until a time (RFC 3339); negative when it has passed. */
export function left_s(at: string, moment: Moment): number | undefined {
  const then = Date.parse(at);
  return Number.isNaN(then) ? undefined : (then - moment.came_ms) / 1000 - moment.since_s;
}
