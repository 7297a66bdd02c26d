import { SCENES } from '../src/backend/demo';
import { breaches, expect, open, test } from './opened';

for (const state of Object.keys(SCENES)) {
  for (const [language, colorScheme, width] of [
    ['en', 'light', 320],
    ['ko', 'dark', 480],
  ] as const) {
    test(`${state} in ${language}, ${colorScheme}, ${width} px: accessible, and nothing sticks out`, async ({ page }) => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 640 });
      await open(page, state, language);
      await expect(page.locator('html')).toHaveAttribute('lang', language);
      expect(await breaches(page)).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
    });
  }
}

for (const colorScheme of ['light', 'dark'] as const) {
  test(`the settings page is accessible, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme });
    await open(page, 'prefill');
    await page.getByRole('button', { name: 'Settings' }).click();
    await page.getByRole('button', { name: 'Uninstall…' }).click();
    await expect(page.getByRole('button', { name: 'Uninstall Stablehand' })).toBeVisible();
    expect(await breaches(page)).toEqual([]);
  });

  test(`an opened page is accessible, ${colorScheme}`, async ({ page }) => {
    await page.emulateMedia({ colorScheme });
    await open(page, 'hung');
    for (const closed of await page.locator('summary').all()) await closed.click();
    await page.getByLabel('Requests at once, per model', { exact: true }).fill('8');
    await page.clock.runFor(500);
    await expect(page.getByText('more than the budget')).toBeVisible();
    for (const about of await page.getByRole('button', { name: /^About / }).all()) await about.click();
    expect(await breaches(page)).toEqual([]);
  });
}

test('what a stranger sent is text', async ({ page }) => {
  await open(page, 'hard');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('<script>alert(1)</script> has stopped moving');
  await expect(page.getByText('<b>bold</b>').first()).toBeVisible();
  await expect(page.locator('main b, main script')).toHaveCount(0);
  // 200 models and 300 clients are not drawn before somebody asks for them.
  expect(await page.locator('li').count()).toBeLessThan(40);
  await page.getByRole('button', { name: '194 more' }).click();
  await expect(page.locator('.model')).toHaveCount(200);
});

test('a snapshot that carries little leaves no empty place', async ({ page }) => {
  await open(page, 'bare');
  await expect(page.getByRole('main').getByRole('heading')).toHaveText(['Ollama is ready']);
  await expect(page.locator('section')).toHaveCount(0);
});

test('a simulated machine says so', async ({ page }) => {
  await open(page, 'simulated');
  await expect(page.getByText('SIMULATED')).toBeVisible();
  await open(page, 'prefill');
  await expect(page.getByText('SIMULATED')).toHaveCount(0);
});

test('without a state a story plays', async ({ page }) => {
  await page.clock.install();
  await page.goto('/');
  const heading = page.getByRole('heading', { level: 1 });
  await expect(heading).toHaveText('Ollama is ready');
  await page.clock.fastForward(6000);
  await expect(heading).toHaveText('Loading qwen3.6:35b-a3b-q4_K_M');
  await page.clock.fastForward(6000);
  await expect(heading).toHaveText(/Reading a prompt/);
});

test('the system’s language is spoken, where there is one', async ({ browser }) => {
  for (const [locale, title] of [
    ['ko-KR', 'Ollama가 준비되었습니다'],
    ['de-DE', 'Ollama is ready'],
  ] as const) {
    const context = await browser.newContext({ locale });
    const page = await context.newPage();
    await page.goto('/?state=idle');
    await expect(page.getByRole('heading', { level: 1 })).toHaveText(title);
    await context.close();
  }
});
