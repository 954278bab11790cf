. ./client.sh
zke_open "$1"
shift
for job; do zke_run queue push jobs -- "$job"; done
while [ $# = 0 ] && zke_run queue claim jobs --wait 10; do
  item=$(zke_get item) job=$(zke_get data)
  printf 'done: %s\n' "$job"
  zke_run queue ack jobs "$item"
  [ "$job" = enough ] && break
done
zke_close
