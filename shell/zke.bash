# zke.bash - completion of zke's command lines, for bash
#
# `zke help` gives the commands, their verbs and options; `ls`, which changes
# nothing, gives the paths of znodes.

_zke_help() { zke :memory: --plain help "$@" 2>/dev/null; }

# The long options in the last column of `help COMMAND [VERB]`
_zke_options() {
  { _zke_help "$1" "$2" || _zke_help "$1" | head -n 1; } | cut -f 4 |
    grep -o '"name":"[^"]*"' | sed 's/"name":"/--/; s/"$//'
  printf '%s\n' --json --plain --human --help
}

# _zke_nodes FILE WORD: the paths below WORD's last slash
_zke_nodes() {
  local above=${2%/*}
  [[ ! -f $1 && $1 != zk://* ]] || timeout 5 zke "$1" ls "${above:-/}" 2>/dev/null |
    while IFS= read -r name; do printf '%s/%s\n' "$above" "$name"; done
}

# Sets file, command and verb from the words before the one at the cursor;
# fails after "--", since those words are another program's.
_zke_words() {
  local i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --) return 1 ;;
      --chroot | --auth | --identity | --timeout | --file | -f)
        [[ $command ]] || ((i++)) ;;
      -*) ;;
      *)
        if [[ ! $file ]]; then
          file=${COMP_WORDS[i]}
          # bash has split the name of an ensemble at ":" and "="
          while [[ ${COMP_WORDS[i + 1]} == [:=] ]] && ((i + 2 < COMP_CWORD)); do
            file+=${COMP_WORDS[i + 1]}${COMP_WORDS[i + 2]}
            ((i += 2))
          done
        elif [[ ! $command ]]; then
          command=${COMP_WORDS[i]}
        else
          verb=${verb:-${COMP_WORDS[i]}}
        fi ;;
    esac
  done
}

_zke() {
  local word=${COMP_WORDS[COMP_CWORD]} file= command= verb= IFS=$'\n'
  COMPREPLY=()
  if ! _zke_words; then
    compopt -o default
  elif [[ $word == -* && ! $command ]]; then
    COMPREPLY=($(compgen -W "$(zke --help | grep -o -e '--[a-z][a-z-]*')" -- "$word"))
  elif [[ ! $file ]]; then
    compopt -o default
  elif [[ ! $command ]]; then
    COMPREPLY=($(compgen -W "$(_zke_help | cut -f 1)" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(_zke_options "$command" "$verb")" -- "$word"))
  elif [[ $word == /* ]]; then
    compopt -o nospace
    COMPREPLY=($(compgen -W "$(_zke_nodes "$file" "$word")" -- "$word"))
  elif [[ ! $verb ]]; then
    COMPREPLY=($(compgen -W "$(_zke_help "$command" | cut -f 1 |
      sed -n "s/^$command //p")" -- "$word"))
    [[ ${COMPREPLY[0]} ]] || compopt -o default
  else
    compopt -o default
  fi
}

complete -F _zke zke
