import { defineConfig } from '@playwright/test';

const PORT = 4179;

export default defineConfig({
  testDir: 'tests',
  outputDir: 'test-results',
  fullyParallel: true,
  forbidOnly: true,
  retries: 0,
  timeout: 20_000,
  globalTimeout: 480_000,
  workers: 2,
  reporter: [['list']],
  // The same pictures everywhere: scripts/test-ui brings the fonts of tests/fonts.conf.
  snapshotPathTemplate: 'tests/pictures/{arg}{ext}',
  expect: { toHaveScreenshot: { maxDiffPixelRatio: 0.01, animations: 'disabled', caret: 'hide' } },
  use: {
    baseURL: `http://127.0.0.1:${PORT}`,
    timezoneId: 'UTC',
    locale: 'en-US',
    viewport: { width: 380, height: 640 },
    launchOptions: {
      executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
      // Chromium's sandbox refuses root, which is who tests in a container.
      args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
      env: { ...process.env, FONTCONFIG_FILE: `${import.meta.dirname}/tests/fonts.conf` } as Record<string, string>,
    },
  },
  projects: [
    { name: 'page', testMatch: '*.spec.ts' },
    // Draws docs/pictures anew; never part of a test run.
    { name: 'pictures', testMatch: 'readme.ts', use: { deviceScaleFactor: 1.5 } },
  ],
  webServer: {
    command: `exec node_modules/.bin/vite preview --port ${PORT} --strictPort`,
    url: `http://127.0.0.1:${PORT}`,
    reuseExistingServer: false,
  },
});
