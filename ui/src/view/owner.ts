//! Who starts Ollama here, for a person who sets Stablehand up.

import type { FoundOwner } from '../protocol/protocol';
import type { Speech } from '../speech';
import { fact, reason } from './known';

export function ownerFound(found: FoundOwner, speech: Speech): string {
  const word = fact(found.owner);
  if (word === undefined) return speech.say('first.owner.unknown', { why: reason(found.owner) });
  const owner = speech.known(`owner.${word}`, word);
  if (found.name === null) return speech.say('first.owner', { owner });
  return speech.say('first.owner.named', { owner, name: found.name });
}
