// grains.go - grains' rows in Go: a grain is a goroutine, found through a map when it has a name.
package main

import (
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

type answer struct {
	number uint64
	name   string
}

type request struct {
	answer
	from chan answer
}

type grain chan request

func newGrain() grain {
	in := make(grain)
	go func() {
		for r := range in {
			r.from <- answer{r.number + 1, r.name}
		}
	}()
	return in
}

func (g grain) call(me chan answer, number uint64) {
	g <- request{answer{number, "small"}, me}
	if (<-me).number != number+1 {
		panic("a wrong answer")
	}
}

// The name table: whoever asks first makes the grain.
var names = map[uint64]grain{}
var namesLock sync.RWMutex

func named(key uint64) grain {
	namesLock.RLock()
	g, found := names[key]
	namesLock.RUnlock()
	if found {
		return g
	}
	namesLock.Lock()
	defer namesLock.Unlock()
	if g, found = names[key]; !found {
		g = newGrain()
		names[key] = g
	}
	return g
}

var known []grain

func makeKnown(n int) {
	for len(known) < n {
		known = append(known, named(uint64(len(known))))
	}
}

// So many callers at once, n calls in all.
func each(callers, n int, call func(caller, i int)) int {
	var wait sync.WaitGroup
	wait.Add(callers)
	for c := 0; c < callers; c++ {
		go func(c int) {
			for i := 0; i < n/callers; i++ {
				call(c, i)
			}
			wait.Done()
		}(c)
	}
	wait.Wait()
	return n / callers * callers
}

// The same with the target that which names.
func calling(callers, n int, which func(caller, i int) grain) int {
	mes := make([]chan answer, callers)
	for c := range mes {
		mes[c] = make(chan answer, 1)
	}
	return each(callers, n, func(c, i int) { which(c, i).call(mes[c], uint64(i)) })
}

func mixed(caller, i int) uint64 {
	x := uint64(caller)<<32 | uint64(i)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return (x ^ x>>31) % 100000
}

func one(n int) int {
	makeKnown(1)
	return calling(1, n, func(c, i int) grain { return known[0] })
}

func ping(n int) int {
	makeKnown(100)
	return calling(100, n, func(c, i int) grain { return known[c] })
}

func random(n int) int {
	makeKnown(100000)
	return calling(64, n, func(c, i int) grain { return known[mixed(c, i)] })
}

func randomNamed(n int) int {
	makeKnown(100000)
	return calling(64, n, func(c, i int) grain { return named(mixed(c, i)) })
}

func fanOut(n int) int {
	makeKnown(1000)
	me := make(chan answer, 1000)
	for done := 0; done < n; done += 1000 {
		for i, g := range known {
			g <- request{answer{uint64(i), "small"}, me}
		}
		for range known {
			<-me
		}
	}
	return (n + 999) / 1000 * 1000
}

func activate(n int) int {
	first := len(names)
	return calling(1, n, func(c, i int) grain { return named(uint64(first + i)) })
}

func grainBytes(n int) {
	activate(1000)
	debug.FreeOSMemory()
	before := resident()
	activate(n)
	time.Sleep(time.Second)
	fmt.Printf("RESULT bytes=%f\n", float64(resident()-before)/float64(n))
}
