const Zke = require('./client.js')
const zke = new Zke(process.argv[2])
const stop = new AbortController()

zke.run(['watch', '/config', '--follow'], {
  signal: stop.signal,
  tell: ({ event }) => {
    console.log(event)
    if (event === 'deleted') stop.abort()
  }
}).catch(error => error.code === 'CANCELLED' || console.error(error)).finally(() => zke.end())
