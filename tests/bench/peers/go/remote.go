// remote.go - calls over TCP loopback in Go, to a second process: by frames of our own (length, id,
// number, name) over one connection that all callers share, or by net/rpc with `rpc`.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"strings"
)

type frame struct {
	id uint64
	answer
}

func (f frame) write(w *bufio.Writer) {
	var head [20]byte
	binary.LittleEndian.PutUint32(head[:], uint32(16+len(f.name)))
	binary.LittleEndian.PutUint64(head[4:], f.id)
	binary.LittleEndian.PutUint64(head[12:], f.number)
	w.Write(head[:])
	w.WriteString(f.name)
}

func read(r *bufio.Reader) (f frame, err error) {
	head, err := r.Peek(4)
	if err != nil {
		return
	}
	size := 4 + int(binary.LittleEndian.Uint32(head))
	text, err := r.Peek(size)
	if err != nil {
		return
	}
	f.id = binary.LittleEndian.Uint64(text[4:])
	f.number = binary.LittleEndian.Uint64(text[12:])
	f.name = string(text[20:])
	_, err = r.Discard(size)
	return
}

func serveFrames(c net.Conn) {
	r, w := bufio.NewReaderSize(c, 65536), bufio.NewWriterSize(c, 65536)
	for {
		f, err := read(r)
		if err != nil {
			return
		}
		f.number++
		f.write(w)
		if r.Buffered() == 0 {
			w.Flush()
		}
	}
}

func dialFrames(address string, callers int) func(caller int, number uint64) uint64 {
	c := dial(address)
	out := make(chan frame, callers)
	in := make([]chan answer, callers)
	for i := range in {
		in[i] = make(chan answer, 1)
	}
	go func() {
		w := bufio.NewWriterSize(c, 65536)
		for f := range out {
			f.write(w)
			if len(out) == 0 {
				w.Flush()
			}
		}
	}()
	go func() {
		r := bufio.NewReaderSize(c, 65536)
		for {
			f, err := read(r)
			if err != nil {
				panic(err)
			}
			in[f.id] <- f.answer
		}
	}()
	return func(caller int, number uint64) uint64 {
		out <- frame{uint64(caller), answer{number, "small"}}
		return (<-in[caller]).number
	}
}

type Small struct {
	Number uint64
	Name   string
}

type Echo struct{}

func (Echo) Call(in *Small, out *Small) error {
	*out = Small{in.Number + 1, in.Name}
	return nil
}

func dialRpc(address string) func(caller int, number uint64) uint64 {
	client := rpc.NewClient(dial(address))
	return func(caller int, number uint64) uint64 {
		var out Small
		if err := client.Call("Echo.Call", &Small{number, "small"}, &out); err != nil {
			panic(err)
		}
		return out.Number
	}
}

func dial(address string) net.Conn {
	c, err := net.Dial("tcp", address)
	if err != nil {
		panic(err)
	}
	return c
}

// The second process: answers until its standard input ends.
func serve(withRpc bool) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	rpc.Register(Echo{})
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				panic(err)
			}
			if withRpc {
				go rpc.ServeConn(c)
			} else {
				go serveFrames(c)
			}
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

var serverInput io.WriteCloser // its end ends the server

func remote(callers int, withRpc bool) func(n int) int {
	arguments := append([]string{"serve"}, os.Args[2:]...)
	server := exec.Command(os.Args[0], arguments...)
	serverInput, _ = server.StdinPipe()
	stdout, _ := server.StdoutPipe()
	if err := server.Start(); err != nil {
		panic(err)
	}
	address, _ := bufio.NewReader(stdout).ReadString('\n')
	address = strings.TrimSpace(address)
	call := dialFrames
	if withRpc {
		call = func(address string, _ int) func(int, uint64) uint64 { return dialRpc(address) }
	}
	callOf := call(address, callers)
	return func(n int) int {
		return each(callers, n, func(caller, i int) {
			if callOf(caller, uint64(i)) != uint64(i)+1 {
				panic("a wrong answer")
			}
		})
	}
}
