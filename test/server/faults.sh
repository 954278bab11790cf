#!/bin/sh
# faults.sh - the Python example of doc/testing-recipes.md: kazoo's recipes
# under the faults of `zke serve --control`
. test/report.sh

scratch room faults
zke=$(cd "$BUILD" && pwd)/zke
cp doc/examples/faults/test_faults.py "$room"
awk '/^```$/ { out = 0 } out { print } /^```python$/ { out = 1 }' \
  doc/testing-recipes.md >"$room/shown"
cd "$room" || exit 1

need_kazoo

example_passes() {
  PATH=${zke%/*}:$PATH $limited $python -m pytest -q -p no:cacheprovider \
    -W error::pytest.PytestUnhandledThreadExceptionWarning .
}

shown_is_true() { [ -s shown ] && nothing grep -vxFf test_faults.py shown; }

expect "the document shows a part of the example" shown_is_true
expect "the example passes" example_passes
report
