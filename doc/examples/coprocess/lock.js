const Zke = require('./client.js')
const [file, name] = process.argv.slice(2)

async function main() {
  const zke = new Zke(file)
  for (let turn = 0; turn < 5; turn++)
    await zke.lock('printer', async token => {
      console.log(`${name} has it, token ${token}`)
      console.log(`${name} gives it back`)
    })
  zke.end()
}
main()
