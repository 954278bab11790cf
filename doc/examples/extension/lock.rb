# lock.rb FILE NAME - hold a lock of the file for as long as a task takes
#
# Debian's package is ruby-sqlite3.  ZKEMBED names the extension.
require "sqlite3"

db = SQLite3::Database.new(ARGV[0])
db.enable_load_extension(true)
db.load_extension(ENV.fetch("ZKEMBED", "zkembed"))
db.enable_load_extension(false)

# A call holds up Ruby's other threads, and ^C, until it returns.  So the place
# in the line is taken at once, and waited in without a call.
token = nil
until (token = db.get_first_value("SELECT zke_lock_join(?)", [ARGV[1]]))
  db.get_first_value("SELECT zke_dispatch(100)")
end
begin
  db.transaction(:immediate) do # begun after the lock, ended before its end
    db.execute("CREATE TABLE IF NOT EXISTS runs(token INTEGER PRIMARY KEY)")
    db.execute("INSERT INTO runs VALUES(?)", [token])
  end
ensure
  db.get_first_value("SELECT zke_unlock(?)", [ARGV[1]])
end
db.close
