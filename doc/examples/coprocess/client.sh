zke_open() { # FILE
  zke_id=0 zke_pipes=$(mktemp -d) && mkfifo "$zke_pipes/in" "$zke_pipes/out" || return
  zke "$1" --coprocess <"$zke_pipes/in" >"$zke_pipes/out" &
  exec 8>"$zke_pipes/in" 9<"$zke_pipes/out"; rm -r "$zke_pipes"
}

zke_send() { # WORD...: any bytes but NUL; behind -- there are no options
  zke_id=$((zke_id + 1)) zke_words= zke_all=
  for zke_word; do
    case $zke_all$zke_word in # an option goes as it is
      -*[!a-zA-Z0-9-]* | [!-]* | '') zke_quoted=$(printf %s "$zke_word" | base64 | tr -d '\n')
        zke_words="$zke_words,{\"base64\":\"$zke_quoted\"}" ;;
      *) zke_words="$zke_words,\"$zke_word\"" ;;
    esac
    [ "$zke_word" != -- ] || zke_all=+
  done
  echo "{\"id\":$zke_id,\"run\":[${zke_words#,}]}" >&8
}

zke_read() { # into zke_line; 1: an event, 0: the answer is in zke_status
  IFS= read -r zke_line <&9 || zke_line='{"id":0,"status":76}'
  zke_status=${zke_line#*\"status\":} zke_status=${zke_status%%[,\}]*}
  case $zke_line in *,\"event\":\{*) return 1 ;; esac
}

zke_run() { # WORD...: exit status as of the command
  zke_send "$@"; until zke_read; do :; done
  return "$zke_status"
}

zke_get() { printf '%s\n' "$zke_line" | sed -nE "/\"$1\":/{ # NAME: of the first row
    s/.*\"$1\":(\"(([^\"\\\\]|\\\\.)*)\"|([^\",}]*)).*/\2\4/
    s/\\\\([\"\\\\])/\1/g;p;}"; }

zke_close() { exec 8>&- 9<&-; wait; }
