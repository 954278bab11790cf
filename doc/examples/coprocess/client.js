const { spawn } = require('node:child_process')
const { EventEmitter } = require('node:events')
const { createInterface } = require('node:readline')

module.exports = class Zke extends EventEmitter { // emits 'lost' with {kind, path}
  last = 0; requests = new Map()

  constructor(file, program = 'zke') {
    super()
    this.zke = spawn(program, [file, '--coprocess'], { stdio: ['pipe', 'pipe', 'inherit'] })
    createInterface({ input: this.zke.stdout }).on('line', line => this.hear(JSON.parse(line)))
    this.zke.on('close', () => this.requests.forEach(r => r.reject(new Error('zke has ended'))))
  }

  hear({ id, event, status, rows, error, message }) {
    const request = this.requests.get(id)
    if (event) return request ? request.tell?.(event) : this.emit('lost', event)
    this.requests.delete(id)
    const failure = error && Object.assign(new Error(message), { code: error, status })
    failure ? request?.reject(failure) : request?.resolve(rows)
  }

  run(words, { tell, signal, actor } = {}) { // a promise of rows
    const id = ++this.last, send = line => this.zke.stdin.write(JSON.stringify(line) + '\n')
    signal?.addEventListener('abort', () => send({ cancel: id }))
    send({ id, run: words, actor })
    return new Promise((resolve, reject) => this.requests.set(id, { resolve, reject, tell }))
  }

  async lock(name, work) {
    const [{ token }] = await this.run(['lock', name])
    try { return await work(token) } finally { await this.run(['release', name, '--token', token]) }
  }

  end() { this.zke.stdin.end() }
}
