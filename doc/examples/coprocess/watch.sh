. ./client.sh
zke_open "$1"
zke_send watch /config --follow
while ! zke_read; do
  zke_get event
  [ "$(zke_get event)" != deleted ] || break
done
zke_close
