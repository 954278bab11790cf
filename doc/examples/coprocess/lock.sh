. ./client.sh
zke_open "$1"
for turn in 1 2 3 4 5; do
  zke_run lock printer --wait 10 || exit
  token=$(zke_get token)
  echo "$2 has it, token $token"
  echo "$2 gives it back"
  zke_run release printer --token "$token"
done
zke_close
