//! How a test opens the page: in a scene of the demo, at a fixed moment, with everything that goes wrong collected.

import AxeBuilder from '@axe-core/playwright';
import { expect, test as base, type Page } from '@playwright/test';

export const MOMENT = new Date('2026-11-30T10:43:28Z');

export const test = base.extend<{ faults: string[] }>({
  faults: [
    async ({ page, baseURL }, use) => {
      const faults: string[] = [];
      page.on('console', (message) => {
        // A breach of the content policy is an error in the console.
        if (message.type() === 'error' || message.type() === 'warning') faults.push(message.text());
      });
      page.on('pageerror', (error) => faults.push(error.message));
      page.on('request', (request) => {
        if (!request.url().startsWith(`${baseURL}/`)) faults.push(`asked for ${request.url()}`);
      });
      await use(faults);
      expect(faults).toEqual([]);
    },
    { auto: true },
  ],
});

/** Opens a scene; time stands still until the test moves it with `page.clock`. */
export async function open(page: Page, state: string, language = 'en'): Promise<void> {
  await page.clock.install({ time: MOMENT });
  await page.clock.pauseAt(new Date(MOMENT.getTime() + 1000));
  await page.goto(`/?state=${state}&lang=${language}`);
  await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
  await expect(page.locator('html')).toHaveAttribute('lang', language);
  // What a change would cost is asked a moment after the page came.
  await page.clock.runFor(500);
}

/** What axe has against the page as it stands. */
export async function breaches(page: Page): Promise<string[]> {
  // It waits by the page's own clock.
  await page.clock.resume();
  const { violations } = await new AxeBuilder({ page }).analyze();
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 120)} ${node.failureSummary}`));
}

/** Makes the window as high as what is in it. */
export async function whole(page: Page): Promise<void> {
  const { width } = page.viewportSize() ?? { width: 380 };
  await page.setViewportSize({ width, height: 300 });
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.setViewportSize({ width, height });
}

export { expect };
