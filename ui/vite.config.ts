import { svelte } from '@sveltejs/vite-plugin-svelte';
import type { Plugin } from 'vite';
import { defineConfig } from 'vitest/config';

/** The page speaks before it is drawn: its words are read beside its script, not after it. */
const words: Plugin = {
  name: 'words',
  transformIndexHtml: {
    order: 'post',
    handler: (_, { bundle }) =>
      Object.values(bundle ?? {})
        .filter((file) => file.type === 'chunk' && file.facadeModuleId?.includes('/messages/'))
        .map((file) => ({ tag: 'link', attrs: { rel: 'modulepreload', href: `./${file.fileName}` }, injectTo: 'head' })),
  },
};

export default defineConfig({
  plugins: [svelte(), words],
  base: './',
  build: {
    target: 'safari16',
    // The popover's page is small; a data: URL or an inlined script would only weaken its content policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { host: '127.0.0.1' },
  preview: { host: '127.0.0.1' },
  test: { include: ['src/**/*.test.ts'] },
});
