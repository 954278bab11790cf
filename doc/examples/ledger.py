"""ledger.py - a table that only the holder of a lock may write, from Python

    zke DATABASE lock ledger -- python3 ledger.py N

writes N rows into the table "ledger" of DATABASE, by Python's own sqlite3.  The
command zke makes DATABASE if it is not there.  One that a program has made
already is prepared once by `zke DATABASE init --host`.

zke gets the lock /locks/ledger, starts this program, and tells it the database
and the lock's fencing token in its environment.  Each row carries that token.
A trigger refuses a row whose token is not in office: a process that was stopped
and has lost the lock meanwhile writes nothing when it goes on, and ends with
status 1.

This program makes the trigger itself, to show how it works, and only for
INSERT.  `zke DATABASE fence ledger --lock ledger --column token` makes such
triggers for a table that is there, for INSERT and UPDATE; the program then
needs none of its own.

Python brings its own SQLite library.  That is why this is a process of its own:
two copies of SQLite in one process drop each other's locks on the file.
"""
import os
import sqlite3
import sys

TABLE = """
CREATE TABLE IF NOT EXISTS ledger(
  id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL,
  token INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS ledger_fence BEFORE INSERT ON ledger
WHEN NOT EXISTS(SELECT 1 FROM zke_tokens
                WHERE path = '/locks/ledger' AND token = NEW.token)
BEGIN
  SELECT RAISE(ABORT, 'fenced: this token is not in office');
END;
"""


def main():
    token = int(os.environ["ZKE_LOCK_TOKEN"])
    db = sqlite3.connect(os.environ["ZKE_DB"], timeout=60, isolation_level=None)
    # This connection makes no checkpoints.  zkembed's writers make them, while
    # they keep other writers out.
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.executescript(TABLE)
    for i in range(int(sys.argv[1])):
        try:
            db.execute("INSERT INTO ledger(what, token) VALUES(?, ?)",
                       (f"line {i}", token))
        except sqlite3.IntegrityError as error:
            sys.exit(f"ledger.py: {error}")
    db.close()


main()
