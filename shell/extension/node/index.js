// Locks, queues and elections between processes, in one SQLite file.
//
//     const zkembed = require('zkembed')
//     const z = await zkembed.open('app.db')
//     await z.withLock('nightly', async token => { ... }, { ms: 5000 })
//
// A session has its own connection: by sqlite3, which runs calls in libuv's
// threads, or by better-sqlite3, in a worker.  So nothing here blocks the event
// loop.  Node cannot poll the session's descriptor, so a wait sleeps in
// zke_dispatch() for 100 ms at a time, and keeps its place in the line.  Other
// connections of the program can load the file `extension`.
//
// `ms` is how long to wait, `signal` an AbortSignal.  At the deadline, or once
// it is aborted, the result is null.  Errors have a code such as ZKE_NONODE.
'use strict'
const path = require('path')
const { Worker, isMainThread, parentPort, workerData } =
  require('worker_threads')
const extension = path.join(__dirname, 'zkembed.so')

class Session {
  // get(sql, values) promises the first column of the first row.
  constructor (get, end) {
    Object.assign(this, { get, end, sleep: null })
  }

  async run (name, values, as) {
    const marks = values.map(() => '?').join()
    try {
      return await this.get(`SELECT ${as(`zke_${name}(${marks})`)}`, values)
    } catch (error) {
      const is = /(ZKE_\w+): (.*)/s.exec(error.message)
      throw is ? Object.assign(new Error(is[0]), { code: is[1] }) : error
    }
  }

  // Call a function of the extension: call('get', '/app').
  call (name, ...values) { return this.run(name, values, is => is) }

  // A call with a 64-bit result, which a double cannot hold.
  async token (name, ...values) {
    const text = await this.run(name, values, is => `CAST(${is} AS TEXT)`)
    return text === null ? null : BigInt(text)
  }

  async wait (join, leave, { ms = Infinity, signal } = {}) {
    const until = Date.now() + ms
    let got = null
    try {
      while ((got = await join()) === null) {
        const left = until - Date.now()
        if (left <= 0 || (signal && signal.aborted)) break
        // All waits of this session sleep in one call.
        this.sleep ||= this.call('dispatch', Math.min(left, 100))
          .finally(() => { this.sleep = null })
        await this.sleep
      }
      return got
    } finally {
      if (got === null) await leave().catch(() => {})
    }
  }

  lock (name, options) {
    return this.wait(() => this.token('lock_join', name),
      () => this.unlock(name), options)
  }

  unlock (name) { return this.call('unlock', name) }

  async withLock (name, work, options) {
    const token = await this.lock(name, options)
    if (token === null) return null
    try {
      return await work(token)
    } finally {
      await this.unlock(name)
    }
  }

  elect (name, candidate, options) {
    return this.wait(() => this.token('elect_join', name, candidate),
      () => this.resign(name), options)
  }

  resign (name) { return this.call('resign', name) }

  push (queue, data) { return this.call('queue_push', queue, data) }

  // { number, data }, for ack() or release().
  async pop (queue, options) {
    const number = await this.wait(() => this.call('queue_join', queue),
      () => this.call('queue_leave', queue), options)
    if (number === null) return null
    const data = await this.call('queue_data', number)
    return { number, data: data && Buffer.from(data) }
  }

  ack (item) { return this.call('queue_ack', item.number) }
  release (item) { return this.call('queue_release', item.number) }
  close () { return this.end() }
}

// By the package sqlite3.
async function bySqlite3 (driver, file) {
  const promise = start => new Promise((resolve, reject) =>
    start((error, row) => error ? reject(error) : resolve(row)))
  let db
  await promise(done => { db = new driver.Database(file, done) })
  await promise(done => db.loadExtension(extension, done))
  const get = async (sql, values) =>
    Object.values(await promise(done => db.get(sql, values, done)))[0]
  return new Session(get, () => promise(done => db.close(done)))
}

// By better-sqlite3 in a worker, which answers calls in order.  After its end
// there is nobody to answer.
async function inWorker (driver, file) {
  const worker = new Worker(__filename, { workerData: { driver, file } })
  const calls = []
  let ended = null
  const settle = (error, value) => {
    const [resolve, reject] = calls.shift()
    error ? reject(new Error(error)) : resolve(value)
  }
  worker.on('message', ([error, value]) => settle(error, value))
  const end = why => {
    ended ||= why
    while (calls.length) settle(ended)
  }
  worker.on('error', error => end(error.message))
  worker.on('exit', () => end('the session is closed'))
  const get = (sql, values) => new Promise((resolve, reject) => {
    if (ended) return reject(new Error(ended))
    calls.push([resolve, reject])
    worker.postMessage([sql, values])
  })
  await get('SELECT zke_release_name()', [])
  return new Session(get, async () => {
    await get('SELECT zke_close()', [])
    await worker.terminate()
  })
}

function work ({ driver, file }) {
  let db
  try {
    db = new (require(driver))(file)
    db.loadExtension(extension)
  } catch (error) {
    throw new Error(error.message) // a SqliteError would arrive without it
  }
  parentPort.on('message', ([sql, values]) => {
    try {
      parentPort.postMessage([null, db.prepare(sql).pluck().get(...values)])
    } catch (error) {
      parentPort.postMessage([error.message])
    }
  })
}

// open(file [, driver]): the driver is 'sqlite3' or 'better-sqlite3'; without
// one, whichever is installed.
async function open (file, driver) {
  const paths = [process.cwd(), __dirname]
  for (const name of driver ? [driver] : ['sqlite3', 'better-sqlite3']) {
    let at
    try { at = require.resolve(name, { paths }) } catch { continue }
    const is = name === 'sqlite3'
    return is ? bySqlite3(require(at), file) : inWorker(at, file)
  }
  throw new Error('zkembed needs the package sqlite3 or better-sqlite3')
}

if (!isMainThread && workerData && workerData.driver) work(workerData)
module.exports = { open, extension, Session }
