package cockroach

// SessionStatements are what runs on every new connection to PostgreSQL.
func SessionStatements() []string { return postgres(minPostgres).session }

// DialectOf names what a server that answers to version() so is taken for.
func DialectOf(answer string) (name string, version int, err error) {
	d, err := dialectOf(answer)
	return d.name, d.version, err
}
