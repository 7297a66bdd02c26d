// What JavaScript's official client asks through the gateway, and what has to come back.

import assert from 'node:assert/strict'
import { createRequire } from 'node:module'

const [folder, host, model] = process.argv.slice(2)
const { Ollama } = createRequire(`${folder}/`)('ollama')
const client = new Ollama({ host })
const messages = [{ role: 'user', content: 'Count from one to five.' }]
const options = { num_predict: 12 }

const { models } = await client.list()
assert.ok(models.some((one) => one.model === model))

const answer = await client.chat({ model, messages, options })
assert.ok(answer.done && answer.message.content)

let pieces = 0
for await (const piece of await client.chat({ model, messages, options, stream: true })) {
    pieces += 1
    assert.equal(piece.model, model)
}
assert.ok(pieces > 1)

await assert.rejects(client.chat({ model: 'no-such-model', messages }), { status_code: 404 })

// Given up in the middle, its permit is free for the next.
const endless = await client.chat({ model, messages, options: { num_predict: 100_000 }, stream: true })
await assert.rejects(async () => {
    for await (const _ of endless) client.abort()
}, { name: 'AbortError' })
assert.ok((await client.generate({ model, prompt: 'Count.', options })).done)
