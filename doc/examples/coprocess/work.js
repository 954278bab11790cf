const Zke = require('./client.js')
const [file, ...jobs] = process.argv.slice(2)

async function work(zke) {
  for (let done = ''; done !== 'enough';) {
    const [job] = await zke.run(['queue', 'claim', 'jobs', '--wait', 10])
    console.log('done:', done = job.data)
    await zke.run(['queue', 'ack', 'jobs', job.item])
  }
}

async function main() {
  const zke = new Zke(file)
  if (jobs.length === 0) await work(zke)
  for (const job of jobs) await zke.run(['queue', 'push', 'jobs', { text: job }])
  zke.end()
}
main()
