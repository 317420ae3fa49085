module github.com/carillon-scheduler/carillon/loadtest/wheelbench

go 1.26.7

require (
	github.com/carillon-scheduler/carillon v0.0.0
	github.com/google/btree v1.1.3
)

replace github.com/carillon-scheduler/carillon => ../..
