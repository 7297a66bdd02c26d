import { mount } from 'svelte';
import App from './App.svelte';
import type { Backend } from './backend/backend';
import { inTray, tray } from './backend/tauri';
import './page.css';
import { languageOf, learn } from './speech';

// Outside the tray, in a plain browser, the page plays a story by itself.
const backend: Backend = inTray() ? tray : (await import('./backend/demo')).demo(location.search);

// The page is drawn once it can speak.
const language = languageOf(backend.first?.choices.language, navigator.languages);
await learn(language);

mount(App, { target: document.body, props: { backend, first: language } });
