// lock FILE NAME holds a lock of the file for as long as a task takes.
//
// The package is mattn/go-sqlite3, Debian's golang-github-mattn-go-sqlite3-dev.
// ZKEMBED names the extension.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"

	"github.com/mattn/go-sqlite3"
)

func main() {
	sql.Register("zkembed", &sqlite3.SQLiteDriver{
		Extensions: []string{os.Getenv("ZKEMBED")},
	})
	db, err := sql.Open("zkembed", os.Args[1])
	check(err)
	// A session is one connection of the pool.
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	check(err)
	var token int64
	row := conn.QueryRowContext(ctx, "SELECT zke_lock(?)", os.Args[2])
	check(row.Scan(&token))
	// Begun after the lock, ended before its end.
	tx, err := conn.BeginTx(ctx, nil)
	check(err)
	_, err = tx.Exec("CREATE TABLE IF NOT EXISTS runs(token INTEGER PRIMARY KEY)")
	check(err)
	_, err = tx.Exec("INSERT INTO runs VALUES(?)", token)
	check(err)
	check(tx.Commit())
	var one int
	check(conn.QueryRowContext(ctx, "SELECT zke_unlock(?)", os.Args[2]).Scan(&one))
	check(conn.Close())
	check(db.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
