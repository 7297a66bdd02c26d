import { expect, open, test, whole } from './opened';

test.skip(process.platform !== 'linux', 'the pictures are drawn with the fonts of Linux');

for (const [state, language, colorScheme, width] of [
  ['prefill', 'en', 'light', 380],
  ['hung', 'en', 'dark', 380],
  ['hung', 'ko', 'light', 320],
  ['restart', 'ko', 'dark', 480],
  ['absent', 'en', 'light', 380],
  ['new-version', 'en', 'dark', 380],
  ['downloading', 'ko', 'light', 320],
  ['undone', 'en', 'light', 380],
  ['gateway', 'en', 'dark', 380],
  ['gateway-held', 'ko', 'light', 320],
] as const) {
  test(`${state} looks as it should: ${language}, ${colorScheme}, ${width} px`, async ({ page }) => {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 640 });
    await open(page, state, language);
    await whole(page);
    await expect(page).toHaveScreenshot(`${state}-${language}-${colorScheme}-${width}.png`);
  });
}

test('the settings page looks as it should', async ({ page }) => {
  await page.emulateMedia({ colorScheme: 'dark' });
  await open(page, 'prefill');
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByRole('button', { name: 'Uninstall…' }).click();
  await expect(page.getByRole('button', { name: 'Uninstall Stablehand' })).toBeVisible();
  await whole(page);
  await expect(page).toHaveScreenshot('settings-en-dark-380.png');
});

test('with the system’s own colours everything is still there', async ({ page }) => {
  await page.emulateMedia({ forcedColors: 'active', colorScheme: 'dark' });
  await open(page, 'hung');
  await expect(page).toHaveScreenshot('hung-en-forced-380.png');
});

test('with more contrast and less motion', async ({ page }) => {
  await page.emulateMedia({ contrast: 'more', reducedMotion: 'reduce' });
  await open(page, 'loading');
  await expect(page).toHaveScreenshot('loading-en-contrast-380.png');
});
