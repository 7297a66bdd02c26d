//! The page's only door to the tray. Nothing else imports Tauri, so the page runs in any browser.

import { invoke, isTauri } from '@tauri-apps/api/core';
import { listen } from '@tauri-apps/api/event';
import type { Answer, Ask, View } from '../protocol/protocol';
import type { Backend } from './backend';

/** Whether the page stands in the tray's window. */
export const inTray = isTauri;

declare global {
  interface Window {
    /** The tray puts it there before the page begins, so that its first picture is whole. */
    stablehandView?: View;
  }
}

const ask = (ask: Ask): Promise<Answer> =>
  invoke<Answer>('ask', { ask }).catch((error: unknown) => ({
    answer: 'failed',
    failure: { code: 'tray-unreachable', message: String(error), hint: '' },
  }));

export const tray: Backend = {
  ...(window.stablehandView && { first: window.stablehandView }),
  view(callback) {
    // Listening first: a view that comes between the two is not lost.
    void listen<View>('view', (event) => callback(event.payload)).then(async () => {
      const answer = await ask({ what: 'view' });
      if (answer.answer === 'view') callback(answer.view);
    });
  },
  ask,
};
