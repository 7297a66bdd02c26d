import { expect, open, test } from './opened';

test('a stall: what, for how long, why, and the one button', async ({ page }) => {
  await open(page, 'hung');
  await expect(page.getByRole('main')).toMatchAriaSnapshot(`
    - main:
      - heading "gemma4:26b-mxfp8 has stopped moving" [level=1]
      - paragraph: /for 2m 2\\ds · 3 to 5 wait/
      - status: gemma4:26b-mxfp8 has stopped moving
      - region "What is wrong":
        - paragraph: Its decode loop stands still
        - list "Evidence":
          - listitem: /n_decoded 812 → 812 for 2m 21s of awake time, longest honest token 38s/
          - listitem: decode counter still
          - listitem: /CPU 23 %/
          - listitem: /slots busy/
        - button "End this runner"
        - group: Memory is critically short
        - group: 1 setting is not in force
      - region "Memory":
        - heading "Memory" [level=2]
        - term: Memory
        - definition: /62.6 of 64 GB/
        - term: Swap
        - definition: /11.4 GB/
        - term: GPU
        - definition: /45.9 of 48 GB/
        - figure:
          - img /Memory in use over the last hour/
  `);
});

test('the button ends the runner, and who pressed it by key goes on from the headline', async ({ page }) => {
  await open(page, 'hung');
  const button = page.getByRole('button', { name: 'End this runner' });
  for (let presses = 0; presses < 5 && !(await button.evaluate((one) => one === document.activeElement)); presses++)
    await page.keyboard.press('Tab');
  await expect(button).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Ollama is ready');
  await expect(page.getByRole('heading', { level: 1 })).toBeFocused();
  await expect(page.getByRole('status').filter({ hasText: 'Saved' })).toBeVisible();
});

test('a second press does not hit what came into the place of the first', async ({ page }) => {
  await open(page, 'hung');
  const box = await page.getByRole('button', { name: 'End this runner' }).boundingBox();
  if (!box) throw new Error('the button is not drawn');
  await page.mouse.dblclick(box.x + 20, box.y + box.height / 2);
  const next = page.getByRole('button', { name: 'Unload smollm:135m' }).first();
  await expect(next).toBeVisible();
  await next.click();
  await expect(page.getByText('smollm:135m').first()).toBeVisible();
  await page.clock.runFor(700);
  await next.click();
  await expect(page.getByRole('heading', { name: 'Models' })).toHaveCount(0);
});

test('seconds are counted, and not told aloud', async ({ page }) => {
  await open(page, 'hung');
  const status = page.locator('.now').getByRole('status');
  const lasts = page.locator('.now').getByRole('paragraph').first();
  const told = await status.innerText();
  const before = await lasts.innerText();
  await page.clock.runFor(20_000);
  await expect(lasts).not.toHaveText(before);
  await expect(status).toHaveText(told);
});

test('a preset by the arrow keys, its changes, saved without a restart', async ({ page }) => {
  await open(page, 'prefill');
  await page.getByRole('radio', { name: 'Serial' }).focus();
  await page.keyboard.press('ArrowRight');
  await expect(page.getByRole('radio', { name: 'Ollama defaults' })).toBeChecked();
  await page.clock.runFor(500);
  const changes = page.getByRole('group', { name: 'What would change' });
  await expect(changes.getByRole('listitem')).toHaveText([
    'OLLAMA_MAX_LOADED_MODELS: 1 → unset',
    'OLLAMA_MAX_QUEUE: 10 → unset',
    'OLLAMA_NUM_PARALLEL: 1 → unset',
  ]);
  await changes.getByRole('button', { name: 'Only save' }).click();
  await expect(page.getByText('Saved. Nothing was restarted.')).toBeVisible();
  await expect(changes).toHaveCount(0);
  await expect(page.getByRole('radio', { name: 'Ollama defaults' })).toBeChecked();
});

test('more requests at once show their memory, and a value that is refused its reason', async ({ page }) => {
  await open(page, 'prefill');
  const field = page.getByLabel('Requests at once, per model', { exact: true });
  await field.fill('8');
  await page.clock.runFor(500);
  await expect(page.getByText('at most 55.8 GB')).toBeVisible();
  await expect(page.getByText('8 slots × 65,536 tokens')).toBeVisible();
  await field.fill('many');
  await page.clock.runFor(500);
  await expect(page.getByRole('alert').filter({ hasText: 'takes 1 to 64' })).toBeVisible();
  await expect(page.getByRole('button', { name: 'Save and restart Ollama' })).toHaveAttribute('aria-disabled', 'true');
  await field.fill('4');
  await page.clock.runFor(500);
  await page.getByRole('button', { name: 'Save and restart Ollama' }).click();
  await expect(page.getByText('Done. Every desired setting is proven.')).toBeVisible();
  await expect(page.getByRole('button', { name: 'About Requests at once, per model' })).toHaveAccessibleName(
    /in force: 4, proof: log, process/,
  );
});

test('the proof of a setting is one press away', async ({ page }) => {
  await open(page, 'prefill');
  const about = page.getByRole('button', { name: 'About Requests that may wait for a load' });
  await about.press('Enter');
  await expect(about).toHaveAttribute('aria-expanded', 'true');
  await expect(page.getByText('the server’s own log, ~/.ollama/logs/server.log at 09:12:04')).toBeVisible();
  await expect(page.getByText('it does not limit requests that wait for a model that is already loaded')).toBeVisible();
});

test('first run: what is written stands there before it is written', async ({ page }) => {
  await open(page, 'absent');
  await expect(page.getByRole('main')).toMatchAriaSnapshot(`
    - main:
      - heading "Keep your local models moving" [level=1]
      - region "What it does and writes, exactly":
        - list:
          - listitem: /make the folder/
          - listitem: /dev.stablehand.daemon.plist/
          - listitem: /launchctl bootstrap/
      - checkbox "Tell me when something is stuck Asks the system for the right to notify." [checked]
      - button "Set up Stablehand"
  `);
  await page.getByRole('button', { name: 'Set up Stablehand' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText(/Reading a prompt/);
});

test('a failure of the first run is told, and can be put away', async ({ page }) => {
  await open(page, 'absent-failed');
  await expect(page.getByRole('region', { name: 'What is wrong' })).toContainText('launchd answers 5');
  await page.getByRole('button', { name: 'Dismiss' }).click();
  await expect(page.getByRole('region', { name: 'What is wrong' })).toHaveCount(0);
  await expect(page.getByRole('button', { name: 'Set up Stablehand' })).toBeVisible();
});

test('an upgrade: notes and size, one press, its steps, and its end', async ({ page }) => {
  await open(page, 'new-version');
  const card = page.getByRole('region', { name: 'Ollama’s version' });
  await expect(card).toContainText('188 MB to download');
  const notes = card.getByRole('region', { name: 'What is new in 0.24.0' });
  await card.getByRole('button', { name: 'Show all notes' }).click();
  await expect(notes).toHaveAttribute('tabindex', '0');
  await expect(notes).toContainText('• Fixed a server that did not answer');
  await card.getByRole('button', { name: 'Upgrade' }).press('Enter');
  await expect(card.getByRole('heading', { name: 'Ollama’s version' })).toBeFocused();
  await expect(card.getByRole('status')).toHaveText('Upgrading to 0.24.0');
  await expect(card.getByRole('progressbar')).toHaveAttribute('aria-valuenow', '37');
  await expect(card).toContainText('71 of 190 MB');
  await expect(card.getByRole('button')).toHaveCount(0);
  await page.clock.runFor(2100);
  await expect(card).toContainText('Proving 0.24.0');
  await page.clock.runFor(1000);
  await expect(card.getByRole('status')).toHaveText('0.24.0 is in place and proved');
  await expect(card).toContainText('Up to date');
  await expect(card.getByRole('button', { name: 'Roll back to 0.22.1' })).toBeVisible();
});

test('a rollback is meant, read and confirmed, and pins', async ({ page }) => {
  await open(page, 'upgraded');
  const card = page.getByRole('region', { name: 'Ollama’s version' });
  // One of the kept ones needs another database in this scene, so that two things are asked.
  await card.getByRole('button', { name: 'Roll back to 0.22.1' }).click();
  const sure = card.getByRole('group', { name: 'Roll back to 0.22.1?' });
  await expect(sure.getByRole('heading')).toBeFocused();
  await expect(sure).toContainText('0.22.1 is put in place of 0.24.0 and proved');
  await sure.getByText('Step by step').click();
  await expect(sure.getByRole('listitem').first()).toContainText('stop Ollama');
  await sure.getByRole('button', { name: 'Cancel' }).click();
  await expect(sure).toHaveCount(0);
  await card.getByRole('button', { name: 'Roll back to 0.22.1' }).click();
  await sure.getByRole('button', { name: 'Roll back to 0.22.1' }).click();
  const aside = card.getByRole('group', { name: 'Set settings and chats aside?' });
  await expect(aside.getByRole('heading')).toBeFocused();
  await expect(aside).toContainText('no chat is removed');
  await aside.getByRole('button', { name: 'Set aside and roll back' }).click();
  await expect(card).toContainText('Going back to 0.22.1');
  await page.clock.runFor(3100);
  await expect(card).toContainText('Back on 0.22.1, and it is proved');
  await expect(card).toContainText('Stays on 0.22.1, though 0.24.0 is out');
  await card.getByRole('button', { name: 'Unpin' }).click();
  await expect(card.getByRole('button', { name: 'Upgrade' })).toBeVisible();
});

test('what is refused is told beside its button', async ({ page }) => {
  await open(page, 'by-hand');
  const card = page.getByRole('region', { name: 'Ollama’s version' });
  await card.getByRole('button', { name: 'How to upgrade' }).click();
  await expect(card.getByRole('alert')).toContainText('replace it the way it was made');
  await open(page, 'app-management');
  await card.getByRole('button', { name: 'Open App Management' }).click();
  await expect(card.getByRole('alert')).toBeEmpty();
});

test('whoever comes for the versions finds them first', async ({ page }) => {
  await open(page, 'came-for-versions');
  await expect(page.getByRole('heading', { name: 'Ollama’s version' })).toBeFocused();
  await expect(page.locator('.picture > section').first()).toHaveAttribute('aria-labelledby', 'versions');
  await page.getByRole('button', { name: 'Check now' }).click();
  await expect(page.getByText(/Up to date · checked 10:43/)).toBeVisible();
});

test('the gateway’s queue: who waits for what, one is dropped, one gets another lane, and it is paused', async ({ page }) => {
  await open(page, 'gateway');
  const queue = page.getByRole('region', { name: 'Queue' });
  await expect(queue.getByRole('listitem')).toHaveCount(5);
  await queue.getByRole('button', { name: '2 more' }).click();
  await expect(queue.getByRole('listitem')).toHaveCount(7);
  const drop = queue.getByRole('button', { name: 'Drop the request of bot-c for gemma4:26b-mxfp8' });
  await drop.click();
  await expect(drop).toHaveCount(0);
  // What has just moved up is not what the finger was on its way to.
  const next = queue.getByRole('button', { name: 'Drop the request of 봇-가' });
  await next.click();
  await expect(next).toBeVisible();
  await page.clock.runFor(500);
  await next.click();
  await expect(next).toHaveCount(0);
  const lane = queue.getByRole('combobox', { name: 'Lane of the request of nightly-index' });
  await expect(lane).toHaveValue('batch');
  await lane.selectOption('interactive');
  await expect(lane).toHaveValue('interactive');
  await queue.getByRole('button', { name: 'Pause' }).click();
  const wrong = page.getByRole('region', { name: 'What is wrong' });
  await expect(wrong).toContainText('The queue is paused');
  await wrong.getByRole('button', { name: 'Go on' }).click();
  await expect(wrong).toHaveCount(0);
});

test('the gateway is put in Ollama’s place after its plan was read, and beside it at once', async ({ page }) => {
  await open(page, 'prefill');
  await page.getByRole('button', { name: 'Settings' }).click();
  const takeover = page.getByRole('radio', { name: 'In Ollama’s place' });
  await takeover.check();
  const plan = page.getByRole('group', { name: 'What would be done' });
  await expect(plan.getByRole('heading')).toBeFocused();
  await expect(plan).toContainText('Ollama is restarted for it');
  await plan.getByRole('button', { name: 'Cancel' }).click();
  await expect(page.getByRole('radio', { name: 'Off' })).toBeChecked();
  await takeover.check();
  await plan.getByRole('button', { name: 'Go on' }).click();
  await expect(plan).toHaveCount(0);
  await expect(takeover).toBeChecked();
  await expect(page.getByText('Ollama behind it: http://127.0.0.1:11436')).toBeVisible();
  await page.getByRole('radio', { name: 'Off' }).check();
  await plan.getByRole('button', { name: 'Go on' }).click();
  // Beside it nobody is interrupted.
  await page.getByRole('radio', { name: 'Beside Ollama' }).check();
  await expect(page.getByText('http://127.0.0.1:11435')).toBeVisible();
  await page.getByRole('spinbutton', { name: 'Port' }).fill('11434');
  await page.getByRole('button', { name: 'Set', exact: true }).last().click();
  await expect(page.getByRole('alert').filter({ hasText: 'Ollama’s own port' })).toBeVisible();
});

test('the settings page: opened, changed and left by key', async ({ page }) => {
  await open(page, 'prefill');
  await page.getByRole('button', { name: 'Settings' }).press('Enter');
  await expect(page.getByRole('heading', { level: 1, name: 'Settings' })).toBeFocused();
  await page.getByRole('button', { name: 'Pause for 1 hour' }).press('Space');
  await expect(page.getByText(/Paused until 11:43\sAM/)).toBeVisible();
  await page.getByRole('button', { name: 'Resume' }).press('Space');
  await expect(page.getByText('Shown on the desktop')).toBeVisible();

  await page.getByLabel('From').fill('23:30');
  await page.getByRole('button', { name: 'Set', exact: true }).click();
  await expect(page.getByText('23:30–07:00')).toBeVisible();
  await page.getByRole('button', { name: 'Turn off' }).click();
  await expect(page.getByText('· none')).toBeVisible();

  await page.getByRole('radio', { name: 'End or unload that runner' }).check();
  await expect(page.getByRole('radio', { name: 'End or unload that runner' })).toBeChecked();
  await page.getByLabel('Beside the icon').selectOption('Memory in use');
  await page.getByLabel('Language').selectOption('한국어');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('설정');
  await expect(page.locator('html')).toHaveAttribute('lang', 'ko');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('heading', { level: 1 })).toHaveText(/프롬프트를 읽는 중/);
});

test('nothing is uninstalled before it was read and confirmed', async ({ page }) => {
  await open(page, 'prefill');
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByRole('button', { name: 'Uninstall…' }).click();
  await expect(page.getByRole('heading', { name: 'What would be taken away' })).toBeFocused();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(page.getByRole('button', { name: 'Uninstall Stablehand' })).toHaveCount(0);
  await page.getByRole('button', { name: 'Uninstall…' }).click();
  await page.getByRole('button', { name: 'Uninstall Stablehand' }).click();
  await expect(page.getByText('Everything of Stablehand’s was taken away.')).toBeVisible();
});

test('stopping asks once more, and a cancelled stop stops nothing', async ({ page }) => {
  await open(page, 'stop');
  await expect(page.getByRole('heading', { name: 'Stop Stablehand?' })).toBeFocused();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(page.getByRole('heading', { name: 'Stop Stablehand?' })).toHaveCount(0);
  await expect(page.getByRole('heading', { level: 1 })).toHaveText(/Reading a prompt/);
  await open(page, 'stop');
  await page.getByRole('button', { name: 'Stop Stablehand' }).click();
  await expect(page.getByRole('heading', { level: 1 })).toHaveText('Stablehand’s daemon is away');
});

test('the last picture of a daemon that is away cannot be pressed', async ({ page }) => {
  await open(page, 'reconnecting');
  await expect(page.locator('.picture')).toHaveAttribute('inert', '');
  await page.getByRole('button', { name: 'Start it again' }).click();
  await expect(page.locator('.picture')).not.toHaveAttribute('inert');
});

test('every stop of the Tab key can be seen', async ({ page }) => {
  await open(page, 'hung');
  const stops = new Set<string>();
  for (let presses = 0; presses < 60; presses++) {
    await page.keyboard.press('Tab');
    const stop = await page.evaluate(() => {
      const at = document.activeElement;
      if (!at || at === document.body) return undefined;
      const shown = at.matches('.presets input') ? (at.closest('label') ?? at) : at;
      const { outlineStyle, outlineWidth } = getComputedStyle(shown);
      return { what: at.outerHTML.slice(0, 60), outline: outlineStyle === 'none' ? 0 : parseFloat(outlineWidth) };
    });
    if (!stop) break;
    stops.add(stop.what);
    expect(stop.outline, stop.what).toBeGreaterThanOrEqual(2);
  }
  expect(stops.size).toBeGreaterThan(10);
});
