import type { Answer, Ask, View } from '../protocol/protocol';

/** Where the page gets what it shows, and whom it asks. */
export interface Backend {
  /** What there is to show when the page begins, where it is known at once. */
  first?: View;
  /** Calls back with the present view, and with every later one. */
  view(callback: (view: View) => void): void;
  /** Asks for something. What does not work is an answer, too: this never rejects. */
  ask(ask: Ask): Promise<Answer>;
}
