#!/bin/sh
# faults.sh - the complete examples of doc/testing-recipes.md: kazoo's recipes
# under the faults of `zke serve --control`
#
# What is tested is what the document shows.
. test/report.sh

scratch room faults
zke=$(cd "$BUILD" && pwd)/zke
awk '/^```/ { if (out) close(out); out = "" } out { print >out }
  /^```python [a-z_]+\.py$/ { out = "'"$room"'/" $2 }' doc/testing-recipes.md
cd "$room" || exit 1

need_kazoo

the_document_is_true() {
  PATH=${zke%/*}:$PATH $limited $python -m pytest -q -p no:cacheprovider \
    -W error::pytest.PytestUnhandledThreadExceptionWarning .
}

expect "the document has the example" [ -s test_faults.py ]
expect "the tests of doc/testing-recipes.md pass" the_document_is_true
report
