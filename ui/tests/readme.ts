import { open, test, whole } from './opened';

const FOLDER = `${import.meta.dirname}/../../docs/pictures`;

for (const [name, state, language, colorScheme] of [
  ['popover-light', 'prefill', 'en', 'light'],
  ['popover-stall-dark', 'hung', 'en', 'dark'],
  ['popover-korean', 'generating', 'ko', 'light'],
  ['first-run', 'absent', 'en', 'light'],
  ['popover-upgrade', 'new-version', 'en', 'light'],
  ['popover-queue', 'gateway', 'en', 'dark'],
] as const) {
  test(`draws ${name}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme });
    await open(page, state, language);
    await whole(page);
    await page.screenshot({ path: `${FOLDER}/${name}.png`, animations: 'disabled' });
  });
}
