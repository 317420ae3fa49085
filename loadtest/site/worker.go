package site

// newWorker is a process of workers, which is told of all nodes.
func (s *Site) newWorker(number int) *Program {
	return &Program{Name: workerName(number), site: s, args: func() []string { return s.cfg.Worker(number, s.Addresses()) }}
}
