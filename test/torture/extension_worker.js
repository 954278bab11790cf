// extension_worker.js DRIVER NAME SEED DIRECTORY - the same as
// extension_worker.py, by the package for Node
'use strict'
const fs = require('fs')
const zkembed = require('zkembed')
const [driver, name, seed, directory] = process.argv.slice(2)
const history = fs.openSync(directory + '/history', 'a')
const note = (event, what) =>
  fs.writeSync(history,
    `${event} ${what} ${name} ${process.hrtime.bigint() / 1000000n}\n`)
const options = { ms: 2000 }
let pushed = 0

// A number below 1: the next of a sequence that follows from the seed.
let state = Number(seed) >>> 0
function chance () {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0
  return state / 2 ** 32
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const linger = () => sleep([0, 0, 1, 4][Math.floor(chance() * 4)])

async function doLock (z) {
  const token = await z.lock('torture', options)
  if (token === null) return
  note('H', token)
  const last = Number(await z.get('SELECT max(n) FROM work', []))
  await linger()
  await z.get('INSERT INTO work VALUES(?, CAST(? AS INTEGER)) RETURNING n',
    [last + 1, String(token)])
  note('L', token)
  await z.unlock('torture')
}

async function doPush (z) {
  const item = `${name}.${++pushed}`
  note('P', item)
  await z.push('torture', item)
  note('p', item)
}

async function doPop (z) {
  note('W', '-')
  const item = await z.pop('torture', options)
  if (item === null) return note('T', '-')
  note('C', item.data)
  await linger()
  if (chance() < 0.25) {
    note('r', item.data)
    await z.release(item)
    return
  }
  note('a', item.data)
  await z.ack(item)
  note('A', item.data)
}

async function main () {
  const parent = process.ppid
  const z = await zkembed.open(directory + '/torture.db', driver)
  const rounds = [doLock, doLock, doPush, doPop]
  while (!fs.existsSync(directory + '/stop') && process.ppid === parent) {
    await rounds[Math.floor(chance() * 4)](z)
  }
  await z.close()
}

main().catch(error => {
  note('E', String(error).replace(/\n/g, ' '))
  console.error(error)
  process.exit(1)
})
