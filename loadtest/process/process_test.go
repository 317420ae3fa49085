package process

import (
	"io"
	"os/exec"
	"testing"
)

func TestAddresses(t *testing.T) {
	const text = "carillon dev is up\n  gRPC     127.0.0.1:39905\n  REST     http://127.0.0.1:39715/v1\n"
	if grpc, http := addresses(text); grpc != "127.0.0.1:39905" || http != "127.0.0.1:39715" {
		t.Errorf("addresses = %q, %q", grpc, http)
	}
	if _, http := addresses(text[:len(text)-6]); http != "" {
		t.Errorf("an incomplete line gave %q", http)
	}
	b := NewBanner(io.Discard)
	for _, c := range text + "and more\n" { // in the smallest pieces
		if _, err := io.WriteString(b, string(c)); err != nil {
			t.Fatal(err)
		}
	}
	<-b.Found()
	if grpc, http := b.Addresses(); grpc != "127.0.0.1:39905" || http != "127.0.0.1:39715" {
		t.Errorf("addresses = %q, %q", grpc, http)
	}
}

func TestAProcessThatEndsWell(t *testing.T) {
	p, err := Start("sleeper", exec.Command("sh", "-c", "trap 'exit 0' TERM; echo; sleep 60 & wait"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Gone() {
		t.Fatal("it is gone already")
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if !p.Gone() || p.Ending() == "exit status 0" {
		t.Errorf("after SIGKILL: %s", p.Ending())
	}
	if err := p.Stop(); err == nil {
		t.Error("stopping what has ended already is no success")
	}
	if p, err = Start("failure", exec.Command("sh", "-c", "exit 3")); err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	if p.Ending() != "exit status 3" {
		t.Errorf("it ended with %s", p.Ending())
	}
	if _, err := Start("nothing", exec.Command("/nonexistent")); err == nil {
		t.Error("a program that isn't there was started")
	}
}
