// bench.go - the scheduler's rows in Go: a goroutine is a process, a channel its mailbox.
// usage: go ROW WORKERS N [rpc]       prints RESULT ops=... seconds=... (see ../README.md)
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const mailbox = 1024

func pingPong(n int) int {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for v := range ping {
			pong <- v
		}
	}()
	for i := 0; i < n; i++ {
		ping <- i
		<-pong
	}
	close(ping)
	return n
}

func ring(n int) int {
	first, done := make(chan int, 1), make(chan bool)
	in := first
	for i := 0; i < 503; i++ {
		out := make(chan int, 1)
		if i == 502 {
			out = first
		}
		go func(in, out chan int) {
			for hops := range in {
				if hops == 0 {
					close(done)
				} else if hops > 0 {
					out <- hops - 1
				}
			}
		}(in, out)
		in = out
	}
	first <- n
	<-done
	return n
}

func counting(n int) int {
	numbers, total := make(chan int, mailbox), make(chan int)
	go func() {
		sum := 0
		for v := range numbers {
			sum += v
		}
		total <- sum
	}()
	for i := 0; i < n; i++ {
		numbers <- 1
	}
	close(numbers)
	return <-total
}

func forkJoinThroughput(n int) int {
	var wait sync.WaitGroup
	var workers [60]chan int
	for i := range workers {
		in := make(chan int, mailbox)
		workers[i] = in
		wait.Add(1)
		go func() {
			for k := 0; k < n/60; k++ {
				<-in
			}
			wait.Done()
		}()
	}
	for k := 0; k < n/60; k++ {
		for _, worker := range workers {
			worker <- k
		}
	}
	wait.Wait()
	return n / 60 * 60
}

func forkJoinCreate(n int) int {
	var wait sync.WaitGroup
	wait.Add(n)
	for i := 0; i < n; i++ {
		in := make(chan int, 1)
		go func() {
			<-in
			wait.Done()
		}()
		in <- 1
	}
	wait.Wait()
	return n
}

type bigMessage struct{ from chan bigMessage } // from nil: a pong

func big(n int) int {
	var wait sync.WaitGroup
	var all [120]chan bigMessage
	for i := range all {
		all[i] = make(chan bigMessage, 2*len(all))
	}
	wait.Add(len(all))
	for i := range all {
		go func(me chan bigMessage, draw int) {
			for k := 0; k < n/len(all); k++ {
				draw = draw * 16807 % 2147483647
				all[(draw>>8)%len(all)] <- bigMessage{me}
				for m := <-me; m.from != nil; m = <-me {
					m.from <- bigMessage{}
				}
			}
			wait.Done()
			for m := range me {
				m.from <- bigMessage{}
			}
		}(all[i], i*7919+1)
	}
	wait.Wait()
	for _, in := range all {
		close(in)
	}
	return n / len(all) * len(all)
}

type visitor struct {
	colour int
	other  chan int
}

func chameneos(n int) int {
	mall := make(chan visitor, 100)
	for i := 0; i < 100; i++ {
		go func(colour int) {
			me := make(chan int, 1)
			for {
				mall <- visitor{colour, me}
				other, more := <-me
				if !more {
					return
				}
				if other != colour {
					colour = 3 - colour - other
				}
			}
		}(i % 3)
	}
	for i := 0; i < n; i++ {
		a, b := <-mall, <-mall
		a.other <- b.colour
		b.other <- a.colour
	}
	for i := 0; i < 100; i++ {
		close((<-mall).other)
	}
	return n
}

func sky(parent chan int, number, size int) {
	if size == 1 {
		parent <- number
		return
	}
	children, sum := make(chan int, 10), 0
	for i := 0; i < 10; i++ {
		go sky(children, number+i*size/10, size/10)
	}
	for i := 0; i < 10; i++ {
		sum += <-children
	}
	parent <- sum
}

func skynet(n int) int {
	root := make(chan int)
	go sky(root, 0, n)
	if <-root != n*(n-1)/2 {
		panic("skynet: a wrong sum")
	}
	return n
}

func timers(n int) int {
	var wait sync.WaitGroup
	for i := 0; i < 1000; i++ {
		wait.Add(1)
		go func() {
			for k := 0; k < n/1000; k++ {
				timer := time.AfterFunc(time.Second, func() {})
				runtime.Gosched()
				timer.Stop()
			}
			wait.Done()
		}()
	}
	wait.Wait()
	return n / 1000 * 1000
}

// fair: 5,000 pairs play n round trips in all, beside hogs that never yield. The trips' p99 in us.
func fair(hogs, n int) (int, float64, float64) {
	begin := time.Now()
	var stop int32
	var wait sync.WaitGroup
	for i := 0; i < hogs; i++ {
		go func() {
			for atomic.LoadInt32(&stop) == 0 {
			}
		}()
	}
	trips := make([]float64, n/5000*5000)
	for i := 0; i < 5000; i++ {
		wait.Add(1)
		go func(mine []float64) {
			ping, pong := make(chan int), make(chan int)
			go func() {
				for v := range ping {
					pong <- v
				}
			}()
			for k := range mine {
				sent := time.Now()
				ping <- k
				<-pong
				mine[k] = time.Since(sent).Seconds() * 1e6
			}
			close(ping)
			wait.Done()
		}(trips[i*(n/5000) : (i+1)*(n/5000)])
	}
	wait.Wait()
	seconds := time.Since(begin).Seconds()
	atomic.StoreInt32(&stop, 1)
	sort.Float64s(trips)
	return len(trips), seconds, trips[len(trips)*99/100]
}

func resident() int {
	text, _ := os.ReadFile("/proc/self/statm")
	pages, _ := strconv.Atoi(strings.Fields(string(text))[1])
	return pages * os.Getpagesize()
}

func idleBytes(n int) float64 {
	all := make([]chan int, n)
	for i := range all {
		all[i] = nil // touches the table's pages
	}
	debug.FreeOSMemory()
	before := resident()
	for i := range all {
		in := make(chan int, 1)
		all[i] = in
		go func() { <-in }()
	}
	runtime.Gosched()
	time.Sleep(time.Second)
	bytes := float64(resident()-before) / float64(n)
	for _, in := range all {
		in <- 1
	}
	return bytes
}

var rows = map[string]func(int) int{
	"ping-pong": pingPong, "ring": ring, "counting": counting,
	"fork-join-throughput": forkJoinThroughput, "fork-join-create": forkJoinCreate, "big": big,
	"chameneos": chameneos, "skynet": skynet, "timers": timers,
	"one": one, "ping": ping, "random": random, "random-named": randomNamed, "fan-out": fanOut,
	"activate": activate,
}

var remotes = map[string]int{"remote-1": 1, "remote-64": 64, "remote-1024": 1024}

func main() {
	row := os.Args[1]
	workers, _ := strconv.Atoi(os.Args[2])
	n, _ := strconv.Atoi(os.Args[3])
	runtime.GOMAXPROCS(workers)
	switch row {
	case "idle-bytes":
		fmt.Printf("RESULT bytes=%f\n", idleBytes(n))
	case "serve":
		serve(len(os.Args) > 4)
	case "grain-bytes":
		grainBytes(n)
	case "fair", "hog":
		ops, seconds, p99 := fair(map[string]int{"hog": 1}[row], n)
		fmt.Printf("RESULT ops=%d seconds=%f p99_us=%f\n", ops, seconds, p99)
	default:
		if callers, isRemote := remotes[row]; isRemote {
			rows[row] = remote(callers, len(os.Args) > 4)
		}
		done := make(chan bool)
		go func() {
			rows[row](n) // warm
			begin := time.Now()
			ops := rows[row](n)
			fmt.Printf("RESULT ops=%d seconds=%f\n", ops, time.Since(begin).Seconds())
			close(done)
		}()
		<-done
	}
}
