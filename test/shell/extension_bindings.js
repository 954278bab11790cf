// Tests of the package for Node; `extension_bindings.sh` runs them.
'use strict'
const assert = require('assert')
const fs = require('fs')
const os = require('os')
const path = require('path')
const { spawn } = require('child_process')
const zkembed = require('zkembed')
const driver = process.argv[2]
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

// How many are in the line of the lock l.
async function line (z) {
  return Number(await z.get(
    "SELECT count(*) FROM zke_nodes WHERE path GLOB '/locks/l/*'", []))
}

async function waits (a, b) {
  const token = await a.lock('l')
  assert.strictEqual(typeof token, 'bigint')
  assert.strictEqual(await b.lock('l', { ms: 50 }), null)
  const abort = new AbortController()
  setTimeout(() => abort.abort(), 50)
  assert.strictEqual(await b.lock('l', { signal: abort.signal }), null)
  // Nothing is left in the line.
  assert.strictEqual(await line(a), 1)
  // The event loop continues, and one session waits for two things.
  let ticks = 0
  const ticker = setInterval(() => ticks++, 10)
  const both = Promise.all([b.lock('l'), b.pop('q')])
  await sleep(300)
  await a.push('q', 'x')
  await a.unlock('l')
  const [later, item] = await both
  clearInterval(ticker)
  assert(ticks > 5)
  assert(later > token)
  assert.strictEqual(String(item.data), 'x')
  await b.ack(item)
  await b.unlock('l')
}

async function offices (a, b) {
  await a.elect('e', 'ann')
  assert.strictEqual(await b.call('leader', 'e'), 'ann')
  assert.strictEqual(await b.elect('e', 'bob', { ms: 50 }), null)
  await assert.rejects(b.call('set', '/none', ''), { code: 'ZKE_NONODE' })
  await assert.rejects(a.withLock('w', () => { throw new Error('mine') }),
    { message: 'mine' })
  assert.strictEqual(await b.withLock('w', () => 7, { ms: 1000 }), 7)
}

// A waiting process gets the lock when its holder is killed; a waiter can exit.
async function processes (a, file) {
  const child = spawn(process.execPath, ['-e', `
    require('zkembed').open(process.argv[1], '${driver}').then(async z => {
      await z.lock('k')
      process.on('SIGTERM', () => process.exit(3))
      console.log('held')
      z.lock('waits').then(() => {})
    })`, file], { stdio: ['ignore', 'pipe', 'inherit'] })
  await a.lock('waits')
  await new Promise(resolve => child.stdout.once('data', resolve))
  assert.strictEqual(await a.lock('k', { ms: 0 }), null)
  const end = new Promise(resolve => child.once('exit', resolve))
  child.kill('SIGTERM')
  assert.strictEqual(await end, 3)
  assert(await a.lock('k', { ms: 30000 }))
}

// A session that could not begin, or has ended, answers with an error.
async function ends (a, file) {
  await assert.rejects(zkembed.open(file + '/none', driver))
  await a.lock('l')
  const z = await zkembed.open(file, driver)
  const waiter = assert.rejects(z.lock('l'))
  while (await line(a) < 2) await sleep(1)
  await z.close()
  await waiter
  await assert.rejects(z.call('get', '/a'))
  await a.unlock('l')
}

async function main () {
  const room = fs.mkdtempSync(path.join(os.tmpdir(), 'zkembed-'))
  const file = path.join(room, 'a.db')
  const [a, b] = [await zkembed.open(file, driver),
    await zkembed.open(file, driver)]
  try {
    await waits(a, b)
    await offices(a, b)
    await processes(a, file)
    await ends(a, file)
  } finally {
    await a.close()
    await b.close()
    fs.rmSync(room, { recursive: true })
  }
}

main().catch(error => { console.error(error); process.exit(1) })
