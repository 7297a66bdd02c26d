//! Memory as it is, and over the last hour.

import type { Past, Snapshot } from '../protocol/protocol';
import type { Speech } from '../speech';
import { figure, list } from './known';

export interface Bar {
  label: string;
  /** 0 to 1. */
  part: number;
  value: string;
  /** What stands behind the value, e.g. the pressure. */
  notes: string[];
  strain: 'none' | 'warn' | 'bad';
}

/** Memory, swap and the GPU's working set; a line that the snapshot does not carry is left out. */
export function memory(snapshot: Snapshot, speech: Speech): Bar[] {
  const { say } = speech;
  const seen = snapshot.watched?.memory;
  if (!seen) return [];
  const bars: Bar[] = [];
  const of = (used: number, all: number) =>
    say('memory.used', { used: speech.gigabytes(used), total: speech.bytes(all) });
  const total = figure(seen.total_bytes);
  const used = figure(seen.used_bytes);
  const level = figure(seen.pressure_level);
  const strain = level === 4 ? 'bad' : level === 2 ? 'warn' : 'none';
  const notes = level === undefined ? [] : [speech.known(`memory.pressure.${level}`, String(level))];
  if (seen.throttled === true) notes.push(say('memory.heat'));
  if (total !== undefined && used !== undefined && total > 0)
    bars.push({
      label: say('memory.heading'),
      part: Math.min(1, used / total),
      value: of(used, total),
      notes,
      strain,
    });
  const swap = figure(seen.swap_used_bytes);
  const out = figure(seen.swap_out_bytes_per_s) ?? 0;
  const back = figure(seen.swap_in_bytes_per_s) ?? 0;
  if (swap !== undefined && (swap > 0 || out > 0)) {
    const notes: string[] = [];
    if (out >= 1024) notes.push(say('memory.swap.out', { rate: speech.rate(out) }));
    if (back >= 1024) notes.push(say('memory.swap.in', { rate: speech.rate(back) }));
    if (notes.length === 0) notes.push(say('memory.swap.still'));
    bars.push({
      label: say('memory.swap'),
      part: total ? Math.min(1, swap / total) : 0,
      value: speech.bytes(swap),
      notes,
      strain: out >= 2 ** 20 ? (strain === 'bad' ? 'bad' : 'warn') : 'none',
    });
  }
  const limit = figure(seen.gpu_limit_bytes);
  const gpu = figure(seen.gpu_used_bytes);
  const busy = figure(seen.gpu_percent);
  if (limit !== undefined && gpu !== undefined && limit > 0)
    bars.push({
      label: say('memory.gpu'),
      part: Math.min(1, gpu / limit),
      value: of(gpu, limit),
      notes: busy === undefined ? [] : [say('memory.gpu.busy', { percent: speech.percent(busy / 100) })],
      strain: gpu > limit * 0.98 ? 'warn' : 'none',
    });
  return bars;
}

export interface Chart {
  /** One path a span without gaps, in a box of `WIDTH` by `HEIGHT`. */
  used: string[];
  area: string[];
  swap: string[];
  label: string;
}

export const WIDTH = 320;
export const HEIGHT = 44;
/** How far the chart looks back. */
export const SPAN_S = 3600;
export const POINTS = 120;

/** The last hour; nothing when there are not two points to join. */
export function chart(past: Past | undefined, total: number | undefined, end_ms: number, speech: Speech): Chart | undefined {
  const points = list(past?.points)
    .map((point) => ({ at: Date.parse(point.at), used: figure(point.used_bytes), swap: figure(point.swap_used_bytes) }))
    .filter((point) => !Number.isNaN(point.at))
    .sort((a, b) => a.at - b.at);
  const seen = points.flatMap((point) => point.used ?? []);
  const last = seen.at(-1);
  if (seen.length < 2 || last === undefined) return undefined;
  const high = Math.max(...seen);
  const top = Math.max(total ?? high * 1.2, ...points.flatMap((point) => point.swap ?? []), 1);
  // After a jump of the clock the newest point may lie ahead of us.
  const end = Math.max(end_ms, points.at(-1)?.at ?? end_ms);
  const x = (at: number) => round(WIDTH - ((end - at) / (SPAN_S * 1000)) * WIDTH);
  const y = (bytes: number) => round(HEIGHT - (bytes / top) * HEIGHT);
  const within = points.filter((point) => end - point.at <= SPAN_S * 1000);
  const lines = runs(within, 'used');
  const swapped = within.some((point) => (point.swap ?? 0) > 0) ? runs(within, 'swap') : [];
  const path = (run: Run) => run.map(([at, bytes], index) => `${index === 0 ? 'M' : 'L'}${x(at)} ${y(bytes)}`).join('');
  return {
    used: lines.map(path),
    area: lines.map((run) => `${path(run)}L${x(run.at(-1)?.[0] ?? end)} ${HEIGHT}L${x(run[0]?.[0] ?? end)} ${HEIGHT}Z`),
    swap: swapped.map(path),
    label: speech.say('memory.chart', {
      low: speech.bytes(Math.min(...seen)),
      high: speech.bytes(high),
      now: speech.bytes(last),
    }),
  };
}

type Run = [at: number, bytes: number][];

/** The stretches without a gap: where a span of which nothing is known has no point, the line has none either. */
function runs(points: { at: number; used?: number | undefined; swap?: number | undefined }[], what: 'used' | 'swap'): Run[] {
  const gap_ms = ((SPAN_S * 1000) / POINTS) * 3.5;
  const found: Run[] = [];
  let before: number | undefined;
  for (const point of points) {
    const bytes = point[what];
    if (bytes === undefined) {
      before = undefined;
      continue;
    }
    const open = before !== undefined && point.at - before <= gap_ms ? found.at(-1) : undefined;
    if (open) open.push([point.at, bytes]);
    else found.push([[point.at, bytes]]);
    before = point.at;
  }
  return found.filter((run) => run.length > 1);
}

const round = (value: number) => Math.round(value * 10) / 10;
