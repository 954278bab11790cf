package recipes

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

// server is a zke of one test.
type server struct {
	t       *testing.T
	address string
}

func serve(t *testing.T) server {
	command := exec.Command("zke", ":memory:", "serve", "--port", "0",
		"--print-port", "--control")
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	must(t, err)
	must(t, command.Start())
	t.Cleanup(func() {
		command.Process.Signal(os.Interrupt)
		command.Wait()
	})
	port, err := bufio.NewReader(output).ReadString('\n')
	must(t, err)
	return server{t, "127.0.0.1:" + strings.TrimSpace(port)}
}

func (s server) connect() (*zk.Conn, <-chan zk.Event) {
	conn, events, err := zk.Connect([]string{s.address}, 10*time.Second,
		zk.WithLogInfo(false))
	must(s.t, err)
	s.t.Cleanup(conn.Close)
	await(s.t, events, zk.StateHasSession)
	return conn, events
}

// order does what doc/testing-recipes.md has under "Asking for a fault".
func (s server) order(order string, values ...interface{}) string {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Post("http://"+s.address+"/control", "text/plain",
		strings.NewReader(fmt.Sprintf(order, values...)))
	must(s.t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must(s.t, err)
	if answer.StatusCode != http.StatusOK {
		s.t.Fatal(string(body))
	}
	return string(body)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await passes over the session's states up to this one.
func await(t *testing.T, events <-chan zk.Event, state zk.State) {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		select {
		case event := <-events:
			if event.State == state {
				return
			}
		case <-late:
			t.Fatal("not within 10 s: ", state)
		}
	}
}

func lock(conn *zk.Conn) *zk.Lock {
	return zk.NewLock(conn, "/lock", zk.WorldACL(zk.PermAll))
}

func children(t *testing.T, conn *zk.Conn) int {
	t.Helper()
	names, _, err := conn.Children("/lock")
	must(t, err)
	return len(names)
}

func TestLockKeepsOutTheOther(t *testing.T) {
	s := serve(t)
	one, _ := s.connect()
	other, _ := s.connect()
	mine, theirs := lock(one), lock(other)
	must(t, mine.Lock())

	s.order("hold-reply type=getData")
	locked := make(chan error)
	go func() { locked <- theirs.Lock() }()
	s.order("wait fault=1") // they ask for the node ahead of theirs
	s.order("release")
	select {
	case <-locked:
		t.Fatal("both have the lock")
	case <-time.After(100 * time.Millisecond):
	}
	must(t, mine.Unlock())
	must(t, <-locked)
}

func TestLockIsLostWithItsSession(t *testing.T) {
	s := serve(t)
	one, events := s.connect()
	other, _ := s.connect()
	mine := lock(one)
	must(t, mine.Lock())

	s.order("expire session=%d", one.SessionID())

	must(t, lock(other).Lock())
	await(t, events, zk.StateExpired)
	await(t, events, zk.StateHasSession) // a new one
	if err := mine.Unlock(); err != zk.ErrNoNode {
		t.Fatal("unlocked what was lost: ", err)
	}
}

func TestLostReplyLeavesOneNode(t *testing.T) {
	s := serve(t)
	conn, _ := s.connect()
	mine := lock(conn)
	must(t, mine.Lock())
	must(t, mine.Unlock())
	s.order("drop-after type=create path=/lock/*")

	must(t, mine.Lock())

	if report := s.order("wait fault=1"); !strings.Contains(report, `"fired":1`) {
		t.Fatal(report)
	}
	if count := children(t, conn); count != 1 {
		t.Fatal("nodes of one lock: ", count)
	}
}
