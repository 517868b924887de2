// Command porcupine reads a history of requests to a server, one JSON object a line, and says whether it is linearizable.
//
//	{"client":3,"op":"set","key":"r0","value":"17","call":1200,"return":1850}
//
// op is get, set or incr. value is what a set was given, and what a get or an incr was answered; a get without one found no
// key. call and return are nanoseconds of one clock; an operation without a return was never answered: it may have
// happened at any time after its call, or never.
//
// Its one word says how many seconds a key may take. Exits with 0 if the history is legal, 1 if not, 2 if it is no history, and 3 if there was not enough time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Client int     `json:"client"`
	Op     string  `json:"op"`
	Key    string  `json:"key"`
	Value  *string `json:"value"`
	Call   int64   `json:"call"`
	Return *int64  `json:"return"`
}

// A key's value is a text, the empty one if there is no key. Operations are their own inputs and outputs.
var model = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		now, op := state.(string), input.(operation)
		switch op.Op {
		case "get":
			return op.text() == now, now
		case "set":
			return true, op.text()
		default:
			// No key counts as 0, as the error of Atoi does.
			number, _ := strconv.Atoi(now)
			next := strconv.Itoa(number + 1)
			return op.Return == nil || op.text() == next, next
		}
	},
}

func (op operation) text() string {
	if op.Value == nil {
		return ""
	}
	return *op.Value
}

// read returns the operations of each key. Reads without an answer say nothing and are left out.
func read(lines io.Reader) (map[string][]porcupine.Operation, error) {
	keys := make(map[string][]porcupine.Operation)
	decoder := json.NewDecoder(bufio.NewReader(lines))
	for {
		var op operation
		if err := decoder.Decode(&op); err == io.EOF {
			for key, operations := range keys {
				keys[key] = bound(operations)
			}
			return keys, nil
		} else if err != nil {
			return nil, err
		}
		if op.Op != "get" && op.Op != "set" && op.Op != "incr" {
			return nil, fmt.Errorf("there is no operation %q", op.Op)
		}
		end := int64(math.MaxInt64)
		if op.Return != nil {
			end = *op.Return
		} else if op.Op == "get" {
			continue
		}
		keys[op.Key] = append(keys[op.Key], porcupine.Operation{
			ClientId: op.Client, Input: op, Call: op.Call, Return: end,
		})
	}
}

// bound says of sets without an answer when they happened at the latest, and leaves out those that nobody has seen, which changes
// no verdict: where each value is set once, a set happened before the first answer that shows its value, and one whose value no
// answer shows may as well have happened at the end, or never. Without that the time that a check takes doubles with each of them.
func bound(operations []porcupine.Operation) []porcupine.Operation {
	sets, shown := make(map[string]int), make(map[string]int64)
	for _, one := range operations {
		switch op := one.Input.(operation); op.Op {
		case "set":
			sets[op.text()]++
		case "get":
			if end, known := shown[op.text()]; !known || one.Return < end {
				shown[op.text()] = one.Return
			}
		default:
			return operations
		}
	}
	bounded := operations[:0]
	for _, one := range operations {
		op := one.Input.(operation)
		if op.Op == "set" && op.Return == nil && sets[op.text()] == 1 {
			end, isShown := shown[op.text()]
			if !isShown {
				continue
			}
			// What is shown before it was asked for is wrong, whenever that ends.
			if end >= one.Call {
				one.Return = end
			}
		}
		bounded = append(bounded, one)
	}
	return bounded
}

// check prints what is wrong, and returns the code to exit with. Each key may take so long.
func check(keys map[string][]porcupine.Operation, timeout time.Duration) int {
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	code, count := 0, 0
	for _, name := range names {
		count += len(keys[name])
		switch porcupine.CheckOperationsTimeout(model, keys[name], timeout) {
		case porcupine.Ok:
		case porcupine.Illegal:
			fmt.Printf("illegal: key %s, %d operations\n", name, len(keys[name]))
			return 1
		default:
			fmt.Printf("undecided after %v: key %s, %d operations\n", timeout, name, len(keys[name]))
			code = 3
		}
	}
	if code == 0 {
		fmt.Printf("legal: %d operations on %d keys\n", count, len(keys))
	}
	return code
}

func main() {
	keys, err := read(os.Stdin)
	if err != nil {
		fmt.Println("no history:", err)
		os.Exit(2)
	}
	seconds, err := strconv.Atoi(strings.Join(os.Args[1:], " "))
	if err != nil {
		fmt.Println("no number of seconds:", err)
		os.Exit(2)
	}
	os.Exit(check(keys, time.Duration(seconds)*time.Second))
}
