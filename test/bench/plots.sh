#!/bin/sh
# plots.sh - draw the figures of a run
#
#   plots.sh BENCH.JSON DIRECTORY
#
# One SVG for each question, by gnuplot.  bench.json has one figure a line,
# which awk parses.  A picture leaves out what was not measured; a picture with
# nothing in it is not drawn.
json=$1
out=$2
[ -r "$json" ] || { echo "no $json: make bench first" >&2; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

grep -q '"quick": "yes"' "$json" &&
  echo 'plots.sh: of a QUICK run, whose figures mean nothing' >&2

# Every figure as: name<tab>param<tab>subject<tab>p25<tab>median<tab>p75
awk '
  function value(name,   at, rest) {
    at = index($0, "\"" name "\": ")
    rest = substr($0, at + length(name) + 4)
    if (rest ~ /^"/) { rest = substr(rest, 2); sub(/".*/, "", rest) }
    else sub(/[,}].*/, "", rest)
    return rest
  }
  /^\{"part"/ {
    print value("name") "\t" value("param") "\t" value("subject") "\t" \
      value("p25") "\t" value("median") "\t" value("p75")
  }' "$json" >"$work/all"

# points NAME SUBJECT: param, median and quartiles, one line each
points() {
  awk -F '\t' -v name="$1" -v who="$2" '
    $1 == name && $3 == who { row[$2 + 0] = $2 " " $5 " " $4 " " $6 }
    END { for (param in row) print row[param] }' "$work/all" | sort -n
}

# subjects NAME: the subjects with such a figure, in the order of the run
subjects() {
  awk -F '\t' -v name="$1" '$1 == name && !seen[$3]++ { print $3 }' "$work/all"
}

# A subject keeps its colour in all pictures.
colour() {
  case $1 in
    zkembed) echo '#c0392b' ;;
    raw) echo '#2c3e50' ;;
    zookeeper) echo '#27ae60' ;;
    etcd) echo '#2980b9' ;;
    redis) echo '#8e44ad' ;;
    composed) echo '#c0392b' ;;
    sync-all) echo '#7f8c8d' ;;
    *) echo '#000000' ;;
  esac
}

# draw FILE: with the commands from its input, without invisible parts
draw() {
  gnuplot && sed -z -E -f test/bench/plots.sed "$work/$1.svg" >"$out/$1.svg"
}

# begin FILE TITLE WIDTH HEIGHT
begin() {
  cat <<END
set terminal svg size $3,$4 font 'sans-serif,12' background '#ffffff'
set output '$work/$1.svg'
set title '$2' font ',14'
set grid ytics lc '#dddddd'
set border 3 lc '#555555'
set tics nomirror
END
}

# params NAME: all its parameters for any subject, as tics
params() {
  awk -F '\t' -v name="$1" '$1 == name { print $2 + 0 }' "$work/all" |
    sort -n | uniq | paste -s -d ,
}

# lines FILE TITLE XLABEL YLABEL NAME [flat]: the medians by parameter, with the
# quartiles as bars, of all subjects with more than one; both axes logarithmic,
# or y from 0 if the question is whether the line is flat
lines() {
  file=$1 title=$2 xlabel=$3 ylabel=$4 name=$5
  scale='set logscale xy'
  [ "$6" != flat ] || scale='set logscale x; set yrange [0:*]'
  tics=$(params "$name")
  plot=
  for who in $(subjects "$name"); do
    points "$name" "$who" >"$work/$file-$who"
    [ "$(wc -l <"$work/$file-$who")" -gt 1 ] || continue
    plot="$plot${plot:+, }'$work/$file-$who' using 1:2:3:4 with yerrorlines \
      title '$who' lw 2 pt 7 ps 0.6 lc rgb '$(colour "$who")'"
  done
  [ "$plot" ] || return 0
  {
    begin "$file" "$title" 800 480
    echo "$scale"
    echo 'set format y "%.0f"; set format x "%.0f"'
    echo "set xtics ($tics); set xrange [${tics%%,*} / 1.1:${tics##*,} * 1.1]"
    echo "set xlabel '$xlabel'; set ylabel '$ylabel'"
    echo 'set key outside right top'
    echo "plot $plot"
  } | draw "$file"
}

# bursts SUBJECT OFFSET NEAR READS: x, median, quartiles of a way's bars in one
# panel, at 1, 2, 3 for the bursts in order
bursts() {
  points "zoonet near $3 reads $4 clients 32, ratio" "$1" |
    awk -v offset="$2" '{ print NR + offset, $2, $3, $4 }'
}

# panels FILE TITLE: a panel for each share of the near service, and of reads;
# it shows the ways that keep the order, as ratios to never-sync
panels() {
  file=$1 drawn=
  {
    begin "$file" "" 960 560
    echo "set multiplot layout 2,3 title '$2' font ',14'"
    echo 'set yrange [0:1.3]; set ytics 0.2; set xrange [0.4:3.6]; set samples 2'
    echo 'set style fill solid 0.9; set bmargin 3.5; set key off'
    echo "set xtics ('1' 1, '25' 2, '50' 3)"
    for near in 80 50; do
      for reads in 100 90 50; do
        bursts composed -0.2 $near $reads >"$work/$file-$near-$reads-c"
        bursts sync-all 0.2 $near $reads >"$work/$file-$near-$reads-s"
        [ -s "$work/$file-$near-$reads-c" ] && drawn=yes
        echo "set title '$near % near, $reads % reads' font ',12'"
        echo "set xlabel 'burst'; unset ylabel"
        [ $reads != 100 ] || echo "set ylabel 'ratio to never a sync'"
        echo 'plot 1 lc rgb "#2c3e50" dt 2 notitle, \'
        for way in composed sync-all; do
          data=$work/$file-$near-$reads-$(echo $way | cut -c 1)
          echo "'$data' using 1:2:(0.36) with boxes title '$way' \
            lc rgb '$(colour $way)', '$data' using 1:3:(0):(\$4-\$3) \
            notitle with vectors nohead lc rgb '#333333'\
            $([ $way = composed ] && echo ', \')"
        done
        echo 'set key off'
      done
    done
    echo 'unset multiplot'
  } >"$work/$file.gp"
  [ -z "$drawn" ] || draw "$file" <"$work/$file.gp"
}

lines get 'get in a growing tree' znodes µs get flat
lines mixed '90 % get, 10 % durable set' processes 'operations a second' \
  '90 % get, 10 % durable set'
panels composition 'Throughput with a common order (red), and with a sync before each read (grey); 32 clients'
ls "$out"
